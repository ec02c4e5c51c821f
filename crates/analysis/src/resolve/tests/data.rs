//! Variables and their fields.

use linewise_recording::{Address, Map, MapKind, ObjectKind, Thread, Tid, Time};

use super::super::{Resolver, Store};
use super::{PID, all_fields, build, build_and, drawn, run_tool};

const C: &str = r"
#include <pthread.h>
#include <stdatomic.h>
struct counter { long hits; unsigned low : 3, high : 5; union { int whole; short half; }; char name[4]; };
struct counter counters[8];
_Atomic unsigned long ready;
static volatile int grid[4][3] = { { 1 } };
struct { pthread_mutex_t lock; struct counter inner; } guarded;
struct tail { long length; long items[]; } tail = { 2, { 1, 2 } };
int bump(void) { static int calls; return ++calls; }
int main(void) {
    pthread_mutex_lock(&guarded.lock);
    return bump() + grid[1][2] + (int)counters[3].hits + (int)ready + guarded.inner.whole + (int)tail.items[1];
}
";

#[test]
fn c_variables_have_name_type_size_and_place() {
    for flags in [
        &["-g", "-O0"][..],
        &["-g", "-O2", "-no-pie"],
        &["-gdwarf-4", "-O2", "-static"],
    ] {
        let Some(program) = build("gcc", flags, ("program.c", C)) else {
            return;
        };
        let store = Store::default();
        let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
        let counters = program.address("counters");
        let (object, fields) = resolver.object(PID, Address(counters.0 + 3 * 24 + 2));
        assert_eq!(
            (object.kind, object.name.as_str()),
            (ObjectKind::Static, "counters")
        );
        assert_eq!((object.address, object.size), (counters, 8 * 24));
        assert_eq!(object.type_name, "struct counter[8]");
        assert!(
            object.declared_at.ends_with("/program.c:5"),
            "{}",
            object.declared_at
        );
        assert!(
            fields.iter().any(|field| field.path == "counters[3].hits"),
            "{fields:?}"
        );

        let (object, _) = resolver.object(PID, program.address_of_part("calls"));
        assert_eq!(object.name, "bump::calls");
        assert_eq!((object.size, object.type_name.as_str()), (4, "int"));
    }
}

#[test]
fn fields_are_walked_to_the_last_member() {
    let Some(program) = build("gcc", &["-g", "-O0"], ("program.c", C)) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let counters = program.address("counters");
    let (object, _) = resolver.object(PID, counters);
    let fields = resolver.fields_in(&object, Address(counters.0 + 2 * 24), 24);
    assert_eq!(
        drawn(&fields),
        [
            "48+8 counters[2].hits: long int",
            "56+4 counters[2].{low,high}: unsigned int",
            "60+2 counters[2].half: short int",
            "60+4 counters[2].whole: int",
            "64+4 counters[2].name: char[4]",
        ]
    );
    let (grid, _) = resolver.object(PID, program.address("grid"));
    let fields = resolver.fields_in(&grid, Address(grid.address.0 + 20), 4);
    assert_eq!(drawn(&fields), ["20+4 grid[1][2]: volatile int"]);
    let (ready, fields) = resolver.object(PID, program.address("ready"));
    assert_eq!(ready.type_name, "_Atomic long unsigned int");
    assert_eq!(drawn(&fields), ["0+8 ready: _Atomic long unsigned int"]);
    let (guarded, _) = resolver.object(PID, program.address("guarded"));
    let fields = all_fields(&mut resolver, &guarded);
    assert_eq!(fields[0], "0+40 guarded.lock: pthread_mutex_t");
    assert_eq!(fields[1], "40+8 guarded.inner.hits: long int");
    // Its type says eight bytes, the linker knows better.
    let (tail, fields) = resolver.object(PID, Address(program.address("tail").0 + 16));
    assert_eq!(tail.size, 24);
    assert!(
        fields.iter().any(|field| field.path == "tail.items[1]"),
        "{fields:?}"
    );
}

