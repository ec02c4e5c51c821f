//! Heaps of invented targets, of which probes on their allocator tell. The allocator is a real file: the C library of this
//! process, or a static program.

use std::ops::Range;
use std::path::Path;

use linewise_recording::{Allocator, HeapBlock, HeapRun};

use super::*;
use crate::kernel::invented::Called;
use crate::kernel::{Machine, Processes};
use crate::target::function::ranges;

/// Two processes that run already.
const FIRST: u32 = TARGET + 1000;
const OTHER: u32 = TARGET + 2000;

/// Where functions are in the file of an allocator.
#[derive(Clone)]
struct Functions {
    path: String,
    malloc: Range<u64>,
    free: Range<u64>,
}

impl Functions {
    fn of(path: &str) -> Self {
        let path = path.to_owned();
        Self {
            malloc: function(&path, "malloc"),
            free: function(&path, "free"),
            path,
        }
    }
}

fn function(path: &str, name: &str) -> Range<u64> {
    let ranges = ranges(Path::new(path), name).unwrap();
    ranges[0].0..ranges[0].1
}

/// The C library of this process; `None`, with the reason said, if it is part of the program.
fn library() -> Option<Functions> {
    let maps = Machine.maps(std::process::id()).unwrap();
    let mut paths = maps.iter().map(|map| map.path.as_str());
    let found = paths.find(|path| path.contains("/libc.so"));
    if found.is_none() {
        println!("skipped: this program has no C library that is a file");
    }
    found.map(Functions::of)
}

/// A process that has the library, and another one.
fn running(library: &Functions) -> Invented {
    let kernel = kernel();
    let path = library.path.clone();
    kernel.with(|world| {
        world.make(FIRST, 1, "first").maps = vec![mapping(0x7f00_0000_0000, &path)];
        world.make(OTHER, 1, "other");
    });
    // Both compute: the budget is a part of their time.
    kernel.every((1..4000).map(|ms| 1000 * ms), |world, _| {
        for pid in [FIRST, OTHER] {
            if world.processes.contains_key(&pid) {
                world.works(pid, pid, 1_000_000);
            }
        }
    });
    kernel
}

fn attached(kernel: &Invented, pids: &[u32]) -> Recorded {
    record(kernel, |options| {
        options.common.target = Target::Attach(pids.to_vec());
        options.common.heap = HeapWhen::Auto;
        options.timer.overhead = 0.05;
    })
}

fn allocates(world: &mut World, library: &Functions, address: u64, size: u64) {
    let call = Called {
        arguments: [size, 0, 0],
        returned: address,
        ..Called::default()
    };
    world.called((FIRST, FIRST), &library.malloc, call);
}

fn frees(world: &mut World, library: &Functions, address: u64) {
    let call = Called {
        arguments: [address, 0, 0],
        ..Called::default()
    };
    world.called((FIRST, FIRST), &library.free, call);
}

fn heap_run(recorded: &Recorded) -> HeapRun {
    recorded.open().info().heap.clone().unwrap()
}

