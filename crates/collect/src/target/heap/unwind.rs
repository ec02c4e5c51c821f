//! How to walk the target's stacks: rules from the call frame information of its programs.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Pointer,
    RegisterRule, UnwindContext, UnwindSection, UnwindTableRow, X86_64,
};
use linewise_heap::{Cursor, MOST_FRAMES, Rule};
use linewise_machine::procfs;
use linewise_recording::{Map, MapKind};
use object::Endianness;
use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::read::{Object, ObjectSection};

use crate::target::binary::Binary;

/// Bytes of call frame information that are read of one file, at most.
const LARGEST: u64 = 256 << 20;
/// Words of a stack that are tried as the frame pointer, at most.
const MOST_GUESSES: usize = 64;

/// A file that was mapped: its call frame information.
#[derive(Debug, Default)]
struct Module {
    eh_frame: Vec<u8>,
    eh_frame_address: u64,
    /// The linker's table of functions, and its address; empty if there is none.
    header: Vec<u8>,
    header_address: u64,
    text_address: u64,
    /// File offset, address, bytes in the file.
    segments: Vec<(u64, u64, u64)>,
    /// Where there is no such table: first address, one past the last, and where in `eh_frame` they are
    /// described; by address.
    functions: Vec<(u64, u64, usize)>,
}

impl Module {
    fn read(path: &Path) -> Option<Self> {
        let binary = Binary::open(path).ok()?;
        let data = &binary;
        let file = ElfFile64::<Endianness, _>::parse(data).ok()?;
        let endian = file.endian();
        let headers = file.elf_header().program_headers(endian, data).ok()?;
        let segments = headers
            .iter()
            .filter(|header| header.p_type(endian) == elf::PT_LOAD)
            .map(|header| {
                (
                    header.p_offset(endian),
                    header.p_vaddr(endian),
                    header.p_filesz(endian),
                )
            })
            .collect();
        let section = file.section_by_name(".eh_frame")?;
        if section.size() > LARGEST {
            return None;
        }
        let mut module = Self {
            eh_frame: section.data().ok()?.to_vec(),
            eh_frame_address: section.address(),
            text_address: file
                .section_by_name(".text")
                .map_or(0, |text| text.address()),
            segments,
            ..Self::default()
        };
        let header = file.section_by_name(".eh_frame_hdr");
        match header.and_then(|it| Some((it.address(), it.data().ok()?.to_vec()))) {
            Some((address, data)) => (module.header_address, module.header) = (address, data),
            None => module.functions = module.find_functions(),
        }
        Some(module)
    }

    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default()
            .set_eh_frame(self.eh_frame_address)
            .set_eh_frame_hdr(self.header_address)
            .set_text(self.text_address)
    }

    fn section(&self) -> EhFrame<EndianSlice<'_, LittleEndian>> {
        let mut section = EhFrame::new(&self.eh_frame, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn find_functions(&self) -> Vec<(u64, u64, usize)> {
        let section = self.section();
        let bases = self.bases();
        let mut entries = section.entries(&bases);
        let mut functions = Vec::new();
        // What cannot be read ends the list: the rest has no rules.
        while let Ok(Some(entry)) = entries.next() {
            if let CieOrFde::Fde(partial) = entry
                && let Ok(fde) = partial.parse(EhFrame::cie_from_offset)
            {
                let first = fde.initial_address();
                functions.push((first, first.saturating_add(fde.len()), fde.offset()));
            }
        }
        functions.sort_unstable();
        functions
    }

    /// Where in `eh_frame` the function at an address of the file is described.
    fn described_at(&self, address: u64) -> Option<usize> {
        if self.header.is_empty() {
            let after = self.functions.partition_point(|it| it.0 <= address);
            let &(_, end, offset) = self.functions.get(after.checked_sub(1)?)?;
            return (address < end).then_some(offset);
        }
        let header = EhFrameHdr::new(&self.header, LittleEndian);
        let parsed = header.parse(&self.bases(), 8).ok()?;
        let table = parsed.table()?;
        let Pointer::Direct(found) = table.lookup(address, &self.bases()).ok()? else {
            return None;
        };
        usize::try_from(found.checked_sub(self.eh_frame_address)?).ok()
    }

    /// What the call frame information says of an address of the file.
    fn row<T>(
        &self,
        address: u64,
        read: impl FnOnce(&UnwindTableRow<usize>) -> Option<T>,
    ) -> Option<T> {
        let offset = self.described_at(address)?;
        let section = self.section();
        let bases = self.bases();
        let fde = section
            .fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset)
            .ok()?;
        let mut context = UnwindContext::new();
        // An error too where the function ends before the address.
        let row = fde.unwind_info_for_address(&section, &bases, &mut context, address);
        read(row.ok()?)
    }

    /// The address in the file of the call that returns to `ip`.
    fn called_from(&self, mapped: &Mapped, ip: u64) -> Option<u64> {
        // The call is the instruction before its return address. What begins a mapping is none.
        let call = (ip - 1).max(mapped.start);
        let offset = call - mapped.start + mapped.offset;
        let holds = |(first, _, size): &&(u64, u64, u64)| (*first..first + size).contains(&offset);
        let (first, address, _) = self.segments.iter().find(holds)?;
        Some(address + (offset - first))
    }

    /// Whether the function at an address of the file says that nobody called it: with it a thread begins.
    fn is_outermost(&self, address: u64) -> bool {
        let undefined = |row: &UnwindTableRow<usize>| {
            matches!(row.register(X86_64::RA), Some(RegisterRule::Undefined)).then_some(())
        };
        self.row(address, undefined).is_some()
    }

    /// The rule at an address of the file.
    fn rule(&self, address: u64) -> Option<Rule> {
        self.row(address, Self::rule_of)
    }

    fn rule_of(row: &UnwindTableRow<usize>) -> Option<Rule> {
        let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
            return None;
        };
        let from_bp = match *register {
            X86_64::RSP => false,
            X86_64::RBP => true,
            _ => return None,
        };
        // Where the return address is elsewhere, or nowhere, the walk ends.
        if !matches!(row.register(X86_64::RA), Some(RegisterRule::Offset(-8))) {
            return None;
        }
        let saved_bp = match row.register(X86_64::RBP) {
            None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => None,
            Some(RegisterRule::Offset(offset)) => Some(i16::try_from(offset).ok()?),
            _ => return None,
        };
        Some(Rule::Frame {
            from_bp,
            offset: i32::try_from(*offset).ok()?,
            saved_bp,
        })
    }
}

