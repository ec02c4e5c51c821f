//! The data profile of invented rows.

use linewise_recording::{
    CacheCounts, CacheLevel, CacheSubject, CpuId, Operation, Sample, Sharing, Tid, TypeMember,
    TypedAccess, UntypedReason,
};

use super::super::exact_rows::{instruction, total};
use super::super::sampled_rows;
use super::*;

/// Where the only object is, on a line of its own.
const OBJECT: u64 = 0x1000;

fn typed(ip: u64, path: &str, offset: u64) -> TypedAccess {
    TypedAccess {
        type_size: 24,
        declared_at: "both.c:3".into(),
        offset,
        path: path.into(),
        ..sampled_rows::typed(ip, "struct both")
    }
}

fn member(name: &str, offset: u64) -> TypeMember {
    TypeMember {
        type_name: "struct both".into(),
        type_size: 24,
        declared_at: "both.c:3".into(),
        offset,
        size: 8,
        alignment: 8,
        bits: 0,
        name: name.into(),
        member_type: "long".into(),
        language: "c".into(),
    }
}

fn members() -> Vec<TypeMember> {
    vec![member("a", 0), member("b", 8), member("c", 16)]
}

fn sample(tid: u32, ip: u64, address: u64, operation: Operation) -> Sample {
    Sample {
        cpu: CpuId(tid),
        operation: Some(operation),
        ..sampled_rows::sample(tid, ip, address)
    }
}

fn input<'a>(
    typed: &'a [TypedAccess],
    members: &'a [TypeMember],
    samples: &'a [Sample],
) -> Input<'a> {
    Input {
        line_size: 64,
        typed,
        members,
        samples,
        watches: &[],
        traps: &[],
        caches: &[],
        transfers: &[],
        threads: &[],
        maps: &[],
        shared: Box::leak(Box::default()),
        goroutines: Box::leak(Box::default()),
        frames: &[],
        thread_ns: 1000.0,
    }
}

/// Thread 1 writes `a`, thread 2 writes `b`, both read `c`.
fn shared() -> (Vec<TypedAccess>, Vec<Sample>) {
    let rows = vec![
        typed(0x10, "a", 0),
        typed(0x20, "b", 8),
        typed(0x30, "c", 16),
    ];
    let samples = vec![
        sample(1, 0x10, OBJECT, Operation::Update),
        sample(2, 0x20, OBJECT + 8, Operation::Update),
        sample(1, 0x30, OBJECT + 16, Operation::Load),
        sample(2, 0x30, OBJECT + 16, Operation::Load),
    ];
    (rows, samples)
}

#[test]
fn a_type_has_the_cost_of_its_accesses_by_field_and_thread() {
    let (rows, samples) = shared();
    let members = members();
    let view = types(&input(&rows, &members, &samples)).expect("typed accesses");
    let [row] = view.types.as_slice() else {
        panic!("one type: {view:?}");
    };
    assert_eq!((row.name.as_str(), row.size), ("struct both", 24));
    assert_eq!((row.cost.ns, row.cost.share), (400.0, 0.4));
    assert_eq!(row.lines_seen, 1);
    let fields: Vec<_> = row
        .fields
        .iter()
        .map(|field| (field.name.as_str(), field.share, field.loads, field.stores))
        .collect();
    assert_eq!(
        fields,
        [
            ("a", 0.25, 0.0, 1.0),
            ("b", 0.25, 0.0, 1.0),
            ("c", 0.5, 2.0, 0.0)
        ]
    );
    assert_eq!(row.fields[2].threads.len(), 2);
    // As in the picture of a line, what both reads and writes is `U`.
    let letters = |field: usize| row.fields[field].threads[0].letter();
    assert_eq!([letters(0), letters(2)], ['U', 'R']);
    assert_eq!(view.coverage.typed, 4.0);
}

#[test]
fn members_that_different_threads_write_get_lines_of_their_own() {
    let (rows, samples) = shared();
    let members = members();
    let view = types(&input(&rows, &members, &samples)).expect("typed accesses");
    let layout = view.types[0].layout.as_ref().expect("a layout");
    let groups: Vec<_> = layout
        .groups
        .iter()
        .map(|group| group.members.join(","))
        .collect();
    // What is only read comes first.
    assert_eq!(groups, ["c", "a", "b"]);
    assert_eq!((layout.size_before, layout.size_after), (24, 192));
    assert_eq!((layout.padding_before, layout.padding_after), (0, 168));
    assert_eq!(layout.saves_at_most, 0.4);
    assert_eq!(
        layout.source.matches("_Alignas(64) long").count(),
        3,
        "{}",
        layout.source
    );
}

