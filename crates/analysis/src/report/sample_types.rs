//! A made-up data profile: a struct that two threads write, and one that only one uses.

use super::super::model::{
    Coverage, CrowdedSet, CrowdedType, FieldRow, FieldThread, FlowEdge, FlowNode, FlowPath,
    FlowRow, FlowSite, Group, Layout, LevelHits, LevelSet, MissRow, MissingInfo, Reached, Report,
    TypeCost, TypeRow, TypeSet,
};
use super::HOSTILE;
use linewise_recording::{CacheLevel, PathEvent};

fn field(name: &str, offset: u64, size: u64, uses: [f64; 3], tids: &[u32]) -> FieldRow {
    let [share, loads, stores] = uses;
    let count = tids.len().max(1) as f64;
    FieldRow {
        name: name.to_owned(),
        type_name: if name.is_empty() { "" } else { "long" }.to_owned(),
        padding: name.is_empty(),
        offset,
        size,
        share,
        loads,
        stores,
        threads: tids
            .iter()
            .map(|&tid| FieldThread {
                tid,
                name: "worker".to_owned(),
                loads: loads / count,
                stores: stores / count,
                updates: 0.0,
            })
            .collect(),
    }
}

fn reached(through: &str, uses: [f64; 3], tids: &[u32]) -> Reached {
    let row = field(through, 0, 0, uses, tids);
    Reached {
        through: row.name,
        share: row.share,
        loads: row.loads,
        stores: row.stores,
        threads: row.threads,
    }
}

/// `report` with a data profile.
pub(super) fn with_types(report: &mut Report) {
    report.types = vec![struct_both(), struct_private(), numbers()];
    report.misses = misses();
    report.working_set = working_set();
    report.flow = vec![flow()];
    report.type_coverage = Some(coverage());
}

/// A type that two threads write.
fn struct_both() -> TypeRow {
    TypeRow {
        name: "struct both".to_owned(),
        description: "/src/both.c:12".to_owned(),
        size: 32,
        cost: TypeCost {
            ns: 9.1e9,
            share: 0.41,
        },
        accesses: 1834.0,
        misses: Vec::new(),
        lines_seen: 1,
        objects: 1,
        allocated_at: Vec::new(),
        bounces: true,
        variables: vec!["both".to_owned()],
        fields: vec![
            field("a", 0, 8, [0.45, 12.0, 700.0], &[41312]),
            field("b", 8, 8, [0.43, 9.0, 680.0], &[41313]),
            field("flag", 16, 1, [0.12, 433.0, 0.0], &[41312, 41313]),
            field("", 17, 15, [0.0; 3], &[]),
        ],
        layout: Some(Layout {
            groups: vec![
                Group {
                    why: "only read, by worker 41312, worker 41313".to_owned(),
                    members: vec!["flag".to_owned()],
                },
                Group {
                    why: "written by worker 41312".to_owned(),
                    members: vec!["a".to_owned()],
                },
                Group {
                    why: "written by worker 41313".to_owned(),
                    members: vec!["b".to_owned()],
                },
            ],
            size_before: 32,
            size_after: 192,
            padding_before: 15,
            padding_after: 175,
            saves_at_most: 0.41,
            saves_at_least: 0.1,
            source: "struct both {\n    /* only read, by worker 41312, worker 41313 */\n    \
                     _Alignas(64) long flag;\n};\n"
                .to_owned(),
        }),
        owner: String::new(),
        reached: vec![
            reached("server.both", [0.8, 40.0, 900.0], &[41312]),
            reached("argument (local)", [0.2, 4.0, 480.0], &[41313]),
        ],
    }
}

/// A type that one thread writes.
fn struct_private() -> TypeRow {
    TypeRow {
        name: "struct private".to_owned(),
        description: String::new(),
        size: 8,
        cost: TypeCost {
            ns: 1e8,
            share: 0.004,
        },
        accesses: 20.0,
        misses: Vec::new(),
        lines_seen: 3,
        objects: 2,
        allocated_at: vec!["make_sessions (sessions.c:31)".to_owned()],
        bounces: false,
        variables: Vec::new(),
        fields: vec![field("count", 0, 8, [1.0, 0.0, 20.0], &[41312])],
        layout: None,
        owner: String::new(),
        reached: Vec::new(),
    }
}

/// A type without members, known by what leads to it.
fn numbers() -> TypeRow {
    TypeRow {
        name: "unsigned int".to_owned(),
        description: String::new(),
        size: 4,
        cost: TypeCost {
            ns: 2.2e9,
            share: 0.1,
        },
        accesses: 447.0,
        misses: Vec::new(),
        lines_seen: 390,
        objects: 0,
        allocated_at: Vec::new(),
        bounces: false,
        variables: Vec::new(),
        fields: Vec::new(),
        reached: vec![
            reached("matcher.hash_table", [0.63, 201.0, 80.0], &[41312, 41313]),
            reached("end (local)", [0.37, 166.0, 0.0], &[41312]),
        ],
        layout: None,
        owner: String::new(),
    }
}

fn misses() -> Vec<MissRow> {
    vec![
        MissRow {
            type_name: "struct both".to_owned(),
            share: 0.9,
            true_sharing: 0.04,
            false_sharing: 0.96,
            ..MissRow::default()
        },
        MissRow {
            type_name: "unsigned int".to_owned(),
            through: "matcher.hash_table".to_owned(),
            share: 0.1,
            compulsory: 0.2,
            capacity: 0.5,
            conflict: 0.3,
            ..MissRow::default()
        },
    ]
}

