//! Functions, lines and inlining.

use linewise_recording::{Address, Frame, Map, MapKind, Time};

use super::super::elf::Elf;
use super::super::{Resolver, Store};
use super::{PATH, PID, Program, build, build_and, run_tool};

const SOURCE: &str = r"
long shared;
static inline __attribute__((always_inline)) void bump(long *place) {
    __atomic_fetch_add(place, 1, __ATOMIC_SEQ_CST);
}
__attribute__((noinline)) void worker(void) {
    bump(&shared);
}
int main(void) {
    worker();
    return 0;
}
";

fn frames(program: &Program, address: Address) -> Vec<Frame> {
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    resolver.frames(PID, address)
}

/// The frames of the locked instruction that `bump` is made of.
fn frames_of_bump(program: &Program) -> Vec<Frame> {
    let start = program.address("worker");
    let all: Vec<_> = (0..24)
        .map(|at| frames(program, Address(start.0 + at)))
        .collect();
    all.iter()
        .find(|frames| frames.len() > 1)
        .unwrap_or(&all[0])
        .clone()
}

#[test]
fn code_that_was_made_where_a_module_could_reach_has_its_own_name() {
    let Some(mut program) = build("gcc", &["-g", "-O2"], ("program.c", SOURCE)) else {
        return;
    };
    let place = program.address("worker");
    let own = frames(&program, place);
    assert_eq!(own.last().unwrap().function, "worker");
    // As V8 leaves it: memory of its own over a page of the program.
    let made = Map {
        time: Time(9),
        start: Address(place.0 & !0xfff),
        end: Address((place.0 & !0xfff) + 0x1000),
        offset: 0,
        kind: MapKind::Anonymous,
        path: String::new(),
        ..program.maps[0].clone()
    };
    program.maps.push(made);
    let list = format!("{:x} 40 JS:*countEvents count.js:10:23\n", place.0);
    let path = format!("/tmp/perf-{PID}.map");
    program.files.0.insert(path, list.into_bytes());
    let name = &frames(&program, place)[0].function;
    assert!(name.contains("countEvents"), "{name}");
}

#[test]
fn an_inlined_function_is_shown_with_its_caller() {
    for flags in [
        &["-g", "-O2"][..],
        &["-g", "-O2", "-no-pie", "-fno-pie"],
        &["-g", "-O2", "-static"],
        &["-gdwarf-4", "-O2", "-gz"],
        &["-gdwarf-4", "-O2", "-fdebug-types-section"],
    ] {
        let Some(program) = build("gcc", flags, ("program.c", SOURCE)) else {
            return;
        };
        let frames = frames_of_bump(&program);
        let shown: Vec<_> = frames
            .iter()
            .map(|frame| (frame.depth, frame.function.as_str(), frame.line))
            .collect();
        assert_eq!(shown, [(0, "bump", 4), (1, "worker", 7)], "{flags:?}");
        for frame in &frames {
            assert!(
                frame.file.ends_with("/program.c"),
                "{flags:?}: {}",
                frame.file
            );
            assert_eq!((frame.module.as_str(), frame.reason.as_str()), (PATH, ""));
        }
    }
}

#[test]
fn a_return_address_belongs_to_the_line_of_the_call() {
    let source = r"
__attribute__((noinline, noreturn)) void leave(void) { for (;;) __asm__ volatile(``); }
__attribute__((noinline)) void last(void) {
    leave();
}
int main(void) { last(); }
"
    .replace('`', "\"");
    let Some(program) = build("gcc", &["-g", "-O0"], ("program.c", &source)) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    // The call is the last instruction of `last`: its return address is that of `main`.
    let main = program.address("main");
    let caller = resolver.caller_frames(PID, main);
    assert_eq!((caller[0].function.as_str(), caller[0].line), ("last", 4));
    assert_eq!(caller[0].address, main);
    assert_eq!(resolver.frames(PID, main)[0].function, "main");
}

