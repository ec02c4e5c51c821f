//! The command line that the servers have in common.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::host::{Mode, set_mode};

/// What all servers are told.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) address: SocketAddr,
    /// The CPU of each worker, `None` where the kernel places it.
    pub(crate) cpus: Vec<Option<u32>>,
    /// A connection is closed after so long without a byte.
    pub(crate) idle: Duration,
    /// A listener for each worker, instead of one whose connections are dealt out.
    pub(crate) listener_each: bool,
    /// By step.
    pub(crate) modes: Vec<Mode>,
    /// The CPU of the delegated pool's worker.
    pub(crate) delegate_cpu: Option<u32>,
}

/// The text about these options, for a server's help.
pub(crate) const HELP: &str = "  --address IP          where to listen (127.0.0.1)
  --port N              the port; 0 for any, which is printed (0)
  --workers N           workers (as many as there are CPUs)
  --cpus LIST           their CPUs, such as 0,2-3
  --idle SECONDS        connections without a byte for so long are closed (60)
  --listeners one|each  one listener whose connections are dealt out, or one for each worker (one)
  --delegate STEP[=MODE]
                        how a step of the session is run; may be given again. MODE: normal, yield
                        (others run before and after the step), delegate (the default: a worker of
                        the delegated pool runs it)
  --delegate-cpu N      the CPU of the delegated pool's worker
  --help                this text
";

/// What was given, before it is made sense of.
struct Given {
    ip: IpAddr,
    port: u16,
    workers: Option<usize>,
    cpus: Option<Vec<u32>>,
}

/// Reads the arguments of the process. `other` takes an option that is not common, with its value; false if
/// there is no such option. None: `--help` was asked for.
pub(crate) fn read(
    steps: &[&str],
    mut other: impl FnMut(&str, &str) -> Result<bool, String>,
) -> Result<Option<Options>, String> {
    let mut given = Given {
        ip: Ipv4Addr::LOCALHOST.into(),
        port: 0,
        workers: None,
        cpus: None,
    };
    let mut options = Options {
        address: SocketAddr::new(given.ip, 0),
        cpus: Vec::new(),
        idle: Duration::from_secs(60),
        listener_each: false,
        modes: vec![Mode::Normal; steps.len()],
        delegate_cpu: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--help" || argument == "-h" {
            return Ok(None);
        }
        if !argument.starts_with("--") {
            return Err(format!("`{argument}` is no option; see --help"));
        }
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let value = arguments.next();
                let value = value.ok_or_else(|| format!("{argument} needs a value; see --help"))?;
                (&*argument, value)
            }
        };
        match name {
            "--delegate" => set_mode(&mut options.modes, steps, &value)?,
            "--delegate-cpu" => options.delegate_cpu = Some(number(name, &value)?),
            "--address" => {
                given.ip = value
                    .parse()
                    .map_err(|_| format!("--address {value}: no IP address"))?;
            }
            "--port" => given.port = number(name, &value)?,
            "--workers" => given.workers = Some(number(name, &value)?),
            "--cpus" => given.cpus = Some(cpu_list(&value)?),
            "--idle" => options.idle = Duration::from_secs(number::<u32>(name, &value)?.into()),
            "--listeners" => {
                options.listener_each = match &*value {
                    "one" => false,
                    "each" => true,
                    _ => return Err(format!("--listeners {value}: either `one` or `each`")),
                }
            }
            _ if other(name, &value)? => {}
            _ => return Err(format!("there is no option {name}; see --help")),
        }
    }
    if options.idle.is_zero() {
        return Err("--idle 0: every connection would end at once; give a second or more".into());
    }
    options.address = SocketAddr::new(given.ip, given.port);
    place(&mut options, &given)?;
    Ok(Some(options))
}

/// A number that an option was given.
pub(crate) fn number<N: std::str::FromStr>(name: &str, value: &str) -> Result<N, String> {
    value
        .parse()
        .map_err(|_| format!("{name} {value}: no number that fits here"))
}

fn cpu_list(value: &str) -> Result<Vec<u32>, String> {
    let bad = || format!("--cpus {value}: no list of CPUs such as 0,2-3");
    let mut cpus = Vec::new();
    for part in value.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (
            first.parse().map_err(|_| bad())?,
            last.parse().map_err(|_| bad())?,
        );
        if first > last || last > 65_535 {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// Which worker runs where.
fn place(options: &mut Options, given: &Given) -> Result<(), String> {
    let delegates = options.modes.contains(&Mode::Delegate);
    if options.delegate_cpu.is_some() && !delegates {
        return Err("--delegate-cpu without a step that is delegated: add --delegate STEP".into());
    }
    if given.workers == Some(0) {
        return Err("--workers 0: nobody would serve".into());
    }
    if let Some(cpus) = &given.cpus {
        let workers = given.workers.unwrap_or(cpus.len());
        if workers > cpus.len() {
            let known = cpus.len();
            return Err(format!("--workers {workers}: --cpus names {known} CPUs"));
        }
        options.cpus = cpus[..workers].iter().copied().map(Some).collect();
        return Ok(());
    }
    let mut free = allowed_cpus();
    if delegates && free.len() > 1 {
        // One is left for the delegated pool.
        let apart = options.delegate_cpu.or(free.last().copied());
        options.delegate_cpu = apart;
        free.retain(|cpu| Some(*cpu) != apart);
    }
    let workers = given.workers.unwrap_or(free.len().max(1));
    options.cpus = if workers <= free.len() {
        free[..workers].iter().copied().map(Some).collect()
    } else {
        vec![None; workers]
    };
    Ok(())
}

/// The CPUs on which this process may run.
fn allowed_cpus() -> Vec<u32> {
    // SAFETY: the set is plain numbers, which the call fills; the macros look into it alone.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize)
            .filter(|cpu| libc::CPU_ISSET(*cpu, &set))
            .filter_map(|cpu| u32::try_from(cpu).ok())
            .collect()
    }
}
