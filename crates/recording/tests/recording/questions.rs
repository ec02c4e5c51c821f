//! The questions of `docs/tables.md`: what each asks, in SQL, and what is true of the committed recording.

use std::collections::{BTreeMap, BTreeSet};

use linewise_recording::{Address, Operation, SampleClass, Tables};

/// The rows of an answer, as text; `None` is a null.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

/// One question.
pub(crate) struct Question {
    /// What a reader wants to know.
    pub(crate) title: &'static str,
    /// What stands below the title; empty if nothing.
    pub(crate) note: &'static str,
    pub(crate) sql: &'static str,
    /// The answer, counted from the rows as our reader has them.
    pub(crate) expected: fn(&Tables) -> Rows,
}

pub(crate) const QUESTIONS: &[Question] = &[
    Question {
        title: "In which functions does each thread spend its time?",
        note: "`frames` has several rows for an address in inlined code; `depth = 0` is the innermost.",
        sql: "\
select s.tid, f.function, sum(s.weight) / 1e6 as ms
from 'samples.parquet' s
left join 'frames.parquet' f on f.pid = s.pid and f.depth = 0
     and f.address = case when s.access_ip = 0 then s.ip else s.access_ip end
group by all order by ms desc, tid, function nulls last limit 20",
        expected: functions,
    },
    Question {
        title: "Which lines do several threads touch, and who writes?",
        note: "Of processes that share memory each has its own rows.",
        sql: "\
select printf('0x%x', s.address - s.address % r.line_size) as line, count(distinct tid) as threads,
       list_sort(list(distinct tid) filter (operation <> 'load')) as writers, sum(weight) / 1e6 as ms
from 'samples.parquet' s, 'run.parquet' r
where class = 'access'
group by s.pid, line having threads > 1 order by ms desc, line",
        expected: lines,
    },
    Question {
        title: "How busy was each CPU over time?",
        note: "In slices of 100 ms from the beginning.",
        sql: "\
select s.cpu, (s.time - r.start) // 100000000 as slice, count(*) as samples, sum(s.weight) / 1e6 as ms
from 'samples.parquet' s, 'run.parquet' r
group by all order by cpu, slice",
        expected: busy_cpus,
    },
    Question {
        title: "Who holds the most heap memory?",
        note: "The first address of the chain is the innermost caller of the allocator.",
        sql: "\
select h.allocator, h.stack, f.function, sum(h.live_bytes) as bytes, sum(h.live_blocks) as blocks
from 'heap_sites.parquet' h
left join 'stacks.parquet' k on k.id = h.stack
left join 'frames.parquet' f on f.pid = h.pid and f.address = k.frames[1] and f.depth = 0
group by all order by bytes desc, stack limit 20",
        expected: heap_sites,
    },
    Question {
        title: "What was lost, and when?",
        note: "",
        sql: "\
select l.what, sum(l.count) as lost, (min(l.time) - any_value(r.start)) / 1e6 as first_ms, any_value(l.detail) as detail
from 'losses.parquet' l, 'run.parquet' r
group by l.what order by first_ms, what",
        expected: losses,
    },
    Question {
        title: "How often does each thread move to another CPU?",
        note: "",
        sql: "\
select tid, count(*) as stays, count(*) filter (cpu <> before) as migrations
from (select tid, cpu, lag(cpu) over (partition by tid order by start) as before from 'switches.parquet')
group by tid order by migrations desc, tid",
        expected: migrations,
    },
    Question {
        title: "In which module is an address, and where in its file?",
        note: "`qualify` takes what was mapped there last. The offset is what `addr2line` and `objdump` ask for, but for the difference of \
addresses and offsets in the file (`readelf -lW`).",
        sql: "\
select printf('0x%x', s.ip) as ip, m.path, m.build_id, printf('0x%x', s.ip - m.start + m.byte_offset) as file_offset
from (select pid, ip, max(time) as time from 'samples.parquet' group by all) s
join 'maps.parquet' m on m.pid = s.pid and s.ip >= m.start and s.ip < m.stop and m.time <= s.time
qualify row_number() over (partition by s.pid, s.ip order by m.time desc) = 1
order by s.ip",
        expected: modules,
    },
    Question {
        title: "Which watched lines do other threads come to?",
        note: "A watch ends with the first access of each watched chunk; the mean time until then says how often the thread comes.",
        sql: "\
select printf('0x%x', w.address - w.address % r.line_size) as line, w.tid, count(distinct w.id) as watches,
       count(t.watch) as traps, avg(t.exposure_ns) as mean_wait_ns
from 'watches.parquet' w
left join 'traps.parquet' t on t.watch = w.id, 'run.parquet' r
group by w.pid, line, w.tid order by traps desc, line, w.tid",
        expected: traps,
    },
    Question {
        title: "Which members of which types cost the most time?",
        note: "",
        sql: "\
select a.type_name, a.byte_offset, a.path, sum(s.weight) / 1e6 as ms
from 'samples.parquet' s
join 'typed_accesses.parquet' a on a.pid = s.pid and a.ip = s.access_ip and a.reason is null
group by all order by ms desc, type_name, byte_offset limit 20",
        expected: members,
    },
    Question {
        title: "Why do samples have no access?",
        note: "",
        sql: "\
select class, reason, count(*) as samples
from 'samples.parquet' where class <> 'access'
group by all order by samples desc, class, reason",
        expected: reasons,
    },
    Question {
        title: "Which threads use which share of the machine?",
        note: "A thread that runs another program has a row for each.",
        sql: "\
select t.pid, t.tid, arg_max(t.name, t.stop) as name, sum(t.cpu_time_ns) / any_value(r.stop - r.start) as cpus
from 'threads.parquet' t, 'run.parquet' r
group by t.pid, t.tid order by cpus desc, tid",
        expected: threads,
    },
    Question {
        title: "Which session and phase of which thread did the samples fall into?",
        note: "The program marks them with `linewise.h`. `left join` instead would add the time without a mark.",
        sql: "\
select m.kind, m.id, m.name, s.tid, count(*) as samples, sum(s.weight) / 1e6 as ms
from 'samples.parquet' s
join 'marks.parquet' m on m.pid = s.pid and m.tid = s.tid and s.time >= m.start and s.time < m.stop
group by all order by ms desc, m.kind, m.id, m.name, s.tid limit 20",
        expected: marks,
    },
];

