//! `cargo xtask overhead`: how much slower programs and servers are under `linewise record` with its
//! default budget.
//!
//! Each pair is one run alone and one recorded, their order alternating, with the round trip
//! measured before, between and after. A pair during which the machine changed its state, or the host took
//! CPU time for itself, is thrown away and replaced; the others are shown by state. Programs measure
//! themselves, so that what linewise does before it starts them does not count. A server is started once,
//! and linewise attaches to it for one half of each pair: two servers differ by more than what is measured.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use crate::addressed::{Addressed, Samples};
use crate::answers::{build_programs, release_binary};
use crate::arguments::Arguments;
use crate::round_trip::{self, Span, median};
use crate::steal::Stolen;

/// Size of the text that is compressed.
const TEXT_BYTES: usize = 128 << 20;
/// Workers of memcached, each on a CPU of its own.
const MEMCACHED_THREADS: usize = 2;
/// How long linewise is given to attach before the load begins.
const ATTACHING: Duration = Duration::from_millis(500);
/// How long a server may take to listen, or to end.
const SERVER_PATIENCE: Duration = Duration::from_secs(20);
/// A pair of which the host took more than this share of the CPUs' time is thrown away.
const STOLEN: f64 = 0.02;

/// Something whose speed can be measured.
pub(crate) enum Workload {
    /// A program in this folder, by name: prints its iterations and seconds.
    Program(&'static str, &'static str),
    /// A shell command over `$FILE`.
    Shell(&'static str, &'static str),
    /// redis-server under redis-benchmark.
    Redis,
    /// memcached with two threads under two connections that pipeline.
    Memcached,
}

/// Where the programs of fixtures/programs are built, and the examples of linewise-bench.
const FIXTURES: &str = "fixtures/build";
const EXAMPLES: &str = "target/release/examples";

const WORKLOADS: &[Workload] = &[
    Workload::Program(FIXTURES, "counters_c"),
    Workload::Program(FIXTURES, "counters_c_fixed"),
    Workload::Program(FIXTURES, "control_private_c"),
    Workload::Program(FIXTURES, "lock_beside_data_c"),
    Workload::Shell("pigz", "pigz -k -c $FILE"),
    // It is quick: several times, for a run of seconds.
    Workload::Shell("zstd", "zstd -q -T2 -c $FILE $FILE $FILE $FILE"),
    Workload::Program(EXAMPLES, "rayon_sort"),
    Workload::Redis,
    Workload::Memcached,
];

/// The part of a recording's `run.json` that says what it cost.
#[derive(Deserialize)]
struct RunInfo {
    start: u64,
    end: u64,
    overhead: Overhead,
}

#[derive(Deserialize)]
struct Overhead {
    collector_cpu_ns: u64,
    collector_rss_bytes: u64,
}

/// One pair within one state of the machine.
struct Pair {
    /// 0.02: the recorded run took 2 % longer for the same work.
    slowdown: f64,
    /// Of the collector, as a share of one CPU.
    cpu_share: f64,
    rss_bytes: f64,
    recording_bytes: f64,
    addressed: Addressed,
}

/// Where everything is.
pub(crate) struct Places {
    pub root: PathBuf,
    pub linewise: PathBuf,
    /// The text, under target/.
    pub work: PathBuf,
    /// In memory, where the machine has a folder for that: a disk that is slow while all CPUs are busy makes
    /// linewise attach late.
    pub recordings: PathBuf,
    pub seconds: usize,
    /// Options of `linewise record`.
    pub options: &'static [&'static str],
}

/// Measures all workloads and prints a line for each.
///
/// # Errors
/// If linewise or the programs are not there, or a run fails.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let pairs = arguments.count("--pairs", 5)?;
    let seconds = arguments.count("--seconds", 3)?;
    let only: Option<String> = arguments.value("--only")?;
    arguments.finish()?;
    let places = Places {
        root: root.to_owned(),
        linewise: release_binary(root)?,
        work: root.join("target/overhead"),
        recordings: recordings(root),
        seconds,
        options: &[],
    };
    for folder in [&places.work, &places.recordings] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    build_programs(root)?;
    build_examples(root)?;
    write_text(&places.work.join("text"))?;
    println!(
        "{:<17} {:<8} {:>4} {:>8} {:>15} {:>9} {:>8} {:>9} {:>9}",
        "program",
        "trip/ns",
        "pairs",
        "slowdown",
        "lowest..highest",
        "collector",
        "RSS",
        "recording",
        "addresses"
    );
    for workload in WORKLOADS {
        if only.as_deref().is_some_and(|only| only != workload.name()) {
            continue;
        }
        if let Some(missing) = workload.missing() {
            println!("skip: {}: {missing} is not installed", workload.name());
            continue;
        }
        measure(workload, &places, pairs).with_context(|| workload.name().to_owned())?;
    }
    fs::remove_dir_all(&places.recordings)?;
    Ok(true)
}

