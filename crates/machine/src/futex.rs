//! The word that a thread in the kernel waits for or wakes others at, in a futex call.
//!
//! The number of the call is not among the registers that the kernel samples. It is in the code where that loads it
//! right before the call, as glibc's does; elsewhere (`syscall(2)`, Go) the arguments have to look like those of a call on
//! a futex of one process.

use crate::records::SampleRecord;

/// `mov eax, NUMBER; syscall`.
const CALL: usize = 7;
/// A futex is a word of so many bytes.
pub const WORD: u32 = 4;
/// No mapping lies below.
const LOWEST: u64 = 0x1_0000;
/// FUTEX_WAIT to FUTEX_LOCK_PI2, but for the one (FUTEX_FD) that is gone.
const COMMANDS: [u64; 13] = [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];

/// The address of the word of the futex call that the thread of a sample is in; `None` if it is in none, or that cannot
/// be told. `read` fills a place with what its process has at an address, or says that it cannot.
#[must_use]
pub fn word(record: &SampleRecord, read: impl Fn(u64, &mut [u8]) -> bool) -> Option<u64> {
    let [word, operation] = record
        .registers
        .filter(|_| record.in_kernel)?
        .call_arguments()?;
    let command = operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u64;
    let is_like =
        word >= LOWEST && word.is_multiple_of(u64::from(WORD)) && COMMANDS.contains(&command);
    if !is_like {
        return None;
    }
    let mut code = [0; CALL];
    if !read(record.ip.checked_sub(CALL as u64)?, &mut code) {
        return None;
    }
    let is_futex = match code {
        [0xb8, number @ .., 0x0f, 0x05] => i64::from(i32::from_le_bytes(number)) == libc::SYS_futex,
        [.., 0x0f, 0x05] => operation & libc::FUTEX_PRIVATE_FLAG as u64 != 0,
        _ => false,
    };
    is_futex.then_some(word)
}

#[cfg(test)]
mod tests {
    use crate::registers::Registers;

    use super::*;

    const WAIT: u64 = 128;

    /// A thread that is in a call with these first arguments, made by this code.
    fn found(first: u64, second: u64, code: [u8; CALL]) -> Option<u64> {
        let pending = -i64::from(libc::ENOSYS) as u64;
        let record = SampleRecord {
            ip: 0x40_1000,
            in_kernel: true,
            registers: Some(Registers::from_pairs(&[
                (0, pending),
                (5, first),
                (4, second),
            ])),
            ..SampleRecord::default()
        };
        word(&record, |ip, into| {
            into.copy_from_slice(&code);
            ip == 0x40_1000 - CALL as u64
        })
    }

    #[test]
    fn a_futex_call_is_known_by_its_number_or_else_by_its_arguments() {
        let numbered = |number: u8| [0xb8, number, 0, 0, 0, 0x0f, 0x05];
        let plain = [0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05];
        assert_eq!(found(0x7000_0000, WAIT, numbered(202)), Some(0x7000_0000));
        assert_eq!(found(0x7000_0000, 0, numbered(202)), Some(0x7000_0000));
        assert_eq!(found(0x7000_0000, WAIT, numbered(1)), None);
        assert_eq!(found(0x7000_0000, WAIT, plain), Some(0x7000_0000));
        // A file's number, a buffer's length, a word that is none.
        assert_eq!(found(5, WAIT, plain), None);
        assert_eq!(found(0x7000_0000, 4096, plain), None);
        assert_eq!(found(0x7000_0000, 0, plain), None);
        assert_eq!(found(0x7000_0002, WAIT, plain), None);
        // An interrupt, a fault.
        assert_eq!(found(0x7000_0000, WAIT, [0x90; CALL]), None);
    }
}
