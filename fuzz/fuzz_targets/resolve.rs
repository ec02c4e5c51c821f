//! ELF, DWARF and machine code: the input is a program, mapped as its own headers say. Every address
//! has a frame, every object is named or said to be unknown, and so is the type that code touches.
//! The same bytes are its split debug info and its package, and the file that dwz moved entries to.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linewise_analysis::resolve::{Callers, File, Files, Resolver, Store};
use linewise_recording::{Address, Map, MapKind, Pid, Tables, Time};

const PATH: &str = "/program";
const PID: Pid = Pid(7);
/// Where the program is in memory.
const BIAS: u64 = 0x5555_0000_0000;

struct OneFile<'a>(&'a [u8]);

impl Files for OneFile<'_> {
    fn open(&self, _pid: Pid, path: &str) -> Option<Box<dyn File>> {
        let beside = [".dwo", ".dwp", ".dwz"].iter().any(|end| path.ends_with(end));
        (path == PATH || beside).then(|| Box::new(self.0.to_vec()) as Box<dyn File>)
    }
}

fn number<const N: usize>(bytes: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(found) = bytes.get(offset..offset.saturating_add(N)) {
        word[..N].copy_from_slice(found);
    }
    u64::from_le_bytes(word)
}

/// The mappings that a loader would make, as far as the headers make sense.
fn maps(bytes: &[u8]) -> Vec<Map> {
    let (table, count) = (
        number::<8>(bytes, 32) as usize,
        number::<2>(bytes, 56) as usize,
    );
    (0..count.min(16))
        .map(|i| table.saturating_add(i * 56))
        .filter(|&at| number::<4>(bytes, at) == 1)
        .map(|at| {
            let flags = number::<4>(bytes, at.saturating_add(4));
            let offset = number::<8>(bytes, at.saturating_add(8));
            let address = number::<8>(bytes, at.saturating_add(16));
            let size = number::<8>(bytes, at.saturating_add(40));
            let start = (address & !4095).wrapping_add(BIAS);
            Map {
                pid: PID,
                time: Time(0),
                start: Address(start),
                end: Address(start.saturating_add(size).saturating_add(4096) & !4095),
                offset: offset & !4095,
                executable: flags & 1 != 0,
                writable: flags & 2 != 0,
                kind: MapKind::File,
                path: PATH.to_owned(),
                build_id: String::new(),
                device: None,
                inode: None,
            }
        })
        .collect()
}

fuzz_target!(|bytes: &[u8]| {
    let maps = maps(bytes);
    let files = OneFile(bytes);
    let store = Store::default();
    let mut resolver = Resolver::new(&maps, &[], &files, &store);
    let mut code = Vec::new();
    for map in &maps {
        for step in 0..32 {
            let length = map.end.0.saturating_sub(map.start.0);
            let address = Address(map.start.0.saturating_add(length / 32 * step));
            assert!(!resolver.frames(PID, address).is_empty());
            assert!(!resolver.caller_frames(PID, address).is_empty());
            let (object, _) = resolver.object(PID, address);
            let _ = resolver.fields_in(&object, Address(0), u64::MAX);
            code.push((PID, address));
        }
        // Where functions begin, in the seeds: every instruction of some.
        code.extend((0..64).map(|byte| (PID, Address(map.start.0.saturating_add(byte)))));
    }
    let asked = code.len();
    let tables = Tables::default();
    let rows = resolver
        .typed_accesses(code, &Callers::new(&tables))
        .accesses;
    assert_eq!(rows.len(), asked);
    assert!(rows.iter().all(|row| row.reason.is_some() || !row.type_name.is_empty() || row.size > 0));
});