#[test]
fn only_fields_in_the_asked_range_are_returned() {
    let source = "struct cell { int a, b; } huge[1 << 22];\nint main(void) { return huge[5].a; }\n";
    let Some(program) = build("gcc", &["-g"], ("program.c", source)) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let huge = program.address("huge");
    let (object, _) = resolver.object(PID, Address(huge.0 + (8 << 20)));
    assert_eq!((object.name.as_str(), object.size), ("huge", 8 << 22));
    let fields = resolver.fields_in(&object, Address(huge.0 + (8 << 20) + 4), 8);
    let paths: Vec<_> = fields.iter().map(|field| field.path.as_str()).collect();
    assert_eq!(paths, ["huge[1048576].b", "huge[1048577].a"]);
}

#[test]
fn cpp_members_bases_and_atomics_are_named_as_written() {
    let source = r"
#include <atomic>
#include <mutex>
namespace pool {
    struct Base { long id; };
    struct Worker : Base { std::atomic<long> done; std::atomic<bool> stop[2]; std::mutex lock; };
    alignas(64) Worker workers[2];
    struct Registry { static long total; };
    long Registry::total = 5;
    namespace { long hidden = 7; }
    long sum() { return hidden + Registry::total; }
}
int main() { pool::workers[1].done++; return (int)(pool::sum() + pool::workers[0].id); }
";
    let Some(program) = build("g++", &["-g", "-O0"], ("program.cc", source)) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let (object, _) = resolver.object(PID, program.address_of_part("workers"));
    assert_eq!(object.name, "pool::workers");
    let fields = resolver.fields_in(&object, object.address, 24);
    assert_eq!(
        drawn(&fields),
        [
            "0+8 workers[0].id: long int",
            "8+8 workers[0].done: std::atomic<long int>",
            "16+1 workers[0].stop[0]: std::atomic<bool>",
            "17+1 workers[0].stop[1]: std::atomic<bool>",
        ]
    );
    let whole = all_fields(&mut resolver, &object);
    assert!(
        whole
            .iter()
            .any(|field| field.contains("workers[1].lock: std::mutex")),
        "{whole:?}"
    );
    let (total, _) = resolver.object(PID, program.address_of_part("total"));
    assert_eq!(total.name, "pool::Registry::total");
    let (hidden, _) = resolver.object(PID, program.address_of_part("hidden"));
    assert!(
        hidden.name.starts_with("pool::") && hidden.name.ends_with("::hidden"),
        "{hidden:?}"
    );
}

#[test]
fn cpp_types_are_named_with_what_is_around_them_but_functions() {
    let source = r"
#include <atomic>
namespace pool {
    enum Colour { RED };
    namespace { enum Hidden { THERE }; }
    struct Job { enum Step { FIRST }; };
    struct All { std::atomic<Colour> colour; Colour plain; Hidden hidden; Job::Step step; int *next; };
    All all;
}
enum Global { ONE };
Global global;
int main() {
    enum Inner { TWO };
    static Inner inner;
    return inner + global + pool::all.step;
}
";
    let Some(program) = build("g++", &["-g", "-O0"], ("program.cc", source)) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let mut types = |name: &str| {
        let (object, _) = resolver.object(PID, program.address_of_part(name));
        let fields = all_fields(&mut resolver, &object);
        let kind = |field: &String| field.split_once(": ").unwrap().1.to_owned();
        fields.iter().map(kind).collect::<Vec<_>>()
    };
    let of_all = [
        "std::atomic<pool::Colour>",
        "pool::Colour",
        "pool::Hidden",
        "pool::Job::Step",
        "int*",
    ];
    assert_eq!(types("all"), of_all);
    assert_eq!(types("global"), ["Global"]);
    assert_eq!(types("inner"), ["Inner"]);
}

