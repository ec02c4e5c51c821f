//! Where the resolver gets bytes from: it asks, its caller opens files.
//!
//! Files are read in ranges, section by section, and never mapped: a program that is rebuilt
//! while its recording is resolved must not end the collector with a bus error, and of a large
//! binary only the sections that answer a question should be in memory.

use std::cell::{Cell, OnceCell};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use linewise_recording::Pid;

use super::debuginfod::{Debuginfod, NoDebugInfo};

/// Gives the resolver the files that a recording names.
pub trait Files: Sync {
    /// Opens `path` as process `pid` saw it; `None` if it is not there or not a regular file. Neither may it wait nor act.
    fn open(&self, pid: Pid, path: &str) -> Option<Box<dyn File>>;

    /// Opens the source `path`, of which the program `module` of process `pid` tells, to show it to others: `None` where
    /// whoever made that program could not have read it.
    fn source(&self, pid: Pid, path: &str, _module: &str) -> Option<Box<dyn File>> {
        self.open(pid, path)
    }

    /// The file with the debug info of a program with this build id, and its path, from where all of the machine is kept.
    ///
    /// # Errors
    /// [`NoDebugInfo`] says why there is none.
    fn debug_info(&self, _build_id: &str) -> Result<(String, Box<dyn File>), NoDebugInfo> {
        Err(NoDebugInfo::NotThere)
    }
}

/// One open file.
pub trait File {
    /// Its length in bytes.
    fn size(&self) -> u64;

    /// Exactly the `length` bytes at `offset`; `None` if they are not all there.
    fn read(&self, offset: u64, length: u64) -> Option<Vec<u8>>;
}

/// The files of this machine, those of a container included while its processes live.
#[derive(Debug)]
pub struct DiskFiles {
    root: PathBuf,
    debuginfod: Option<Debuginfod>,
}

impl DiskFiles {
    /// Files below `root`, `/` for the machine itself.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            debuginfod: None,
        }
    }

    /// The same, and debug info from this client.
    #[must_use]
    pub fn with_debuginfod(self, debuginfod: Debuginfod) -> Self {
        Self {
            debuginfod: Some(debuginfod),
            ..self
        }
    }
}

impl Default for DiskFiles {
    fn default() -> Self {
        Self::new("/")
    }
}

impl Files for DiskFiles {
    fn open(&self, pid: Pid, path: &str) -> Option<Box<dyn File>> {
        if path == "[vdso]" {
            return own_vdso(&self.root).map(|image| Box::new(image) as Box<dyn File>);
        }
        let path = Path::new(path);
        let relative = path.strip_prefix("/").ok()?;
        // A process in a mount namespace of its own sees other files under the same path. The
        // link is gone when the process is, and then the plain path is the best there is.
        let root_of_process = self.root.join(format!("proc/{pid}/root"));
        let file = linewise_foreign::open_in(&root_of_process, relative)
            .or_else(|_| linewise_foreign::open(&self.root.join(relative)))
            .ok()?;
        DiskFile::boxed(file)
    }

    fn source(&self, pid: Pid, path: &str, module: &str) -> Option<Box<dyn File>> {
        // Whoever is root in a container is not the one who is root here.
        let place = |it: &Path| fs::metadata(it).map(|it| (it.dev(), it.ino())).ok();
        let root_of_process = place(&self.root.join(format!("proc/{pid}/root")));
        if root_of_process.is_some_and(|it| Some(it) != place(&self.root)) {
            return None;
        }
        let below = |path: &str| Some(self.root.join(Path::new(path).strip_prefix("/").ok()?));
        let owner = fs::metadata(below(module)?).ok()?.uid();
        let path = fs::canonicalize(below(path)?).ok()?;
        // Nothing but the ending says that it is source: not that of a link to it.
        let file = match is_source(&path) {
            false => return None,
            true if linewise_foreign::is_trusted_owner(owner) => {
                linewise_foreign::open_without_links(&path)
            }
            true => linewise_foreign::open_public(&path),
        };
        DiskFile::boxed(file.ok()?)
    }

    fn debug_info(&self, build_id: &str) -> Result<(String, Box<dyn File>), NoDebugInfo> {
        let debuginfod = self.debuginfod.as_ref().ok_or(NoDebugInfo::NotThere)?;
        let path = debuginfod.find(build_id)?;
        let file = linewise_foreign::open(&path).ok().and_then(DiskFile::boxed);
        let path = path.to_string_lossy().into_owned();
        Ok((path, file.ok_or(NoDebugInfo::NotThere)?))
    }
}

/// How files of sources are called: debug info may name any file.
const SOURCE_ENDINGS: [&str; 34] = [
    "adb", "asm", "c", "c++", "cc", "cpp", "cu", "cxx", "d", "f", "f90", "go", "h", "hh", "hpp",
    "hs", "hxx", "inc", "inl", "ipp", "java", "js", "l", "m", "ml", "mm", "nim", "pas", "py", "rs",
    "s", "swift", "y", "zig",
];

/// Whether a file is called as sources are.
fn is_source(path: &Path) -> bool {
    let ending = path.extension().and_then(|it| it.to_str());
    ending.is_some_and(|it| SOURCE_ENDINGS.contains(&it.to_ascii_lowercase().as_str()))
}

/// A file on disk.
struct DiskFile {
    file: fs::File,
    size: u64,
}

