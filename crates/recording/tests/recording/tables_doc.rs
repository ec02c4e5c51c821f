//! `docs/tables.md` says of every column what its definition says of it, and its questions are answered by DuckDB as by our
//! reader.
//!
//! To write it anew: `UPDATE_DOCS=1 cargo test -p linewise-recording --test recording tables_doc`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use linewise_recording::{ColumnKind, FORMAT_VERSION, Recording, table_columns};

use crate::questions::{QUESTIONS, Rows};
use crate::versions::fixture;

const INTRODUCTION: &str = "\
# The tables of a recording

A recording is a folder: `run.json`, and a Parquet file for each table, `samples.parquet` and so on. DuckDB, polars, pandas and
whatever else reads Parquet opens them without linewise:

```sh
linewise record -o counters -- ./counters
cd counters.linewise && duckdb -c \"from 'samples.parquet' limit 10\"
```

A table that a run has nothing for is missing or has no rows. While a recording is written, and where linewise was killed, its
tables are in pieces (`'samples.*.parquet'`) and there is no `run.parquet`. The descriptions below stand in the files, too, as
metadata of the columns in the Arrow schema (`description`, `kind`).

Tables and columns may be added. Another name for one is another `format_version` in `run.json`; linewise reads all formats. Before
format 3 some had names that SQL reserves: `end` (`stop` now), `offset` (`byte_offset`), `from` and `to` (`at_least` and `below`),
and `order` of `run` (`access_order`). Before format 2 `weight` of `samples` was `weight_ns`, and there was no `run.parquet`.

This page is derived from the source; see `crates/recording/tests/recording/tables_doc.rs`.

## Types of columns

| type | in Parquet | meaning |
|---|---|---|
| time | 64 bits, unsigned | Nanoseconds of CLOCK_MONOTONIC. Subtract `run.start` for the time since the beginning. |
| address | 64 bits, unsigned | A virtual address of the process in the row's `pid`, else of the thread's. `printf('0x%x', address)` shows it as usual. |
| addresses | list of 64 bits, unsigned | Several. |
| u8, u32, u64 | 8, 32, 64 bits, unsigned | A number. |
| f64 | double | A number, often an estimate. |
| boolean | boolean | |
| text | UTF-8 | It comes from the measured program: escape it before showing it. |
| word | UTF-8 | One of the words listed. More may be added. |
";

/// Columns that are joined with others: both sides, and what to mind.
const JOINS: &[(&str, &str, &str)] = &[
    (
        "samples.stack",
        "stacks.id",
        "Likewise every other `stack`.",
    ),
    (
        "samples.tid",
        "threads.tid",
        "With `pid`. A thread that runs another program has a row for each.",
    ),
    (
        "samples.access_ip",
        "frames.address",
        "With `pid`; likewise `samples.ip`, `traps.access_ip` and the addresses in `stacks.frames`. `depth = 0` is the innermost frame.",
    ),
    (
        "samples.access_ip",
        "typed_accesses.ip",
        "With `pid`; likewise `traps.access_ip`.",
    ),
    ("samples.ip", "polls.ip", "With `pid`."),
    ("samples.access_ip", "blocked_loads.ip", "With `pid`."),
    (
        "typed_accesses.type_name",
        "type_allocations.type_name",
        "With `type_size` and `declared_at`: where the program allocates values of that type (Go).",
    ),
    (
        "samples.tid",
        "goroutines.tid",
        "With `pid` and `time`; likewise `traps.tid`.",
    ),
    (
        "samples.tid",
        "marks.tid",
        "With `pid`: `time >= start and time < stop`; of each `kind` one row at most.",
    ),
    (
        "samples.ip",
        "maps.start",
        "With `pid`: `ip >= start and ip < stop`; of several rows the latest that is not later than the sample.",
    ),
    (
        "samples.address",
        "objects.address",
        "With `pid`: the object that begins before it, `address < objects.address + objects.size`.",
    ),
    (
        "samples.address",
        "heap_blocks.address",
        "With `pid`, likewise, `allocated <= time` and `freed` null or later.",
    ),
    (
        "traps.address",
        "stack_frames.low",
        "With `pid`: the frame that held it, `low <= address and address < high`.",
    ),
    ("fields.object", "objects.address", "With `pid`."),
    ("traps.watch", "watches.id", ""),
    ("reuse_traps.watch", "reuse_watches.id", ""),
    ("history_accesses.history", "histories.id", ""),
    (
        "type_members.type_name",
        "typed_accesses.type_name",
        "With `type_size` and `declared_at`.",
    ),
    (
        "reuse_pairs.use_path",
        "call_paths.id",
        "Likewise `reuse_path`.",
    ),
    ("call_paths.caller", "call_paths.id", ""),
    (
        "transfers.from_block",
        "heap_blocks.id",
        "Likewise `to_block`.",
    ),
    (
        "heap_sites.stack",
        "heap_blocks.stack",
        "With `pid`, `allocator` and `label`.",
    ),
    (
        "block_uses.stack",
        "heap_sites.stack",
        "With `pid` and `label`.",
    ),
    ("switches.tid", "threads.tid", ""),
    (
        "path_traces.stack",
        "heap_blocks.stack",
        "With `pid` and `size`.",
    ),
];

