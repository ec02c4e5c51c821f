//! That every access is there, with its size and kind.

use linewise_cache::line_hash;

use super::*;

#[test]
fn loads_stores_and_updates_of_x86_come_with_their_numbers_and_sizes() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: the program is for x86-64");
        return;
    }
    let programs = Programs::new();
    let Some((counts, outcome)) = count(&programs.compile("counts"), &[]) else {
        return;
    };
    assert_eq!(counts.with(8, [30_011, 0, 0]).len(), 1, "loads");
    assert_eq!(counts.with(8, [0, 40_013, 0]).len(), 1, "stores");
    assert_eq!(counts.with(8, [0, 0, 10_009]).len(), 1, "inc");
    assert_eq!(counts.with(8, [0, 0, 20_011]).len(), 1, "lock inc");
    assert_eq!(counts.with(8, [0, 0, 15_013]).len(), 1, "xchg");
    assert_eq!(counts.with(16, [5_003, 0, 0]).len(), 1, "movaps");
    assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
    let locked = outcome.instructions.iter().find(|instruction| {
        instruction.orders && instruction.updates && instruction.bytes[..3] == [0xf0, 0x48, 0xff]
    });
    assert!(locked.is_some(), "lock inc is among the instructions");
    let main = outcome
        .maps
        .iter()
        .filter(|map| map.path.ends_with("counts-cc"))
        .collect::<Vec<_>>();
    let address = locked.unwrap().address;
    assert!(
        main.iter()
            .any(|map| map.start.0 <= address && address < map.end.0),
        "{address:#x} lies in {main:?}"
    );
    assert!(
        outcome.maps.iter().any(|map| map.path.contains("libc.so")),
        "what the guest maps itself is there: {:?}",
        outcome.maps
    );
}

#[test]
fn a_program_for_arm_is_traced_by_its_own_qemu() {
    let programs = Programs::new();
    let Some(program) = programs.compile_with("aarch64-linux-gnu-gcc", "counts") else {
        println!("skipped: no aarch64-linux-gnu-gcc (gcc-aarch64-linux-gnu)");
        return;
    };
    let Some((counts, outcome)) = count(&program, &[]) else {
        return;
    };
    assert_eq!(outcome.ended, linewise_machine::process::Ended::Code(0));
    assert_eq!(counts.with(8, [30_011, 0, 0]).len(), 1, "ldr");
    assert_eq!(counts.with(8, [0, 40_013, 0]).len(), 1, "str");
    assert_eq!(counts.with(8, [0, 0, 20_011]).len(), 1, "ldadd");
}

#[test]
fn a_share_of_the_lines_is_the_share_that_the_hash_chooses() {
    let programs = Programs::new();
    let program = programs.compile("threads");
    let arguments = ["4", "512", "300"];
    let Some((all, _)) = count(&program, &arguments) else {
        return;
    };
    let mut options = ExactOptions::new(command(&program, &arguments));
    options.one_line_in = 8;
    let mut some = Counts::default();
    let outcome = try_trace(&options, &mut some).unwrap();
    assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
    let lines: std::collections::HashSet<u64> = some
        .of
        .keys()
        .map(|&(address, size)| {
            let (first, last) = (address >> 6, (address + u64::from(size) - 1) >> 6);
            let kept = |line: u64| line_hash(line) <= u64::MAX / 8;
            assert!(kept(first) || kept(last), "{address:#x} was not chosen");
            first
        })
        .collect();
    // The words are where they were, unless the loader put the program elsewhere: compare counts.
    let incremented = |counts: &Counts| counts.with(8, [300, 300, 0]).len();
    assert_eq!(incremented(&all), 512);
    assert!(
        (20..140).contains(&incremented(&some)),
        "{} of 512 words, {} lines",
        incremented(&some),
        lines.len()
    );
}

#[test]
fn only_a_function_or_a_module_is_recorded() {
    let programs = Programs::new();
    let program = programs.compile("threads");
    let run = |only: &str| {
        let mut options = ExactOptions::new(command(&program, &["2", "2", "503"]));
        options.only = Some(only.to_owned());
        let mut counts = Counts::default();
        let outcome = try_trace(&options, &mut counts)?;
        assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
        Some((counts, outcome))
    };
    let Some((function, _)) = run("work") else {
        return;
    };
    assert_eq!(function.with(8, [503, 503, 0]).len(), 2);
    assert!(
        function.accesses < 5 * 503,
        "{} accesses of one function",
        function.accesses
    );
    let (libc, outcome) = run("libc").unwrap();
    assert!(libc.with(8, [503, 503, 0]).is_empty());
    assert!(libc.accesses > 100);
    for instruction in &outcome.instructions {
        assert!(
            outcome.maps.iter().any(|map| map.path.contains("/libc")
                && map.start.0 <= instruction.address
                && instruction.address < map.end.0),
            "{:#x} is not in libc",
            instruction.address
        );
    }
}

#[test]
fn a_kept_trace_holds_what_was_handed_out_up_to_its_size() {
    use linewise_trace::{KeepTrace, Piece, TraceReader};

    let programs = Programs::new();
    let program = programs.compile("counts");
    let path = programs.path().join("trace");
    for max_bytes in [1 << 30, 20_000] {
        let mut options = ExactOptions::new(command(&program, &[]));
        options.keep_trace = Some(KeepTrace {
            path: path.clone(),
            max_bytes,
        });
        let mut counts = Counts::default();
        let Some(outcome) = try_trace(&options, &mut counts) else {
            return;
        };
        assert!(std::fs::metadata(&path).unwrap().len() <= max_bytes);
        let mut kept = Counts::default();
        let (mut whole, mut threads) = (None, 0);
        let mut reader = TraceReader::open(&path).unwrap();
        while let Some(piece) = reader.piece().unwrap() {
            match piece {
                Piece::Accesses(accesses) => kept.accesses(&accesses),
                Piece::Tables(tables) => threads = tables.threads.len(),
                Piece::End { complete } => whole = Some(complete),
                Piece::Event(_) => {}
            }
        }
        if max_bytes == 1 << 30 {
            assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
            assert_eq!(kept.of, counts.of);
            assert_eq!((whole, threads), (Some(true), 1));
        } else {
            assert_eq!(whole, Some(false));
            assert_eq!(outcome.losses[0].what, "trace-cut");
            assert_eq!(kept.accesses + outcome.losses[0].count, counts.accesses);
        }
    }
}