/// A folder for recordings.
fn recordings(root: &Path) -> PathBuf {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => memory.join("linewise-overhead"),
        false => root.join("target/overhead"),
    }
}

/// Measures pairs until there are enough within one state each, and prints them by state.
fn measure(workload: &Workload, places: &Places, wanted: usize) -> anyhow::Result<()> {
    let mut by_state: Vec<(Span, Vec<Pair>)> = Vec::new();
    let mut mixed = 0;
    let round_trip = || round_trip::measure(&places.linewise);
    let server = match workload.server(places)? {
        Some((command, port)) => {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            Some(Server::start(places.command(None, &words), port)?)
        }
        None => None,
    };
    let speed = |recording: Option<&Path>| match &server {
        None => workload.speed(places, recording),
        Some(server) => server.speed(workload, places, recording),
    };
    // Warms the file cache up, and shows early that the program cannot be run.
    speed(None)?;
    let mut before = round_trip()?;
    for attempt in 0..wanted * 3 {
        if attempt - mixed >= wanted {
            break;
        }
        let recording = places.recordings.join("run.linewise");
        let recorded_first = attempt % 2 == 1;
        let stolen = Stolen::until_now()?;
        let mut speeds = [0.0; 2];
        let mut trips = [before; 3];
        for (turn, recorded) in [recorded_first, !recorded_first].into_iter().enumerate() {
            speeds[usize::from(recorded)] = speed(recorded.then_some(recording.as_path()))?;
            trips[turn + 1] = round_trip()?;
        }
        before = trips[2];
        let stolen = stolen.share_since()?;
        let span = Span::of(&trips).filter(|span| span.is_one_state());
        let Some(span) = span.filter(|_| stolen <= STOLEN) else {
            mixed += 1;
            continue;
        };
        let [bare, recorded] = speeds;
        let run = recording.join("run.json");
        let text = fs::read(&run).with_context(|| run.display().to_string())?;
        let info: RunInfo =
            serde_json::from_slice(&text).with_context(|| run.display().to_string())?;
        let pair = Pair {
            slowdown: bare / recorded - 1.0,
            cpu_share: info.overhead.collector_cpu_ns as f64
                / info.end.saturating_sub(info.start).max(1) as f64,
            rss_bytes: info.overhead.collector_rss_bytes as f64,
            recording_bytes: folder_bytes(&recording)? as f64,
            addressed: places.addressed(&recording)?,
        };
        match by_state
            .iter_mut()
            .find(|(state, _)| state.with(span).is_one_state())
        {
            Some((state, pairs)) => {
                *state = state.with(span);
                pairs.push(pair);
            }
            None => by_state.push((span, vec![pair])),
        }
    }
    if let Some(server) = server {
        server.end(workload.farewell())?;
    }
    by_state.sort_by(|(a, _), (b, _)| a.from.total_cmp(&b.from));
    for (state, pairs) in &by_state {
        print_row(workload.name(), *state, pairs);
    }
    if mixed > 0 {
        println!(
            "{:<20} {mixed} pairs left out: the round trip changed, or the host took CPU time",
            workload.name()
        );
    }
    Ok(())
}

fn print_row(name: &str, state: Span, pairs: &[Pair]) {
    let middle = |value: fn(&Pair) -> f64| {
        let values: Vec<f64> = pairs.iter().map(value).collect();
        median(&values).unwrap_or(f64::NAN)
    };
    let slowdowns = || pairs.iter().map(|pair| pair.slowdown * 100.0);
    println!(
        "{name:<17} {state:<8} {:>4} {:>6.1} % {:>15} {:>7.1} % {:>5.1} MB {:>6.0} kB {:>7.1} %",
        pairs.len(),
        middle(|pair| pair.slowdown) * 100.0,
        format!(
            "{:.1}..{:.1} %",
            slowdowns().fold(f64::INFINITY, f64::min),
            slowdowns().fold(f64::NEG_INFINITY, f64::max)
        ),
        middle(|pair| pair.cpu_share) * 100.0,
        middle(|pair| pair.rss_bytes) / 1e6,
        middle(|pair| pair.recording_bytes) / 1e3,
        middle(|pair| pair.addressed.share().unwrap_or(f64::NAN)) * 100.0,
    );
}

