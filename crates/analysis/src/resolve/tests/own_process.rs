//! This very process: real mappings, a large binary with debug info, the real disk.

use std::sync::atomic::{AtomicU64, Ordering};

use linewise_recording::{Address, Map, MapKind, ObjectKind, Pid, Thread, Tid, Time};

use super::super::{DiskFiles, Resolver, Store};

struct Slot {
    hits: AtomicU64,
    misses: AtomicU64,
}

static SLOTS: [Slot; 4] = [const {
    Slot {
        hits: AtomicU64::new(0),
        misses: AtomicU64::new(0),
    }
}; 4];

#[inline(never)]
fn touch(slot: usize) -> u64 {
    SLOTS[slot].misses.load(Ordering::Relaxed) + SLOTS[slot].hits.fetch_add(1, Ordering::Relaxed)
}

/// The mappings of this process, as a collector would record them.
fn own_maps(pid: Pid) -> Vec<Map> {
    let text = std::fs::read_to_string("/proc/self/maps").expect("own mappings");
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let rights = words.next()?;
            let offset = words.next()?;
            let path = words.nth(2).unwrap_or("");
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some(Map {
                pid,
                time: Time(1),
                start: Address(number(start)?),
                end: Address(number(end)?),
                offset: number(offset)?,
                executable: rights.contains('x'),
                writable: rights.contains('w'),
                kind: match path {
                    "[heap]" => MapKind::Heap,
                    "[stack]" => MapKind::Stack,
                    "[vdso]" => MapKind::File,
                    _ if path.starts_with('/') => MapKind::File,
                    _ => MapKind::Anonymous,
                },
                path: path.to_owned(),
                build_id: String::new(),
                device: None,
                inode: None,
            })
        })
        .collect()
}

#[test]
fn this_process_knows_its_own_names() {
    assert_eq!(touch(1), 0);
    let pid = Pid(std::process::id());
    let maps = own_maps(pid);
    let here = 0_u8;
    let here = Address(&raw const here as u64);
    let stack = maps
        .iter()
        .find(|map| map.start <= here && here < map.end)
        .expect("a stack");
    let thread = Thread {
        pid,
        tid: Tid(7),
        name: "tester".to_owned(),
        start: Time(0),
        end: Time(2),
        cpu_time_ns: 0,
        stack_low: stack.start,
        stack_high: stack.end,
    };
    let files = DiskFiles::default();
    let store = Store::default();
    let mut resolver = Resolver::new(&maps, &[thread], &files, &store);

    let frames = resolver.frames(pid, Address(touch as fn(usize) -> u64 as usize as u64));
    let last = frames.last().expect("a frame");
    assert!(last.function.ends_with("touch"), "{frames:?}");
    assert!(
        last.file.ends_with("own_process.rs") && last.line > 0,
        "{frames:?}"
    );

    let hits = Address(&raw const SLOTS[2].hits as u64);
    let (object, _) = resolver.object(pid, hits);
    assert_eq!(object.kind, ObjectKind::Static);
    assert!(object.name.ends_with("own_process::SLOTS"), "{object:?}");
    assert_eq!(
        (object.address.0, object.size),
        (&raw const SLOTS as u64, 64)
    );

    let (object, _) = resolver.object(pid, here);
    assert_eq!(
        (object.kind, object.name.as_str()),
        (ObjectKind::Stack, "stack of tester (7)")
    );

    if let Some(vdso) = maps.iter().find(|map| map.path == "[vdso]") {
        let names: std::collections::BTreeSet<String> = (vdso.start.0..vdso.end.0)
            .step_by(64)
            .flat_map(|address| resolver.frames(pid, Address(address)))
            .map(|frame| frame.function)
            .collect();
        assert!(
            names.iter().any(|name| name.contains("clock_gettime")),
            "{names:?}"
        );
    }
}
