//! `cargo xtask soak`: whether linewise stays small over time and leaves nothing behind.
//!
//! Half of the time goes to one long recording of a program that allocates from ever new call chains, the rest to
//! short ones, over and over: allocating threads, storms of processes and of threads, under `run`, `record` and
//! `record --pid`. While linewise works its memory, descriptors and threads are looked at, and after each round what
//! it left: temporary files, shared memory, processes. Not in CI: it proves something only when it takes long.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::answers::release_binary;
use crate::arguments::Arguments;
use crate::heap::{BUILT, compile};

/// How long a short recording takes, s.
const SHORT_SECONDS: u64 = 8;
/// Time between two looks at linewise.
const LOOK: Duration = Duration::from_millis(100);
/// What is longer under way after its program ended hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What linewise may have at most. `run` makes the report, too, from all rows at once.
const RECORD: Bounds = Bounds {
    memory_kb: 64 << 10,
    files: 256,
    threads: 32,
};
const RUN: Bounds = Bounds {
    memory_kb: 256 << 10,
    ..RECORD
};

/// Whose memory, descriptors and threads are bounded how.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    memory_kb: u64,
    files: u64,
    threads: u64,
}

/// How the program is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Run,
    Record,
    Attach,
}

/// A recording that is made over and over.
struct Round {
    how: How,
    options: &'static [&'static str],
    program: &'static str,
}

const ROUNDS: [Round; 7] = [
    round(How::Run, &[], "allocate"),
    round(How::Record, &["--heap", "on"], "allocate"),
    round(How::Record, &["--heap", "on"], "processes"),
    round(How::Run, &[], "processes"),
    round(How::Record, &["--heap", "on"], "threads"),
    round(How::Run, &[], "threads"),
    round(How::Attach, &[], "allocate"),
];

const fn round(how: How, options: &'static [&'static str], program: &'static str) -> Round {
    Round {
        how,
        options,
        program,
    }
}

/// Where things are.
struct Place {
    linewise: PathBuf,
    program: PathBuf,
    work: PathBuf,
    temporary: PathBuf,
    before: BTreeSet<PathBuf>,
}

/// Records for `--minutes`, and says what exceeded its bound. `false` if something did.
///
/// # Errors
/// If linewise or the program is not there, or cannot be run.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let minutes = arguments.count("--minutes", 60)? as u64;
    arguments.finish()?;
    let linewise = release_binary(root)?;
    fs::create_dir_all(root.join(BUILT))?;
    compile(root, "soak.c")?;
    let work = root.join("target/soak");
    let _ = fs::remove_dir_all(&work);
    let temporary = work.join("tmp");
    fs::create_dir_all(&temporary).with_context(|| temporary.display().to_string())?;
    let mut place = Place {
        linewise,
        program: root.join(BUILT).join("soak"),
        work,
        temporary,
        before: BTreeSet::new(),
    };
    place.before = place.left_behind();
    let ends = Instant::now() + Duration::from_secs(60 * minutes);
    println!(
        "{:<28} {:>6} {:>10} {:>6} {:>8}",
        "recording", "s", "memory", "files", "threads"
    );
    let long = round(How::Record, &["--heap", "on"], "allocate");
    let mut exceeded = place.round(&long, 30 * minutes)?;
    let mut rounds = ROUNDS.iter().cycle();
    while Instant::now() < ends {
        let Some(round) = rounds.next() else { break };
        exceeded.extend(place.round(round, SHORT_SECONDS)?);
    }
    for line in &exceeded {
        println!("exceeded: {line}");
    }
    Ok(exceeded.is_empty())
}