/// A module in memory.
#[derive(Clone, Debug)]
struct Mapped {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
}

/// The code of one set of loaded programs.
#[derive(Debug, Default)]
struct Layout {
    mapped: Vec<Mapped>,
    rules: HashMap<u64, Rule>,
}

/// Finds rules and walks by them.
#[derive(Debug, Default)]
pub(crate) struct Unwinder {
    /// The number of the recorder's memory; only processes that have it mapped are looked at.
    memory: Option<u64>,
    modules: HashMap<String, Option<Module>>,
    layouts: HashMap<u32, Layout>,
}

impl Unwinder {
    /// Looks only at processes that have the recorder's memory of this number mapped. Who can write there names the
    /// processes, and would hear of any what lies where.
    pub(super) fn of_recorded(memory: u64) -> Self {
        Self {
            memory: Some(memory),
            ..Self::default()
        }
    }

    /// The call chain of a slice of a stack: the return addresses from `at` on, as far as they can be
    /// followed in `words`, which begin at `at.sp`. `tell` is told the rules on the way. What the process has mapped
    /// is read from `/proc`, unless `told` says it.
    pub(crate) fn unwind(
        &mut self,
        mut tell: impl FnMut(u64, Rule),
        (pid, layout): (u32, u32),
        at: Cursor,
        words: &[u64],
        told: Option<&[Map]>,
    ) -> Vec<u64> {
        let read = reader(at.sp, words);
        let mut frames = Vec::new();
        let mut at = at;
        while frames.len() < MOST_FRAMES {
            let Some(rule) = self.rule((pid, layout), at.ip, told) else {
                break;
            };
            tell(at.ip, rule);
            frames.push(at.ip);
            match rule.step(at, &read) {
                Some(caller) => at = caller,
                None => break,
            }
        }
        if frames.is_empty() {
            frames.push(at.ip);
        }
        frames
    }

