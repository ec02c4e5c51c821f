//! `/proc`: threads, mappings and CPU times of other processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Readable.
    pub readable: bool,
    /// Writable.
    pub writable: bool,
    /// Executable.
    pub executable: bool,
    /// Offset in the file.
    pub offset: u64,
    /// What is written there others see who map the same file.
    pub shared: bool,
    /// The device of its file system: the major number times 2^20, plus the minor.
    pub device: u32,
    /// The file's number in its file system, 0 without a file.
    pub inode: u64,
    /// File, or the kernel's name in brackets, or empty.
    pub path: String,
}

impl Mapping {
    /// Whether it is of the heap recorder's memory, a file without a name of this inode.
    #[must_use]
    pub fn is_memory(&self, inode: u64) -> bool {
        self.inode == inode && self.path.starts_with("/memfd:linewise-heap")
    }
}

fn proc_path(pid: u32, file: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(file)
}

/// The mappings of a process, in ascending order.
///
/// # Errors
/// NotFound: the process is gone. PermissionDenied: not ours.
pub fn maps(pid: u32) -> io::Result<Vec<Mapping>> {
    // Names of mapped files are bytes, not text; what is not UTF-8 is shown with a mark.
    let bytes = fs::read(proc_path(pid, "maps"))?;
    let root = proc_path(pid, "root");
    let is_there =
        |path: &str| fs::symlink_metadata(root.join(path.trim_start_matches('/'))).is_ok();
    Ok(parse_mappings(&String::from_utf8_lossy(&bytes), is_there))
}

/// How the kernel writes a line break in a path.
const LINE_BREAK: &str = "\\012";

/// The mappings in `text`; `is_there` says whether there is a file with this path.
fn parse_mappings(text: &str, is_there: impl Fn(&str) -> bool) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = text.split('\n').filter_map(parse_mapping).collect();
    for mapping in &mut mappings {
        if mapping.path.contains(LINE_BREAK) {
            mapping.path = with_line_breaks(&mapping.path, &is_there);
        }
    }
    mappings
}

/// What a path is that the kernel writes so. It leaves backslashes as they are, so that each line break may be four
/// characters of the name: what is there is meant, and where nothing is they are line breaks.
fn with_line_breaks(path: &str, is_there: impl Fn(&str) -> bool) -> String {
    /// More are taken for what they most likely are.
    const MOST: usize = 8;

    let all = path.replace(LINE_BREAK, "\n");
    let parts: Vec<&str> = path.split(LINE_BREAK).collect();
    let breaks = parts.len() - 1;
    if breaks > MOST || is_there(&all) {
        return all;
    }
    let mut other = (0..(1_u32 << breaks) - 1).map(|chosen| {
        let mut path = String::new();
        for (number, part) in parts.iter().enumerate() {
            let between = match number {
                0 => "",
                _ if chosen >> (number - 1) & 1 == 1 => "\n",
                _ => LINE_BREAK,
            };
            path.push_str(between);
            path.push_str(part);
        }
        path
    });
    other.find(|path| is_there(path)).unwrap_or(all)
}

fn parse_mapping(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (permissions, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    // Device and inode, then blanks up to the path.
    let (device, rest) = rest.split_once(' ')?;
    let (major, minor) = device.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let permissions = permissions.as_bytes();
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        readable: permissions.first() == Some(&b'r'),
        writable: permissions.get(1) == Some(&b'w'),
        executable: permissions.get(2) == Some(&b'x'),
        shared: permissions.get(3) == Some(&b's'),
        device: number(major)? << 20 | number(minor)?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        inode: inode.parse().ok()?,
        path: path.trim_start().to_owned(),
    })
}

/// The threads of a process, in ascending order.
///
/// # Errors
/// NotFound: the process is gone.
pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(proc_path(pid, "task"))? {
        if let Some(tid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        {
            threads.push(tid);
        }
    }
    threads.sort_unstable();
    Ok(threads)
}

/// What a process or thread is to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The process: its own id, or that of the process whose thread it is.
    pub process: u32,
    /// A thread of the kernel.
    pub of_kernel: bool,
    /// All its threads have ended; it waits for its parent to ask how.
    pub ended: bool,
}

