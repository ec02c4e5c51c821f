//! `cargo xtask inject`: every system call that linewise makes fails once, by `strace --inject`, and nothing comes of
//! it but a message: no panic, nothing left behind, and a target that runs to its end with its own exit code, or was
//! never begun.
//!
//! Only linewise's first thread is under strace, never the target. Each verb is first run once to see which calls it
//! makes and how often; then once for each call, each of some of its occurrences and each error that the call is
//! known to give.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::answers::release_binary;
use crate::arguments::Arguments;
use crate::heap::{BUILT, compile};

/// How long the target works, ms.
const WORKS: &str = "300";
/// The target's exit code.
const CODE: i32 = 23;
/// What is longer under way hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Trials at a time, unless told otherwise.
const JOBS: usize = 2;
/// Occurrences of each call that fail in turn, unless told otherwise.
const POINTS: usize = 8;
/// How often it is told how far they are.
const TOLD: usize = 100;
/// Calls that cannot fail, or with which there is no linewise.
const LEFT_OUT: &[&str] = &[
    "execve",
    "exit_group",
    "exit",
    "rt_sigreturn",
    "restart_syscall",
    // One that does not wake fails only where its argument is wrong.
    "futex",
    // Where it is there it gives what is asked for.
    "getrandom",
    "arch_prctl",
    "set_tid_address",
    "getpid",
    "gettid",
    "geteuid",
    "getuid",
    "getppid",
];
/// Calls without which there is no memory: the process may end by itself.
const MEMORY: &[&str] = &["brk", "mmap", "mremap", "munmap", "madvise"];

/// What linewise does while its calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Run,
    Record,
    Attach,
    Exact,
    Report,
}

impl Verb {
    const ALL: [Self; 5] = [
        Self::Run,
        Self::Record,
        Self::Attach,
        Self::Exact,
        Self::Report,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Record => "record",
            Self::Attach => "pid",
            Self::Exact => "exact",
            Self::Report => "report",
        }
    }

    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Run => &["run", "--quiet", "-o", "made", "--"],
            Self::Record => &["record", "--heap", "on", "-o", "made", "--"],
            Self::Attach => &["record", "-o", "made", "--pid"],
            Self::Exact => &["record", "--source", "exact", "-o", "made", "--"],
            Self::Report => &["report"],
        }
    }
}

/// One failure to be tried.
#[derive(Clone, Debug)]
struct Trial {
    verb: Verb,
    call: String,
    occurrence: usize,
    error: &'static str,
}

/// What came of it.
enum Came {
    /// The call failed, and nothing bad came of it.
    Well,
    /// It was not made so often this time.
    NotReached,
    Badly(String),
}

/// Where things are.
struct Place {
    linewise: PathBuf,
    target: PathBuf,
    work: PathBuf,
    recording: PathBuf,
}

/// Tries all, or with `--core` two occurrences of each call of `run`. `false` if something bad came of one.
///
/// # Errors
/// If strace, linewise or a C compiler is not there.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let core = arguments.switch("--core");
    let only: Option<String> = arguments.value("--only")?;
    let verb: Option<String> = arguments.value("--verb")?;
    let jobs = arguments.count("--jobs", JOBS)?;
    let points = arguments.count("--points", if core { 2 } else { POINTS })?;
    let linewise: Option<PathBuf> = arguments.value("--linewise")?;
    arguments.finish()?;
    fs::create_dir_all(root.join(BUILT))?;
    compile(root, "faulted.c")?;
    let work = root.join("target/inject");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    let place = Place {
        linewise: match linewise {
            Some(path) => std::path::absolute(path).context("--linewise")?,
            None => release_binary(root)?,
        },
        target: root.join(BUILT).join("faulted"),
        recording: work.join("whole.linewise"),
        work,
    };
    place.make_recording()?;
    let mut trials = Vec::new();
    for of in Verb::ALL {
        let wanted = verb
            .as_ref()
            .map_or(!core || of == Verb::Run, |verb| verb == of.name());
        if wanted {
            trials.extend(place.trials(of, core, points)?);
        }
    }
    trials.retain(|trial| only.as_ref().is_none_or(|only| *only == trial.call));
    ensure!(!trials.is_empty(), "no such call or verb");
    let mut sums: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for (trial, came) in place.try_all(&trials, jobs) {
        let [passed, unreached, failed] = sums.entry(trial.verb.name()).or_default();
        match came? {
            Came::Well => *passed += 1,
            Came::NotReached => *unreached += 1,
            Came::Badly(what) => {
                *failed += 1;
                let Trial {
                    verb,
                    call,
                    occurrence,
                    error,
                } = trial;
                println!("{} {call} {occurrence} {error}: {what}", verb.name());
            }
        }
    }
    for (verb, [passed, unreached, failed]) in &sums {
        println!(
            "{verb:<7} {passed} well, {failed} badly; {unreached} calls were not made so often again"
        );
    }
    let [passed, unreached, failed]: [usize; 3] =
        [0, 1, 2].map(|at| sums.values().map(|it| it[at]).sum());
    println!("inject: {passed} passed, {failed} failed");
    ensure!(passed > unreached, "most failures never happened");
    Ok(failed == 0)
}