    /// The call chain of an interrupted thread: `at.ip`, and the return addresses as far as they can be followed in
    /// `words` of its stack, which begin at `at.sp`.
    pub(crate) fn interrupted(&mut self, place: (u32, u32), at: Cursor, words: &[u64]) -> Vec<u64> {
        let read = reader(at.sp, words);
        // The rule for a return address is that of the byte before it.
        let rule = self.rule(place, at.ip.saturating_add(1), None);
        let caller = rule.and_then(|rule| rule.step(at, &read));
        let mut frames = vec![at.ip];
        if let Some(caller) = caller {
            let popped = usize::try_from((caller.sp - at.sp) / 8).unwrap_or(words.len());
            let rest = words.get(popped..).unwrap_or_default();
            frames.extend(self.unwind(|_, _| {}, place, caller, rest, None));
            frames.truncate(MOST_FRAMES);
        }
        frames
    }

    /// The frame that holds an address, of a thread that sleeps at `at`, whose frame pointer nobody knows; `words` of its
    /// stack begin at `at.sp`. An instruction in the frame's function, the first byte of the frame, and one past its last.
    ///
    /// Where frames are found by the frame pointer, it is looked for: that of the words below which a return address lies, with
    /// which the walk comes to where the thread began.
    pub(crate) fn frame_of(
        &mut self,
        place: (u32, u32),
        at: Cursor,
        words: &[u64],
        address: u64,
    ) -> Option<(u64, u64, u64)> {
        let to_beginning = |this: &mut Self, bp: u64| {
            let (frame, last) = this.walk_past(place, Cursor { bp, ..at }, words, address)?;
            this.is_outermost(place, last).then_some(frame)
        };
        if let Some(frame) = to_beginning(self, 0) {
            return Some(frame);
        }
        let mut tried = 0;
        for (number, word) in words.iter().enumerate().skip(1) {
            if !self.is_code(place, *word) || self.rule(place, *word, None) == Some(Rule::End) {
                continue;
            }
            if tried == MOST_GUESSES {
                break;
            }
            tried += 1;
            let frame = to_beginning(self, at.sp + 8 * (number as u64 - 1));
            if frame.is_some() {
                return frame;
            }
        }
        None
    }

    /// Walks from a sleeping thread's innermost frame as far as rules and `words` lead: the frame that holds `address`, and an
    /// instruction of the last frame's function.
    fn walk_past(
        &mut self,
        place: (u32, u32),
        at: Cursor,
        words: &[u64],
        address: u64,
    ) -> Option<((u64, u64, u64), u64)> {
        let read = reader(at.sp, words);
        // The rule for a return address is that of the byte before it.
        let ip = at.ip.saturating_add(1);
        let mut at = Cursor { ip, ..at };
        let mut holder = None;
        for _ in 0..MOST_FRAMES {
            let Some(caller) = self.rule(place, at.ip, None)?.step(at, &read) else {
                break;
            };
            if (at.sp..caller.sp).contains(&address) {
                holder = Some((at.ip - 1, at.sp, caller.sp));
            }
            at = caller;
        }
        Some((holder?, at.ip))
    }

    /// Says that code was mapped: what is known of what lay there before is forgotten.
    pub(crate) fn mapped(
        &mut self,
        layout: u32,
        (start, length): (u64, u64),
        offset: u64,
        path: &str,
    ) {
        let Some(found) = self.layouts.get_mut(&layout) else {
            return;
        };
        let end = start.saturating_add(length);
        found.mapped.retain(|it| it.end <= start || it.start >= end);
        found.rules.retain(|ip, _| !(start..end).contains(ip));
        found.mapped.push(Mapped {
            start,
            end,
            offset,
            path: path.to_owned(),
        });
    }