#[test]
fn blocks_of_a_running_process_are_told_by_probes_which_are_taken_away_at_the_end() {
    let Some(library) = library() else { return };
    let kernel = running(&library);
    let calloc = function(&library.path, "calloc");
    let realloc = function(&library.path, "realloc");
    let posix_memalign = function(&library.path, "posix_memalign");
    let of = library.clone();
    kernel.at(100_000, move |world| {
        let file = world.probes.values().map(|it| it.file.clone());
        assert_eq!(file.collect::<Vec<_>>(), [Path::new(&of.path)]);
        allocates(world, &of, 0x9000_0000, 64);
        // Of another process nothing is told.
        world.called((OTHER, OTHER), &of.malloc, Called::default());
        // One that failed.
        allocates(world, &of, 0, 1 << 60);
    });
    kernel.at(110_000, move |world| {
        let call = Called {
            arguments: [3, 16, 0],
            returned: 0x9000_1000,
            ..Called::default()
        };
        world.called((FIRST, FIRST), &calloc, call);
        let call = Called {
            arguments: [crate::kernel::invented::STACK_TOP, 4096, 100],
            returned: 0,
            above: 0x9000_2000,
        };
        world.called((FIRST, FIRST), &posix_memalign, call);
    });
    let of = library.clone();
    kernel.at(120_000, move |world| {
        let call = Called {
            arguments: [0x9000_1000, 80, 0],
            returned: 0x9000_3000,
            ..Called::default()
        };
        // What an allocator's function calls of its own is not told again.
        world.begins((FIRST, FIRST), &realloc, call);
        world.returns((FIRST, FIRST), &realloc, call);
        frees(world, &of, 0x9000_0000);
        // From before the probes.
        frees(world, &of, 0x8000_0000);
        frees(world, &of, 0);
    });
    kernel.at(200_000, |world| world.end(FIRST, Ended::Code(0)));
    kernel.at(250_000, |world| world.end(OTHER, Ended::Code(0)));
    let recorded = attached(&kernel, &[FIRST, OTHER]);
    let mut blocks: Vec<HeapBlock> = recorded.rows();
    blocks.sort_by_key(|block| block.address);
    let facts: Vec<_> = (blocks.iter())
        .map(|it| (it.address.0, it.size, it.allocator, it.freed.is_some()))
        .collect();
    let expected = [
        (0x9000_0000, 64, Allocator::Malloc, true),
        (0x9000_1000, 48, Allocator::Calloc, true),
        (0x9000_2000, 100, Allocator::Aligned, false),
        (0x9000_3000, 80, Allocator::Realloc, false),
    ];
    assert_eq!(facts, expected);
    assert!(
        blocks
            .iter()
            .all(|it| it.pid.0 == FIRST && it.weight == 1.0)
    );
    let probed = heap_run(&recorded).probed.unwrap();
    assert!(probed.share > 0.95 && probed.slices == 1, "{probed:?}");
    assert_eq!((probed.frees, probed.frees_of_unknown), (3, 1));
    let (unknown, detail) = recorded.loss("heap-blocks-unknown").unwrap();
    assert!(unknown == 1 && detail.contains("of 3 frees"), "{detail}");
    let (others, detail) = recorded.loss("heap-not-recorded").unwrap();
    assert!(others == 1 && detail.contains("alone"), "{detail}");
    assert!(kernel.with(|world| world.probes.is_empty()));
}

#[test]
fn probes_that_are_refused_are_told_with_what_to_try() {
    let Some(library) = library() else { return };
    let refused = |asked: Asked, denial: Denial| {
        let kernel = running(&library);
        kernel.with(|world| world.refusals.insert(asked, denial));
        kernel.at(100_000, |world| world.end(FIRST, Ended::Code(0)));
        let recorded = attached(&kernel, &[FIRST]);
        assert!(recorded.rows::<HeapBlock>().is_empty());
        let (count, detail) = recorded.loss("heap-not-recorded").unwrap();
        assert_eq!(count, 1);
        assert!(recorded.told.contains(&format!("warning {detail}")));
        assert!(kernel.with(|world| world.probes.is_empty()));
        detail
    };
    for (denial, remedy) in [
        (
            Denial::NotPermitted,
            "as root or with CAP_BPF and CAP_PERFMON",
        ),
        (Denial::Other, "they take Linux 6.6 or later"),
        (Denial::NoMemory, "see the kernel's log"),
    ] {
        let detail = refused(Asked::Prober, denial);
        assert!(detail.ends_with(remedy), "{detail}");
    }
    let detail = refused(Asked::FunctionProbe, Denial::NotPermitted);
    assert!(detail.contains("cannot be probed"), "{detail}");
    assert!(detail.contains(&library.path), "{detail}");
}

