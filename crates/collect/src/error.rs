//! What can go wrong before and while recording.

use std::io;

use crate::kernel::Denial;

/// Why nothing, or no more, was recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The command's program is not there.
    #[error("cannot run {program}: no such program; check the spelling, or give its path")]
    NoSuchProgram {
        /// Its name.
        program: String,
    },
    /// The command's program is there but cannot be executed.
    #[error("cannot run {program}: {source}; is it executable, and for this architecture?")]
    NotExecutable {
        /// Its name.
        program: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// No process could be made.
    #[error("cannot start a process for the target: {0}")]
    Fork(#[source] io::Error),
    /// The process to attach to is not there.
    #[error("there is no process {pid}; it may have ended, see `ps`")]
    NoSuchProcess {
        /// Its id.
        pid: u32,
    },
    /// The process to attach to has ended, and only waits for its parent to take note.
    #[error("process {pid} has ended; it is only listed until its parent asks how (a zombie)")]
    ProcessEnded {
        /// Its id.
        pid: u32,
    },
    /// The process to attach to is a thread of the kernel.
    #[error(
        "{pid} is a thread of the kernel ({name}), which has no program and no memory of its own to record; give the id of a process"
    )]
    KernelThread {
        /// Its id.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// The process to attach to belongs to somebody else.
    #[error("process {pid} is not yours to record; run linewise as its owner or as root")]
    NotPermitted {
        /// Its id.
        pid: u32,
    },
    /// The kernel gives us no timer sampler.
    #[error("{0}")]
    Probe(#[from] linewise_machine::probe::ProbeError),
    /// A sampler could not be opened or its ring not mapped.
    #[error("cannot sample: {what}: {source}{hint}")]
    Sampler {
        /// What was tried.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
        /// What to try, with a leading `; `.
        hint: &'static str,
    },
    /// The recording could not be written.
    #[error(transparent)]
    Recording(#[from] linewise_recording::Error),
    /// The exact source could not run the command.
    #[error(transparent)]
    Exact(#[from] crate::sources::exact::ExactError),
    /// A panic.
    #[error("linewise has a bug: {message}; please report it")]
    Bug {
        /// What it said.
        message: String,
    },
    /// Signals or waiting failed.
    #[error("cannot wait for the target: {0}")]
    Wait(#[source] io::Error),
}

/// Names a failure to open or map a sampler.
pub(crate) fn sampler(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    named(
        what,
        "; set kernel.perf_event_paranoid to 2 or lower, raise kernel.perf_event_mlock_kb, or run as root",
    )
}

/// The same of a sampler of a CPU.
pub(crate) fn cpu_sampler(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    named(
        what,
        "; run as root or with CAP_PERFMON, set kernel.perf_event_paranoid to 0 or lower, or let threads be sampled (--sample-by thread)",
    )
}

fn named(what: &'static str, if_forbidden: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| {
        let hint = match Denial::of(&source) {
            Denial::NotPermitted => if_forbidden,
            Denial::NoFiles => "; raise the limit of open files (ulimit -n)",
            _ => "",
        };
        Error::Sampler { what, source, hint }
    }
}