/// What the process or thread `id` is; `None` if there is none.
#[must_use]
pub fn standing(id: u32) -> Option<Standing> {
    /// See the kernel's `include/linux/sched.h`.
    const PF_KTHREAD: u64 = 0x0020_0000;

    let status = fs::read(proc_path(id, "status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let process = status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))?
        .trim();
    let stat = fs::read(proc_path(id, "stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, rest) = stat.rsplit_once(") ")?;
    let flags: u64 = rest.split_ascii_whitespace().nth(6)?.parse().ok()?;
    Some(Standing {
        process: process.parse().ok()?,
        of_kernel: flags & PF_KTHREAD != 0,
        ended: parse_stat(&stat)?.1,
    })
}

/// When a process started, in the kernel's ticks since boot: with the process id this names a process for
/// good. `None` if it is gone or `/proc` does not tell.
#[must_use]
pub fn started(pid: u32) -> Option<u64> {
    let stat = fs::read(proc_path(pid, "stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name may hold blanks and brackets; the start is the 20th word behind it.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The CPU where a thread was last; `None` if it is gone.
#[must_use]
pub fn last_cpu(tid: u32) -> Option<u32> {
    let stat = fs::read(proc_path(tid, "stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// Where a thread that sleeps left its own code: its stack pointer, and the instruction. `None` while it runs or is ready to, and
/// of a thread that this process may not trace.
#[must_use]
pub fn sleeps_at(pid: u32, tid: u32) -> Option<(u64, u64)> {
    let call = fs::read(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    parse_syscall(&String::from_utf8_lossy(&call))
}

/// `-1 0x7ffd… 0x7f12…`, `202 0x… 0x7ffd… 0x7f12…` with six arguments between, or `running`.
fn parse_syscall(call: &str) -> Option<(u64, u64)> {
    let mut words = call.split_ascii_whitespace().rev();
    let mut number = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (ip, sp) = (number()?, number()?);
    (ip != 0 && sp != 0).then_some((sp, ip))
}

/// The processes whose chain of parents leads to one of `ancestors`, without those themselves unless one descends from
/// another, in ascending order.
/// Those that have ended and only wait to be reaped are left out. Processes that begin meanwhile may
/// be missed.
///
/// # Errors
/// The kernel's: `/proc` is not there.
pub fn descendants(ancestors: &[u32]) -> io::Result<Vec<u32>> {
    let mut parents = std::collections::HashMap::new();
    let mut alive = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = fs::read(proc_path(pid, "stat")).unwrap_or_default();
        if let Some((parent, ended)) = parse_stat(&String::from_utf8_lossy(&stat)) {
            parents.insert(pid, parent);
            if !ended {
                alive.push(pid);
            }
        }
    }
    let descends = |&pid: &u32| {
        let mut at = pid;
        // Parents form no loop, but they were not all read at one moment.
        for _ in 0..=parents.len() {
            match parents.get(&at) {
                Some(parent) if ancestors.contains(parent) => return true,
                Some(&parent) => at = parent,
                None => return false,
            }
        }
        false
    };
    alive.retain(descends);
    alive.sort_unstable();
    Ok(alive)
}

/// The processes whose program's file or first thread has this name, without this one, in ascending order.
///
/// # Errors
/// The kernel's: `/proc` is not there.
pub fn processes_of(name: &str) -> io::Result<Vec<u32>> {
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let number = entry?.file_name();
        let Some(pid) = number.to_str().and_then(|text| text.parse::<u32>().ok()) else {
            continue;
        };
        let is_alive = || standing(pid).is_some_and(|it| !it.ended && !it.of_kernel);
        let of_file = || {
            let program = fs::read_link(proc_path(pid, "exe")).ok()?;
            Some(
                program
                    .file_name()?
                    .to_str()?
                    .trim_end_matches(" (deleted)")
                    == name,
            )
        };
        let is_named = thread_name(pid, pid).as_deref() == Some(name) || of_file() == Some(true);
        if pid != own && is_named && is_alive() {
            found.push(pid);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The parent of a process, from its `stat`, and whether all its threads have ended.
fn parse_stat(stat: &str) -> Option<(u32, bool)> {
    // The name may hold blanks and brackets: what follows its last bracket is numbers.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split_ascii_whitespace();
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    // num_threads is the 20th field: the first thread may have ended before the others.
    let threads: u32 = words.nth(15)?.parse().ok()?;
    Some((parent, matches!(state, "Z" | "X") && threads <= 1))
}

/// The name of a thread, if it is still there.
#[must_use]
pub fn thread_name(pid: u32, tid: u32) -> Option<String> {
    let bytes = fs::read(proc_path(pid, &format!("task/{tid}/comm"))).ok()?;
    Some(
        String::from_utf8_lossy(&bytes)
            .trim_end_matches('\n')
            .to_owned(),
    )
}

/// CPU time that a thread has used, in ns, if it is still there and the kernel tells.
#[must_use]
pub fn thread_cpu_time_ns(pid: u32, tid: u32) -> Option<u64> {
    schedstat(pid, tid).map(|[cpu_time_ns, ..]| cpu_time_ns)
}

/// How long a thread was ready to run without a CPU, in ns, if it is still there and the kernel tells.
#[must_use]
pub fn thread_waited_ns(pid: u32, tid: u32) -> Option<u64> {
    schedstat(pid, tid).map(|[_, waited_ns, _]| waited_ns)
}

/// CPU time that a thread has used, in ns, and how often it came to a CPU, if it is still there and the
/// kernel tells.
#[must_use]
pub fn thread_stays(pid: u32, tid: u32) -> Option<(u64, u64)> {
    schedstat(pid, tid).map(|[cpu_time_ns, _, stays]| (cpu_time_ns, stays))
}

/// CPU time and time ready without a CPU, in ns, and stays on CPUs of a thread.
fn schedstat(pid: u32, tid: u32) -> Option<[u64; 3]> {
    let text = fs::read_to_string(proc_path(pid, &format!("task/{tid}/schedstat"))).ok()?;
    let mut fields = text.split_ascii_whitespace().map(str::parse);
    let mut next = || fields.next()?.ok();
    Some([next()?, next()?, next()?])
}

/// The command line of a process; its name in brackets when it has none. What a process writes over it is its first word:
/// behind that are zeros.
///
/// # Errors
/// NotFound: there is no such process.
pub fn command_line(pid: u32) -> io::Result<Vec<String>> {
    let bytes = fs::read(proc_path(pid, "cmdline"))?;
    let words = words_of(&bytes);
    if words.is_empty() {
        let name = fs::read_to_string(proc_path(pid, "comm")).unwrap_or_default();
        return Ok(vec![format!("[{}]", name.trim_end())]);
    }
    Ok(words)
}

fn words_of(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    let words = bytes.split(|&byte| byte == 0);
    let mut words: Vec<String> = words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let is_written = |first: &String| first.is_empty() || first.contains(' ');
    if words.first().is_some_and(is_written) {
        words.retain(|word| !word.is_empty());
    }
    words
}

/// How many files this process has open; 0 when the kernel does not tell.
#[must_use]
pub fn own_open_files() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64)
}

/// The machine's memory in bytes; 0 when the kernel does not tell.
#[must_use]
pub fn memory_bytes() -> u64 {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    info.lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_ascii_whitespace().next())
        .and_then(|kib| kib.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// Highest resident size of this process so far, in bytes; 0 when the kernel does not tell.
#[must_use]
pub fn own_peak_resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_ascii_whitespace().next())
        .and_then(|kib| kib.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_pointer_of_who_sleeps_is_read() {
        let waits = "202 0x7f0010 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd10 0x7f12ab\n";
        assert_eq!(parse_syscall(waits), Some((0x7ffd10, 0x7f12ab)));
        assert_eq!(
            parse_syscall("-1 0x7ffd10 0x7f12ab\n"),
            Some((0x7ffd10, 0x7f12ab))
        );
        for none in [
            "running\n",
            "",
            "-1 0x0 0x0",
            "1 2 3",
            "0xfffffffffffffffff 0x1",
        ] {
            assert_eq!(parse_syscall(none), None, "{none:?}");
        }
        let (told, tid) = std::sync::mpsc::channel();
        let (ends, end) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            let here = 0_u8;
            // SAFETY: no condition.
            let tid = unsafe { libc::gettid() } as u32;
            told.send((tid, std::ptr::from_ref(&here).addr())).unwrap();
            end.recv().unwrap_err();
        });
        let (tid, here) = tid.recv().unwrap();
        let found = std::iter::repeat_with(|| {
            std::thread::yield_now();
            sleeps_at(std::process::id(), tid)
        });
        let (sp, ip) = found.take(1_000_000).flatten().next().unwrap();
        assert!((here - 65_536..here + 4_096).contains(&(sp as usize)) && ip > 0);
        drop(ends);
        sleeper.join().unwrap();
    }

    #[test]
    fn a_mapping_with_blanks_in_its_path_is_read_whole() {
        let line = "7f00-8f00 r-xp 00001000 fe:00 123                        /opt/my app (deleted)";
        let mapping = parse_mapping(line).unwrap();
        assert_eq!(
            (mapping.start, mapping.end, mapping.offset),
            (0x7f00, 0x8f00, 0x1000)
        );
        assert!(mapping.readable && mapping.executable && !mapping.writable);
        assert_eq!(mapping.path, "/opt/my app (deleted)");
    }

    #[test]
    fn a_line_break_in_a_path_is_told_from_a_backslash() {
        let text = "1000-2000 r-xp 0 00:00 5 /a\\012b\n2000-3000 r-xp 0 00:00 6 /c\\012d\n3000-4000 r-xp 0 00:00 7 /e\r\n";
        let paths: Vec<String> = parse_mappings(text, |path| path == "/c\\012d")
            .into_iter()
            .map(|mapping| mapping.path)
            .collect();
        assert_eq!(paths, ["/a\nb", "/c\\012d", "/e\r"]);
        let there = "/two\nlines/c\\012d";
        let read = with_line_breaks("/two\\012lines/c\\012d", |path| path == there);
        assert_eq!(read, there);
    }

    #[test]
    fn a_thread_of_the_kernel_is_known_where_one_is_seen() {
        let own = standing(std::process::id()).unwrap();
        assert_eq!(
            (own.process, own.of_kernel, own.ended),
            (std::process::id(), false, false)
        );
        match thread_name(2, 2).as_deref() {
            Some("kthreadd") => assert!(standing(2).unwrap().of_kernel),
            _ => println!("SKIP: the kernel's threads are not seen from here"),
        }
        assert_eq!(standing(u32::MAX), None);
    }

    #[test]
    fn an_anonymous_mapping_has_an_empty_path() {
        let mapping = parse_mapping("1000-2000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!(mapping.path, "");
        assert_eq!(parse_mapping("garbage"), None);
    }

    #[test]
    fn the_parent_is_read_behind_any_name_and_a_process_without_its_first_thread_is_alive() {
        let stat = |name: &str, state: &str, threads: u32| {
            format!(
                "77 ({name}) {state} 12 77 77 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 99 0 0"
            )
        };
        assert_eq!(parse_stat(&stat("a) S 1 (b", "R", 1)), Some((12, false)));
        assert_eq!(parse_stat(&stat("sh", "Z", 1)), Some((12, true)));
        assert_eq!(parse_stat(&stat("sh", "Z", 3)), Some((12, false)));
        assert_eq!(parse_stat("77 (sh"), None);
    }

    #[test]
    fn a_child_began_when_its_parent_was_there() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert!(started(child.id()) >= started(std::process::id()));
        assert!(started(std::process::id()) > started(1));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(started(child.id()), None);
    }

    #[test]
    fn a_grandchild_is_a_descendant_until_it_has_ended() {
        use std::io::{BufRead, BufReader};
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let grandchild: u32 = line.trim().parse().unwrap();
        assert_eq!(descendants(&[child.id()]).unwrap(), [grandchild]);
        assert!(
            descendants(&[std::process::id()])
                .unwrap()
                .contains(&grandchild)
        );
        crate::process::signal(grandchild, libc::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(
            !descendants(&[std::process::id()])
                .unwrap()
                .contains(&grandchild)
        );
    }

    #[test]
    fn this_process_has_mappings_a_thread_and_a_command_line() {
        let pid = std::process::id();
        let here = maps(pid).unwrap();
        assert!(here.iter().any(|mapping| mapping.executable));
        assert!(!threads(pid).unwrap().is_empty());
        assert!(!command_line(pid).unwrap().is_empty());
        assert_eq!(words_of(b"a\0\0b c\0\0"), ["a", "", "b c", ""]);
        assert_eq!(words_of(b"server: idle\0\0\0"), ["server: idle"]);
        assert!(words_of(b"").is_empty());
        assert!(own_peak_resident_bytes() > 0);
    }
}