impl Workload {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Program(_, name) | Self::Shell(name, _) => name,
            Self::Redis => "redis-server",
            Self::Memcached => "memcached",
        }
    }

    /// A tool that it needs and this machine lacks.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let needed: &[&'static str] = match self {
            Self::Program(..) => &[],
            Self::Shell(name, _) => &[name],
            Self::Redis => &["redis-server", "redis-benchmark"],
            Self::Memcached => &["memcached"],
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        needed
            .iter()
            .copied()
            .find(|tool| !std::env::split_paths(&path).any(|folder| folder.join(tool).is_file()))
    }

    /// Work done a second, alone or while recorded; the unit is the workload's own.
    pub(crate) fn speed(&self, places: &Places, recording: Option<&Path>) -> anyhow::Result<f64> {
        match self {
            Self::Program(folder, name) => {
                let binary = places.root.join(folder).join(name);
                let seconds = places.seconds.to_string();
                let said = places.output(recording, &[&binary.to_string_lossy(), &seconds])?;
                let number = |key: &str| -> anyhow::Result<f64> {
                    let found = said
                        .split_whitespace()
                        .find_map(|word| word.strip_prefix(key));
                    let value = found.with_context(|| format!("no {key} in `{said}`"))?;
                    value.parse().with_context(|| format!("{key}{value}"))
                };
                Ok(number("iterations=")? / number("seconds=")?)
            }
            Self::Shell(_, command) => {
                let file = places.work.join("text");
                let script = format!(
                    "FILE='{}'; date +%s%N; {command} >/dev/null && date +%s%N",
                    file.display()
                );
                let said = places.output(recording, &["sh", "-c", &script])?;
                let times: Vec<u64> = said.split_whitespace().flat_map(str::parse).collect();
                match times[..] {
                    [start, end] if end > start => Ok(1e9 / (end - start) as f64),
                    _ => bail!("`{command}` failed: {said}"),
                }
            }
            Self::Redis | Self::Memcached => bail!("a server does nothing by itself"),
        }
    }

    /// The command that starts the server, if it is one, and the port that it will listen on.
    pub(crate) fn server(&self, places: &Places) -> anyhow::Result<Option<(Vec<String>, u16)>> {
        let port = free_port()?;
        let port_text = port.to_string();
        let threads = MEMCACHED_THREADS.to_string();
        let folder = places.work.to_string_lossy();
        let command: &[&str] = match self {
            Self::Program(..) | Self::Shell(..) => return Ok(None),
            Self::Redis => &[
                "redis-server",
                "--port",
                &port_text,
                "--save",
                "",
                "--dir",
                &folder,
            ],
            Self::Memcached => &[
                "memcached",
                "-A",
                "-u",
                "root",
                "-l",
                "127.0.0.1",
                "-p",
                &port_text,
                "-t",
                &threads,
            ],
        };
        let command = command.iter().map(|&word| word.to_owned()).collect();
        Ok(Some((command, port)))
    }

    /// Requests a second that a server answers.
    pub(crate) fn load(&self, port: u16, seconds: usize) -> anyhow::Result<f64> {
        match self {
            Self::Program(..) | Self::Shell(..) => bail!("{} is no server", self.name()),
            Self::Redis => redis_benchmark(port, seconds),
            Self::Memcached => memcached_load(port, Duration::from_secs(seconds as u64)),
        }
    }

    /// The request that ends a server.
    pub(crate) fn farewell(&self) -> &'static str {
        match self {
            Self::Program(..) | Self::Shell(..) => "",
            Self::Redis => "SHUTDOWN NOSAVE\r\n",
            Self::Memcached => "shutdown\r\n",
        }
    }
}

impl Places {
    /// A command, alone or under `linewise record`.
    pub(crate) fn command(&self, recording: Option<&Path>, command: &[&str]) -> Command {
        let mut run = match recording {
            None => Command::new(command[0]),
            Some(recording) => {
                let mut linewise = Command::new(&self.linewise);
                linewise.args(["record", "--quiet", "--force"]);
                linewise.args(self.options).arg("--output");
                linewise.arg(recording).arg("--").arg(command[0]);
                linewise
            }
        };
        run.args(&command[1..]).stdin(Stdio::null());
        run
    }

