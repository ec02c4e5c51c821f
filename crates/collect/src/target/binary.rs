//! Programs and libraries that the target names, read without waiting and without end.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use object::read::{ReadCache, ReadRef};

/// Bytes of one file that are read: symbol tables of the largest browsers have a third of it. A header can ask for any
/// number, and a file without content have any size.
const MOST_BYTES: u64 = 512 << 20;

/// A file of which what is asked for is read and kept, up to a limit.
#[derive(Debug)]
pub(crate) struct Binary {
    cache: ReadCache<File>,
    left: Cell<u64>,
}

impl Binary {
    /// Opens the file `path`.
    ///
    /// # Errors
    /// See [`linewise_foreign::open`].
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = linewise_foreign::open(path)?;
        Ok(Self {
            cache: ReadCache::new(file),
            left: Cell::new(MOST_BYTES),
        })
    }

    fn take(&self, bytes: u64) -> Result<(), ()> {
        let left = self.left.get().checked_sub(bytes).ok_or(())?;
        self.left.set(left);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for &'a Binary {
    fn len(self) -> Result<u64, ()> {
        (&self.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.take(size)?;
        (&self.cache).read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        // It reads a few kilobytes.
        self.take(range.end.saturating_sub(range.start).min(4096))?;
        (&self.cache).read_bytes_at_until(range, delimiter)
    }
}

#[cfg(test)]
mod tests {
    use object::Endianness;
    use object::read::elf::ElfFile64;

    use super::*;

    #[test]
    fn no_more_is_read_than_the_limit_whatever_a_file_says_of_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        std::fs::write(&path, &own).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(5 << 30).unwrap();
        let binary = Binary::open(&path).unwrap();
        assert!(ElfFile64::<Endianness, _>::parse(&binary).is_ok());
        assert!((&binary).read_bytes_at(0, 3 << 30).is_err());
        assert!((&binary).read_bytes_at(0, 64).is_ok());
        assert!(Binary::open(folder.path()).is_err());
    }
}
