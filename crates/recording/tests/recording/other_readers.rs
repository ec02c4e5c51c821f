//! Others open a recording without us: pyarrow, polars and DuckDB, whichever the `python3` of the
//! search path can import. Where there is none, the test says so and passes.

use std::path::Path;
use std::process::{Command, Output};

use linewise_recording::{FORMAT_VERSION, Recording, Row, RunFacts, Sample, table_columns};

use crate::versions::fixture;

/// Prints, for each library there is: its name, then rows and distinct words of a column, then
/// the rows of each table.
const SCRIPT: &str = r#"
import sys
directory, tables = sys.argv[1], sys.argv[2].split(",")
def path(table): return f"{directory}/{table}.parquet"
def pyarrow():
    import pyarrow.parquet as parquet
    read = lambda table: parquet.read_table(path(table))
    samples = read("samples")
    note = samples.schema.field("time").metadata[b"description"].decode()
    assert "CLOCK_MONOTONIC" in note, note
    return samples["weight"].to_pylist(), samples["class"].to_pylist(), [read(t).num_rows for t in tables]
def polars():
    import polars
    read = lambda table: polars.read_parquet(path(table))
    samples = read("samples")
    return samples["weight"].to_list(), samples["class"].to_list(), [read(t).height for t in tables]
def duckdb():
    import duckdb
    rows = lambda column: [row[0] for row in duckdb.sql(f"select {column} from '{path('samples')}'").fetchall()]
    count = lambda table: duckdb.sql(f"select count(*) from '{path(table)}'").fetchall()[0][0]
    for table in tables: duckdb.sql(f"select * from '{path(table)}'").fetchall()
    return rows("weight"), rows("class"), [count(t) for t in tables]
for library in (pyarrow, polars, duckdb):
    try:
        weights, classes, counts = library()
    except ImportError:
        continue
    print(library.__name__, sum(weights), classes.count("access"), *counts)
"#;

fn python(dir: &Path, tables: &str) -> std::io::Result<Output> {
    Command::new("python3")
        .arg("-c")
        .arg(SCRIPT)
        .arg(dir)
        .arg(tables)
        .output()
}

#[test]
fn pyarrow_polars_and_duckdb_read_the_same_rows() {
    let dir = fixture(FORMAT_VERSION);
    let recording = Recording::open(&dir).unwrap();
    let samples = recording.read::<Sample>().unwrap();
    let weight: u64 = samples.iter().map(|sample| sample.weight).sum();
    let accesses = samples
        .iter()
        .filter(|sample| sample.address.0 != 0)
        .count();
    let rows = recording.tables().unwrap();
    let counts = [
        rows.samples.len(),
        rows.watches.len(),
        rows.traps.len(),
        rows.threads.len(),
        rows.switches.len(),
        rows.maps.len(),
        rows.stacks.len(),
        rows.objects.len(),
        rows.fields.len(),
        rows.frames.len(),
        rows.latencies.len(),
        rows.losses.len(),
        rows.reuse.len(),
        rows.reuse_pairs.len(),
        rows.call_paths.len(),
        rows.caches.len(),
        rows.transfers.len(),
        rows.reuse_watches.len(),
        rows.reuse_traps.len(),
        rows.heap_blocks.len(),
        rows.typed_accesses.len(),
        rows.type_members.len(),
        rows.histories.len(),
        rows.history_accesses.len(),
        rows.path_traces.len(),
        rows.block_uses.len(),
        rows.cache_contents.len(),
        rows.heap_sites.len(),
        rows.polls.len(),
        rows.marks.len(),
        rows.stack_frames.len(),
        rows.type_allocations.len(),
        rows.goroutines.len(),
        rows.blocked_loads.len(),
        recording.read::<RunFacts>().unwrap().len(),
    ];
    let expected = format!(
        "{weight} {accesses} {}",
        counts.map(|count| count.to_string()).join(" ")
    );

    let names: Vec<&str> = table_columns().iter().map(|table| table.table).collect();
    assert_eq!(names[0], Sample::TABLE);
    let output = match python(&dir, &names.join(",")) {
        Ok(output) => output,
        Err(error) => return println!("SKIP: python3 cannot be run: {error}"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    if text.trim().is_empty() {
        return println!(
            "SKIP: this python3 has none of pyarrow, polars and duckdb: pip install pyarrow duckdb"
        );
    }
    for line in text.lines() {
        let (library, read) = line.split_once(' ').unwrap();
        println!("{library} read it");
        assert_eq!(read, expected, "as {library} read it");
    }
}
