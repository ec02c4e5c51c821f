//! What lies in the frames of functions, as compilers lay them out.

use linewise_recording::{Address, Map, MapKind, ObjectKind, StackFrame, Thread, Tid, Time};

use super::super::{Resolver, Store};
use super::{PID, Program, build};

const C: &str = r"
struct stats { long hits; long misses; char rest[48]; };
__attribute__((noipa)) void lend(struct stats *s, long *n) { s->hits += *n; }
__attribute__((noipa)) long serve(long n) { struct stats stats = {n, 0}; lend(&stats, &n); return stats.hits + n; }
__attribute__((noipa)) void end(void) {}
int main(void) { return serve(1); }
";

/// One past the last byte of the frame, and how large it is said to be.
const HIGH: u64 = 0x7ffd_0000_1000;
const BYTES: u64 = 0x100;

fn frame(program: &Program, function: &str, high: u64) -> StackFrame {
    StackFrame {
        pid: PID,
        tid: Tid(PID.0),
        time: Time(1),
        // Behind the prologue.
        ip: Address(program.address(function).0 + 40),
        low: Address(high - BYTES),
        high: Address(high),
    }
}

/// What lies at each address of the frame, in words.
fn named(program: &Program, frames: &[StackFrame]) -> Vec<(u64, String, Vec<String>)> {
    let stack = Map {
        start: Address(HIGH - 0x2_0000),
        end: Address(HIGH + 0x1000),
        kind: MapKind::Stack,
        path: "[stack]".into(),
        ..program.maps[0].clone()
    };
    let maps: Vec<Map> = program.maps.iter().cloned().chain([stack]).collect();
    let thread = Thread {
        pid: PID,
        tid: Tid(PID.0),
        name: "server".into(),
        start: Time(0),
        end: Time(9),
        cpu_time_ns: 0,
        stack_low: Address(0),
        stack_high: Address(0),
    };
    let store = Store::default();
    let mut resolver =
        Resolver::new(&maps, &[thread], &program.files, &store).with_stack_frames(frames);
    let words = (HIGH - BYTES..HIGH).step_by(8);
    words
        .map(|address| {
            let (object, fields) = resolver.object(PID, Address(address));
            assert_eq!(object.kind, ObjectKind::Stack);
            let within = address - object.address.0;
            let fields = fields.into_iter();
            let fields = fields.filter(|it| (it.offset..it.offset + it.size).contains(&within));
            (address, object.name, fields.map(|it| it.path).collect())
        })
        .collect()
}

#[test]
fn a_variable_in_a_frame_is_named_with_its_function_and_fields() {
    for (compiler, flags) in [
        ("gcc", &["-g", "-O2"][..]),
        ("gcc", &["-g", "-O0", "-Dnoipa=noinline"]),
        ("clang", &["-g", "-O2", "-Dnoipa=noinline"]),
    ] {
        let Some(program) = build(compiler, flags, ("server.c", C)) else {
            continue;
        };
        let found = named(&program, &[frame(&program, "serve", HIGH)]);
        let of_stats: Vec<_> = (found.iter())
            .filter(|(_, name, _)| name == "stats in serve's frame")
            .collect();
        assert_eq!(of_stats.len(), 8, "{compiler} {flags:?}: {found:?}");
        let fields: Vec<&str> = of_stats
            .iter()
            .map(|(_, _, fields)| fields[0].as_str())
            .collect();
        assert_eq!(fields[..2], ["stats.hits", "stats.misses"]);
        assert!(fields[2..].iter().all(|it| it.starts_with("stats.rest")));
        // What is saved there is no variable.
        let of_frame =
            |(_, name, _): &&(_, String, _)| name == "serve's frame, stack of server (100)";
        assert!(found.iter().any(|it| of_frame(&it)), "{found:?}");
    }
}

#[test]
fn without_debug_info_it_is_the_frame() {
    let Some(program) = build("gcc", &["-O2"], ("server.c", C)) else {
        return;
    };
    let found = named(&program, &[frame(&program, "serve", HIGH)]);
    let is_frame = |(_, name, _): &(_, String, _)| name == "serve's frame, stack of server (100)";
    assert!(found.iter().all(is_frame), "{found:?}");
}

#[test]
fn where_several_calls_had_their_frames_none_is_named() {
    let Some(program) = build("gcc", &["-g", "-O2"], ("server.c", C)) else {
        return;
    };
    let frames = [
        frame(&program, "serve", HIGH),
        frame(&program, "serve", HIGH),
        frame(&program, "lend", HIGH + 0x40),
    ];
    let found = named(&program, &frames[..2]);
    assert!(
        found
            .iter()
            .any(|(_, name, _)| name == "stats in serve's frame")
    );
    let found = named(&program, &frames);
    let above = found
        .iter()
        .filter(|(address, ..)| *address >= HIGH + 0x40 - BYTES);
    for (_, name, _) in above {
        assert_eq!(name, "stack of server (100)");
    }
}
