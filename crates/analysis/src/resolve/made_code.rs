//! Code that was made at run time, as the runtimes tell of it: `/tmp/perf-PID.map`, a line `START SIZE NAME` (hexadecimal) for each
//! function, written by node (`--perf-basic-prof`), .NET (`DOTNET_PerfMapEnabled=1`), PHP, LuaJIT, Python 3.12 (`-X perf`), and by agents in
//! Java. See `tools/perf/Documentation/jit-interface.txt` of Linux.

use linewise_recording::Pid;

use super::files::Files;
use super::modules::SourceFrame;

/// Of a longer list its end is read, which tells of what was made last.
const MOST_BYTES: u64 = 64 << 20;
const MOST_FUNCTIONS: usize = 2_000_000;
/// Characters of a name that are kept.
const LONGEST_NAME: usize = 4096;
/// A function is no larger than that.
const LARGEST: u64 = 64 << 20;

/// Functions of one process, by address.
#[derive(Debug, Default)]
pub(super) struct MadeCode(Vec<Function>);

#[derive(Debug)]
struct Function {
    start: u64,
    end: u64,
    name: Box<str>,
}

impl MadeCode {
    /// What process `pid` told.
    pub(super) fn of(pid: Pid, files: &dyn Files) -> Self {
        let Some(file) = files.open(pid, &format!("/tmp/perf-{pid}.map")) else {
            return Self::default();
        };
        let length = file.size().min(MOST_BYTES);
        let bytes = file.read(file.size() - length, length).unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Of the text of such a file.
    fn parse(text: &str) -> Self {
        let lines = text.lines().take(MOST_FUNCTIONS);
        let mut functions: Vec<Function> = lines.filter_map(function).collect();
        // Stable: of those that begin at one place the one that was told last comes last.
        functions.sort_by_key(|function| function.start);
        Self(functions)
    }

    /// The function that holds `address`, with its place in the source where its name says that: of those that lie there the one
    /// that begins last.
    pub(super) fn function(&self, address: u64) -> Option<SourceFrame> {
        /// As many lie over each other at most.
        const STEPS: usize = 64;

        let after = self.0.partition_point(|function| function.start <= address);
        let before = self.0.get(..after)?.iter().rev().take(STEPS);
        let function = before.into_iter().find(|function| address < function.end)?;
        Some(place_of(&function.name))
    }
}

fn function(line: &str) -> Option<Function> {
    let mut words = line.trim_start().splitn(3, ' ');
    let mut number = || {
        let word = words.next()?;
        u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = words.next()?.trim();
    if name.is_empty() || size == 0 || size > LARGEST {
        return None;
    }
    let name: String = name.chars().take(LONGEST_NAME).collect();
    Some(Function {
        start,
        end: start.checked_add(size)?,
        name: name.into(),
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
    use super::*;

    fn at(code: &MadeCode, address: u64) -> Option<String> {
        code.function(address).map(|place| place.function)
    }

    #[test]
    fn functions_are_found_by_address_and_the_one_that_was_told_last_counts() {
        let code = MadeCode::parse(
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
        let code = MadeCode::parse("1000 100 a\n1000 80 b\n");
        assert_eq!(at(&code, 0x1010).as_deref(), Some("b"));
        assert_eq!(at(&code, 0x1090).as_deref(), Some("a"));
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
}