#[test]
fn a_packed_type_keeps_its_layout_since_something_depends_on_it() {
    let (mut rows, mut samples) = shared();
    let mut members = members();
    // `b` begins one byte earlier than its type wants.
    members[1].offset = 7;
    rows[1].offset = 7;
    samples[1].address.0 -= 1;
    let view = types(&input(&rows, &members, &samples)).expect("typed accesses");
    assert_eq!(view.types[0].layout, None);
}

#[test]
fn one_thread_or_readers_alone_leave_the_layout_as_it_is() {
    let (rows, mut samples) = shared();
    let members = members();
    for sample in &mut samples {
        sample.tid = Tid(1);
    }
    let view = types(&input(&rows, &members, &samples)).expect("typed accesses");
    assert_eq!(view.types[0].layout, None);
    let (_, mut samples) = shared();
    for sample in &mut samples {
        sample.operation = Some(Operation::Load);
    }
    let view = types(&input(&rows, &members, &samples)).expect("typed accesses");
    assert_eq!(view.types[0].layout, None);
}

#[test]
fn a_type_that_the_program_cannot_change_gets_no_advice_and_stays_in_the_table() {
    let (mut rows, samples) = shared();
    let mut members = members();
    let system = "/usr/include/x86_64-linux-gnu/bits/struct_mutex.h:22";
    for row in &mut rows {
        row.declared_at = system.into();
    }
    for member in &mut members {
        member.declared_at = system.into();
    }
    let view = types(&input(&rows, &members, &samples)).expect("typed accesses");
    let row = &view.types[0];
    assert_eq!(row.owner, "a header of the system");
    assert_eq!((row.cost.ns, row.fields.len()), (400.0, 3));
    assert_eq!(row.layout, None);
}

fn map(start: u64, path: &str) -> Map {
    Map {
        pid: sampled_rows::PID,
        time: linewise_recording::Time(0),
        start: Address(start),
        end: Address(start + 0x10),
        offset: 0,
        executable: true,
        writable: false,
        kind: linewise_recording::MapKind::File,
        path: path.to_owned(),
        build_id: String::new(),
        device: None,
        inode: None,
    }
}

#[test]
fn types_of_the_system_stand_behind_those_of_the_program() {
    let (mut rows, mut samples) = shared();
    let members = members();
    rows.push(sampled_rows::typed(0x40, "struct link_map"));
    samples.extend((0..40).map(|_| sample(1, 0x40, 0x9000, Operation::Load)));
    let first = |maps: &[Map]| {
        let view = types(&Input {
            maps,
            ..input(&rows, &members, &samples)
        })
        .expect("typed accesses");
        view.types[0].name.clone()
    };
    let loader = map(0x40, "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2");
    assert_eq!(first(&[map(0x10, "/srv/app"), loader]), "struct both");
    assert_eq!(first(&[map(0x40, "/srv/app")]), "struct link_map");
}

#[test]
fn whose_code_touches_a_type_tells_whose_it_is() {
    let (rows, samples) = shared();
    let members = members();
    let owner = |maps: &[Map]| {
        let view = types(&Input {
            maps,
            ..input(&rows, &members, &samples)
        })
        .expect("typed accesses");
        (view.types[0].owner.clone(), view.types[0].layout.is_some())
    };
    let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    let libc_alone = [map(0x10, libc), map(0x20, libc), map(0x30, libc)];
    assert_eq!(owner(&libc_alone), ("libc.so.6".to_owned(), false));
    let program_too = [map(0x10, libc), map(0x20, "/srv/app"), map(0x30, libc)];
    assert_eq!(owner(&program_too), (String::new(), true));
    assert_eq!(owner(&[]), (String::new(), true));
}

#[test]
fn objects_of_different_threads_on_one_line_are_to_be_kept_apart() {
    let (rows, _) = shared();
    let members = members();
    let samples = [
        sample(1, 0x10, OBJECT, Operation::Update),
        sample(2, 0x10, OBJECT + 24, Operation::Update),
    ];
    let view = types(&input(&rows, &members, &samples)).expect("typed accesses");
    let layout = view.types[0].layout.as_ref().expect("a layout");
    assert_eq!((layout.groups.len(), layout.size_after), (1, 64));
    // The same objects on lines of their own need nothing.
    let samples = [
        sample(1, 0x10, OBJECT, Operation::Update),
        sample(2, 0x10, OBJECT + 64, Operation::Update),
    ];
    let view = types(&input(&rows, &members, &samples)).expect("typed accesses");
    assert_eq!(view.types[0].layout, None);
}

