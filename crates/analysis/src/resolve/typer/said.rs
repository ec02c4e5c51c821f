//! What the debug info says of registers, instruction by instruction.

use iced_x86::Instruction;

use super::code::Code;
use super::frames::Row;
use super::registers::{RBP, RSP};
use super::scope::{DWARF_RBP, DWARF_RSP, Scope};

/// What the debug info says from an instruction on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// The register that leads to the frame, and how far its canonical address is from there.
    pub(super) frame: Option<(usize, i64)>,
    /// Numbers of the variables in registers whose code begins there.
    pub(super) variables: std::ops::Range<usize>,
}

impl Said {
    /// At each instruction of a function: `rows` are sorted by where they begin, as the variables of `scope` are.
    pub(super) fn of(code: &Code, scope: &Scope, rows: &[Row]) -> Vec<Self> {
        let (mut row, mut first) = (0, 0);
        let said = |address: u64| {
            let begun = |row: &Row| row.range.start <= address;
            row += count(rows, row, begun);
            let current = row.checked_sub(1).and_then(|row| rows.get(row));
            let register = |row: &Row| match row.register {
                DWARF_RSP => Some((RSP, row.offset)),
                DWARF_RBP => Some((RBP, row.offset)),
                _ => None,
            };
            first += count(&scope.variables, first, |it| it.range.start < address);
            let new = count(&scope.variables, first, |it| it.range.start == address);
            Self {
                frame: current
                    .filter(|row| address < row.range.end)
                    .and_then(register),
                variables: first..first + new,
            }
        };
        code.instructions
            .iter()
            .map(Instruction::ip)
            .map(said)
            .collect()
    }
}

/// How many of `all` in a row, from number `first` on, are as wanted.
fn count<T>(all: &[T], first: usize, wanted: impl Fn(&T) -> bool) -> usize {
    let rest = all.get(first..).unwrap_or_default();
    rest.iter().take_while(|it| wanted(it)).count()
}
