//! Programs are built at test time, mapped on paper, and resolved.

mod accesses;
mod code;
mod data;
mod fetched;
mod go_allocations;
mod holders;
mod hostile;
mod own_process;
mod polls;
mod recorded;
mod split;
mod stack_slots;
mod unoptimised;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use linewise_recording::{Address, Field, Map, MapKind, Object, Pid, Time};

use super::elf::Elf;
use super::{File, Files, Resolver};

/// The process of every paper mapping.
pub(super) const PID: Pid = Pid(100);
/// Where position-independent programs are loaded on paper.
pub(super) const BASE: u64 = 0x5555_5555_0000;

/// Files that exist only in the test.
#[derive(Default)]
pub(super) struct MemoryFiles(pub(super) HashMap<String, Vec<u8>>);

impl Files for MemoryFiles {
    fn open(&self, _: Pid, path: &str) -> Option<Box<dyn File>> {
        Some(Box::new(self.0.get(path)?.clone()))
    }
}

/// A program that was built and mapped.
pub(super) struct Program {
    pub(super) files: MemoryFiles,
    pub(super) maps: Vec<Map>,
    pub(super) bias: u64,
    symbols: Vec<(String, u64)>,
}

/// The path that programs are mapped under.
pub(super) const PATH: &str = "/opt/app/program";

/// What `timeout` ends with where its command is not there.
const NOT_FOUND: i32 = 127;

/// Runs a tool; `None`, with a word on the terminal, if this machine does not have it.
pub(super) fn run_tool(name: &str, arguments: &[&str], folder: &Path) -> Option<Vec<u8>> {
    // A tool that does not end must not hold all other tests up.
    let mut command = Command::new("timeout");
    command
        .args(["120", name])
        .args(arguments)
        .current_dir(folder)
        .env("GOCACHE", folder.join("go-cache"));
    match command.output() {
        Ok(output) if output.status.code() == Some(NOT_FOUND) => {
            eprintln!("skipped: {name} is not there; install it to run this test");
            None
        }
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name} {arguments:?}: {errors}");
            Some(output.stdout)
        }
        Err(error) => {
            eprintln!("skipped: timeout cannot be run ({error}); install it to run this test");
            None
        }
    }
}

/// Builds `source` (file name and text) with `tool`, and maps the result.
pub(super) fn build(tool: &str, flags: &[&str], source: (&str, &str)) -> Option<Program> {
    build_and(tool, flags, source, |_| Some(()))
}

/// Like [`build`], with a step between that may change the file `program` in a folder.
pub(super) fn build_and(
    tool: &str,
    flags: &[&str],
    (name, text): (&str, &str),
    change: impl Fn(&Path) -> Option<()>,
) -> Option<Program> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join(name), text).expect("source written");
    let mut arguments = flags.to_vec();
    arguments.extend(["-o", "program", name]);
    run_tool(tool, &arguments, folder.path())?;
    let symbols = run_tool("nm", &["program"], folder.path())?;
    change(folder.path())?;
    let bytes = fs::read(folder.path().join("program")).expect("program read");
    let mut files = MemoryFiles::default();
    if let Ok(separate) = fs::read(folder.path().join("program.debug")) {
        files
            .0
            .insert("/opt/app/program.debug".to_owned(), separate);
    }
    let mut program = Program::from_bytes(bytes, &symbols);
    program.files.0.extend(files.0);
    Some(program)
}

/// The mappings that the kernel would make of an ELF file, and the distance that results.
pub(super) fn map_on_paper(bytes: &[u8], path: &str) -> (Vec<Map>, u64) {
    const PAGE: u64 = 4096;
    let elf = Elf::open(Box::new(bytes.to_vec())).expect("an ELF file");
    let lowest = elf
        .segments
        .iter()
        .map(|segment| segment.address)
        .min()
        .expect("segments");
    let bias = if lowest == 0 { BASE } else { 0 };
    let mut maps = Vec::new();
    for segment in &elf.segments {
        let start = bias + segment.address / PAGE * PAGE;
        let file_end = (bias + segment.address + segment.file_size).next_multiple_of(PAGE);
        let end = (bias + segment.address + segment.memory_size).next_multiple_of(PAGE);
        let map = Map {
            pid: PID,
            time: Time(1),
            start: Address(start),
            end: Address(file_end),
            offset: segment.offset / PAGE * PAGE,
            executable: segment.executable,
            writable: segment.writable,
            kind: MapKind::File,
            path: path.to_owned(),
            build_id: elf.build_id.clone(),
            device: None,
            inode: None,
        };
        if end > file_end {
            maps.push(Map {
                start: Address(file_end),
                end: Address(end),
                offset: 0,
                kind: MapKind::Anonymous,
                path: String::new(),
                build_id: String::new(),
                ..map.clone()
            });
        }
        if file_end > start {
            maps.push(map);
        }
    }
    (maps, bias)
}