fn working_set() -> Vec<LevelSet> {
    vec![LevelSet {
        level: CacheLevel::L1d,
        size_bytes: 32 << 10,
        tid: Some(41312),
        in_use_bytes: 104_000.0,
        types: vec![TypeSet {
            type_name: "struct both".to_owned(),
            through: String::new(),
            lines_seen: 812,
            bytes: 104_000.0,
            share: 1.0,
            blocks_seen: 40,
            allocated_at: vec!["make (/src/both.c:30)".to_owned()],
        }],
        crowded: vec![CrowdedSet {
            set: 3,
            lines: 24,
            types: vec![CrowdedType {
                type_name: "struct both".to_owned(),
                through: String::new(),
                lines: 24,
                stride: 4096,
            }],
        }],
    }]
}

fn coverage() -> Coverage {
    Coverage {
        accesses: 2000.0,
        typed: 1854.0,
        untyped: [
            ("stack".to_owned(), 100.0),
            ("no-debug-info".to_owned(), 46.0),
        ]
        .into(),
        missing: vec![MissingInfo {
            reason: "no debug info in /usr/lib/libqueue.so; install libqueue1-dbgsym (or -dbg), or build it with -g".to_owned(),
            accesses: 46.0,
        }],
    }
}

/// Objects that most often go to another thread.
fn flow() -> FlowRow {
    let node = |id, event, function: &str, thread, frequency| FlowNode {
        id,
        event,
        function: function.to_owned(),
        place: format!("/src/both.c:{}", 30 + id),
        thread,
        frequency,
        touches: match event {
            PathEvent::Accessed => vec!["a".to_owned(), "+8".to_owned()],
            PathEvent::Allocated | PathEvent::Freed => Vec::new(),
        },
        time_ns: 1200.0 * id as f64,
        sampled_share: if id == 2 { 0.8 } else { 0.1 },
        cpu_change: 0.0,
        hits: (id == 2).then_some(LevelHits {
            l1: 0.625,
            l2: 0.0,
            llc: 0.0,
            core: 0.25,
            memory: 0.125,
        }),
        latency_ns: (id == 2).then_some(34.0),
    };
    let edge = |from, to, frequency, thread_change| FlowEdge {
        from,
        to,
        frequency,
        thread_change,
    };
    let path = |frequency, histories, nodes: &[u64]| FlowPath {
        frequency,
        histories,
        nodes: nodes.to_vec(),
    };
    FlowRow {
        type_name: "struct both".to_owned(),
        size: 32,
        allocated_at: "make (/src/both.c:30)".to_owned(),
        sites: vec![
            FlowSite {
                allocated_at: "make (/src/both.c:30)".to_owned(),
                size: 32,
                histories: 400,
            },
            FlowSite {
                allocated_at: "make_many (/src/both.c:36)".to_owned(),
                size: 64,
                histories: 12,
            },
        ],
        histories: 412,
        nodes: vec![
            node(0, PathEvent::Allocated, "make", 0, 1.0),
            node(1, PathEvent::Accessed, "fill", 0, 1.0),
            node(2, PathEvent::Accessed, "consume", 1, 0.7),
            node(3, PathEvent::Freed, "free", 1, 0.7),
            node(4, PathEvent::Freed, "free", 0, 0.3),
        ],
        edges: vec![
            edge(0, 1, 1.0, false),
            edge(1, 2, 0.7, true),
            edge(1, 4, 0.3, false),
            edge(2, 3, 0.7, false),
        ],
        paths: vec![path(0.7, 288, &[0, 1, 2, 3]), path(0.3, 124, &[0, 1, 4])],
    }
}

/// Hostile and endless names wherever the data profile of `report` has one.
pub(super) fn make_hostile(report: &mut Report, endless: &str) {
    for row in &mut report.types {
        row.name = format!("{HOSTILE}{endless}");
        row.description = format!("/{HOSTILE}/{endless}.c:1");
        row.allocated_at = vec![format!("{endless}{HOSTILE}")];
        for field in &mut row.fields {
            field.name = format!("{endless}{HOSTILE}");
            field.type_name = HOSTILE.to_owned();
            field.offset = u64::MAX;
            field.size = u64::MAX;
            for thread in &mut field.threads {
                thread.name = HOSTILE.to_owned();
            }
        }
        if let Some(layout) = &mut row.layout {
            layout.source = format!("struct {HOSTILE} {{ {endless} }};");
            for group in &mut layout.groups {
                group.why = HOSTILE.to_owned();
                group.members = vec![format!("{endless}{HOSTILE}")];
            }
        }
    }
    for level in &mut report.working_set {
        level.in_use_bytes = f64::MAX;
        for row in &mut level.types {
            row.type_name = format!("{HOSTILE}{endless}");
            row.allocated_at = vec![format!("{endless}{HOSTILE}")];
        }
        for row in level.crowded.iter_mut().flat_map(|set| &mut set.types) {
            row.type_name = format!("{HOSTILE}{endless}");
            row.stride = u64::MAX;
        }
    }
    for row in &mut report.flow {
        row.type_name = format!("{HOSTILE}{endless}");
        row.allocated_at = format!("{endless}{HOSTILE}");
        for node in &mut row.nodes {
            node.function = format!("{HOSTILE}{endless}");
            node.place = format!("/{HOSTILE}/{endless}.c:1");
            node.touches = vec![format!("{endless}{HOSTILE}")];
            node.time_ns = f64::MAX;
        }
    }
    for row in &mut report.misses {
        row.type_name = format!("{HOSTILE}{endless}");
    }
    if let Some(coverage) = &mut report.type_coverage {
        coverage.untyped.insert(HOSTILE.to_owned(), 3.0);
        for missing in &mut coverage.missing {
            missing.reason = format!("{HOSTILE}{endless}");
        }
    }
}
