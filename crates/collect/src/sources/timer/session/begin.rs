//! How a recording begins: the samplers are on, the target runs, and there is a place for what is seen.

use std::ffi::OsString;
use std::io;

use linewise_machine::facts::Facts;
use linewise_recording::{Pid, RunInfo, Writer};

use super::prepare::{Beginning, MachineCosts};
use crate::error::Error;
use crate::kernel::{HeldTarget, Kernel};
use crate::options::{RecordOptions, Target};
use crate::sources::timer::attach::{attach, family as family_of};
use crate::sources::timer::description::describe;
use crate::sources::timer::samplers::Samplers;
use crate::sources::timer::samplers::threads::ThreadSamplers;
use crate::target::life::{Attachment, Running};

/// A recording that has begun.
pub(super) struct BegunRecording<K: Kernel> {
    pub(super) running: Running<K>,
    /// The processes of the target, the first one first.
    pub(super) members: Vec<u32>,
    pub(super) samplers: Samplers<K>,
    /// Or why there is no place for the recording of a target that runs already.
    pub(super) writer: Result<Writer, Error>,
    pub(super) info: RunInfo,
    /// Threads without a sampler, and why.
    pub(super) left_out: Vec<(u64, String)>,
}

/// Begins.
///
/// # Errors
/// Those of [`crate::record`]: then nothing runs that did not run before.
pub(super) fn begin<K: Kernel>(
    kernel: &K,
    options: &RecordOptions,
    beginning: Beginning<'_, K>,
    measured: &mut MachineCosts<K>,
    facts: &Facts,
    open_files: u64,
) -> Result<BegunRecording<K>, Error> {
    match beginning {
        Beginning::Held(held, command, family) => {
            let pid = held.pid();
            let samplers = match measured.of_cpus.take() {
                Some(samplers) => Samplers::Cpus(samplers.started()?),
                None => Samplers::Threads(ThreadSamplers::open(
                    kernel.clone(),
                    pid,
                    &measured.cpus,
                    measured.sampler_options,
                )?),
            };
            let info = information(kernel, options, (facts, measured), pid, &samplers);
            let (child, writer) = launch::<K>(held, command, options, &info)?;
            Ok(BegunRecording {
                running: Running::Child(child, family),
                members: vec![pid],
                samplers,
                writer,
                info,
                left_out: Vec::new(),
            })
        }
        Beginning::Processes(pids) => {
            let (samplers, members, left_out) = match measured.of_cpus.take() {
                Some(samplers) => {
                    let mut samplers = samplers.started()?;
                    // Whoever is forked from now on is told of.
                    let members = family_of(kernel, pids);
                    samplers.follow(&members);
                    (Samplers::Cpus(samplers), members, Vec::new())
                }
                None => {
                    let sampler_options = measured.sampler_options;
                    let attached =
                        attach(kernel, pids, &measured.cpus, sampler_options, open_files)?;
                    let members = family_of(kernel, pids);
                    let samplers = Samplers::Threads(attached.samplers);
                    (samplers, members, attached.left_out)
                }
            };
            let info = information(kernel, options, (facts, measured), members[0], &samplers);
            let writer = Writer::create(&options.directory, &info, options.mode())?;
            let attachments = pids.iter().map(|&pid| Attachment::to(kernel, pid));
            Ok(BegunRecording {
                running: Running::Processes(attachments.collect()),
                members,
                samplers,
                writer: Ok(writer),
                info,
                left_out,
            })
        }
    }
}

fn information<K: Kernel>(
    kernel: &K,
    options: &RecordOptions,
    (facts, measured): (&Facts, &MachineCosts<K>),
    pid: u32,
    samplers: &Samplers<K>,
) -> RunInfo {
    // What was measured of the machine before is no part of the run.
    let start = kernel.now();
    let MachineCosts { costs, taken, .. } = measured;
    RunInfo {
        command: options.target.command_line(kernel, pid),
        pid: Pid(pid),
        launched: matches!(options.target, Target::Launch(_)),
        ..describe(kernel, samplers.what(), start, facts, costs, *taken)
    }
}

/// Lets the held child run and creates its recording: before the child runs where that loses
/// nothing, and as soon as it runs where an older recording gives way. The inner error is that of
/// creating it when the child runs already.
fn launch<K: Kernel>(
    held: K::Held,
    command: &[OsString],
    options: &RecordOptions,
    info: &RunInfo,
) -> Result<(K::Child, Result<Writer, Error>), Error> {
    let directory = &options.directory;
    let create = || Ok(Writer::create(directory, info, options.mode())?);
    if linewise_recording::check_place(directory, options.mode())? {
        let child = release::<K>(held, command)?;
        return Ok((child, create()));
    }
    let writer = create()?;
    match release::<K>(held, command) {
        Ok(child) => Ok((child, Ok(writer))),
        Err(error) => {
            writer.discard();
            Err(error)
        }
    }
}

fn release<K: Kernel>(held: K::Held, command: &[OsString]) -> Result<K::Child, Error> {
    held.release().map_err(|source| {
        let program = command
            .first()
            .map(|word| word.to_string_lossy().into_owned())
            .unwrap_or_default();
        match source.kind() {
            io::ErrorKind::NotFound => Error::NoSuchProgram { program },
            _ => Error::NotExecutable { program, source },
        }
    })
}