    /// Sets of loaded programs that something is known of.
    pub(crate) fn layouts(&self) -> usize {
        self.layouts.len()
    }

    /// Forgets what is known of the code of a set of loaded programs.
    pub(crate) fn forget(&mut self, layout: u32) {
        self.layouts.remove(&layout);
    }

    /// Forgets the sets of loaded programs that are none of `used`: each takes some kilobytes, and every process has one.
    pub(super) fn keep(&mut self, used: &HashSet<u32>) {
        self.layouts.retain(|layout, _| used.contains(layout));
        // A burst of processes leaves a large table.
        self.layouts.shrink_to(2 * self.layouts.len());
    }

    /// The rule for a return address; `None` while it cannot be known what lies there.
    pub(super) fn rule(
        &mut self,
        (pid, layout): (u32, u32),
        ip: u64,
        told: Option<&[Map]>,
    ) -> Option<Rule> {
        let Self {
            memory,
            modules,
            layouts,
        } = self;
        let found = layouts.entry(layout).or_default();
        if let Some(&rule) = found.rules.get(&ip) {
            return Some(rule);
        }
        let holds = |it: &&Mapped| (it.start..it.end).contains(&ip);
        if found.mapped.iter().find(holds).is_none() {
            found.mapped = match told {
                Some(maps) => files(maps, pid),
                None => executable(pid, *memory)?,
            };
        }
        let mapped = found.mapped.iter().find(holds);
        let rule = mapped.and_then(|mapped| {
            let module = modules
                .entry(mapped.path.clone())
                .or_insert_with(|| open(pid, &mapped.path));
            let module = module.as_ref()?;
            module.rule(module.called_from(mapped, ip)?)
        });
        // Code made at run time has none.
        let rule = rule.unwrap_or(Rule::End);
        found.rules.insert(ip, rule);
        Some(rule)
    }

    /// Whether an address lies in what was read of the code of a process.
    fn is_code(&self, (_, layout): (u32, u32), address: u64) -> bool {
        let mapped = self.layouts.get(&layout).map(|it| &it.mapped);
        mapped.is_some_and(|all| all.iter().any(|it| (it.start..it.end).contains(&address)))
    }

    /// Whether the function that a call returns to is that with which a thread begins.
    fn is_outermost(&self, (_, layout): (u32, u32), ip: u64) -> bool {
        let found = || {
            let mapped = self.layouts.get(&layout)?.mapped.iter();
            let mapped = mapped.clone().find(|it| (it.start..it.end).contains(&ip))?;
            let module = self.modules.get(&mapped.path)?.as_ref()?;
            Some(module.is_outermost(module.called_from(mapped, ip)?))
        };
        found().unwrap_or(false)
    }
}

/// Reads the words of a stack, of which `words` begin at `base`.
fn reader(base: u64, words: &[u64]) -> impl Fn(u64) -> Option<u64> {
    move |address| {
        let distance = address.checked_sub(base)?;
        let word = usize::try_from(distance / 8).ok()?;
        (distance % 8 == 0).then(|| words.get(word).copied())?
    }
}

/// The code that a process has mapped; `None` if it has not mapped the recorder's memory of that number.
fn executable(pid: u32, memory: Option<u64>) -> Option<Vec<Mapped>> {
    let mappings = procfs::maps(pid).ok()?;
    if memory.is_some_and(|inode| !mappings.iter().any(|it| it.is_memory(inode))) {
        return None;
    }
    let code = mappings.into_iter().filter(|mapping| mapping.executable);
    let mapped = code.map(|mapping| Mapped {
        start: mapping.start,
        end: mapping.end,
        offset: mapping.offset,
        path: mapping.path,
    });
    Some(mapped.collect())
}

/// The files that a process under emulation has mapped, the latest first: their code need not be executable.
fn files(maps: &[Map], pid: u32) -> Vec<Mapped> {
    let files = maps
        .iter()
        .rev()
        .filter(|map| map.pid.0 == pid && map.kind == MapKind::File);
    files
        .map(|map| Mapped {
            start: map.start.0,
            end: map.end.0,
            offset: map.offset,
            path: map.path.clone(),
        })
        .collect()
}

