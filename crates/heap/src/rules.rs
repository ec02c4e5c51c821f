//! How to get from a return address to the caller's: a rule for each code address, as a word.
//!
//! The rules are those of the DWARF call frame information that compilers make nearly always: the
//! canonical frame address is the stack pointer or the frame pointer plus a constant, the return address
//! lies below it, and the caller's frame pointer is where it was or at a constant place. The idea of a
//! cache of such rules is that of libunwind's `unw_tdep_trace`; here another process fills it.

/// How to find the caller of code at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// There is no caller, or none that can be found.
    End,
    /// Where the frame ends, and where the caller's frame pointer is.
    Frame {
        /// Whether the frame's end is counted from the frame pointer, rather than the stack pointer.
        from_bp: bool,
        /// Bytes from that register to the canonical frame address.
        offset: i32,
        /// Bytes from the canonical frame address to where the caller's frame pointer was saved; `None`:
        /// it is unchanged.
        saved_bp: Option<i16>,
    },
}

/// The registers that a rule needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// A return address.
    pub ip: u64,
    /// The stack pointer after that return.
    pub sp: u64,
    /// The frame pointer register, whatever it holds.
    pub bp: u64,
}

const UNCHANGED: u16 = i16::MAX as u16;

impl Rule {
    /// The rule as a word; never 0.
    #[must_use]
    pub fn to_word(self) -> u64 {
        match self {
            Self::End => 1,
            Self::Frame {
                from_bp,
                offset,
                saved_bp,
            } => {
                let saved = saved_bp.map_or(UNCHANGED, |offset| offset as u16);
                2 | u64::from(from_bp) << 8
                    | u64::from(saved) << 16
                    | u64::from(offset as u32) << 32
            }
        }
    }

    /// The rule that a word stands for.
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        if word & 0xff != 2 {
            return Self::End;
        }
        let saved = (word >> 16) as u16;
        Self::Frame {
            from_bp: word >> 8 & 1 != 0,
            offset: (word >> 32) as u32 as i32,
            saved_bp: (saved != UNCHANGED).then_some(saved as i16),
        }
    }

    /// The caller, if the rule leads to one further up the stack. `read` reads a word of the stack, and
    /// knows its bounds.
    #[inline]
    pub fn step(self, at: Cursor, mut read: impl FnMut(u64) -> Option<u64>) -> Option<Cursor> {
        let Self::Frame {
            from_bp,
            offset,
            saved_bp,
        } = self
        else {
            return None;
        };
        let base = if from_bp { at.bp } else { at.sp };
        let cfa = base.wrapping_add(i64::from(offset) as u64);
        if cfa <= at.sp || cfa & 7 != 0 {
            return None;
        }
        let ip = read(cfa - 8)?;
        let bp = match saved_bp {
            None => at.bp,
            Some(offset) => read(cfa.wrapping_add(i64::from(offset) as u64))?,
        };
        (ip != 0).then_some(Cursor { ip, sp: cfa, bp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_back_from_their_words() {
        for rule in [
            Rule::End,
            Rule::Frame {
                from_bp: false,
                offset: 0x1_0008,
                saved_bp: None,
            },
            Rule::Frame {
                from_bp: true,
                offset: 16,
                saved_bp: Some(-16),
            },
        ] {
            assert_eq!(Rule::from_word(rule.to_word()), rule);
        }
    }

    #[test]
    fn a_step_goes_up_the_stack_or_nowhere() {
        let stack = [7, 0x7000, 0x400_100_u64];
        let read = |address: u64| {
            let place = address.checked_sub(0x5000)?;
            (place % 8 == 0).then(|| stack.get(place as usize / 8).copied())?
        };
        let at = Cursor {
            ip: 1,
            sp: 0x5000,
            bp: 0x5008,
        };
        let rule = Rule::Frame {
            from_bp: true,
            offset: 16,
            saved_bp: Some(-16),
        };
        let caller = Cursor {
            ip: 0x400_100,
            sp: 0x5018,
            bp: 0x7000,
        };
        assert_eq!(rule.step(at, read), Some(caller));
        // Beyond the stack, below the stack pointer, not aligned.
        for offset in [24, -16, 12] {
            let rule = Rule::Frame {
                from_bp: true,
                offset,
                saved_bp: None,
            };
            assert_eq!(rule.step(at, read), None);
        }
        assert_eq!(Rule::End.step(at, read), None);
    }
}