impl Place {
    fn make_recording(&self) -> anyhow::Result<()> {
        let status = Command::new(&self.linewise)
            .args(["record", "--quiet", "-o"])
            .arg(&self.recording)
            .arg("--")
            .arg(&self.target)
            .arg(self.work.join("made-by"))
            .arg(WORKS)
            .stdin(Stdio::null())
            .status()?;
        ensure!(status.code() == Some(CODE), "linewise record: {status}");
        Ok(())
    }

    /// The calls of a verb.
    fn trials(&self, verb: Verb, core: bool, points: usize) -> anyhow::Result<Vec<Trial>> {
        let folder = self.work.join(format!("{}-seen", verb.name()));
        let attempt = self.attempt(verb, &folder, &[])?;
        if let Some(what) = attempt.bad(verb, None) {
            bail!("{} without a failure: {what}", verb.name());
        }
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        let mut handlers = 0;
        for line in attempt.log.lines() {
            let Some((call, _)) = line.split_once('(') else {
                continue;
            };
            // Until the runtime has set up its stack for signals it is the loader, and that setting up.
            handlers += usize::from(call == "sigaltstack");
            let (loaded, all) = counts.entry(call).or_default();
            *loaded += usize::from(handlers < 2);
            *all += 1;
        }
        let mut trials = Vec::new();
        for (&call, &(loaded, all)) in &counts {
            let own = all - loaded;
            if own == 0 || LEFT_OUT.contains(&call) {
                continue;
            }
            let errors = errors(call);
            let errors = if core { &errors[..1] } else { errors };
            let points = own.min(points);
            for point in 0..points {
                // The first, and then at equal distances.
                let occurrence = loaded + 1 + point * own / points;
                trials.extend(errors.iter().map(|error| Trial {
                    verb,
                    call: call.to_owned(),
                    occurrence,
                    error,
                }));
            }
        }
        Ok(trials)
    }

    fn try_all<'a>(
        &self,
        trials: &'a [Trial],
        jobs: usize,
    ) -> Vec<(&'a Trial, anyhow::Result<Came>)> {
        let next = AtomicUsize::new(0);
        let came = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(trial) = trials.get(number) else {
                            return;
                        };
                        if number > 0 && number.is_multiple_of(TOLD) {
                            eprintln!("{number} of {}", trials.len());
                        }
                        let result = self.try_one(number, trial);
                        if let Ok(Came::Badly(what)) = &result {
                            eprintln!("{} {}: {what}", trial.verb.name(), trial.call);
                        }
                        if let Ok(mut came) = came.lock() {
                            came.push((trial, result));
                        }
                    }
                });
            }
        });
        came.into_inner().unwrap_or_default()
    }

    fn try_one(&self, number: usize, trial: &Trial) -> anyhow::Result<Came> {
        let folder = self.work.join(number.to_string());
        let inject = format!(
            "--inject={}:error={}:when={}",
            trial.call, trial.error, trial.occurrence
        );
        let attempt = self.attempt(trial.verb, &folder, &[&inject])?;
        if !attempt.log.contains("(INJECTED)") {
            fs::remove_dir_all(&folder)?;
            return Ok(Came::NotReached);
        }
        Ok(match attempt.bad(trial.verb, Some(&trial.call)) {
            Some(what) => Came::Badly(format!("{what} (see {})", folder.display())),
            None => {
                fs::remove_dir_all(&folder)?;
                Came::Well
            }
        })
    }

    /// Runs a verb under strace, in a folder of its own.
    fn attempt(&self, verb: Verb, folder: &Path, options: &[&str]) -> anyhow::Result<Attempt> {
        let temporary = folder.join("tmp");
        fs::create_dir_all(&temporary).with_context(|| folder.display().to_string())?;
        let file = |name: &str| fs::File::create(folder.join(name));
        let mut target = Command::new(&self.target);
        target.arg(folder.join("told")).arg(WORKS);
        let mut strace = Command::new("strace");
        strace
            .args(["-qq", "-o"])
            .arg(folder.join("log"))
            .args(options)
            .arg(&self.linewise)
            .args(verb.words())
            .current_dir(folder)
            .env("TMPDIR", &temporary)
            .stdin(Stdio::null())
            .stdout(file("stdout")?)
            .stderr(file("stderr")?);
        let mut beside = None;
        match verb {
            Verb::Attach => {
                let child = target.spawn()?;
                strace.arg(child.id().to_string());
                beside = Some(child);
            }
            Verb::Report => {
                strace.arg(&self.recording);
            }
            _ => {
                strace.arg(target.get_program()).args(target.get_args());
            }
        }
        let mut child = strace.spawn().context("strace: install it")?;
        let code = wait(&mut child)?;
        let target_code = beside.as_mut().map(wait).transpose()?.flatten();
        let text = |name: &str| {
            let bytes = fs::read(folder.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let left = fs::read_dir(&temporary)?.flatten();
        Ok(Attempt {
            code,
            target_code,
            log: text("log"),
            stderr: text("stderr"),
            told: text("told"),
            left: left.map(|it| it.path().display().to_string()).collect(),
            unreadable: self.unreadable(&folder.join("made.linewise"))?,
        })
    }

    /// Why a recording that was left cannot be opened, if it cannot.
    fn unreadable(&self, recording: &Path) -> anyhow::Result<Option<String>> {
        if !recording.exists() {
            return Ok(None);
        }
        let output = Command::new(&self.linewise)
            .arg("report")
            .arg(recording)
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.code() != Some(0)).then_some(said))
    }
}