#[test]
fn a_program_that_allocates_often_is_probed_in_slices_within_the_budget() {
    let Some(library) = library() else { return };
    let kernel = running(&library);
    let of = library.clone();
    kernel.every((10..3000).map(|ms| 1000 * ms), move |world, number| {
        for block in 0..100 {
            allocates(world, &of, 0x9000_0000 + 64 * (100 * number + block), 64);
        }
    });
    kernel.at(3_000_000, |world| world.end(FIRST, Ended::Code(0)));
    let recorded = attached(&kernel, &[FIRST]);
    let run = heap_run(&recorded);
    let probed = run.probed.as_ref().unwrap();
    assert!(probed.slices > 2, "{probed:?}");
    assert!(probed.share > 0.0 && probed.share < 0.5, "{probed:?}");
    assert_eq!(kernel.with(|world| world.placings), probed.slices);
    // 0.35 of five hundredths of three seconds, and what is given in advance.
    assert!(run.spent_ns < 90_000_000, "{run:?}");
    let (_, detail) = recorded.loss("heap-blocks-unknown").unwrap();
    assert!(detail.contains("as the budget allows"), "{detail}");
}

/// So many blocks at the beginning that probes cost what is given in advance.
fn spends_the_advance(kernel: &Invented, library: &Functions) {
    let of = library.clone();
    kernel.every((10..40).map(|ms| 1000 * ms), move |world, number| {
        for block in 0..300 {
            allocates(world, &of, 0x9000_0000 + 64 * (300 * number + block), 64);
        }
    });
}

#[test]
fn a_target_that_dies_between_two_slices_is_probed_no_more() {
    let Some(library) = library() else { return };
    let kernel = running(&library);
    spends_the_advance(&kernel, &library);
    kernel.at(60_000, |world| {
        assert!(world.probes.is_empty(), "the advance is not spent");
        world.end(FIRST, Ended::Signal(9));
    });
    kernel.at(3_000_000, |world| world.end(OTHER, Ended::Code(0)));
    let recorded = attached(&kernel, &[FIRST, OTHER]);
    assert!(recorded.outcome.failure.is_none());
    assert_eq!(kernel.with(|world| world.placings), 1);
    assert!(!recorded.rows::<HeapBlock>().is_empty());
    assert_eq!(heap_run(&recorded).probed.unwrap().slices, 1);
    // That it ended is no failure of the probes.
    let (_, detail) = recorded.loss("heap-not-recorded").unwrap();
    assert!(detail.contains("alone"), "{detail}");
}

#[test]
fn probes_that_cannot_be_placed_again_are_told_at_the_end() {
    let Some(library) = library() else { return };
    let kernel = running(&library);
    spends_the_advance(&kernel, &library);
    kernel.at(60_000, |world| {
        let refusal = (Asked::FunctionProbe, Denial::NotPermitted);
        world.refusals.insert(refusal.0, refusal.1);
    });
    kernel.at(3_000_000, |world| world.end(FIRST, Ended::Code(0)));
    let recorded = attached(&kernel, &[FIRST]);
    let (_, detail) = recorded.loss("heap-not-recorded").unwrap();
    assert!(detail.contains("cannot be probed"), "{detail}");
    assert!(!recorded.rows::<HeapBlock>().is_empty());
}

#[test]
fn hits_that_are_lost_another_program_and_children_end_what_is_known() {
    let Some(library) = library() else { return };
    let kernel = running(&library);
    let of = library.clone();
    kernel.at(50_000, move |world| allocates(world, &of, 0x9000_0000, 64));
    kernel.at(100_000, |world| world.hits_lost = 7);
    let of = library.clone();
    kernel.at(200_000, move |world| allocates(world, &of, 0x9000_1000, 64));
    kernel.at(250_000, |world| world.exec(FIRST, "second"));
    let of = library.clone();
    kernel.at(300_000, move |world| {
        allocates(world, &of, 0x9000_2000, 64);
        world.fork(FIRST, FIRST + 1, FIRST + 1);
    });
    kernel.at(400_000, |world| world.end(FIRST + 1, Ended::Code(0)));
    kernel.at(400_000, |world| world.end(FIRST, Ended::Code(0)));
    let recorded = attached(&kernel, &[FIRST]);
    let (lost, detail) = recorded.loss("heap-events-lost").unwrap();
    assert!(lost == 7 && detail.contains("known no more"), "{detail}");
    let (children, _) = recorded.loss("heap-of-children-not-recorded").unwrap();
    assert_eq!(children, 1);
    let addresses: Vec<u64> = (recorded.rows::<HeapBlock>().iter())
        .map(|block| block.address.0)
        .collect();
    assert!(addresses.contains(&0x9000_2000), "{addresses:x?}");
}