#[test]
fn what_has_no_type_is_counted_by_its_reason() {
    let (mut rows, samples) = shared();
    rows[2].reason = Some(UntypedReason::Stack);
    let members = members();
    let view = types(&input(&rows, &members, &samples)).expect("typed accesses");
    assert_eq!((view.coverage.accesses, view.coverage.typed), (4.0, 2.0));
    assert_eq!(view.coverage.untyped["stack"], 2.0);
    assert_eq!(types(&input(&[], &members, &samples)), None);
}

#[test]
fn an_exact_run_gives_misses_by_level_and_shares_of_all_accesses() {
    let rows = [typed(0x10, "a", 0)];
    let members = members();
    let row = |counts| CacheCounts {
        loads: 90.0,
        stores: 10.0,
        ..total(CacheLevel::L1d, counts)
    };
    let caches = [
        row([80.0, 20.0, 0.0]),
        instruction(
            0x10,
            CacheCounts {
                loads: 40.0,
                stores: 10.0,
                subject: CacheSubject::Instruction,
                ..total(CacheLevel::L1d, [45.0, 5.0, 0.0])
            },
        ),
    ];
    let view = types(&Input {
        caches: &caches,
        ..input(&rows, &members, &[])
    })
    .expect("typed accesses");
    let row = &view.types[0];
    assert_eq!(
        row.cost,
        TypeCost {
            ns: 0.0,
            share: 0.5
        }
    );
    assert_eq!((row.misses[0].misses, row.misses[0].share), (5.0, 0.25));
    assert_eq!((row.fields[0].loads, row.fields[0].stores), (40.0, 10.0));
}

#[test]
fn a_layout_of_an_exact_run_does_not_claim_to_know_all_threads() {
    let typed = [
        typed(0x10, "a", 0),
        typed(0x20, "b", 8),
        typed(0x30, "c", 16),
        typed(0x40, "c", 16),
    ];
    let moved = |from: (u32, u64, u64), to: (u32, u64, u64), operation| TransferCount {
        pid: Some(sampled_rows::PID),
        line: Some(Address(OBJECT)),
        from_tid: Some(Tid(from.0)),
        to_tid: Some(Tid(to.0)),
        from_ip: Some(Address(from.1)),
        from_operation: Some(Operation::Update),
        to_ip: Some(Address(to.1)),
        to_operation: Some(operation),
        from_bytes: 0xff << from.2,
        to_bytes: 0xff << to.2,
        from_block: None,
        to_block: None,
        sharing: Sharing::False,
        count: 10.0,
    };
    let transfers = [
        moved((1, 0x10, 0), (2, 0x20, 8), Operation::Update),
        moved((2, 0x20, 8), (3, 0x30, 16), Operation::Load),
    ];
    // Threads store to `c` while they have the line for themselves.
    let stores = CacheCounts {
        stores: 5.0,
        pid: Some(sampled_rows::PID),
        ..instruction(0x40, total(CacheLevel::L1d, [0.0, 0.0, 0.0]))
    };
    let members = members();
    let view = types(&Input {
        caches: &[stores],
        transfers: &transfers,
        ..input(&typed, &members, &[])
    });
    let view = view.expect("typed accesses");
    let layout = view.types[0].layout.as_ref().expect("a layout");
    let whys: Vec<&str> = layout.groups.iter().map(|it| it.why.as_str()).collect();
    assert!(whys.contains(&"written by 1, and maybe others"), "{whys:?}");
    assert!(
        whys.contains(&"written, read by 3, and maybe others"),
        "{whys:?}"
    );
}

#[test]
fn padding_is_shown_between_the_members_and_behind_them() {
    let rows = [TypedAccess {
        type_size: 32,
        ..typed(0x10, "a", 0)
    }];
    let members: Vec<TypeMember> = [member("a", 0), member("c", 16)]
        .into_iter()
        .map(|member| TypeMember {
            type_size: 32,
            ..member
        })
        .collect();
    let samples = [sample(1, 0x10, OBJECT, Operation::Load)];
    let view = types(&input(&rows, &members, &samples)).expect("typed accesses");
    let drawn: Vec<_> = view.types[0]
        .fields
        .iter()
        .map(|field| (field.offset, field.size, field.padding))
        .collect();
    assert_eq!(
        drawn,
        [(0, 8, false), (8, 8, true), (16, 8, false), (24, 8, true)]
    );
}

