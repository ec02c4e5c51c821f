//! Code that was made at run time, as the runtimes tell of it: `/tmp/perf-PID.map`, a line `START SIZE NAME` (hexadecimal) for each
//! function, written by node (`--perf-basic-prof`), .NET (`DOTNET_PerfMapEnabled=1`), PHP, LuaJIT, Python 3.12 (`-X perf`), and by agents in
//! Java. See `tools/perf/Documentation/jit-interface.txt` of Linux. Or by a jitdump ([`jit_dump`]), which has lines, too.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use linewise_recording::Pid;

use super::files::{File, Files};
use super::jit_dump::{self, Line, Told};
use super::modules::SourceFrame;

/// Of a longer list its end is read, which tells of what was made last.
const MOST_BYTES: u64 = 64 << 20;
const MOST_FUNCTIONS: usize = 2_000_000;
/// Characters of a name that are kept.
const LONGEST_NAME: usize = 4096;
/// A function is no larger than that.
const LARGEST: u64 = 64 << 20;
/// Lines of all functions that are kept.
const MOST_LINES: usize = 4_000_000;
/// Dumps of a process that are read: a runtime writes one.
const MOST_DUMPS: usize = 4;

/// Functions of one process, by address.
#[derive(Debug, Default)]
pub(super) struct MadeCode(Vec<Function>);

#[derive(Clone, Debug)]
struct Function {
    start: u64,
    end: u64,
    /// How many were told before it.
    number: u32,
    name: Arc<str>,
    /// In order.
    lines: Arc<[Line]>,
}

impl MadeCode {
    /// What process `pid` told, which has these files mapped.
    pub(super) fn of<'p>(
        pid: Pid,
        mapped: impl Iterator<Item = &'p str>,
        files: &dyn Files,
    ) -> Self {
        let mut functions = Vec::new();
        if let Some(file) = files.open(pid, &format!("/tmp/perf-{pid}.map")) {
            let length = file.size().min(MOST_BYTES);
            let bytes = file.read(file.size() - length, length).unwrap_or_default();
            functions = listed(&String::from_utf8_lossy(&bytes));
        }
        let dumps: BTreeSet<&str> = mapped.filter(|path| is_dump(path)).collect();
        for path in dumps.into_iter().take(MOST_DUMPS) {
            if let Some(file) = files.open(pid, path) {
                add_dump(&*file, &mut functions);
            }
        }
        Self::sorted(functions)
    }

    /// Of functions in the order in which they were told.
    fn sorted(mut functions: Vec<Function>) -> Self {
        for (function, number) in functions.iter_mut().zip(0..) {
            function.number = number;
        }
        functions.sort_by_key(|function| (function.start, function.number));
        Self(functions)
    }

    /// The function that holds `address`, with its place in the source where its name says that: of those that lie there the one
    /// that was told last, since runtimes use memory again.
    pub(super) fn function(&self, address: u64) -> Option<SourceFrame> {
        /// As many lie over each other at most.
        const STEPS: usize = 64;

        let after = self.0.partition_point(|function| function.start <= address);
        let before = self.0.get(..after)?.iter().rev().take(STEPS);
        let function = before
            .filter(|function| address < function.end)
            .max_by_key(|function| function.number)?;
        let mut place = place_of(&function.name);
        let within = address - function.start;
        let after = function.lines.partition_point(|it| it.offset <= within);
        let line = after.checked_sub(1).and_then(|it| function.lines.get(it));
        if let Some(line) = line.filter(|it| it.line > 0) {
            (place.file, place.line) = (line.file.to_string(), line.line);
        }
        Some(place)
    }
}

/// The functions in the text of a list.
fn listed(text: &str) -> Vec<Function> {
    let lines = text.lines().take(MOST_FUNCTIONS);
    lines.filter_map(function).collect()
}

