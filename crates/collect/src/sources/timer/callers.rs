//! Who called the code that a sample fell on: by call frame information where programs have it, since few are built with
//! frame pointers, and by these where they have none (code made at run time).

use linewise_heap::Cursor;
use linewise_machine::records::SampleRecord;

use crate::target::heap::Unwinder;

/// Processes whose code is known at a time.
const MOST_PROCESSES: usize = 256;

/// Finds the callers of samples.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    unwinder: Unwinder,
}

impl Callers {
    /// The call chain of a sample, innermost first.
    pub(crate) fn chain(&mut self, record: &SampleRecord) -> Vec<u64> {
        let Some(registers) = record
            .registers
            .as_ref()
            .filter(|_| !record.stack.is_empty())
        else {
            return record.chain.clone();
        };
        if self.unwinder.layouts() > MOST_PROCESSES {
            self.unwinder = Unwinder::default();
        }
        let at = Cursor {
            ip: record.ip,
            sp: registers.stack_pointer(),
            bp: registers.frame_pointer(),
        };
        let place = (record.pid, record.pid);
        continued(
            self.unwinder.interrupted(place, at, &record.stack),
            &record.chain,
        )
    }

    /// The frame that holds `address` on the stack of a thread that sleeps at `at`; see [`Unwinder::frame_of`].
    pub(crate) fn frame_of(
        &mut self,
        pid: u32,
        at: Cursor,
        words: &[u64],
        address: u64,
    ) -> Option<(u64, u64, u64)> {
        self.unwinder.frame_of((pid, pid), at, words, address)
    }

    /// Code was mapped: `length` bytes of the file `path` from `offset` on, at `start`.
    pub(crate) fn mapped(&mut self, pid: u32, start: u64, length: u64, offset: u64, path: &str) {
        self.unwinder.mapped(pid, (start, length), offset, path);
    }

    /// The process runs another program, or none.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.unwinder.forget(pid);
    }
}

/// `walked` by rules, and from where these end on by frame pointers, if those come by there.
fn continued(mut walked: Vec<u64>, chain: &[u64]) -> Vec<u64> {
    let last = walked.last();
    if let Some(at) = chain.iter().position(|address| Some(address) == last) {
        walked.extend(chain.get(at + 1..).unwrap_or_default());
    }
    walked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_pointers_lead_on_where_rules_end() {
        // The first has no rule at all, of the second frame pointers skipped the caller.
        assert_eq!(continued(vec![1], &[1, 2, 3]), [1, 2, 3]);
        assert_eq!(continued(vec![1, 2, 3], &[1, 3, 4]), [1, 2, 3, 4]);
        assert_eq!(continued(vec![1, 2, 3], &[1, 9]), [1, 2, 3]);
    }
}