/// Whether `compiler` takes `source`; `None`, with a word, if it is not there.
fn compiles(compiler: &str, arguments: &[&str], name: &str, source: &str) -> Option<bool> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join(name);
    std::fs::write(&file, source).expect("source written");
    match std::process::Command::new(compiler)
        .args(arguments)
        .arg(&file)
        .current_dir(folder.path())
        .output()
    {
        Ok(output) => {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            Some(output.status.success())
        }
        Err(error) => {
            eprintln!("skipped: {compiler} cannot be run ({error}); install it to run this test");
            None
        }
    }
}

#[test]
fn the_proposed_source_compiles_and_keeps_the_members_apart() {
    let apart = |language: &str, text: &str| {
        let (mut rows, samples) = shared();
        let name = if language == "c" {
            "struct both"
        } else {
            "both"
        };
        for row in &mut rows {
            row.type_name = name.into();
        }
        let members: Vec<TypeMember> = members()
            .into_iter()
            .map(|member| TypeMember {
                language: language.into(),
                member_type: text.into(),
                type_name: name.into(),
                ..member
            })
            .collect();
        let view = types(&input(&rows, &members, &samples)).expect("typed accesses");
        view.types[0].layout.clone().expect("a layout").source
    };
    // What is printed of a member in the place of its declaration.
    let pasted = |source: &str, kind: &str, end: &str| -> String {
        let declared = |name: &str| {
            let is_of = |line: &&str| {
                line.contains(&format!(" {name};")) || line.starts_with(&format!("{name}: "))
            };
            let found = source.lines().find(is_of).map(str::to_owned);
            found.unwrap_or_else(|| match end {
                ";" => format!("{kind} {name};"),
                _ => format!("{name}: {kind},"),
            })
        };
        let members = ["a", "b", "c"].map(declared).join("\n");
        format!("struct both {{\n{members}\n}}{end}\n")
    };
    let asserts = "_Static_assert(offsetof(struct both, a) / 64 != offsetof(struct both, b) / 64 \
                   && offsetof(struct both, b) / 64 != offsetof(struct both, c) / 64, \"apart\");\n\
                   _Static_assert(_Alignof(struct both) == 64, \"aligned\");\n";
    let c = format!("#include <stddef.h>\n{}{asserts}", apart("c", "long"));
    let checked = compiles("gcc", &["-std=c11", "-fsyntax-only"], "both.c", &c);
    assert_ne!(checked, Some(false), "{c}");
    let cpp = format!(
        "#include <cstddef>\n#define _Static_assert static_assert\n#define _Alignof alignof\n{}{asserts}",
        pasted(&apart("c++", "long"), "long", ";")
    );
    let checked = compiles("g++", &["-std=c++17", "-fsyntax-only"], "both.cc", &cpp);
    assert_ne!(checked, Some(false), "{cpp}");
    let rust = format!(
        "#![allow(dead_code)]\nmod crossbeam_utils {{ #[repr(align(64))] pub struct CachePadded<T>(pub T); }}\n{}\nconst _: () = assert!(std::mem::size_of::<both>() == 192);\n",
        pasted(&apart("rust", "u64"), "u64", "")
    );
    let flags = [
        "--crate-type",
        "lib",
        "--edition",
        "2024",
        "--emit",
        "metadata",
    ];
    assert_ne!(
        compiles("rustc", &flags, "both.rs", &rust),
        Some(false),
        "{rust}"
    );
}