/// `/srv/jit-4711.dump`, whatever the process is called where it runs.
fn is_dump(path: &str) -> bool {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let number = name
        .strip_prefix("jit-")
        .and_then(|it| it.strip_suffix(".dump"));
    number.is_some_and(|it| !it.is_empty() && it.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Adds what a dump tells. When it was told is left aside: an address has the name that it had last.
fn add_dump(file: &dyn File, functions: &mut Vec<Function>) {
    let mut latest: HashMap<u64, usize> = HashMap::new();
    let mut lines_left = MOST_LINES;
    jit_dump::read(file, |told| {
        let function = match told {
            Told::Load {
                start,
                size,
                name,
                mut lines,
            } => {
                lines.truncate(lines_left);
                lines_left -= lines.len();
                named(start, size, &name).map(|it| Function {
                    lines: lines.into(),
                    ..it
                })
            }
            Told::Move { from, to, size } => latest.get(&from).and_then(|&number| {
                let moved: &Function = functions.get(number)?;
                let end = to.checked_add(size.min(LARGEST))?;
                Some(Function {
                    start: to,
                    end,
                    ..moved.clone()
                })
            }),
        };
        if let Some(function) = function {
            latest.insert(function.start, functions.len());
            functions.push(function);
        }
        functions.len() < MOST_FUNCTIONS
    });
}

fn function(line: &str) -> Option<Function> {
    let mut words = line.trim_start().splitn(3, ' ');
    let mut number = || {
        let word = words.next()?;
        u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    named(start, size, words.next()?)
}

fn named(start: u64, size: u64, name: &str) -> Option<Function> {
    let name = name.trim();
    if name.is_empty() || size == 0 || size > LARGEST {
        return None;
    }
    let name: String = name.chars().take(LONGEST_NAME).collect();
    Some(Function {
        start,
        end: start.checked_add(size)?,
        name: name.into(),
        number: 0,
        lines: Arc::default(),
    })
}

/// `JS:*work /srv/app.js:12:9`, as node has it: the function `work` at line 12. `py::work:/srv/app.py` is Python's. Of others the name is all.
fn place_of(name: &str) -> SourceFrame {
    let whole = || SourceFrame {
        function: name.to_owned(),
        ..SourceFrame::default()
    };
    if let Some((function, file)) = name
        .strip_prefix("py::")
        .and_then(|rest| rest.rsplit_once(':'))
    {
        return SourceFrame {
            function: function.to_owned(),
            file: file.to_owned(),
            line: 0,
        };
    }
    let script = ["JS:", "LazyCompile:", "Function:"];
    let Some(rest) = script.iter().find_map(|start| name.strip_prefix(start)) else {
        return whole();
    };
    // How far it is optimised.
    let rest = rest.trim_start_matches(['*', '~', '^', '+']);
    let Some((function, place)) = rest.rsplit_once(' ') else {
        return whole();
    };
    let number_behind = |place: &'_ str| -> Option<(usize, u32)> {
        let (file, number) = place.rsplit_once(':')?;
        Some((file.len(), number.parse().ok()?))
    };
    let place = place.trim_start_matches("file://");
    let (file, line) = match number_behind(place) {
        None => (place, 0),
        // The line, or the column behind it.
        Some((end, last)) => match number_behind(&place[..end]) {
            Some((end, line)) => (&place[..end], line),
            None => (&place[..end], last),
        },
    };
    let function = match function.trim() {
        "" => "(anonymous)",
        function => function,
    };
    SourceFrame {
        function: function.to_owned(),
        file: file.to_owned(),
        line,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::MemoryFiles;
    use super::*;

    fn listed_code(text: &str) -> MadeCode {
        MadeCode::sorted(listed(text))
    }

    fn at(code: &MadeCode, address: u64) -> Option<String> {
        code.function(address).map(|place| place.function)
    }

    #[test]
    fn functions_are_found_by_address_and_the_one_that_was_told_last_counts() {
        let code = listed_code(
            "1000 100 first\n2000 100 old\n\nnonsense\n2040 40 new\n0x3000 0x10 other one\n1000 zz x\n5000 ffffffffff large\n",
        );
        assert_eq!(at(&code, 0x0fff), None);
        assert_eq!(at(&code, 0x1000).as_deref(), Some("first"));
        assert_eq!(at(&code, 0x10ff).as_deref(), Some("first"));
        assert_eq!(at(&code, 0x1100), None);
        assert_eq!(at(&code, 0x2010).as_deref(), Some("old"));
        assert_eq!(at(&code, 0x2050).as_deref(), Some("new"));
        assert_eq!(at(&code, 0x300f).as_deref(), Some("other one"));
        assert_eq!(at(&code, 0x5000), None);
        // Told anew at the same place.
        let code = listed_code("1000 100 a\n1000 80 b\n");
        assert_eq!(at(&code, 0x1010).as_deref(), Some("b"));
        assert_eq!(at(&code, 0x1090).as_deref(), Some("a"));
        // What lies over a part of its memory that was told before is gone.
        let code = listed_code("1010 10 gone\n1000 100 whole\n1080 10 inner\n");
        assert_eq!(at(&code, 0x1015).as_deref(), Some("whole"));
        assert_eq!(at(&code, 0x1085).as_deref(), Some("inner"));
    }

    #[test]
    fn names_of_runtimes_are_taken_apart() {
        for (name, function, file, line) in [
            ("JS:*work /srv/app.js:12:9", "work", "/srv/app.js", 12),
            (
                "LazyCompile:~work file:///srv/app.mjs:7",
                "work",
                "/srv/app.mjs",
                7,
            ),
            ("JS:^ /srv/app.js:3:1", "(anonymous)", "/srv/app.js", 3),
            ("py::work:/srv/app.py", "work", "/srv/app.py", 0),
            ("Lcom/acme/Store;::put", "Lcom/acme/Store;::put", "", 0),
            ("Builtin:ArrayMap", "Builtin:ArrayMap", "", 0),
        ] {
            let place = place_of(name);
            let found = (place.function.as_str(), place.file.as_str(), place.line);
            assert_eq!(found, (function, file, line), "{name}");
        }
    }

    #[test]
    fn a_dump_that_the_process_has_mapped_tells_functions_and_lines() {
        use super::super::jit_dump::tests::{debug_info, dump, load, moved_to};

        let path = "/srv/jit-8.dump";
        let mut files = MemoryFiles::default();
        let records = [
            debug_info(0x1000, &[(0x1000, 12, "/srv/app.js"), (0x1010, 14, "")]),
            load(0x1000, 0x40, "JS:*work /srv/app.js:12:9"),
            load(0x2000, 0x40, "old"),
            load(0x2000, 0x40, "stub"),
            moved_to(0x1000, 0x5000, 0x40),
        ];
        files.0.insert(path.to_owned(), dump(&records));
        let list = "7000 10 listed\n".as_bytes().to_vec();
        files.0.insert("/tmp/perf-7.map".to_owned(), list);
        let code = |mapped: &[&'static str]| MadeCode::of(Pid(7), mapped.iter().copied(), &files);
        let all = code(&["/usr/bin/node", path]);
        let place = |address| {
            let place = all.function(address).unwrap();
            (place.function, place.file, place.line)
        };
        let work = |line| ("work".to_owned(), "/srv/app.js".to_owned(), line);
        assert_eq!(place(0x100f), work(12));
        assert_eq!(place(0x103f), work(14));
        assert_eq!(place(0x5010), work(14));
        assert_eq!(place(0x2000), ("stub".to_owned(), String::new(), 0));
        assert_eq!(place(0x7001).0, "listed");
        assert!(all.function(0x1040).is_none());
        assert!(code(&[]).function(0x1000).is_none());
    }

    #[test]
    fn dumps_are_known_by_their_names() {
        assert!(is_dump("/home/someone/.debug/jit/java-jit-1/jit-4711.dump"));
        for path in [
            "/tmp/jit-.dump",
            "/tmp/jit-7a.dump",
            "/tmp/perf-7.map",
            "jit-7.dump.gz",
        ] {
            assert!(!is_dump(path), "{path}");
        }
    }
}