#[test]
fn without_debug_info_functions_keep_their_names_and_the_reason_says_what_to_do() {
    let Some(program) = build("gcc", &["-O2"], ("program.c", SOURCE)) else {
        return;
    };
    let frames = frames(&program, program.address("worker"));
    assert_eq!(frames.len(), 1);
    assert_eq!((frames[0].function.as_str(), frames[0].line), ("worker", 0));
    assert!(
        frames[0]
            .reason
            .contains("no debug info in /opt/app/program")
    );
    assert!(frames[0].reason.contains("-g"));
}

#[test]
fn a_stripped_program_gives_offsets_and_a_reason() {
    let strip = |folder: &std::path::Path| run_tool("strip", &["program"], folder).map(|_| ());
    let Some(program) = build_and("gcc", &["-g", "-O2"], ("program.c", SOURCE), strip) else {
        return;
    };
    let worker = program.address("worker");
    let frames = frames(&program, worker);
    assert_eq!(
        frames[0].function,
        format!("program+{:#x}", worker.0 - program.bias)
    );
    assert!(
        frames[0].reason.contains("no debug info"),
        "{}",
        frames[0].reason
    );
}

#[test]
fn a_program_that_was_started_by_a_link_is_called_like_the_link() {
    let strip = |folder: &std::path::Path| run_tool("strip", &["program"], folder).map(|_| ());
    let flags = ["-O2", "-Wl,--build-id"];
    let Some(mut program) = build_and("gcc", &flags, ("program.c", SOURCE), strip) else {
        return;
    };
    let worker = program.address("worker");
    let link = "/opt/app/server".to_owned();
    let called = |program: &Program, name: &str| {
        let threads = [super::data::thread(PID.0, name, 0, 0)];
        let store = Store::default();
        let mut resolver = Resolver::new(&program.maps, &threads, &program.files, &store);
        let frame = resolver.frames(PID, worker).remove(0);
        let (name, _) = frame.function.split_once("+0x").expect("an offset");
        name.to_owned()
    };
    // A thread can give itself any name.
    assert_eq!(called(&program, "server"), "program");
    program.files.0.insert(link.clone(), b"another".to_vec());
    assert_eq!(called(&program, "server"), "program");
    let same = program.files.0[super::PATH].clone();
    program.files.0.insert(link, same);
    assert_eq!(called(&program, "server"), "server");
    assert_eq!(called(&program, "../app/server"), "program");
    assert_eq!(called(&program, "worker"), "program");
}

#[test]
fn separate_debug_info_is_found_by_link_and_by_build_id() {
    let separate = |folder: &std::path::Path| {
        run_tool(
            "objcopy",
            &["--only-keep-debug", "program", "program.debug"],
            folder,
        )?;
        run_tool("strip", &["program"], folder)?;
        run_tool(
            "objcopy",
            &["--add-gnu-debuglink=program.debug", "program"],
            folder,
        )?;
        Some(())
    };
    for flags in [
        &["-g", "-O2", "-Wl,--build-id"][..],
        &["-g", "-O2", "-Wl,--build-id=none"],
    ] {
        let Some(mut program) = build_and("gcc", flags, ("program.c", SOURCE), separate) else {
            return;
        };
        assert_eq!(frames_of_bump(&program)[0].line, 4, "{flags:?}");

        let debug = program
            .files
            .0
            .remove("/opt/app/program.debug")
            .expect("the separate file");
        assert!(frames_of_bump(&program)[0].reason.contains("no debug info"));

        let id = program
            .maps
            .iter()
            .map(|map| map.build_id.clone())
            .find(|id| !id.is_empty());
        if let Some(id) = id {
            let path = format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
            program.files.0.insert(path, debug);
            assert_eq!(frames_of_bump(&program)[0].line, 4);
        } else {
            // Without a build id only the checksum tells whether the file belongs to it.
            let mut other = debug;
            other.push(0);
            program
                .files
                .0
                .insert("/opt/app/program.debug".to_owned(), other);
            assert!(frames_of_bump(&program)[0].reason.contains("no debug info"));
        }
    }
}

#[test]
fn a_file_that_was_replaced_gives_no_wrong_names() {
    let flags = ["-g", "-O2", "-Wl,--build-id"];
    let Some(mut program) = build("gcc", &flags, ("program.c", SOURCE)) else {
        return;
    };
    for map in &mut program.maps {
        map.build_id = "00".repeat(20);
    }
    let worker = program.address("worker");
    let found = frames(&program, worker);
    assert!(
        found[0].function.starts_with("program+0x"),
        "{}",
        found[0].function
    );
    assert!(found[0].reason.contains("replaced"), "{}", found[0].reason);
}