impl Place {
    /// One recording; what exceeded its bound.
    fn round(&self, round: &Round, seconds: u64) -> anyhow::Result<Vec<String>> {
        let name = format!(
            "{} {} {}",
            match round.how {
                How::Run => "run",
                How::Record => "record",
                How::Attach => "record --pid",
            },
            round.options.join(" "),
            round.program
        );
        let length = seconds.to_string();
        let target = [
            self.program.as_os_str(),
            round.program.as_ref(),
            length.as_ref(),
        ];
        let mut command = Command::new(&self.linewise);
        command
            .current_dir(&self.work)
            .env("TMPDIR", &self.temporary)
            .stdin(Stdio::null())
            .stdout(fs::File::create(self.work.join("stdout"))?)
            .stderr(fs::File::create(self.work.join("stderr"))?);
        let mut attached_to = None;
        match round.how {
            How::Run => command.arg("run"),
            How::Record | How::Attach => command.args(["record", "--force", "-o", "soak"]),
        };
        command.args(["--quiet"]).args(round.options);
        if round.how == How::Attach {
            let mut program = Command::new(target[0]);
            let program = program.args(&target[1..]).spawn().context("the program")?;
            command.arg("--pid").arg(program.id().to_string());
            attached_to = Some(program);
        } else {
            command.arg("--").args(target);
        }
        let mut child = command.spawn().context("running linewise")?;
        let most = watch(&mut child, Duration::from_secs(seconds) + PATIENCE)?;
        if let Some(mut program) = attached_to {
            ensure!(program.wait()?.success(), "{name}: the program failed");
        }
        println!(
            "{name:<28} {seconds:>6} {:>7} MB {:>6} {:>8}",
            most.memory_kb >> 10,
            most.files,
            most.threads
        );
        let bounds = if round.how == How::Run { RUN } else { RECORD };
        let mut exceeded = over(&most, &bounds);
        let status = child.wait()?;
        if !status.success() {
            let said = fs::read_to_string(self.work.join("stderr")).unwrap_or_default();
            exceeded.push(format!("linewise: {status}: {said}"));
        }
        let left = self.left_behind();
        exceeded.extend(
            left.difference(&self.before)
                .map(|path| format!("{} was left behind", path.display())),
        );
        Ok(exceeded
            .into_iter()
            .map(|it| format!("{name}: {it}"))
            .collect())
    }

    /// What linewise could have left: temporary files, shared memory, processes.
    fn left_behind(&self) -> BTreeSet<PathBuf> {
        let entries = |folder: &Path| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let mut left: BTreeSet<PathBuf> = entries(&self.temporary).into_iter().collect();
        for folder in ["/tmp", "/dev/shm"] {
            left.extend(entries(Path::new(folder)).into_iter().filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.contains("linewise")
            }));
        }
        left.extend(entries(Path::new("/proc")).into_iter().filter(|path| {
            let program = fs::read_link(path.join("exe"));
            program.is_ok_and(|program| program == self.linewise || program == self.program)
        }));
        left
    }
}

/// Looks at a process until it ends; the most that it had of each. One that does not end in time is ended.
fn watch(child: &mut Child, longest: Duration) -> anyhow::Result<Bounds> {
    let began = Instant::now();
    let folder = PathBuf::from(format!("/proc/{}", child.id()));
    let mut most = Bounds::default();
    while child.try_wait()?.is_none() {
        if began.elapsed() > longest {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("linewise did not end");
        }
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        let files = fs::read_dir(folder.join("fd")).map_or(0, Iterator::count) as u64;
        most.memory_kb = most.memory_kb.max(number(&status, "VmHWM:"));
        most.threads = most.threads.max(number(&status, "Threads:"));
        most.files = most.files.max(files);
        std::thread::sleep(LOOK);
    }
    Ok(most)
}

/// The number of a line of /proc/PID/status; 0 if there is none.
fn number(status: &str, key: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn over(most: &Bounds, bounds: &Bounds) -> Vec<String> {
    [
        ("kB of memory", most.memory_kb, bounds.memory_kb),
        ("open files", most.files, bounds.files),
        ("threads", most.threads, bounds.threads),
    ]
    .into_iter()
    .filter(|(_, had, bound)| had > bound)
    .map(|(what, had, bound)| format!("{had} {what}, at most {bound} are expected"))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_its_bound_is_named() {
        let status = "Name:\tlinewise\nVmHWM:\t  70000 kB\nThreads:\t3\n";
        let most = Bounds {
            memory_kb: number(status, "VmHWM:"),
            files: 10,
            threads: number(status, "Threads:"),
        };
        let said = over(&most, &RECORD);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("70000 kB of memory"), "{said:?}");
        assert!(over(&most, &RUN).is_empty());
    }
}
