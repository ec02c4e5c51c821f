//! What every instruction of a program touches: for who wants to know why one is not typed.
//!
//! ```sh
//! cargo run --release -p linewise-analysis --example typed_code -- PROGRAM [FUNCTION]
//! ```
//!
//! Prints, for the functions whose name contains FUNCTION, the instructions that access memory with
//! type, offset and field, and at the end how many have which reason for having none.

use std::collections::BTreeMap;

use linewise_analysis::resolve::{DiskFiles, Resolver, Store};
use linewise_recording::{Address, Map, MapKind, Pid, Time, UntypedReason};
use object::{Object, ObjectSegment, ObjectSymbol, SegmentFlags};

const PID: Pid = Pid(u32::MAX);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: typed_code PROGRAM [FUNCTION]")?;
    let path = std::fs::canonicalize(path)?.display().to_string();
    let wanted = arguments.next().unwrap_or_default();
    let bytes = std::fs::read(&path)?;
    let program = object::File::parse(&*bytes)?;
    let maps: Vec<Map> = program
        .segments()
        .map(|segment| {
            let (offset, _) = segment.file_range();
            let shift = segment.address() % 4096;
            let flags = match segment.flags() {
                SegmentFlags::Elf { p_flags, .. } => p_flags.0,
                _ => 0,
            };
            Map {
                pid: PID,
                time: Time(0),
                start: Address(segment.address() - shift),
                end: Address(segment.address() + segment.size()),
                offset: offset - shift,
                executable: flags & 1 != 0,
                writable: flags & 2 != 0,
                kind: MapKind::File,
                path: path.clone(),
                build_id: String::new(),
                device: None,
                inode: None,
            }
        })
        .collect();
    let (files, store) = (DiskFiles::default(), Store::default());
    let mut resolver = Resolver::new(&maps, &[], &files, &store);
    let mut functions: Vec<_> = program
        .symbols()
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.size() > 0)
        .filter(|symbol| symbol.name().is_ok_and(|name| name.contains(&wanted)))
        .collect();
    functions.sort_by_key(ObjectSymbol::address);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for function in functions {
        println!("{}:", function.name()?);
        let start = function.address();
        for address in start..start + function.size() {
            let row = resolver.typed_access(PID, Address(address));
            match row.reason {
                // No instruction starts there, or it touches nothing.
                Some(UntypedReason::NoInstruction) => continue,
                Some(reason) => {
                    *counts.entry(reason.word()).or_default() += 1;
                    println!("  {address:x}  -- {}", reason.word());
                }
                None => {
                    *counts.entry("typed").or_default() += 1;
                    println!(
                        "  {address:x}  {}+{} [{}] {} {}",
                        row.type_name, row.offset, row.size, row.path, row.variable
                    );
                }
            }
        }
    }
    let all: u64 = counts.values().sum();
    for (what, count) in counts {
        println!(
            "{:5.1} %  {count:8}  {what}",
            100.0 * count as f64 / all.max(1) as f64
        );
    }
    Ok(())
}