#[test]
fn what_is_not_mapped_or_has_no_file_says_so() {
    let Some(mut program) = build("gcc", &["-g"], ("program.c", SOURCE)) else {
        return;
    };
    assert!(
        frames(&program, Address(0x1000))[0]
            .reason
            .contains("nothing was mapped")
    );
    let main = program.address("main");
    program.files.0.clear();
    let found = frames(&program, main);
    assert!(found[0].function.starts_with("program+0x"));
    assert!(found[0].reason.contains("could not be read"));
}

#[test]
fn a_cpp_function_without_a_symbol_has_its_namespaces_and_class() {
    let source = r"
namespace store { namespace {
struct Table {
    volatile long hits = 0;
    void insert(long value);
    __attribute__((always_inline)) void count(long value) { hits += value; }
};
__attribute__((noinline)) void Table::insert(long value) { count(value); }
Table table;
} void fill(long value) { table.insert(value); } }
int main(int count, char **) { store::fill(count); }
";
    let Some(program) = build("g++", &["-g", "-O1"], ("program.cc", source)) else {
        return;
    };
    let start = program.address_of_part("insert").0;
    let mut at = (start..start + 64).map(|at| frames(&program, Address(at)));
    let inlined = at.find(|frames| frames.len() > 1).expect("inlined code");
    assert_eq!(inlined[0].function, "store::Table::count");
}

#[test]
fn cpp_and_rust_functions_are_demangled() {
    let cpp = r"
namespace store { template <class T> struct Table {
    long hits = 0;
    __attribute__((noinline)) void insert(T value) { hits += value; }
}; }
store::Table<int> table;
int main(int count, char **) { table.insert(count); }
";
    if let Some(program) = build("g++", &["-g", "-O1"], ("program.cc", cpp)) {
        let frames = frames(&program, program.address_of_part("insert"));
        assert_eq!(frames[0].function, "store::Table<int>::insert");
    }
    let rust = r"
mod work { #[inline(never)] pub fn spin(count: u64) -> u64 { std::hint::black_box(count + 1) } }
fn main() { std::process::exit(work::spin(1) as i32); }
";
    for flags in [&["-g"][..], &["-g", "-Csymbol-mangling-version=v0"]] {
        if let Some(program) = build("rustc", flags, ("program.rs", rust)) {
            let frames = frames(&program, program.address_of_part("spin"));
            let last = frames.last().expect("a frame");
            assert_eq!(last.function, "program::work::spin", "{flags:?}");
            assert!(last.file.ends_with("program.rs"));
        }
    }
}

#[test]
fn debug_info_beyond_the_limit_is_not_read_and_symbols_are_left() {
    for flags in [&["-g", "-O2"][..], &["-gdwarf-4", "-O2", "-gz"]] {
        let Some(program) = build("gcc", flags, ("program.c", SOURCE)) else {
            return;
        };
        let address = program.address("worker");
        let resolve = |limit: u64| {
            let store = Store::with_limit(limit);
            let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
            resolver.frames(PID, address)
        };
        assert!(resolve(1 << 20)[0].line > 0, "{flags:?}");
        let frames = resolve(100);
        assert_eq!(frames[0].function, "worker");
        assert_eq!(frames[0].line, 0);
        assert!(
            frames[0].reason.contains("is too large"),
            "{}",
            frames[0].reason
        );
    }
}

#[test]
fn what_is_not_looked_up_in_time_has_that_reason() {
    let Some(program) = build("gcc", &["-g", "-O2"], ("program.c", SOURCE)) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    resolver.deadline = std::time::Instant::now();
    let worker = program.address("worker");
    let frames = resolver.frames(PID, worker);
    assert_eq!((frames.len(), frames[0].line), (1, 0));
    assert!(
        frames[0].reason.contains("among what was left"),
        "{}",
        frames[0].reason
    );
    assert!(resolver.typed_access(PID, worker).type_name.is_empty());
}

#[test]
fn one_mapping_of_constants_and_code_is_understood() {
    let Some(mut program) = build("gcc", &["-g", "-O2"], ("program.c", SOURCE)) else {
        return;
    };
    // As under an emulator: what is not written was joined, and is executable because it ran.
    let (written, mut joined): (Vec<_>, Vec<_>) =
        program.maps.into_iter().partition(|map| map.writable);
    joined.sort_by_key(|map| map.start);
    let mut whole = joined[0].clone();
    whole.end = joined[joined.len() - 1].end;
    whole.executable = true;
    program.maps = written;
    program.maps.push(whole);

    let frames = frames_of_bump(&program);
    let shown: Vec<_> = frames
        .iter()
        .map(|frame| (frame.function.as_str(), frame.line))
        .collect();
    assert_eq!(shown, [("bump", 4), ("worker", 7)]);
}

/// The program that was recorded, and one that was built in its place since.
fn rebuilt() -> Option<(Program, Program)> {
    let changed = SOURCE.replace("int main", "long other(void) { return shared; }\nint main");
    let recorded = build("gcc", &["-g", "-O2"], ("program.c", SOURCE))?;
    Some((
        recorded,
        build("gcc", &["-g", "-O2"], ("program.c", &changed))?,
    ))
}

#[test]
fn of_a_program_that_was_rebuilt_since_nothing_has_a_name() {
    let Some((recorded, rebuilt)) = rebuilt() else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&recorded.maps, &[], &rebuilt.files, &store);
    for name in ["worker", "main"] {
        let frames = resolver.frames(PID, recorded.address(name));
        assert_eq!(frames.len(), 1, "{frames:?}");
        assert_eq!(super::super::replaced_file(&frames[0].reason), Some(PATH));
        assert!(frames[0].function.starts_with("program+0x"), "{frames:?}");
        assert_eq!((frames[0].file.as_str(), frames[0].line), ("", 0));
    }
    let (object, _) = resolver.object(PID, recorded.address("shared"));
    assert_ne!(object.name, "shared");
    // The file as it was.
    let mut resolver = Resolver::new(&recorded.maps, &[], &recorded.files, &store);
    let (object, _) = resolver.object(PID, recorded.address("shared"));
    assert_eq!(object.name, "shared");
}

