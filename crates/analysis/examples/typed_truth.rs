//! Are the sampled accesses of a recording typed, and rightly? Compares with what the program says of
//! its own objects (fixtures/programs/typed).
//!
//! ```sh
//! cargo run --release -p linewise-analysis --example typed_truth -- NAME.linewise [OUTPUT]
//! ```
//!
//! OUTPUT is what the program printed: where its objects are, and their fields. A sampled address in
//! one of them tells the field that was touched, whatever the code says; the type and field that
//! linewise derived from the code alone must be that one. Prints one line of JSON.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use linewise_recording::{Recording, SampleClass, TypedAccess};
use serde_json::json;

/// An array of objects of the program.
struct Pool {
    type_name: String,
    base: u64,
    size: u64,
    count: u64,
}

#[derive(Default)]
struct Truth {
    pools: Vec<Pool>,
    /// Name, first byte and bytes of the fields of a type.
    fields: HashMap<String, Vec<(String, u64, u64)>>,
    /// The names that a type may have in the debug info beside its own.
    names: HashMap<String, Vec<String>>,
}

impl Truth {
    fn parse(output: &str) -> Option<Self> {
        let mut truth = Self::default();
        for line in output.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| words.get(index)?.parse::<u64>().ok();
            match words.first().copied() {
                Some("pool") => truth.pools.push(Pool {
                    type_name: (*words.get(1)?).to_owned(),
                    base: u64::from_str_radix(words.get(2)?.trim_start_matches("0x"), 16).ok()?,
                    size: number(3)?,
                    count: number(4)?,
                }),
                Some("field") => truth
                    .fields
                    .entry((*words.get(1)?).to_owned())
                    .or_default()
                    .push(((*words.get(2)?).to_owned(), number(3)?, number(4)?)),
                Some("base" | "name") => truth
                    .names
                    .entry((*words.get(1)?).to_owned())
                    .or_default()
                    .push(words.get(2..)?.join(" ")),
                _ => {}
            }
        }
        Some(truth)
    }

    /// The type and the offset in it that `address` is.
    fn at(&self, address: u64) -> Option<(&Pool, u64)> {
        let pool = self
            .pools
            .iter()
            .find(|pool| (pool.base..pool.base + pool.size * pool.count).contains(&address))?;
        Some((pool, (address - pool.base) % pool.size))
    }

    /// The number of the field of `type_name` at `offset`.
    fn field(&self, type_name: &str, offset: u64) -> Option<usize> {
        self.fields
            .get(type_name)?
            .iter()
            .position(|(_, start, size)| (*start..start + size).contains(&offset))
    }

    fn is_right(&self, pool: &Pool, offset: u64, row: &TypedAccess) -> bool {
        let name = row
            .type_name
            .strip_prefix("struct ")
            .unwrap_or(&row.type_name);
        let others = self.names.get(&pool.type_name);
        let outer = name == pool.type_name
            || others.is_some_and(|names| names.iter().any(|other| other == name));
        if outer {
            return self.field(&pool.type_name, offset).is_some()
                && self.field(&pool.type_name, offset) == self.field(&pool.type_name, row.offset);
        }
        // A member by itself: code that was handed a pointer to it. It must lie where the access is,
        // and the access in it where the code says.
        let Some(field) = self.field(&pool.type_name, offset) else {
            return false;
        };
        let Some((_, start, size)) = self
            .fields
            .get(&pool.type_name)
            .and_then(|fields| fields.get(field))
        else {
            return false;
        };
        if row.type_size == 0 || row.type_size > *size {
            return false;
        }
        let within = (offset - start) % row.type_size;
        // Of an array the row names the first element.
        let element = row.path.contains("[]") && within > row.offset;
        within == row.offset || (element && (within - row.offset).is_multiple_of(row.size.max(1)))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: typed_truth NAME.linewise [OUTPUT]";
    let recording = Recording::open(Path::new(&arguments.next().ok_or(usage)?))?;
    let output = match arguments.next() {
        Some(path) => std::fs::read_to_string(path)?,
        None => String::new(),
    };
    let truth = Truth::parse(&output).ok_or("the program's output is not what is expected")?;
    let tables = recording.tables()?;
    let typed: HashMap<_, &TypedAccess> = tables
        .typed_accesses
        .iter()
        .map(|row| ((row.pid, row.ip), row))
        .collect();
    let (mut accesses, mut with_type, mut checked, mut right) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    let mut fields: BTreeMap<String, u64> = BTreeMap::new();
    let mut wrong: BTreeMap<String, u64> = BTreeMap::new();
    for sample in tables
        .samples
        .iter()
        .filter(|sample| sample.class == SampleClass::Access)
    {
        accesses += 1;
        let Some(row) = typed.get(&(sample.pid, sample.access_ip)) else {
            *reasons.entry("not resolved").or_default() += 1;
            continue;
        };
        if let Some(reason) = row.reason {
            *reasons.entry(reason.word()).or_default() += 1;
            continue;
        }
        with_type += 1;
        *fields
            .entry(format!("{}.{}", row.type_name, row.path))
            .or_default() += 1;
        let Some((pool, offset)) = truth.at(sample.address.0) else {
            continue;
        };
        checked += 1;
        if truth.is_right(pool, offset, row) {
            right += 1;
        } else {
            let said = format!(
                "{:x}: {}+{offset} is not {}+{} {}",
                row.ip.0, pool.type_name, row.type_name, row.offset, row.path
            );
            *wrong.entry(said).or_default() += 1;
        }
    }
    let mut wrong: Vec<_> = wrong.into_iter().collect();
    wrong.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    wrong.truncate(20);
    let mut fields: Vec<_> = fields.into_iter().collect();
    fields.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    fields.truncate(20);
    println!(
        "{}",
        json!({
            "accesses": accesses, "typed": with_type, "checked": checked, "right": right,
            "reasons": reasons, "wrong": wrong, "fields": fields,
        })
    );
    Ok(())
}
