//! Why the kernel refuses.

use std::io;

/// Why the kernel refused, as far as somebody acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// All debug registers of a thread are taken.
    NoRegister,
    /// Too many files are open, here or on the machine.
    NoFiles,
    /// There is no memory for it.
    NoMemory,
    /// It takes a privilege, or the process is somebody else's.
    NotPermitted,
    /// The thread or process has ended.
    NoSuchThread,
    /// The CPU is offline: it has no threads to sample.
    OfflineCpu,
    /// Something else.
    Other,
}

impl Refusal {
    /// What an error of the kernel means; the numbers are those of errno(3).
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(28) => Self::NoRegister,
            Some(23 | 24) => Self::NoFiles,
            Some(12) => Self::NoMemory,
            Some(1 | 13) => Self::NotPermitted,
            Some(3) => Self::NoSuchThread,
            Some(19) => Self::OfflineCpu,
            _ => Self::Other,
        }
    }

    /// An error of the kernel that means this.
    pub(crate) fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Self::NoRegister => 28,
            Self::NoFiles => 24,
            Self::NoMemory => 12,
            Self::NotPermitted => 13,
            Self::NoSuchThread => 3,
            Self::OfflineCpu => 19,
            Self::Other => 22,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_kernel_means_one_thing() {
        let all = [
            Refusal::NoRegister,
            Refusal::NoFiles,
            Refusal::NoMemory,
            Refusal::NotPermitted,
            Refusal::NoSuchThread,
            Refusal::OfflineCpu,
            Refusal::Other,
        ];
        for refusal in all {
            assert_eq!(Refusal::of(&refusal.error()), refusal);
        }
        let of = |number| Refusal::of(&io::Error::from_raw_os_error(number));
        assert_eq!((of(1), of(23)), (Refusal::NotPermitted, Refusal::NoFiles));
        assert_eq!(Refusal::of(&io::Error::other("no number")), Refusal::Other);
    }
}