/// Waits for a process; its exit code, `None` if it did not end by itself.
fn wait(child: &mut Child) -> anyhow::Result<Option<i32>> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// What a verb left.
struct Attempt {
    code: Option<i32>,
    target_code: Option<i32>,
    log: String,
    stderr: String,
    told: String,
    left: Vec<String>,
    unreadable: Option<String>,
}

impl Attempt {
    /// What is not as it must be.
    fn bad(&self, verb: Verb, call: Option<&str>) -> Option<String> {
        let no_memory = call.is_some_and(|call| MEMORY.contains(&call));
        let died = self.stderr.contains("memory allocation of") || self.code.is_none();
        let excused = no_memory && died;
        let code = self.code;
        if self.stderr.contains("panicked") {
            return Some(format!("it panicked: {}", self.stderr.trim()));
        }
        if !excused && code.is_none() {
            return Some("it hung, or a signal ended it".to_owned());
        }
        match (verb, self.told.as_str()) {
            (Verb::Report, _) => {}
            (Verb::Attach, "began\nended\n") if self.target_code == Some(CODE) => {}
            (Verb::Attach, _) => return Some(format!("the target: {:?}", self.target_code)),
            (_, "began\nended\n") if code == Some(CODE) || excused => {}
            (_, "began\nended\n") => return Some(format!("the target's code became {code:?}")),
            (_, "") if code != Some(0) && (excused || !self.stderr.is_empty()) => {}
            (_, "") => return Some(format!("not begun, code {code:?}: {}", self.stderr)),
            (_, told) => return Some(format!("the target was cut short: {told:?}")),
        }
        let says_nothing = code != Some(0) && self.stderr.is_empty() && self.told.is_empty();
        if says_nothing && !excused {
            return Some(format!("code {code:?} without a word"));
        }
        if !self.left.is_empty() && !excused {
            return Some(format!("left behind: {}", self.left.join(", ")));
        }
        self.unreadable
            .as_ref()
            .map(|why| format!("its recording cannot be read: {}", why.trim()))
    }
}

/// The errors that a call is known to give, the likeliest first.
fn errors(call: &str) -> &'static [&'static str] {
    match call {
        "read" | "pread64" => &["EIO", "EINTR"],
        "write" | "pwrite64" | "ftruncate" | "fsync" | "fallocate" => &["ENOSPC", "EIO", "EINTR"],
        "open" | "openat" | "openat2" | "socketpair" | "pipe2" | "signalfd4" | "eventfd2"
        | "memfd_create" => &["EMFILE", "EACCES", "ENOENT"],
        "perf_event_open" => &["EMFILE", "EACCES", "ENOSPC", "ENOENT", "ESRCH"],
        "brk" | "mmap" | "mremap" | "munmap" | "mprotect" | "madvise" => &["ENOMEM"],
        "clone" | "clone3" | "fork" | "vfork" => &["EAGAIN", "ENOMEM"],
        "clock_nanosleep" | "nanosleep" | "ppoll" | "poll" => &["EINTR"],
        // There is no child only where somebody ignores its end; see the tests.
        "wait4" | "waitid" => &["EINTR"],
        "unlinkat" | "mkdirat" | "renameat" | "renameat2" | "fchmod" | "getdents64" => {
            &["EACCES", "EIO"]
        }
        "ioctl" | "fcntl" | "lseek" | "prctl" | "clock_gettime" => &["EINVAL"],
        "process_vm_readv" | "kill" | "tgkill" | "ptrace" | "pidfd_open" => &["EPERM", "ESRCH"],
        _ => &["EPERM", "EIO"],
    }
}