impl Program {
    /// Maps `bytes` on paper; `symbols` is what `nm` says of it.
    pub(super) fn from_bytes(bytes: Vec<u8>, symbols: &[u8]) -> Self {
        let (maps, bias) = map_on_paper(&bytes, PATH);
        let mut files = MemoryFiles::default();
        files.0.insert(PATH.to_owned(), bytes);
        let symbols = String::from_utf8_lossy(symbols)
            .lines()
            .filter_map(|line| {
                let mut words = line.trim_start().splitn(3, ' ');
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                Some((words.nth(1)?.to_owned(), address))
            })
            .collect();
        Self {
            files,
            maps,
            bias,
            symbols,
        }
    }

    /// Where the symbol whose name ends in `suffix` is in memory.
    pub(super) fn address(&self, suffix: &str) -> Address {
        let symbol = self.symbols.iter().find(|(name, _)| name == suffix);
        let symbol =
            symbol.or_else(|| self.symbols.iter().find(|(name, _)| name.ends_with(suffix)));
        let (_, address) = symbol.unwrap_or_else(|| panic!("no symbol {suffix}"));
        Address(address + self.bias)
    }

    /// The last symbol whose name contains `part`.
    pub(super) fn address_of_part(&self, part: &str) -> Address {
        let symbol = self
            .symbols
            .iter()
            .rev()
            .find(|(name, _)| name.contains(part));
        let (_, address) = symbol.unwrap_or_else(|| panic!("no symbol with {part}"));
        Address(address + self.bias)
    }
}

/// `offset+size path: type` for each field.
pub(super) fn drawn(fields: &[Field]) -> Vec<String> {
    fields
        .iter()
        .map(|field| {
            format!(
                "{}+{} {}: {}",
                field.offset, field.size, field.path, field.type_name
            )
        })
        .collect()
}

/// All fields of `object`.
pub(super) fn all_fields(resolver: &mut Resolver<'_>, object: &Object) -> Vec<String> {
    drawn(&resolver.fields_in(object, object.address, object.size))
}

#[test]
fn a_part_of_a_program_that_is_mapped_once_more_ends_where_its_mapping_ends() {
    let segment = |address, offset| super::Segment {
        address,
        memory_size: 0x1_0000,
        offset,
        file_size: 0x1_0000,
        executable: offset > 0,
        writable: false,
    };
    let segments = [segment(0, 0), segment(0x1_0000, 0x1_0000)];
    let map = |start: u64, offset: u64, bytes: u64| Map {
        pid: PID,
        time: Time(1),
        start: Address(start),
        end: Address(start + bytes),
        offset,
        executable: offset > 0,
        writable: false,
        kind: MapKind::File,
        path: "/usr/bin/node".to_owned(),
        build_id: String::new(),
        device: None,
        inode: None,
    };
    let whole = [
        map(0x40_0000, 0, 0x1_0000),
        map(0x41_0000, 0x1_0000, 0x1_0000),
    ];
    let again = map(0x90_4000, 0x1_4000, 0x2000);
    let bias = again.start.0 - again.offset;
    let mappings = whole
        .iter()
        .map(|map| (map, 0x40_0000))
        .chain([(&again, bias)]);
    let loaded = super::extents(0, &segments, mappings);
    let extents: Vec<(u64, u64)> = loaded.iter().map(|it| (it.start, it.end)).collect();
    assert_eq!(extents, [(0x40_0000, 0x42_0000), (0x90_4000, 0x90_6000)]);
    // Of a program of which only its code is known to be mapped all that it has may be there.
    let loaded = super::extents(0, &segments, [(&whole[1], 0x40_0000)].into_iter());
    assert_eq!((loaded[0].start, loaded[0].end), (0x40_0000, 0x42_0000));
}