#[test]
fn a_file_is_read_once_also_where_a_process_ended_before_its_build_id_was_seen() {
    let Some((recorded, rebuilt)) = rebuilt() else {
        return;
    };
    let other = linewise_recording::Pid(PID.0 + 1);
    let mut maps = recorded.maps.clone();
    maps.extend(recorded.maps.iter().cloned().map(|mut map| {
        map.pid = other;
        map.build_id.clear();
        map
    }));
    let store = Store::default();
    let worker = recorded.address("worker");
    let mut resolver = Resolver::new(&maps, &[], &recorded.files, &store);
    for pid in [PID, other, PID] {
        assert_eq!(
            resolver.frames(pid, worker).pop().unwrap().function,
            "worker"
        );
    }
    assert_eq!(resolver.modules.len(), 1);
    // Of a file that is another one by now, what nobody knows better is believed, and what is known is not.
    let mut resolver = Resolver::new(&maps, &[], &rebuilt.files, &store);
    for pid in [other, PID] {
        let frame = resolver.frames(pid, worker).pop().unwrap();
        let is_replaced = super::super::replaced_file(&frame.reason).is_some();
        assert_eq!(is_replaced, pid == PID, "{frame:?}");
    }
    assert_eq!(resolver.modules.len(), 2);
}

#[test]
fn the_build_id_is_found_where_the_table_of_sections_was_taken_out() {
    let Some(program) = build("gcc", &["-g", "-O2"], ("program.c", SOURCE)) else {
        return;
    };
    let mut bytes = program.files.0[PATH].clone();
    let id = |bytes: &[u8]| Elf::open(Box::new(bytes.to_vec())).unwrap().build_id;
    let found = id(&bytes);
    assert_eq!(found.len(), 40, "{found}");
    // Where the table is, how long it is, and where names are in it.
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    assert_eq!(id(&bytes), found);
}
