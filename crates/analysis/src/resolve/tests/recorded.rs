//! Whole recordings: which rows come out for which rows that go in.

use linewise_recording::{
    Address, AddressOrigin, CpuId, ObjectKind, Operation, Sample, SampleClass, Stack, StackId,
    Tables, Tid, Time, Trap, Watch, WatchOutcome,
};

use super::super::{Callers, Resolved, Resolver, SourceFrames, Store, resolve_recording};
use super::{PID, build};

const SOURCE: &str = r"
_Alignas(64) struct { long left, right; } pair;
_Alignas(64) long one;
long two;
__attribute__((noinline)) void worker(void) { pair.left++; }
int main(void) { worker(); return (int)(pair.right + one + two); }
";

pub(super) fn sample(address: Address, ip: Address, stack: StackId, weight: u64) -> Sample {
    Sample {
        time: Time(5),
        pid: PID,
        tid: Tid(101),
        cpu: CpuId(0),
        ip,
        sp: Address(0),
        stack,
        weight,
        class: SampleClass::Access,
        access_ip: ip,
        address,
        size: 8,
        operation: Some(Operation::Update),
        locked: false,
        origin: Some(AddressOrigin::Registers),
        reason: None,
    }
}

#[test]
fn every_code_address_has_frames_and_every_hot_line_its_objects() {
    let Some(program) = build("gcc", &["-g", "-O1"], ("program.c", SOURCE)) else {
        return;
    };
    let worker = program.address("worker");
    let main = program.address("main");
    let tables = Tables {
        maps: program.maps.clone(),
        samples: vec![
            sample(program.address("pair"), worker, StackId(1), 10),
            sample(program.address("two"), worker, StackId(1), 10),
        ],
        stacks: vec![Stack {
            id: StackId(1),
            frames: vec![worker, Address(main.0 + 5)],
        }],
        ..Tables::default()
    };
    let Resolved {
        frames,
        objects,
        fields,
        ..
    } = resolve_recording(&tables, 64, &program.files);

    let functions: Vec<_> = frames
        .iter()
        .map(|frame| (frame.address, frame.function.as_str()))
        .collect();
    assert!(functions.contains(&(worker, "worker")), "{functions:?}");
    assert!(
        functions.contains(&(Address(main.0 + 5), "main")),
        "{functions:?}"
    );

    let mut names: Vec<_> = objects.iter().map(|object| object.name.as_str()).collect();
    names.sort_unstable();
    assert!(
        names.contains(&"pair") && names.contains(&"two"),
        "{names:?}"
    );
    // Nobody touched it, but it shares the line of `two` where the linker put them together.
    let (one, two) = (program.address("one"), program.address("two"));
    assert_eq!(
        names.contains(&"one"),
        one.line(64) == two.line(64),
        "{names:?}"
    );
    assert!(
        objects
            .iter()
            .all(|object| object.kind == ObjectKind::Static),
        "{objects:?}"
    );
    let paths: Vec<_> = fields.iter().map(|field| field.path.as_str()).collect();
    for path in ["pair.left", "pair.right", "two"] {
        assert!(paths.contains(&path), "{path}: {paths:?}");
    }
}

#[test]
fn a_call_stands_beside_the_instruction_that_it_returns_to() {
    // Functions that lie side by side.
    let Some(program) = build("gcc", &["-g", "-O1"], ("program.c", SOURCE)) else {
        return;
    };
    let worker = program.address("worker");
    let main = program.address("main");
    let [pair, two] = ["pair", "two"].map(|name| program.address(name));
    let inside = |function: &str, samples: Vec<Sample>| {
        let tables = Tables {
            maps: program.maps.clone(),
            samples,
            // As if the last instruction of `worker` had called.
            stacks: vec![Stack {
                id: StackId(1),
                frames: vec![worker, main],
            }],
            ..Tables::default()
        };
        let resolved = resolve_recording(&tables, 64, &program.files);
        let frames = SourceFrames::new(&resolved.frames);
        assert_eq!(frames.of_call(PID, main)[0].function, "worker");
        assert_eq!(frames.at(PID, main)[0].function, function);
    };
    inside("worker", vec![sample(pair, worker, StackId(1), 10)]);
    let sampled_there = sample(two, main, StackId(9), 10);
    inside(
        "main",
        vec![sample(pair, worker, StackId(1), 10), sampled_there],
    );
}

