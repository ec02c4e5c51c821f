//! A fresh folder, programs built in it, and linewise run in it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// No test waits longer: what has not come by then never comes.
const PATIENCE: Duration = Duration::from_secs(100);

/// A folder of its own for one test.
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

/// What a process left behind.
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A process under way, whose output goes to files: nobody who holds on to them can block us.
pub(crate) struct Running {
    pub(crate) child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("tmp")).unwrap();
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Builds `target.c` here; `None`, with the reason said, where there is no C compiler.
    pub(crate) fn target(&self) -> Option<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/target.c");
        let program = self.path("target");
        let built = Command::new("gcc")
            .args(["-O1", "-g", "-pthread", "-o"])
            .args([&program, &source])
            .output();
        match built {
            Ok(output) => {
                assert!(
                    output.status.success(),
                    "{}",
                    String::from_utf8_lossy(&output.stderr)
                );
                Some(program)
            }
            Err(error) => {
                skip(&format!("gcc does not run: {error}"));
                None
            }
        }
    }

    /// Compiles a C file of the workspace; `None`, with the reason said, where there is no such
    /// compiler.
    pub(crate) fn compile(
        &self,
        compiler: &str,
        source: &str,
        name: &str,
        flags: &[&str],
    ) -> Option<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(source);
        let program = self.path(name);
        let built = Command::new(compiler)
            .args(["-O2", "-g", "-pthread"])
            .args(flags)
            .arg("-o")
            .args([&program, &source])
            .output();
        match built {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{said}");
                Some(program)
            }
            Err(error) => {
                skip(&format!("{compiler} does not run: {error}"));
                None
            }
        }
    }

    /// The JSON report of an exact run with these options, which ends with code 0; `None`, with the
    /// reason said, where there is no emulator.
    pub(crate) fn traced(
        &self,
        options: &[&str],
        program: &Path,
        arguments: &[&str],
    ) -> Option<Value> {
        if !emulator() {
            return None;
        }
        let report = self.path("report.json");
        let output = self.finish(
            self.linewise(["run", "--source", "exact", "--quiet", "--json"])
                .arg("--report-to")
                .arg(&report)
                .args(options)
                .arg("--")
                .arg(program)
                .args(arguments),
        );
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let text = fs::read_to_string(report).unwrap();
        Some(serde_json::from_str(&text).unwrap())
    }

    /// Any command, in this folder and with its temporary files here.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.directory.path())
            .env("TMPDIR", self.path("tmp"))
            .env_remove("COLUMNS")
            .stdin(Stdio::null());
        command
    }

    /// `linewise` with these arguments.
    pub(crate) fn linewise<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.command(BINARY);
        command.args(args);
        command
    }

    /// The same, with Ctrl-C heard: who runs tests in the background has it ignored.
    pub(crate) fn interruptible<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = self.command("env");
        command
            .args(["--default-signal=INT,QUIT", BINARY])
            .args(args);
        command
    }

    pub(crate) fn start(&self, command: &mut Command) -> Running {
        let (stdout, stderr) = (self.fresh("stdout"), self.fresh("stderr"));
        let child = command
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        Running {
            child,
            stdout,
            stderr,
        }
    }

    pub(crate) fn finish(&self, command: &mut Command) -> Output {
        self.start(command).finish()
    }

    /// A recording with samples of two threads on one line.
    pub(crate) fn recording(&self, target: &Path) -> PathBuf {
        let output = self.finish(
            self.linewise(["record", "-o", "made", "--"])
                .arg(target)
                .args(["fight", "0.3"]),
        );
        assert_eq!(output.code, Some(5), "{}", output.stderr);
        self.path("made.linewise")
    }

    /// Waits until a file is there and not empty; returns what it says.
    pub(crate) fn wait_for(&self, name: &str) -> String {
        let path = self.path(name);
        until(&format!("{name} to be written"), || {
            fs::read_to_string(&path)
                .ok()
                .filter(|text| text.ends_with('\n'))
        })
        .trim()
        .to_owned()
    }

    /// What lies in the folder for temporary files.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        fs::read_dir(self.path("tmp"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    }

    fn fresh(&self, name: &str) -> PathBuf {
        (0..)
            .map(|i| self.path(&format!("{name}.{i}")))
            .find(|path| !path.exists())
            .unwrap()
    }
}