/// The words that DuckDB 1.4 and PostgreSQL 18 reserve: a column of that name had to be quoted.
const RESERVED: &str = "all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate \
    collation column concurrently constraint create cross current_catalog current_date current_role current_schema current_time \
    current_timestamp current_user default deferrable desc describe distinct do else end except false fetch for foreign freeze \
    from full grant group having ilike in initially inner intersect into is isnull join lambda lateral leading left like limit \
    localtime localtimestamp natural not notnull null offset on only or order outer overlaps pivot pivot_longer pivot_wider \
    placing positional primary qualify references returning right select semi session_user show similar some summarize symmetric \
    system_user table tablesample then to trailing true try_cast union unique unpivot user using variadic verbose when where \
    window with";

/// What the documentation of a row says beside the description of its table, behind a blank.
fn more_of(table: &str) -> String {
    let path = format!("{}/src/tables/{table}.rs", env!("CARGO_MANIFEST_DIR"));
    let source = fs::read_to_string(path).expect("the source of a table");
    let name = format!(" in {table}: ");
    let before = source.lines().take_while(|line| !line.contains(&name));
    let words = before.filter_map(|line| line.trim().strip_prefix("///"));
    words.collect()
}

fn document() -> String {
    let mut out = INTRODUCTION.to_owned();
    out.push_str("\n## Joins\n\n| column | joins | |\n|---|---|---|\n");
    for (from, to, note) in JOINS {
        let _ = writeln!(out, "| `{from}` | `{to}` | {note} |");
    }
    out.push_str("\nTables without the column `pid` know threads by `tid` alone, which the kernel gives to no two of the living.\n");
    for table in table_columns() {
        let _ = write!(
            out,
            "\n## {}\n\n{}{}\n\n",
            table.table,
            table.description,
            more_of(table.table)
        );
        out.push_str("| column | type | meaning |\n|---|---|---|\n");
        for column in table.columns {
            let null = if column.nullable { " or null" } else { "" };
            let words = match column.kind {
                ColumnKind::Words(words) => format!(" `{}`.", words.join("`, `")),
                _ => String::new(),
            };
            let _ = writeln!(
                out,
                "| `{}` | {}{null} | {}{words} |",
                column.name,
                column.kind.name(),
                column.description.replace('|', "\\|")
            );
        }
    }
    out.push_str(
        "\n## Questions\n\nIn the SQL of DuckDB, from within the folder of a recording.\n",
    );
    for question in QUESTIONS {
        let _ = write!(out, "\n### {}\n\n", question.title);
        if !question.note.is_empty() {
            let _ = writeln!(out, "{}\n", question.note);
        }
        let _ = writeln!(out, "```sql\n{};\n```", question.sql);
    }
    out
}

#[test]
fn the_page_about_the_tables_says_what_their_definitions_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tables.md");
    let expected = document();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &expected).expect("docs/tables.md can be written");
    }
    let actual = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        actual == expected,
        "docs/tables.md is out of date; to write it anew: \
         UPDATE_DOCS=1 cargo test -p linewise-recording --test recording tables_doc"
    );
}

#[test]
fn what_is_joined_is_there_and_of_one_kind() {
    let tables = table_columns();
    let kind_of = |path: &str| {
        let (table, column) = path.split_once('.').expect("table.column");
        let table = tables.iter().find(|it| it.table == table);
        let columns = table
            .unwrap_or_else(|| panic!("no table of {path}"))
            .columns;
        let column = columns.iter().find(|it| it.name == column);
        column.unwrap_or_else(|| panic!("no column {path}")).kind
    };
    for (from, to, _) in JOINS {
        assert_eq!(kind_of(from), kind_of(to), "{from} {to}");
    }
}

#[test]
fn no_column_is_a_reserved_word() {
    let is_reserved = |name: &str| RESERVED.split_whitespace().any(|word| word == name);
    for table in table_columns() {
        for name in table.columns.iter().map(|it| it.name).chain([table.table]) {
            assert!(
                !is_reserved(name),
                "{}.{name} must be quoted in SQL: give it another name there, `field as name`",
                table.table
            );
        }
    }
}

/// Runs the statements of its arguments, prints the rows of each as a line of JSON, or nothing without DuckDB.
const SCRIPT: &str = r"
import json, sys
try:
    import duckdb
except ImportError:
    sys.exit()
text = lambda cell: None if cell is None else str(cell)
for statement in sys.argv[1:]:
    rows = duckdb.sql(statement).fetchall()
    print(json.dumps([[text(cell) for cell in row] for row in rows]))
";

#[test]
fn the_questions_are_answered_as_counted_otherwise() {
    let dir = fixture(FORMAT_VERSION);
    let tables = Recording::open(&dir).unwrap().tables().unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT]).current_dir(&dir);
    let output = match python.args(QUESTIONS.iter().map(|it| it.sql)).output() {
        Ok(output) => output,
        Err(error) => return println!("SKIP: python3 cannot be run: {error}"),
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    if output.stdout.is_empty() {
        return println!("SKIP: this python3 has no duckdb: pip install duckdb");
    }
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.lines().count(), QUESTIONS.len());
    for (question, answer) in QUESTIONS.iter().zip(answers.lines()) {
        let rows: Rows = serde_json::from_str(answer).unwrap();
        assert!(!rows.is_empty(), "{} answers nothing", question.title);
        assert_eq!(rows, (question.expected)(&tables), "{}", question.title);
    }
}
