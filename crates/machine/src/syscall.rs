//! Threads that are about to come back from a system call.
//!
//! The kernel goes back to a program with interrupts off. A timer that is due meanwhile interrupts at the instruction behind
//! the call, which has not run yet: the time that passed is the kernel's.

use crate::records::SampleRecord;

/// `syscall`.
const CALL: [u8; 2] = [0x0f, 0x05];

/// Whether the thread of a sample in user code was interrupted right behind a system call, before it ran anything else.
/// `read` fills a place with what its process has at an address, or says that it cannot.
#[must_use]
pub fn has_just_returned(record: &SampleRecord, read: impl Fn(u64, &mut [u8]) -> bool) -> bool {
    let goes_on_at = record.registers.and_then(|it| it.call_returns_to());
    if record.in_kernel || goes_on_at != Some(record.ip) {
        return false;
    }
    let mut code = [0; CALL.len()];
    let Some(before) = record.ip.checked_sub(CALL.len() as u64) else {
        return false;
    };
    read(before, &mut code) && code == CALL
}

#[cfg(test)]
mod tests {
    use crate::registers::Registers;

    use super::*;

    #[test]
    fn who_was_interrupted_right_behind_a_call_has_just_returned() {
        let found = |rcx: u64, in_kernel: bool, code: [u8; 2]| {
            let record = SampleRecord {
                ip: 0x40_1000,
                in_kernel,
                registers: Some(Registers::from_pairs(&[(2, rcx)])),
                ..SampleRecord::default()
            };
            has_just_returned(&record, |ip, into| {
                into.copy_from_slice(&code);
                ip == 0x40_0ffe
            })
        };
        assert!(found(0x40_1000, false, CALL));
        // It came there by a jump; it is still in the kernel; no call stands there.
        assert!(!found(7, false, CALL));
        assert!(!found(0x40_1000, true, CALL));
        assert!(!found(0x40_1000, false, [0x90, 0x90]));
    }
}
