//! Whether a function is among those that a call chain goes through.

use std::collections::HashMap;
use std::path::Path;

use linewise_recording::{Map, MapKind, Pid, StackId};
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::kernel::Processes;
use crate::target::binary::Binary;

/// A function by its name, and the files and call chains that were looked at.
#[derive(Debug)]
pub(crate) struct Function {
    name: String,
    /// Where it is in each file, as offsets; empty for files without it.
    modules: HashMap<String, Vec<(u64, u64)>>,
    known: HashMap<(Pid, StackId), bool>,
}

impl Function {
    /// The function of that name, in whatever program or library.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            modules: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// Whether the chain `stack` of return addresses, which `frames` tells, goes through it in process
    /// `pid`.
    pub(crate) fn is_on(
        &mut self,
        kernel: &impl Processes,
        pid: Pid,
        stack: StackId,
        frames: impl FnOnce() -> Vec<u64>,
    ) -> bool {
        if let Some(known) = self.known.get(&(pid, stack)) {
            return *known;
        }
        // A process that is gone is asked again.
        let Ok(maps) = kernel.maps(pid.0) else {
            return false;
        };
        let found = frames().into_iter().any(|frame| {
            // The call ends before its return address.
            let call = frame.wrapping_sub(1);
            let map = maps.iter().find(|map| (map.start..map.end).contains(&call));
            map.is_some_and(|map| self.holds(&map.path, call - map.start + map.offset))
        });
        self.known.insert((pid, stack), found);
        found
    }

    /// As [`Function::is_on`], where `maps` are what all processes have mapped.
    pub(crate) fn is_on_in(&mut self, pid: Pid, frames: &[u64], maps: &[Map]) -> bool {
        frames.iter().any(|frame| {
            let call = frame.wrapping_sub(1);
            let holds = |map: &&Map| map.pid == pid && (map.start.0..map.end.0).contains(&call);
            let mut files = maps.iter().rev().filter(|map| map.kind == MapKind::File);
            let map = files.find(holds);
            map.is_some_and(|map| self.holds(&map.path, call - map.start.0 + map.offset))
        })
    }

    /// Whether the byte at `offset` of the file at `path` belongs to it.
    fn holds(&mut self, path: &str, offset: u64) -> bool {
        if !self.modules.contains_key(path) {
            let ranges = ranges(Path::new(path), &self.name);
            self.modules
                .insert(path.to_owned(), ranges.unwrap_or_default());
        }
        let mut ranges = self.modules[path].iter();
        ranges.any(|(low, high)| (*low..*high).contains(&offset))
    }
}

/// File offsets of a function; none if there is no such function.
pub(crate) fn ranges(module: &Path, function: &str) -> Option<Vec<(u64, u64)>> {
    let binary = Binary::open(module).ok()?;
    let file = object::File::parse(&binary).ok()?;
    let mut ranges: Vec<(u64, u64)> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0)
        .filter(|symbol| {
            // `memcpy@@GLIBC_2.14` is `memcpy`.
            let named = |name: &str| name.split('@').next() == Some(function);
            let path = |name| format!("{:#}", rustc_demangle::demangle(name)) == function;
            symbol
                .name()
                .is_ok_and(|name| named(name) || function.contains("::") && path(name))
        })
        .filter_map(|symbol| {
            let segment = file.segments().find(|segment| {
                segment.address() <= symbol.address()
                    && symbol.address() - segment.address() < segment.size()
            })?;
            let low = symbol.address() - segment.address() + segment.file_range().0;
            Some((low, low.checked_add(symbol.size())?))
        })
        .collect();
    ranges.sort_unstable();
    ranges.dedup();
    (!ranges.is_empty()).then_some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Machine;

    #[inline(never)]
    fn marked() -> u64 {
        // Behind its first instruction.
        std::hint::black_box(marked as fn() -> u64 as usize as u64 + 1)
    }

    #[test]
    fn a_chain_goes_through_the_function_that_holds_one_of_its_addresses() {
        let name = concat!(module_path!(), "::marked");
        let own = Pid(std::process::id());
        let mut function = Function::named(name);
        assert!(function.is_on(&Machine, own, StackId(1), || vec![0, marked()]));
        assert!(!function.is_on(&Machine, own, StackId(2), || vec![8, u64::MAX]));
        // Asked once only.
        assert!(function.is_on(&Machine, own, StackId(1), || unreachable!()));
        assert!(!Function::named("no_such").is_on(&Machine, own, StackId(1), || vec![marked()]));
    }
}
