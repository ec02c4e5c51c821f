//! Why the kernel refuses.

use std::io;

/// Why the kernel refused, as far as somebody acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
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

impl Denial {
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
            Denial::NoRegister,
            Denial::NoFiles,
            Denial::NoMemory,
            Denial::NotPermitted,
            Denial::NoSuchThread,
            Denial::OfflineCpu,
            Denial::Other,
        ];
        for denial in all {
            assert_eq!(Denial::of(&denial.error()), denial);
        }
        let of = |number| Denial::of(&io::Error::from_raw_os_error(number));
        assert_eq!((of(1), of(23)), (Denial::NotPermitted, Denial::NoFiles));
        assert_eq!(Denial::of(&io::Error::other("no number")), Denial::Other);
    }
}