#[test]
fn rust_statics_lose_the_noise_of_their_wrappers() {
    let source = r"
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[repr(align(64))] pub struct CachePadded<T> { value: T }
pub struct Row { hits: AtomicU64, stop: AtomicBool }
mod table {
    use super::*;
    pub static ROWS: [Row; 2] = [const { Row { hits: AtomicU64::new(0), stop: AtomicBool::new(false) } }; 2];
    pub static PADDED: CachePadded<AtomicU64> = CachePadded { value: AtomicU64::new(0) };
    pub static PAIR: Mutex<(u32, u16)> = Mutex::new((1, 2));
}
fn main() {
    table::ROWS[1].hits.fetch_add(1, Ordering::SeqCst);
    table::ROWS[0].stop.store(true, Ordering::SeqCst);
    table::PADDED.value.fetch_add(1, Ordering::SeqCst);
    let mut pair = table::PAIR.lock().unwrap();
    pair.0 += 1;
    println!(`{}`, pair.0 + u32::from(pair.1));
}
"
    .replace('`', "\"");
    let Some(program) = build("rustc", &["-g"], ("program.rs", &source)) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let (rows, _) = resolver.object(PID, program.address_of_part("ROWS"));
    assert_eq!(rows.name, "program::table::ROWS");
    assert_eq!(rows.type_name, "[Row; 2]");
    let fields = all_fields(&mut resolver, &rows);
    assert_eq!(fields.len(), 4, "{fields:?}");
    assert!(fields[0].contains(" ROWS[0].hits: Atomic"), "{fields:?}");
    assert!(fields[3].contains(" ROWS[1].stop: Atomic"), "{fields:?}");
    let (padded, fields) = resolver.object(PID, program.address_of_part("PADDED"));
    assert_eq!(padded.size, 64);
    assert_eq!(fields.len(), 1, "{fields:?}");
    assert_eq!(fields[0].path, "PADDED");
    let (_, fields) = resolver.object(PID, program.address_of_part("PAIR"));
    for path in ["PAIR.data.0", "PAIR.data.1"] {
        assert!(fields.iter().any(|field| field.path == path), "{fields:?}");
    }
}

#[test]
fn a_variable_that_the_optimiser_split_keeps_the_field_of_each_piece() {
    // What LLVM writes for a static struct whose address nobody takes.
    let source = r#"
    .text
    ret
    .data
    .globl first, second
    .align 8
first: .quad 1
    .zero 64
second: .quad 2
    .section .debug_abbrev,"",@progbits
    .uleb128 1, 0x11, 1, 0, 0
    .uleb128 2, 0x34, 0, 0x03, 0x08, 0x49, 0x13, 0x02, 0x18, 0, 0
    .uleb128 3, 0x13, 1, 0x0b, 0x0b, 0, 0
    .uleb128 4, 0x0d, 0, 0x03, 0x08, 0x49, 0x13, 0x38, 0x0b, 0, 0
    .uleb128 5, 0x24, 0, 0x03, 0x08, 0x0b, 0x0b, 0, 0
    .byte 0
    .section .debug_info,"",@progbits
unit: .long end - start
start: .short 4
    .long 0
    .byte 8
    .uleb128 1
    .uleb128 2
    .asciz "pair"
    .long structure - unit
    .byte 22, 3
    .quad first
    .byte 0x93, 8, 3
    .quad second
    .byte 0x93, 8
structure: .uleb128 3
    .byte 16
    .uleb128 4
    .asciz "hits"
    .long number - unit
    .byte 0
    .uleb128 4
    .asciz "misses"
    .long number - unit
    .byte 8
    .byte 0
number: .uleb128 5
    .asciz "long"
    .byte 8
    .byte 0
end:
"#;
    let flags = ["-nostdlib", "-static", "-Wl,-e,0"];
    let Some(program) = build("gcc", &flags, ("program.s", source)) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    for (symbol, path) in [("first", "pair.hits"), ("second", "pair.misses")] {
        let (object, fields) = resolver.object(PID, program.address(symbol));
        assert_eq!((object.name.as_str(), object.size), ("pair", 8));
        assert_eq!(drawn(&fields), [format!("0+8 {path}: long")]);
    }
}

#[test]
fn go_globals_are_found_in_compressed_debug_info() {
    let source = r"package main

import `sync/atomic`

type Worker struct {
	hits atomic.Int64
	name [3]int32
}

var workers [4]Worker

func main() {
	workers[2].hits.Add(1)
	println(workers[1].name[0])
}
"
    .replace('`', "\"");
    let Some(program) = build_go(&source) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let workers = program.address("main.workers");
    let (object, fields) = resolver.object(PID, Address(workers.0 + 48));
    assert_eq!(
        (object.name.as_str(), object.size),
        ("main.workers", 4 * 24)
    );
    assert!(
        fields
            .iter()
            .any(|field| field.path == "main.workers[2].hits" && field.offset == 48),
        "{fields:?}"
    );
    let frames = resolver.frames(PID, program.address("main.main"));
    assert_eq!(frames[0].function, "main.main");
    assert!(
        frames[0].file.ends_with("program.go") && frames[0].line > 0,
        "{frames:?}"
    );
}

