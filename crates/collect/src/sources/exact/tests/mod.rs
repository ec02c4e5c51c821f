//! The whole way: a program that is compiled here, QEMU, the plugin, the rings, a consumer.

mod crowds;
mod endings;
mod kinds;
mod orders;
mod recorded;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use linewise_cache::Kind;
use linewise_machine::signals::StopSignals;

use linewise_trace::{Consumer, TracedAccess};

use super::{ExactError, ExactOptions, ExactOutcome, trace};
use crate::error::Error;
use crate::target::life::EndedBy;

/// How often an address was loaded, stored and updated, by size.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) of: HashMap<(u64, u16), [u64; 3]>,
    pub(super) accesses: u64,
    pub(super) last_time: u64,
}

impl Consumer for Counts {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        for access in batch {
            let kind = match access.kind {
                Kind::Load => 0,
                Kind::Store => 1,
                Kind::Update => 2,
            };
            self.of.entry((access.address, access.size)).or_default()[kind] += 1;
            assert!(access.time_ns >= self.last_time, "time never decreases");
            self.last_time = access.time_ns;
        }
        self.accesses += batch.len() as u64;
    }
}

impl Counts {
    /// Addresses with this size that were accessed exactly so often.
    pub(super) fn with(&self, size: u16, counts: [u64; 3]) -> Vec<u64> {
        self.of
            .iter()
            .filter(|&(&(_, its), found)| its == size && *found == counts)
            .map(|(&(address, _), _)| address)
            .collect()
    }
}

/// A directory with compiled test programs.
pub(super) struct Programs {
    directory: tempfile::TempDir,
}

impl Programs {
    pub(super) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Compiles `NAME.c` with `compiler`; `None` if there is no such compiler.
    pub(super) fn compile_with(&self, compiler: &str, name: &str) -> Option<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tracer/tests/programs")
            .join(format!("{name}.c"));
        let binary = self.path().join(format!("{name}-{compiler}"));
        let status = Command::new(compiler)
            .args(["-O1", "-pthread", "-o"])
            .arg(&binary)
            .arg(source)
            .status()
            .ok()?;
        assert!(status.success(), "{name}.c does not compile");
        Some(binary)
    }

    pub(super) fn compile(&self, name: &str) -> PathBuf {
        self.compile_with("cc", name).expect("cc is there")
    }
}

pub(super) fn command(program: &Path, arguments: &[&str]) -> Vec<OsString> {
    let mut words = vec![program.as_os_str().to_owned()];
    words.extend(arguments.iter().map(OsString::from));
    words
}

/// Traces, or says why not.
pub(super) fn try_trace<C: Consumer>(
    options: &ExactOptions,
    consumer: &mut C,
) -> Option<ExactOutcome> {
    match trace(options, &StopSignals::block().unwrap(), consumer) {
        Ok(outcome) => Some(outcome),
        Err(error @ Error::Exact(ExactError::NoQemu { .. })) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Traces all of a program.
pub(super) fn count(program: &Path, arguments: &[&str]) -> Option<(Counts, ExactOutcome)> {
    let mut counts = Counts::default();
    let outcome = try_trace(&ExactOptions::new(command(program, arguments)), &mut counts)?;
    assert_eq!(counts.accesses, outcome.totals.accesses);
    assert_eq!(
        outcome
            .threads
            .iter()
            .map(|thread| thread.accesses)
            .sum::<u64>(),
        counts.accesses
    );
    Some((counts, outcome))
}
