//! Whose threads are placed, and until when.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::bail;
use linewise_machine::process::{self, Ended};
use linewise_machine::procfs;
use linewise_machine::signals::StopSignals;

use super::args::PlaceArgs;
use crate::busy::busy_processes;
use crate::exit;

/// How often is looked whether it is over, and whether there are new threads.
const BEAT: Duration = Duration::from_millis(500);

/// A command, processes, or all of the system.
pub(super) struct Target {
    child: Option<Child>,
    /// How the command ended, where a look heard of it before we did.
    ended: Option<Ended>,
    pids: Vec<u32>,
    of_system: bool,
    until: Option<Instant>,
    stopped: bool,
}

impl Target {
    /// Starts the command, or looks whether the processes are there.
    ///
    /// # Errors
    /// They are not.
    pub(super) fn begin(args: &PlaceArgs) -> anyhow::Result<Self> {
        for &pid in &args.pid {
            if procfs::standing(pid).is_none_or(|standing| standing.ended) {
                bail!("there is no process {pid}");
            }
        }
        let child = match args.command.split_first() {
            None => None,
            Some((program, words)) => {
                let spawned = Command::new(program).args(words).spawn();
                Some(spawned.map_err(|source| cannot_run(program, source))?)
            }
        };
        Ok(Self {
            child,
            ended: None,
            pids: args.pid.clone(),
            of_system: args.system,
            until: args.duration.map(|duration| Instant::now() + duration),
            stopped: false,
        })
    }

    /// The processes that are to be looked at now.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub(super) fn processes(&mut self) -> anyhow::Result<Vec<u32>> {
        if self.of_system {
            return busy_processes();
        }
        let child = self.child.as_ref().map(Child::id);
        Ok(self.pids.iter().copied().chain(child).collect())
    }

    /// Takes note of the end of a command.
    pub(super) fn heard(&mut self, ended: Option<Ended>) {
        self.ended = self.ended.or(ended.filter(|_| self.child.is_some()));
    }

    /// Whether the target, its time or the user has ended it.
    pub(super) fn is_over(&mut self, signals: &StopSignals) -> bool {
        while let Some(heard) = signals.next() {
            self.stopped |= match &self.child {
                Some(child) => heard.pass_on(child.id()),
                None => true,
            };
        }
        let ended = match &mut self.child {
            Some(child) => {
                self.ended.is_some() || child.try_wait().map_or(true, |status| status.is_some())
            }
            None => {
                !self.of_system && !self.pids.is_empty() && !self.pids.iter().any(|&pid| lives(pid))
            }
        };
        let late = self.until.is_some_and(|until| Instant::now() >= until);
        self.stopped || ended || late
    }

    /// Waits for `time`, or until it is over; whether it goes on. `meanwhile` is called now and then.
    pub(super) fn wait_for(
        &mut self,
        signals: &StopSignals,
        time: Duration,
        mut meanwhile: impl FnMut(),
    ) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if self.is_over(signals) {
                return false;
            }
            meanwhile();
            let left = end.saturating_duration_since(Instant::now());
            process::wait_readable(&[signals.raw_fd()], left.min(BEAT));
        }
        !self.is_over(signals)
    }

    /// Waits until it is over.
    pub(super) fn wait(&mut self, signals: &StopSignals, mut meanwhile: impl FnMut()) {
        while self.wait_for(signals, Duration::from_secs(3600), &mut meanwhile) {}
    }

    /// The end: a command is waited for, or asked to end if we were, and has its own exit code.
    pub(super) fn end(mut self, signals: &StopSignals) -> Option<ExitCode> {
        let mut child = self.child.take()?;
        if self.ended.is_some() {
            return Some(exit::of_target(self.ended));
        }
        if self.stopped {
            let _ = process::signal(child.id(), SIGTERM);
        }
        loop {
            match child.try_wait() {
                Ok(Some(status)) => {
                    let code = status.code().unwrap_or(128 + status.signal().unwrap_or(0));
                    return Some(ExitCode::from(code as u8));
                }
                Err(_) => return Some(ExitCode::SUCCESS),
                Ok(None) => {}
            }
            process::wait_readable(&[signals.raw_fd()], Duration::from_millis(50));
            while let Some(heard) = signals.next() {
                if heard.pass_on(child.id()) {
                    let _ = process::signal(child.id(), SIGTERM);
                }
            }
        }
    }
}

/// Asks to end.
const SIGTERM: i32 = 15;

fn lives(pid: u32) -> bool {
    procfs::standing(pid).is_some_and(|standing| !standing.ended)
}

fn cannot_run(program: &std::ffi::OsStr, source: io::Error) -> anyhow::Error {
    let program = program.to_string_lossy().into_owned();
    if source.kind() == io::ErrorKind::NotFound {
        linewise_collect::Error::NoSuchProgram { program }.into()
    } else {
        linewise_collect::Error::NotExecutable { program, source }.into()
    }
}
