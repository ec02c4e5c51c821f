//! What share of the sampled accesses of a recording has a type and a field, and why the rest has none.
//!
//! ```sh
//! cargo run --release -p linewise-analysis --example typed_shares -- NAME.linewise [--untyped N]
//! ```
//!
//! Types are derived anew, from the programs and debug info where the recording says that they are.
//! Prints one line of JSON; with `--untyped` instead the N instructions that most samples without a
//! type fell on, and with `--typed` the N that most of the others did.

use std::collections::BTreeMap;
use std::path::Path;

use linewise_analysis::resolve::{Callers, DiskFiles, Resolver, Store};
use linewise_recording::{Recording, SampleClass, UntypedReason};
use serde_json::json;

const USAGE: &str = "usage: typed_shares NAME.linewise [--untyped N | --typed N]";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let recording = Recording::open(Path::new(&arguments.next().ok_or(USAGE)?))?;
    let listed = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => None,
        (Some("--untyped"), Some(count)) => Some((false, count.parse::<usize>()?)),
        (Some("--typed"), Some(count)) => Some((true, count.parse::<usize>()?)),
        _ => return Err(USAGE.into()),
    };
    let tables = recording.tables()?;
    let mut samples: BTreeMap<_, u64> = BTreeMap::new();
    for sample in &tables.samples {
        if sample.class == SampleClass::Access {
            *samples.entry((sample.pid, sample.access_ip)).or_default() += 1;
        }
    }
    let (files, store) = (DiskFiles::default(), Store::default());
    let mut resolver = Resolver::new(&tables.maps, &tables.threads, &files, &store);
    let rows = resolver
        .typed_accesses(samples.keys().copied(), &Callers::new(&tables))
        .accesses;
    let (mut without_debug_info, mut field, mut scalar) = (0_u64, 0_u64, 0_u64);
    let (mut through_member, mut through_variable) = (0_u64, 0_u64);
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    let mut lines = Vec::new();
    for row in &rows {
        let count = samples.get(&(row.pid, row.ip)).copied().unwrap_or(0);
        let what = match row.reason {
            Some(UntypedReason::NoDebugInfo | UntypedReason::NoFunction) => {
                without_debug_info += count;
                continue;
            }
            Some(reason) => {
                *reasons.entry(reason.word()).or_default() += count;
                reason.word().to_owned()
            }
            None => {
                *match row.through.as_str() {
                    _ if !row.path.is_empty() => &mut field,
                    through if through.contains('.') => &mut through_member,
                    "" if row.variable.is_empty() => &mut scalar,
                    _ => &mut through_variable,
                } += count;
                format!(
                    "{}+{} {} {} < {}",
                    row.type_name, row.offset, row.path, row.variable, row.through
                )
            }
        };
        if listed.is_some_and(|(typed, _)| typed == row.reason.is_none()) {
            let frames = resolver.frames(row.pid, row.ip);
            let place: Vec<String> = frames
                .iter()
                .map(|frame| format!("{} {}:{}", frame.function, frame.file, frame.line))
                .collect();
            lines.push((
                count,
                format!("{:x} {what}  [{}]", row.ip.0, place.join(" < ")),
            ));
        }
    }
    if let Some((_, most)) = listed {
        lines.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        for (count, line) in lines.iter().take(most) {
            println!("{count:6} {line}");
        }
        return Ok(());
    }
    println!(
        "{}",
        json!({
            "without_debug_info": without_debug_info, "field": field, "through_member": through_member,
            "through_variable": through_variable, "scalar": scalar,
            "untyped": reasons,
        })
    );
    Ok(())
}