/// A static program that allocates; `None`, with the reason said, where none can be built.
fn static_program(folder: &tempfile::TempDir) -> Option<Functions> {
    let source = folder.path().join("static.c");
    let program = folder.path().join("static");
    let text = "#include <stdlib.h>\nint main(int n, char **a) { free(malloc(n)); return a == 0; }";
    std::fs::write(&source, text).unwrap();
    let built = std::process::Command::new("gcc")
        .args(["-O1", "-fno-builtin", "-static", "-o"])
        .args([&program, &source])
        .output();
    if built.is_ok_and(|output| output.status.success()) {
        return Some(Functions::of(program.to_str().unwrap()));
    }
    println!("skipped: no static program can be built here");
    None
}

#[test]
fn a_static_program_is_probed_from_its_beginning_where_that_is_wanted_and_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = static_program(&folder) else {
        return;
    };
    let launched = |when: HeapWhen, denied: bool| {
        let kernel = kernel();
        if denied {
            let refusal = (Asked::Prober, Denial::NotPermitted);
            kernel.with(|world| world.refusals.insert(refusal.0, refusal.1));
        }
        let malloc = program.malloc.clone();
        kernel.at(20_000, move |world| {
            let call = Called {
                arguments: [40, 0, 0],
                returned: 0x9000_0000,
                ..Called::default()
            };
            world.called((TARGET, TARGET), &malloc, call);
        });
        ends(&kernel, 50, Ended::Code(0));
        record(&kernel, |options| {
            options.common.target = Target::Launch(vec![OsString::from(&program.path)]);
            options.common.heap = when;
        })
    };
    let recorded = launched(HeapWhen::Auto, false);
    let blocks: Vec<HeapBlock> = recorded.rows();
    assert_eq!(blocks.len(), 1);
    assert_eq!((blocks[0].address.0, blocks[0].size), (0x9000_0000, 40));
    assert!(recorded.loss("heap-not-recorded").is_none());
    assert!(recorded.loss("heap-blocks-unknown").is_none());

    let (_, detail) = launched(HeapWhen::Loaded, false)
        .loss("heap-not-recorded")
        .unwrap();
    assert!(detail.contains("is linked statically"), "{detail}");
    assert!(detail.contains("`--heap auto`"), "{detail}");

    let (_, detail) = launched(HeapWhen::Auto, true)
        .loss("heap-not-recorded")
        .unwrap();
    assert!(detail.contains("is linked statically"), "{detail}");
    assert!(detail.contains("CAP_BPF"), "{detail}");
}

#[test]
fn into_a_program_of_other_rights_nothing_is_loaded() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let kernel = kernel();
    ends(&kernel, 20, Ended::Code(0));
    let recorded = record(&kernel, |options| {
        options.common.target = Target::Launch(vec![program.clone().into_os_string()]);
        options.common.heap = HeapWhen::Auto;
    });
    let (_, detail) = recorded.loss("heap-not-recorded").unwrap();
    assert!(
        detail.contains("runs with other rights than yours"),
        "{detail}"
    );
    assert!(kernel.with(|world| world.placings) == 0);
}

#[test]
fn a_dynamic_program_gets_the_library_where_it_is_there() {
    let kernel = kernel();
    ends(&kernel, 50, Ended::Code(0));
    let recorded = record(&kernel, |options| {
        options.common.target = Target::Launch(vec!["/bin/true".into()]);
        options.common.heap = HeapWhen::Loaded;
    });
    // Where it is, nobody loads it into an invented target.
    let (_, detail) = recorded.loss("heap-not-recorded").unwrap();
    match recorded.open().info().heap.clone() {
        Some(run) => assert_eq!((run.processes, run.blocks), (0, 0), "{detail}"),
        None => assert!(detail.contains("liblinewise_preload.so"), "{detail}"),
    }
}