fn text(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

/// A floating-point number as Python shows it.
fn number(value: f64) -> Option<String> {
    Some(format!("{value:?}"))
}

fn hex(value: u64) -> Option<String> {
    Some(format!("{value:#x}"))
}

/// Rows by descending number, then by their key.
fn descending<K: Clone>(rows: BTreeMap<K, f64>) -> Vec<(K, f64)> {
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    rows
}

fn functions(tables: &Tables) -> Rows {
    let mut found: BTreeMap<(u32, bool, Option<String>), f64> = BTreeMap::new();
    for sample in &tables.samples {
        let at = match sample.access_ip {
            Address(0) => sample.ip,
            access => access,
        };
        let mut frames = tables.frames.iter().filter(|it| it.depth == 0);
        let frame = frames.find(|it| (it.pid, it.address) == (sample.pid, at));
        let function = frame.map(|it| it.function.clone());
        let key = (sample.tid.0, function.is_none(), function);
        *found.entry(key).or_default() += sample.weight as f64 / 1e6;
    }
    let rows = descending(found).into_iter();
    rows.map(|((tid, _, function), ms)| vec![text(tid), function, number(ms)])
        .collect()
}

fn lines(tables: &Tables) -> Rows {
    let mut found: BTreeMap<u64, (BTreeSet<u32>, BTreeSet<u32>, u64)> = BTreeMap::new();
    let accesses = tables.samples.iter();
    for sample in accesses.filter(|it| it.class == SampleClass::Access) {
        let (threads, writers, weight) = found.entry(sample.address.line(64).0).or_default();
        threads.insert(sample.tid.0);
        if sample.operation != Some(Operation::Load) {
            writers.insert(sample.tid.0);
        }
        *weight += sample.weight;
    }
    let shared = found
        .into_iter()
        .filter(|(_, (threads, ..))| threads.len() > 1);
    shared
        .map(|(line, (threads, writers, weight))| {
            let writers: Vec<u32> = writers.into_iter().collect();
            let ms = weight as f64 / 1e6;
            vec![
                hex(line),
                text(threads.len()),
                Some(format!("{writers:?}")),
                number(ms),
            ]
        })
        .collect()
}

fn busy_cpus(tables: &Tables) -> Rows {
    const START: u64 = 1_000_000;
    let mut found: BTreeMap<(u32, u64), (u64, u64)> = BTreeMap::new();
    for sample in &tables.samples {
        let slice = (sample.time.0 - START) / 100_000_000;
        let (count, weight) = found.entry((sample.cpu.0, slice)).or_default();
        *count += 1;
        *weight += sample.weight;
    }
    let rows = found.into_iter();
    rows.map(|((cpu, slice), (count, weight))| {
        vec![
            text(cpu),
            text(slice),
            text(count),
            number(weight as f64 / 1e6),
        ]
    })
    .collect()
}

/// Each site has a call chain of its own, and all hold the same.
fn heap_sites(tables: &Tables) -> Rows {
    let row = |site: &linewise_recording::HeapSite| {
        let (bytes, blocks) = (number(site.live_bytes), number(site.live_blocks));
        vec![text(site.allocator), text(site.stack), None, bytes, blocks]
    };
    tables.heap_sites.iter().map(row).collect()
}

fn losses(tables: &Tables) -> Rows {
    let row = |loss: &linewise_recording::Loss| {
        let ms = (loss.time.0 - 1_000_000) as f64 / 1e6;
        vec![
            text(&loss.what),
            text(loss.count),
            number(ms),
            text(&loss.detail),
        ]
    };
    tables.losses.iter().map(row).collect()
}

/// One thread has one stay.
fn migrations(tables: &Tables) -> Rows {
    let row = |stay: &linewise_recording::Switch| vec![text(stay.tid), text(1), text(0)];
    tables.switches.iter().map(row).collect()
}

fn modules(tables: &Tables) -> Rows {
    let ips: BTreeSet<u64> = tables.samples.iter().map(|it| it.ip.0).collect();
    let row = |ip: u64| {
        let mut maps = tables.maps.iter();
        let map = maps.find(|it| (it.start.0..it.end.0).contains(&ip))?;
        let offset = ip - map.start.0 + map.offset;
        Some(vec![
            hex(ip),
            text(&map.path),
            text(&map.build_id),
            hex(offset),
        ])
    };
    ips.into_iter().filter_map(row).collect()
}

/// All watches are of one line in one thread.
fn traps(tables: &Tables) -> Rows {
    let waits = tables.traps.iter().map(|it| it.exposure_ns as f64);
    let mean = waits.sum::<f64>() / tables.traps.len() as f64;
    let counts = [tables.watches.len(), tables.traps.len()].map(text);
    let line = hex(tables.watches[0].address.line(64).0);
    let [watches, traps] = counts;
    vec![vec![
        line,
        text(tables.watches[0].tid),
        watches,
        traps,
        number(mean),
    ]]
}

/// One instruction makes all accesses.
fn members(tables: &Tables) -> Rows {
    let accesses = tables.samples.iter().filter(|it| it.access_ip.0 != 0);
    let weight: u64 = accesses.map(|it| it.weight).sum();
    let typed = &tables.typed_accesses[0];
    let ms = number(weight as f64 / 1e6);
    vec![vec![
        text(&typed.type_name),
        text(typed.offset),
        text(&typed.path),
        ms,
    ]]
}

fn reasons(tables: &Tables) -> Rows {
    let mut found: BTreeMap<(&str, Option<&str>), f64> = BTreeMap::new();
    let others = tables.samples.iter();
    for sample in others.filter(|it| it.class != SampleClass::Access) {
        let key = (sample.class.word(), sample.reason.map(|it| it.word()));
        *found.entry(key).or_default() += 1.0;
    }
    let rows = descending(found).into_iter();
    rows.map(|((class, reason), count)| vec![text(class), reason.map(str::to_owned), text(count)])
        .collect()
}

/// Each mark has its own name among those of its thread.
fn marks(tables: &Tables) -> Rows {
    let mut found: BTreeMap<_, (f64, f64)> = BTreeMap::new();
    for sample in &tables.samples {
        let is_in = |it: &&linewise_recording::Mark| {
            it.tid == sample.tid && (it.start..it.end).contains(&sample.time)
        };
        for mark in tables.marks.iter().filter(is_in) {
            let key = (mark.kind.word(), mark.id, mark.name.clone(), mark.tid.0);
            let (samples, ms) = found.entry(key).or_default();
            *samples += 1.0;
            *ms += sample.weight as f64 / 1e6;
        }
    }
    let mut rows: Vec<_> = found.into_iter().collect();
    rows.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    let row = |((kind, id, name, tid), (samples, ms)): ((&str, u64, String, u32), (f64, f64))| {
        vec![
            text(kind),
            text(id),
            text(name),
            text(tid),
            text(samples),
            number(ms),
        ]
    };
    rows.into_iter().map(row).collect()
}

fn threads(tables: &Tables) -> Rows {
    let row = |thread: &linewise_recording::Thread| {
        let cpus = thread.cpu_time_ns as f64 / 2_000_000_000.0;
        vec![
            text(thread.pid),
            text(thread.tid),
            text(&thread.name),
            number(cpus),
        ]
    };
    tables.threads.iter().map(row).collect()
}