fn build_go(source: &str) -> Option<super::Program> {
    build_go_with(&["build"], source)
}

pub(super) fn build_go_with(flags: &[&str], source: &str) -> Option<super::Program> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("program.go"), source).expect("source written");
    let arguments = [flags, &["-o", "program", "program.go"]].concat();
    run_tool("go", &arguments, folder.path())?;
    let bytes = std::fs::read(folder.path().join("program")).expect("program read");
    let symbols = run_tool("nm", &["program"], folder.path())?;
    Some(super::Program::from_bytes(bytes, &symbols))
}

#[test]
fn without_debug_info_a_variable_keeps_its_symbol() {
    let Some(program) = build("gcc", &["-O2"], ("program.c", C)) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let counters = program.address("counters");
    let (object, fields) = resolver.object(PID, Address(counters.0 + 30));
    assert_eq!((object.name.as_str(), object.size), ("counters", 8 * 24));
    assert_eq!(
        (object.address, object.kind),
        (counters, ObjectKind::Static)
    );
    assert!(object.type_name.is_empty() && fields.is_empty());
}

#[test]
fn in_a_stripped_program_the_section_is_what_is_left() {
    let strip = |folder: &std::path::Path| run_tool("strip", &["program"], folder).map(|_| ());
    let Some(program) = build_and("gcc", &["-O2"], ("program.c", C), strip) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let (object, _) = resolver.object(PID, program.address("counters"));
    assert_eq!(
        (object.kind, object.name.as_str()),
        (ObjectKind::Mapping, "/opt/app/program .bss")
    );
}

pub(super) fn map(start: u64, end: u64, kind: MapKind, path: &str) -> Map {
    Map {
        pid: PID,
        time: Time(1),
        start: Address(start),
        end: Address(end),
        offset: 0,
        executable: false,
        writable: true,
        kind,
        path: path.to_owned(),
        build_id: String::new(),
        device: None,
        inode: None,
    }
}

pub(super) fn thread(tid: u32, name: &str, low: u64, high: u64) -> Thread {
    Thread {
        pid: PID,
        tid: Tid(tid),
        name: name.to_owned(),
        start: Time(0),
        end: Time(9),
        cpu_time_ns: 0,
        stack_low: Address(low),
        stack_high: Address(high),
    }
}