    /// Of the samples that wait for memory, those with an address.
    fn addressed(&self, recording: &Path) -> anyhow::Result<Addressed> {
        #[derive(Deserialize)]
        struct Report {
            samples: Samples,
        }
        let output = Command::new(&self.linewise)
            .args(["report", "--json"])
            .arg(recording)
            .output()
            .context("running linewise report")?;
        let report: Report = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
        Ok(Addressed::from(&report.samples))
    }

    /// What a command prints.
    fn output(&self, recording: Option<&Path>, command: &[&str]) -> anyhow::Result<String> {
        let output = self
            .command(recording, command)
            .output()
            .with_context(|| command[0].to_owned())?;
        ensure!(
            output.status.success(),
            "{}: {}: {}",
            command[0],
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A server that runs until it is told to end.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start(mut command: Command, port: u16) -> anyhow::Result<Self> {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        let mut server = Self { child, port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("{command:?} ended at once: {status}");
            }
            ensure!(
                start.elapsed() < SERVER_PATIENCE,
                "{command:?} does not listen"
            );
            sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Requests answered a second, alone or while linewise is attached.
    fn speed(
        &self,
        workload: &Workload,
        places: &Places,
        recording: Option<&Path>,
    ) -> anyhow::Result<f64> {
        let Some(recording) = recording else {
            sleep(ATTACHING);
            return workload.load(self.port, places.seconds);
        };
        if recording.exists() {
            fs::remove_dir_all(recording).with_context(|| recording.display().to_string())?;
        }
        let linewise = Command::new(&places.linewise)
            .args(["record", "--quiet", "--output"])
            .arg(recording)
            .args(["--pid", &self.child.id().to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .context("running linewise")?;
        // What it measures of the machine before it attaches takes it some time of its own.
        let start = Instant::now();
        while !recording.join("run.json").exists() && start.elapsed() < SERVER_PATIENCE {
            sleep(Duration::from_millis(20));
        }
        sleep(ATTACHING);
        let speed = workload.load(self.port, places.seconds);
        let id = linewise.id().to_string();
        Command::new("kill").args(["-INT", &id]).status()?;
        let output = linewise.wait_with_output()?;
        ensure!(
            output.status.success(),
            "linewise record --pid: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        speed
    }

    /// Sends the request that ends it, and waits for it.
    pub(crate) fn end(mut self, request: &str) -> anyhow::Result<()> {
        TcpStream::connect(("127.0.0.1", self.port))?.write_all(request.as_bytes())?;
        let start = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(start.elapsed() < SERVER_PATIENCE, "the server does not end");
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Server {
    /// Leaves no server behind when a measurement fails; linewise passes the signal on.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let pid = self.child.id().to_string();
            let asked = Command::new("kill").arg(pid).status();
            drop(asked.and_then(|_| self.child.wait()));
        }
    }
}

/// A port that nobody listens on.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Requests a second that redis-benchmark reports.
fn redis_benchmark(port: u16, seconds: usize) -> anyhow::Result<f64> {
    // It knows no duration; a single connection of 16 requests in flight does some 500 000 a second.
    let requests = (400_000 * seconds).to_string();
    let output = Command::new("redis-benchmark")
        .args([
            "-p",
            &port.to_string(),
            "-t",
            "set",
            "-P",
            "16",
            "-r",
            "100000",
            "--csv",
            "-n",
        ])
        .arg(requests)
        .output()
        .context("running redis-benchmark")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let row = said.lines().last().unwrap_or_default();
    let rate = row.split(',').nth(1).map(|field| field.trim_matches('"'));
    rate.and_then(|rate| rate.parse().ok())
        .with_context(|| format!("redis-benchmark said `{said}`"))
}

/// Requests a second that a connection for each thread of the server gets answered, with a batch of them in
/// flight, all together.
fn memcached_load(port: u16, duration: Duration) -> anyhow::Result<f64> {
    const BATCH: usize = 100;
    let connection = |key: usize, mut stream: TcpStream| -> anyhow::Result<f64> {
        pin(&own_thread()?, key)?;
        stream.set_read_timeout(Some(SERVER_PATIENCE))?;
        write!(stream, "set key{key} 0 0 32\r\n{:032}\r\n", key)?;
        stream.read_exact(&mut [0; "STORED\r\n".len()])?;
        let requests = format!("get key{key}\r\n").repeat(BATCH);
        let answer = format!("VALUE key{key} 0 32\r\n{key:032}\r\nEND\r\n").repeat(BATCH);
        let mut read = vec![0; answer.len()];
        let start = Instant::now();
        let mut batches = 0_usize;
        while start.elapsed() < duration {
            stream.write_all(requests.as_bytes())?;
            stream.read_exact(&mut read)?;
            batches += 1;
        }
        ensure!(
            read == answer.as_bytes(),
            "memcached answered something else"
        );
        Ok((batches * BATCH) as f64 / start.elapsed().as_secs_f64())
    };
    pin_workers(port)?;
    std::thread::scope(|scope| {
        let mut connections = Vec::new();
        for key in 0..MEMCACHED_THREADS {
            // The server gives them to its threads in turn, in the order in which they come.
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            sleep(Duration::from_millis(20));
            connections.push(scope.spawn(move || connection(key, stream)));
        }
        connections
            .into_iter()
            .map(|rate| match rate.join() {
                Ok(rate) => rate,
                Err(_) => bail!("a connection to memcached panicked"),
            })
            .sum()
    })
}

/// Pins each worker of the memcached on this port to a CPU of its own. With the connection that it serves
/// on the same CPU its speed varies by 3 % between runs, left to the scheduler by 15 %.
fn pin_workers(port: u16) -> anyhow::Result<()> {
    let mut workers: Vec<u32> = Vec::new();
    for process in fs::read_dir("/proc").context("/proc")?.flatten() {
        // Processes come and go meanwhile: what cannot be read is not ours.
        let command = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        let mut words = command.split('\0');
        let is_ours =
            words.next() == Some("memcached") && words.any(|word| word == port.to_string());
        if !is_ours {
            continue;
        }
        for task in fs::read_dir(process.path().join("task"))? {
            let task = task?;
            if fs::read_to_string(task.path().join("comm"))?.trim() == "mc-worker" {
                workers.extend(task.file_name().to_string_lossy().parse::<u32>());
            }
        }
    }
    ensure!(
        !workers.is_empty(),
        "no worker of the memcached on port {port} was found"
    );
    // In the order in which they were made.
    workers.sort_unstable();
    let mut numbered = workers.iter().enumerate();
    numbered.try_for_each(|(cpu, tid)| pin(&tid.to_string(), cpu))
}

/// Lets a thread run on one CPU only.
fn pin(tid: &str, cpu: usize) -> anyhow::Result<()> {
    let mut taskset = Command::new("taskset");
    taskset.args(["-cp", &cpu.to_string(), tid]);
    let pinned = taskset.output().context("running taskset")?;
    ensure!(
        pinned.status.success(),
        "taskset: {}",
        String::from_utf8_lossy(&pinned.stderr).trim()
    );
    Ok(())
}

/// The id of the calling thread.
fn own_thread() -> anyhow::Result<String> {
    let link = fs::read_link("/proc/thread-self").context("/proc/thread-self")?;
    let tid = link.file_name().context("/proc/thread-self names none")?;
    Ok(tid.to_string_lossy().into_owned())
}

/// Builds the examples of linewise-bench, the Rust programs that are measured.
pub(crate) fn build_examples(root: &Path) -> anyhow::Result<()> {
    let status = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--examples", "--package"])
        .arg("linewise-bench")
        .current_dir(root)
        .status()
        .context("running cargo")?;
    ensure!(
        status.success(),
        "the examples of linewise-bench do not build"
    );
    Ok(())
}

/// Writes text of middling redundancy, the same on every machine.
fn write_text(path: &Path) -> anyhow::Result<()> {
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() as usize >= TEXT_BYTES) {
        return Ok(());
    }
    let mut text = String::with_capacity(TEXT_BYTES + 64);
    let mut random = 88_172_645_463_325_252_u64;
    while text.len() < TEXT_BYTES {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        text += match random % 7 {
            0 => "the quick brown fox ",
            1 => "jumps over ",
            2 => "a lazy dog, ",
            _ => "",
        };
        text += &format!("{:x} ", random >> 44);
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}

fn folder_bytes(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}