#[test]
fn a_line_that_trapped_comes_before_hotter_ones() {
    let Some(program) = build("gcc", &["-g", "-O1"], ("program.c", SOURCE)) else {
        return;
    };
    let pair = program.address("pair");
    let worker = program.address("worker");
    // More hot lines than are resolved, each heavier than the one that trapped.
    let mut samples: Vec<_> = (0..3000)
        .map(|line| sample(Address(0x10_0000 + line * 64), worker, StackId(9), 1000))
        .collect();
    samples.push(sample(pair, worker, StackId(9), 1));
    let watch = Watch {
        id: 4,
        armed: Time(1),
        closed: Time(2),
        pid: PID,
        tid: Tid(102),
        publisher: Tid(101),
        address: pair,
        size: 8,
        operation: Operation::Store,
        chunks: 0xff,
        publisher_cpu: CpuId(0),
        outcome: WatchOutcome::Trapped,
        exposure_ns: 10,
    };
    let trap = Trap {
        watch: 4,
        time: Time(2),
        pid: PID,
        tid: Tid(102),
        cpu: CpuId(1),
        access_ip: worker,
        address: Address(pair.0 + 8),
        size: 8,
        operation: Operation::Load,
        locked: false,
        stack: StackId(9),
        chunk: 1,
        exposure_ns: 10,
    };
    let tables = Tables {
        maps: program.maps.clone(),
        samples,
        watches: vec![watch],
        traps: vec![trap],
        ..Tables::default()
    };
    let objects = resolve_recording(&tables, 64, &program.files).objects;
    assert!(objects.iter().any(|object| object.name == "pair"));
    assert!(objects.len() <= 2001, "{}", objects.len());
}

#[test]
fn two_threads_find_the_types_that_one_finds() {
    const TABLES: &str = r"
struct row { int key; long count; struct row *next; };
struct other { unsigned short a, b; double c[4]; };
struct row rows[64];
struct other others[64];
#define STEP(n) rows[i + n].count += rows[i].key; others[i + n].c[n % 4] += others[i].b; \
    if (rows[i + n].next) rows[i + n].next->key++;
__attribute__((noinline)) void first(int i) { STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) }
__attribute__((noinline)) void second(int i) { STEP(7) STEP(8) STEP(9) STEP(10) STEP(11) STEP(12) }
int main(int count, char **words) { (void)words; first(count); second(count); return 0; }
";
    let Some(program) = build("gcc", &["-g", "-O2"], ("tables.c", TABLES)) else {
        return;
    };
    let code: Vec<Address> = ["first", "second"]
        .iter()
        .flat_map(|name| {
            let start = program.address(name).0;
            (start..start + 400).map(Address)
        })
        .collect();
    let tables = Tables {
        maps: program.maps.clone(),
        samples: code
            .iter()
            .map(|&ip| sample(Address(0x1000), ip, StackId(1), 1))
            .collect(),
        ..Tables::default()
    };
    let resolved = resolve_recording(&tables, 64, &program.files);
    let store = Store::default();
    let mut alone = Resolver::new(&tables.maps, &tables.threads, &program.files, &store);
    let instructions: std::collections::BTreeSet<_> = code.iter().map(|&ip| (PID, ip)).collect();
    let typed = alone.typed_accesses(instructions, &Callers::new(&tables));
    let types = |wanted: &str| {
        typed
            .accesses
            .iter()
            .filter(|row| row.type_name == wanted)
            .count()
    };
    assert!(types("struct row") > 9 && types("struct other") > 9);
    assert_eq!(
        (resolved.typed_accesses, resolved.type_members),
        (typed.accesses, typed.members)
    );
}