/// The call frame information of a mapped file, seen from here or from the process.
fn open(pid: u32, path: &str) -> Option<Module> {
    if !path.starts_with('/') {
        return None;
    }
    let inside = format!("/proc/{pid}/root{path}");
    Module::read(Path::new(&inside)).or_else(|| Module::read(Path::new(path)))
}

/// Asks for rules all over a file.
#[cfg(fuzzing)]
pub(super) fn fuzz(file: &Path) {
    let Some(mut module) = Module::read(file) else {
        return;
    };
    for _ in 0..2 {
        let ends = [0, module.eh_frame_address, module.text_address, u64::MAX];
        let starts = module.functions.iter().map(|it| it.0).chain(ends);
        for start in starts.collect::<Vec<_>>().into_iter().take(1_000) {
            let _ = module.rule(start);
            let _ = module.rule(start.wrapping_add(9));
        }
        // As where the linker made no table.
        module.header.clear();
        module.functions = module.find_functions();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_functions_of_this_program_have_rules_with_and_without_the_linkers_table() {
        let module = Module::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(!module.header.is_empty());
        let mut without = Module::read(&std::env::current_exe().unwrap()).unwrap();
        without.header.clear();
        without.functions = without.find_functions();
        assert!(without.functions.len() > 100);
        let mut rules = 0;
        for (first, end, _) in without.functions.iter().take(2_000) {
            for address in [*first, (first + end) / 2] {
                assert_eq!(module.rule(address), without.rule(address), "{address:x}");
                rules += usize::from(module.rule(address).is_some());
            }
        }
        assert!(rules * 10 > without.functions.len().min(2_000) * 18);
        // At a function's first instruction the return address is on top of the stack.
        let entry = Rule::Frame {
            from_bp: false,
            offset: 8,
            saved_bp: None,
        };
        let last = without.functions.last().unwrap();
        assert_eq!(module.rule(last.0), Some(entry));
        assert_eq!(module.rule(u64::MAX), None);
    }

    #[test]
    fn sets_of_loaded_programs_that_nobody_uses_are_forgotten() {
        let mut unwinder = Unwinder::default();
        let here = Module::read as *const () as u64;
        for layout in 1..=100 {
            let at = Cursor {
                ip: here,
                sp: 0,
                bp: 0,
            };
            let found = unwinder.unwind(|_, _| {}, (std::process::id(), layout), at, &[], None);
            assert_eq!(found, [here]);
        }
        assert_eq!(unwinder.layouts.len(), 100);
        unwinder.keep(&[7, 200].into());
        assert_eq!(unwinder.layouts.keys().collect::<Vec<_>>(), [&7]);
        assert!(unwinder.layouts.capacity() < 100);
    }

    #[test]
    fn of_processes_that_are_not_recorded_nothing_is_told() {
        let region = linewise_heap::Region::create().unwrap();
        let number = std::fs::metadata(region.path()).unwrap().ino();
        let at = Cursor {
            ip: Module::read as *const () as u64 + 4,
            sp: 0,
            bp: 0,
        };
        for (number, rules) in [(number, 1), (number + 1, 0), (0, 0)] {
            let mut told = 0;
            let place = (std::process::id(), 1);
            Unwinder::of_recorded(number).unwind(|_, _| told += 1, place, at, &[], None);
            assert_eq!(told, rules);
        }
    }

    #[test]
    fn hostile_call_frame_information_gives_no_rules() {
        for bytes in [vec![0xff; 64], vec![0; 64], (0..=255).collect::<Vec<u8>>()] {
            let mut module = Module {
                eh_frame: bytes.clone(),
                ..Module::default()
            };
            module.functions = module.find_functions();
            assert_eq!(module.rule(0), None);
            module.header = bytes;
            assert_eq!(module.rule(0), None);
        }
    }
}
