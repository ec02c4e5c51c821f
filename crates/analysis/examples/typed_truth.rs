//! Are the sampled accesses of a recording typed, and rightly? Compares with what the program says of
//! its own objects (fixtures/programs/typed).
//!
//! ```sh
//! cargo run --release -p linewise-analysis --example typed_truth -- NAME.linewise [OUTPUT]
//! ```
//!
//! OUTPUT is what the program printed: where its objects are, and their fields, and which member or
//! variable holds the pointer to an array of numbers. A sampled address in
//! one of them tells the field that was touched, or the array, whatever the code says; the type and field, or
//! the holder, that linewise derived from the code alone must be that one. Prints one line of JSON.

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

/// An array of numbers, and what leads to it.
struct Array {
    holder: String,
    base: u64,
    bytes: u64,
}

#[derive(Default)]
struct Truth {
    pools: Vec<Pool>,
    arrays: Vec<Array>,
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
            let address = |index: usize| {
                u64::from_str_radix(words.get(index)?.trim_start_matches("0x"), 16).ok()
            };
            match words.first().copied() {
                Some("pool") => truth.pools.push(Pool {
                    type_name: (*words.get(1)?).to_owned(),
                    base: address(2)?,
                    size: number(3)?,
                    count: number(4)?,
                }),
                Some("held") => truth.arrays.push(Array {
                    holder: (*words.get(1)?).to_owned(),
                    base: address(2)?,
                    bytes: number(3)?,
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

    /// What leads to the array of numbers that `address` is in.
    fn holder(&self, address: u64) -> Option<&str> {
        self.arrays
            .iter()
            .find(|array| (array.base..array.base + array.bytes).contains(&address))
            .map(|array| array.holder.as_str())
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

/// Whether both name one member, each from a type of its own: `Graph.first`, `Search.graph.first`.
fn same_member(a: &str, b: &str) -> bool {
    let path = |name: &str| {
        name.split_once('.')
            .map_or(name, |(_, path)| path)
            .to_owned()
    };
    let (a, b) = (path(a), path(b));
    let ends = |whole: &str, part: &str| {
        let rest = whole.strip_suffix(part);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    ends(&a, &b) || ends(&b, &a)
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
        if let Some(holder) = truth.holder(sample.address.0) {
            checked += 1;
            if same_member(&row.through, holder) {
                right += 1;
            } else {
                let said = format!("{:x}: {holder} is not {}", row.ip.0, row.through);
                *wrong.entry(said).or_default() += 1;
            }
        }
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