#[test]
fn a_type_is_proposed_as_its_program_can_write_it() {
    let source = |language: &str, name: &str, last: &str| {
        let (mut rows, samples) = shared();
        for row in &mut rows {
            row.type_name = name.into();
        }
        let members = members().into_iter().map(|it| TypeMember {
            language: language.into(),
            type_name: name.into(),
            member_type: if it.name == "c" { last } else { "long" }.into(),
            ..it
        });
        let members: Vec<TypeMember> = members.collect();
        let view = types(&input(&rows, &members, &samples)).expect("typed accesses");
        view.types[0].layout.clone().expect("a layout").source
    };
    // Named by a typedef alone.
    let named = source("c", "both_t", "long");
    let begin =
        "typedef struct {\n    /* Members lie in another order: initialise them by name. */\n";
    assert!(named.starts_with(begin) && named.ends_with("} both_t;\n"));
    // What has no name, or must end with its last member, stays as it is but for what is aligned.
    for (name, last) in [("(anonymous struct)", "long"), ("struct both", "long[]")] {
        let aligned = source("c", name, last);
        assert!(!aligned.contains("struct"), "{aligned}");
        assert!(aligned.contains("_Alignas(64) long b;\n"), "{aligned}");
    }
    // What functions, initial values and base classes a class has is not known.
    let class = source("c++", "shop::both", "long");
    assert!(class.contains("alignas(64) long c;\n") && !class.contains("struct"));
    // Nor what the members of an instance are in its template.
    assert_eq!(source("c++", "both<long>", "long"), "");
    assert_eq!(source("c", "union both", "long"), "");
    // Fields of Rust keep their names; a tuple's have none.
    let fields = source("rust", "both", "shop::Order");
    let padded = "b: crossbeam_utils::CachePadded<long>, //";
    assert!(
        fields.contains(padded) && !fields.contains("struct"),
        "{fields}"
    );
}

#[test]
fn what_has_no_name_is_called_by_its_type() {
    let field = |name: &str, type_name: &str, padding| FieldRow {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        padding,
        offset: 0,
        size: 8,
        share: 0.0,
        loads: 0.0,
        stores: 0.0,
        threads: Vec::new(),
    };
    assert_eq!(field("head", "long", false).label(), "head");
    assert_eq!(
        field("", "_Vector_base<int>", false).label(),
        "(_Vector_base<int>)"
    );
    assert_eq!(field("", "", true).label(), "(padding)");
}

#[test]
fn a_go_struct_is_padded_since_its_language_aligns_nothing() {
    let (typed, samples) = shared();
    let go = |name: &str, offset: u64| TypeMember {
        type_name: "main.both".into(),
        member_type: if name == "c" { "*main.other" } else { "uint64" }.into(),
        language: "go".into(),
        ..member(name, offset)
    };
    let members = [go("a", 0), go("b", 8), go("c", 16)];
    let typed: Vec<_> = typed
        .into_iter()
        .map(|it| TypedAccess {
            type_name: "main.both".into(),
            ..it
        })
        .collect();
    let view = types(&input(&typed, &members, &samples)).expect("typed accesses");
    let layout = view.types[0].layout.as_ref().expect("a layout");
    let source = &layout.source;
    assert!(source.starts_with("type both struct {\n"), "{source}");
    assert!(source.contains("\tc *other\n"), "{source}");
    assert_eq!(source.matches("\t_ [56]byte\n").count(), 3, "{source}");
    assert_eq!(layout.size_after, 192);
}

#[test]
fn what_debug_info_is_missing_is_told_with_the_accesses_that_it_would_type() {
    let (mut rows, samples) = shared();
    rows.retain(|row| row.ip.0 != 0x10);
    let frame = |address, reason: &str| Frame {
        pid: sampled_rows::PID,
        address: Address(address),
        depth: 0,
        function: "f".to_owned(),
        file: String::new(),
        line: 0,
        module: String::new(),
        reason: reason.to_owned(),
    };
    let frames = [frame(0x10, "no debug info in a"), frame(0x20, "no line")];
    let of = |typed: &[TypedAccess]| {
        let view = types(&Input {
            frames: &frames,
            ..input(typed, &[], &samples)
        });
        let missing = view.expect("frames").coverage.missing;
        let pair = |it: MissingInfo| (it.reason, it.accesses);
        missing.into_iter().map(pair).collect::<Vec<_>>()
    };
    let at = |ip| samples.iter().filter(|it| it.access_ip.0 == ip).count() as f64;
    // What has a type misses nothing, whatever its frame says.
    assert_eq!(of(&rows), [("no debug info in a".to_owned(), at(0x10))]);
    let mut all = of(&[]);
    all.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [("no debug info in a", at(0x10)), ("no line", at(0x20))];
    assert_eq!(all, expected.map(|(why, count)| (why.to_owned(), count)));
    assert!(at(0x10) > 0.0 && at(0x20) > 0.0);
    assert_eq!(types(&input(&[], &[], &samples)), None);
}