impl DiskFile {
    fn boxed(file: fs::File) -> Option<Box<dyn File>> {
        let size = file.metadata().ok()?.len();
        Some(Box::new(Self { file, size }))
    }
}

impl File for DiskFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        if offset.checked_add(length)? > self.size {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}

impl File for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        self.get(start..end).map(<[u8]>::to_vec)
    }
}

/// The vdso of this process: the kernel gives every process of one machine the same image.
fn own_vdso(root: &Path) -> Option<Vec<u8>> {
    /// The image is a few pages; more means that the line was not understood.
    const LARGEST: u64 = 1 << 20;

    let maps = fs::read_to_string(root.join("proc/self/maps")).ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let length = u64::from_str_radix(end, 16).ok()?.checked_sub(start)?;
    if length > LARGEST {
        return None;
    }
    let memory = fs::File::open(root.join("proc/self/mem")).ok()?;
    let mut image = vec![0; usize::try_from(length).ok()?];
    memory.read_exact_at(&mut image, start).ok()?;
    Some(image)
}

/// What is made of a byte of debug info takes so many bytes, at most, over all files.
const ROWS_PER_BYTE: u64 = 2;

/// What a store holds unless it is told otherwise. Browsers come with more than that; of them the
/// symbols are left.
const MOST_BYTES: u64 = 1 << 30;
/// Bytes of symbols and unwind tables, at most, whatever the limit for debug info.
const MOST_OTHER_BYTES: u64 = 1 << 30;

/// Keeps the sections that a resolver works on: an append-only list, so that what was put in
/// can be borrowed for as long as the store lives. Its limit bounds the resolver's memory, of which
/// the sections are the most.
///
/// The list is one of blocks, each twice as long as the one before it: whatever is in does not move.
#[derive(Debug)]
pub struct Store {
    blocks: [OnceCell<Block>; BLOCKS],
    kept: Cell<usize>,
    room: Cell<u64>,
    /// Bytes left for what is made of the debug info.
    rows: Cell<u64>,
    /// Bytes left for symbols and unwind tables, which are what is left without debug info.
    other: Cell<u64>,
}

/// Entries of a store that stand together.
type Block = Box<[OnceCell<Vec<u8>>]>;

/// Blocks of a store: together more entries than there is memory for.
const BLOCKS: usize = 40;

impl Default for Store {
    fn default() -> Self {
        Self::with_limit(MOST_BYTES)
    }
}

impl Store {
    /// A store for debug info of up to `bytes` bytes, over all files, and twice as much for what is made of it. Files
    /// whose debug info does not fit any more are resolved by their symbols, with that reason.
    #[must_use]
    pub fn with_limit(bytes: u64) -> Self {
        Self {
            blocks: [const { OnceCell::new() }; BLOCKS],
            kept: Cell::new(0),
            room: Cell::new(bytes),
            rows: Cell::new(bytes.saturating_mul(ROWS_PER_BYTE)),
            other: Cell::new(MOST_OTHER_BYTES),
        }
    }

    /// Sets `bytes` bytes aside for debug info, if there is room for them.
    pub(super) fn reserve(&self, bytes: u64) -> bool {
        take(&self.room, bytes)
    }

    /// The same for what is made of the debug info: lists of units, lines, functions and variables.
    pub(super) fn reserve_rows(&self, bytes: u64) -> bool {
        take(&self.rows, bytes)
    }

    /// The same for symbols and unwind tables, with what is made of them.
    pub(super) fn reserve_other(&self, bytes: u64) -> bool {
        take(&self.other, bytes)
    }

    /// Keeps `bytes` and lends them.
    pub(super) fn keep(&self, bytes: Vec<u8>) -> &[u8] {
        let number = self.kept.get() + 1;
        self.kept.set(number);
        // Entry 1 is alone in block 0, entries 2 and 3 are in block 1, and so on.
        let block = number.ilog2() as usize;
        let first = 1 << block;
        self.blocks
            .get(block)
            .map(|it| it.get_or_init(|| vec![OnceCell::new(); first].into_boxed_slice()))
            .and_then(|entries| entries.get(number - first))
            .map_or(&[], |entry| entry.get_or_init(|| bytes))
    }
}

/// Takes `bytes` from `room` if there are so many.
fn take(room: &Cell<u64>, bytes: u64) -> bool {
    let left = room.get().checked_sub(bytes);
    room.set(left.unwrap_or(room.get()));
    left.is_some()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn sources_are_shown_that_whoever_made_the_program_could_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let mode = |name: &str, mode| {
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        for (name, bits) in [
            ("app", 0o755),
            ("a.c", 0o644),
            ("secret.c", 0o600),
            ("shadow", 0o644),
        ] {
            fs::write(root.join(name), "text").unwrap();
            mode(name, bits);
        }
        symlink(root.join("shadow"), root.join("link.c")).unwrap();
        mode("", 0o755);
        let files = DiskFiles::new(&root);
        let shown = |path: &str| files.source(Pid(u32::MAX), path, "/app").is_some();
        let of = ["/a.c", "/secret.c", "/shadow", "/link.c", "/none.c"].map(shown);
        assert_eq!(of, [true, true, false, false, false]);
        if chown(root.join("app"), Some(65_534), None).is_ok() {
            let of = ["/a.c", "/secret.c", "/link.c"].map(shown);
            assert_eq!(of, [true, false, false]);
            mode("", 0o700);
            assert!(!shown("/a.c"), "in a folder of ours");
        }
    }
}