/// A test that fails leaves nothing running that the next ones would have to share the CPUs with.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// What it has said on its error output so far.
    pub(crate) fn complaints(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    pub(crate) fn finish(mut self) -> Output {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!(
                    "it never ended: {}",
                    fs::read_to_string(&self.stderr).unwrap()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        Output {
            code: status.code(),
            stdout: read(&self.stdout),
            stderr: read(&self.stderr),
        }
    }
}

impl Output {
    /// The report that `--json` printed.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in {}{}", self.stdout, self.stderr))
    }

    /// The text with its line breaks and indentation made into single spaces.
    pub(crate) fn words(&self) -> String {
        self.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// The program under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_linewise");

/// Waits for something that must come.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the emulator of this machine's programs runs; says so if not.
pub(crate) fn emulator() -> bool {
    let name = format!("qemu-{}", std::env::consts::ARCH);
    let there = Command::new(&name).arg("--version").output().is_ok();
    if !there {
        skip(&format!("{name} does not run: install qemu-user"));
    }
    there
}

/// Says why a test tests nothing here.
pub(crate) fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

/// Whether a process is there and has not ended.
pub(crate) fn alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .trim_start()
            .starts_with(['Z', 'X'])
    })
}

/// Makes a pipe that nobody has open.
pub(crate) fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// Sends a signal, named as in `kill -NAME`.
pub(crate) fn signal(pid: &str, name: &str) {
    let status = Command::new("sh")
        .args(["-c", "kill -$0 $1", name, pid])
        .status()
        .unwrap();
    assert!(status.success(), "kill -{name} {pid}");
}

/// The sum of all samples' fates and the threads of a JSON report.
pub(crate) fn total_samples(report: &Value) -> u64 {
    report["samples"]["total"].as_u64().unwrap()
}

/// The threads that a JSON report lists.
pub(crate) fn threads(report: &Value) -> &[Value] {
    report["run"]["threads"].as_array().unwrap()
}

/// The first report with a finding of a program that has one, which `run` lets work for so many seconds: beside many
/// others its threads hardly run at the same time, so that it may have to work longer. `None` where `run` says so, and
/// with one CPU.
pub(crate) fn contended(mut run: impl FnMut(&str) -> Option<Output>) -> Option<Value> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        skip("with one CPU no line is contended");
        return None;
    }
    let mut reports = Vec::new();
    for seconds in ["1.5", "5", "15"] {
        let output = run(seconds)?;
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let report = output.json();
        if report["findings"].get(0).is_some() {
            return Some(report);
        }
        reports.push(report);
    }
    panic!("no finding: {reports:#?}");
}

/// Whether the tests run as root.
pub(crate) fn root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A command that runs what follows as an ordinary user; `None`, with the reason said, where that
/// cannot be done.
pub(crate) fn as_somebody_else(place: &Place) -> Option<Command> {
    if !root() {
        skip("only root can become somebody else");
        return None;
    }
    let mut command = place.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let mut probe = place.command("setpriv");
    probe.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        BINARY,
        "--version",
    ]);
    match probe.output() {
        Ok(output) if output.status.success() => Some(command),
        Ok(output) => {
            skip(&format!(
                "an ordinary user cannot run the binary: {}",
                String::from_utf8_lossy(&output.stderr)
            ));
            None
        }
        Err(error) => {
            skip(&format!("setpriv does not run: {error}"));
            None
        }
    }
}

/// Lets everybody write into the folder of a test.
pub(crate) fn open_to_all(place: &Place) {
    use std::os::unix::fs::PermissionsExt;
    for name in ["", "tmp"] {
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o777)).unwrap();
    }
}
