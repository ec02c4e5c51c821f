//! Code addresses as places in the source.

use std::collections::HashMap;

use linewise_recording::{Address, Frame, Pid};
use serde::{Deserialize, Serialize};

use crate::section::Cell;

/// A place in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourcePlace {
    /// Innermost function, demangled; an address when unknown.
    pub function: String,
    /// Source file, empty if unknown.
    pub file: String,
    /// Source line, 0 if unknown.
    pub line: u32,
}

/// The last component of a path: what is left of it where there is little room.
pub(crate) fn file_name(path: &str) -> &str {
    path.trim_end_matches('/')
        .rsplit('/')
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or(path)
}

/// A line of the source in a table; nothing where it is not known.
pub(super) fn line_cell(file: &str, line: u32) -> Cell {
    match line {
        0 => Cell::Empty,
        line => Cell::Text(format!("{}:{line}", file_name(file))),
    }
}

/// The innermost frames of a recording, by address.
#[derive(Debug)]
pub(super) struct Places<'a> {
    frames: HashMap<(Pid, Address), &'a Frame>,
}

impl<'a> Places<'a> {
    pub(super) fn new(frames: &'a [Frame]) -> Self {
        let innermost = frames.iter().filter(|frame| frame.depth == 0);
        Self {
            frames: innermost
                .map(|frame| ((frame.pid, frame.address), frame))
                .collect(),
        }
    }

    /// Where an instruction stands; its address where nobody knows.
    pub(super) fn at(&self, pid: Pid, address: Address) -> SourcePlace {
        let frame = self.frames.get(&(pid, address));
        let function = frame.map_or("", |frame| frame.function.as_str());
        SourcePlace {
            function: match function {
                "" => format!("{:#x}", address.0),
                name => name.to_owned(),
            },
            file: frame.map_or_else(String::new, |frame| frame.file.clone()),
            line: frame.map_or(0, |frame| frame.line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_stands_in_its_innermost_function() {
        let frame = |depth, function: &str| Frame {
            pid: Pid(7),
            address: Address(0x401000),
            depth,
            function: function.to_owned(),
            file: "sum.c".to_owned(),
            line: 12,
            module: String::new(),
            reason: String::new(),
        };
        let frames = [frame(0, "add"), frame(1, "sum")];
        let places = Places::new(&frames);
        let place = places.at(Pid(7), Address(0x401000));
        assert_eq!((place.function.as_str(), place.line), ("add", 12));
        assert_eq!(places.at(Pid(8), Address(0x401000)).function, "0x401000");
    }
}