#[test]
fn stacks_heaps_and_mappings_are_told_apart() {
    let maps = [
        map(0x10_0000, 0x20_0000, MapKind::Heap, "[heap]"),
        map(0x7f00_0000_0000, 0x7f00_0002_1000, MapKind::Anonymous, ""),
        map(0x7f10_0010_0000, 0x7f10_0090_0000, MapKind::Anonymous, ""),
        map(0x7f20_0010_0000, 0x7f20_0020_0000, MapKind::Anonymous, ""),
        map(
            0x7f30_0000_0000,
            0x7f30_0010_0000,
            MapKind::File,
            "/dev/shm/ring",
        ),
        map(
            0x7ffc_0000_0000,
            0x7ffc_0010_0000,
            MapKind::Stack,
            "[stack]",
        ),
        map(0xc0_0000_0000, 0xc0_0400_0000, MapKind::Anonymous, ""),
        // The stack of a thread, and what was mapped right above it.
        map(0x7f40_0010_0000, 0x7f40_0490_0000, MapKind::Anonymous, ""),
    ];
    let threads = [
        thread(PID.0, "main", 0x7ffc_000f_0000, 0x7ffc_000f_8000),
        thread(102, "worker-2", 0x7f40_008f_0000, 0x7f40_008f_f000),
        thread(101, "worker-1", 0x7f10_008f_0000, 0x7f10_008f_f000),
        // Whose pointer was now on the stack of the system and now on that of a goroutine; and on those of several.
        thread(103, "go-1", 0xc0_0000_1000, 0x7ff0_0000_0000),
        thread(104, "go-2", 0xc0_0000_1000, 0xc0_0010_0000),
    ];
    let files = super::MemoryFiles::default();
    let store = Store::default();
    let mut resolver = Resolver::new(&maps, &threads, &files, &store);
    let mut named = |address: u64| {
        let (object, fields) = resolver.object(PID, Address(address));
        assert!(fields.is_empty());
        assert!(object.address.0 <= address && address - object.address.0 < object.size);
        (object.kind, object.name)
    };
    let heap = |name: &str| (ObjectKind::Heap, name.to_owned());
    assert_eq!(named(0x10_0123), heap("heap"));
    assert_eq!(
        named(0x7f00_0000_0a00),
        heap("heap (malloc arena of threads)")
    );
    assert_eq!(named(0xc0_0000_1234), heap("heap (Go)"));
    let worker = (ObjectKind::Stack, "stack of worker-1 (101)".to_owned());
    assert_eq!(named(0x7f10_008f_8000), worker);
    assert_eq!(
        named(0x7f10_008f_f800),
        worker,
        "thread-local storage above the stack"
    );
    let other = (ObjectKind::Stack, "stack of worker-2 (102)".to_owned());
    assert_eq!(named(0x7f40_0010_8000), other);
    assert_eq!(
        named(0x7f40_0300_0000),
        (ObjectKind::Mapping, "anonymous memory".to_owned())
    );
    assert_eq!(
        named(0x7ffc_000f_1000),
        (ObjectKind::Stack, "stack of main (100)".to_owned())
    );
    assert_eq!(
        named(0x7f20_0010_0000),
        (ObjectKind::Mapping, "anonymous memory".to_owned())
    );
    assert_eq!(
        named(0x7f30_0000_0040),
        (ObjectKind::Mapping, "/dev/shm/ring".to_owned())
    );
    assert_eq!(
        named(0x4000),
        (ObjectKind::Mapping, "unmapped memory".to_owned())
    );
}

#[test]
fn memory_is_named_as_the_program_named_it_and_an_arena_only_where_it_can_be_one() {
    let anonymous = |start, end, path| map(start, end, MapKind::Anonymous, path);
    let maps = [
        // Aligned like an arena, but something else lies in its 64 MiB.
        anonymous(0x7f00_0000_0000, 0x7f00_0010_0000, ""),
        anonymous(0x7f00_0200_0000, 0x7f00_0210_0000, ""),
        // Aligned like an arena, and too long for one.
        anonymous(0x7f10_0000_0000, 0x7f10_0800_0000, ""),
        anonymous(0x7f20_0000_0000, 0x7f20_0002_1000, ""),
        anonymous(
            0x7f30_0000_0000,
            0x7f30_0010_0000,
            "[anon: glibc: malloc arena]",
        ),
        anonymous(0x7f31_0010_0000, 0x7f31_0020_0000, "[anon: glibc: malloc]"),
        anonymous(0x7f32_0010_0000, 0x7f32_0020_0000, "[anon:frame pool]"),
        anonymous(0x7f33_0010_0000, 0x7f33_0020_0000, "[vvar]"),
    ];
    let files = super::MemoryFiles::default();
    let store = Store::default();
    let mut resolver = Resolver::new(&maps, &[], &files, &store);
    let mut named = |address: u64| {
        let (object, _) = resolver.object(PID, Address(address));
        (object.kind, object.name)
    };
    let mapping = |name: &str| (ObjectKind::Mapping, name.to_owned());
    let heap = |name: &str| (ObjectKind::Heap, name.to_owned());
    assert_eq!(named(0x7f00_0000_0a00), mapping("anonymous memory"));
    assert_eq!(named(0x7f10_0000_0a00), mapping("anonymous memory"));
    let arena = heap("heap (malloc arena of threads)");
    assert_eq!(named(0x7f20_0000_0a00), arena);
    assert_eq!(named(0x7f30_0001_0a00), arena);
    assert_eq!(named(0x7f31_0010_0040), heap("heap (mapped by malloc)"));
    assert_eq!(
        named(0x7f32_0010_0040),
        mapping("anonymous memory that the program calls `frame pool`")
    );
    assert_eq!(named(0x7f33_0010_0040), mapping("[vvar]"));
}
