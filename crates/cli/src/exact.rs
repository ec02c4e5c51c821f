//! `--source exact`: its options, and recording with it.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use linewise_collect::exact::{ExactRecordOptions, check_descriptors};
use linewise_machine::sysfs;
use linewise_recording::Order;
use linewise_trace::KeepTrace;
use linewise_trace::measure::{ReuseShare, SimulatedMachine};

/// Where samples or accesses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SourceChoice {
    /// The best that this machine has: the timer
    Auto,
    /// Interrupts in proportion to CPU time: nearly full speed, estimates
    Timer,
    /// Every access, under QEMU's emulation: counts and cache simulation, many times slower
    Exact,
}

/// Options of the exact source.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Exact runs")]
pub(crate) struct ExactArgs {
    /// Follow a share of all lines, chosen by hash, and scale back
    #[arg(long, value_name = "1/N", value_parser = parse_share)]
    lines: Option<u32>,
    /// Follow the code of one module or function alone: FUNCTION, libNAME, PATH or PATH:FUNCTION
    #[arg(long, value_name = "CODE")]
    only: Option<String>,
    /// In which order threads make their accesses to what they share
    ///
    /// equal-rate: as if all were equally fast, the same in every run; as-run: as the emulator happens to run them (always with --only).
    #[arg(long, value_enum, value_name = "ORDER")]
    order: Option<OrderChoice>,
    /// Run the command so many times, each with the same input (a file, not a pipe), and say between what its counts lie
    ///
    /// All else is of the first run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// Keep all accesses, compressed, in NAME.trace beside the recording
    #[arg(long)]
    keep_trace: bool,
    /// With --keep-trace: the size at which it ends
    #[arg(long, default_value = "2GB", value_name = "SIZE", value_parser = parse_size, requires = "keep_trace")]
    max_size: u64,
    /// Simulate the caches of another machine: 2x10, 2x10x2, epyc-8x8, apple, vm-2
    ///
    /// 2x10 is two sockets of ten cores, 2x10x2 the same with hyperthreads.
    #[arg(long, value_name = "MACHINE", value_parser = parse_machine)]
    machine: Option<&'static str>,
    /// Simulate the caches with their sizes, for hits and misses of every level by their cause
    ///
    /// Several times slower; implied by --machine and --lines.
    #[arg(long)]
    caches: bool,
    /// Reuse distances
    ///
    /// With --source exact: of all lines, of a share (1/64 unless told otherwise), or none. With the timer: sampled, by watching sampled addresses until they are touched again, or none (the default)
    #[arg(long, value_name = "all|1/N|sampled|none", value_parser = parse_reuse)]
    reuse: Option<ReuseChoice>,
    /// The reuse of the same BYTES bytes as well, beside that of lines: 1, or 8 for the elements of an array of doubles
    #[arg(long, value_name = "BYTES", value_parser = parse_element)]
    element: Option<u32>,
    /// Follow calls, to tell reuse by the calls that led to it; of programs for x86-64, without --lines and --only
    #[arg(long)]
    calls: bool,
}

/// The order of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OrderChoice {
    EqualRate,
    AsRun,
}

/// Which reuse distances are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ReuseChoice {
    /// None.
    None,
    /// Of lines whose every access is seen.
    Share(ReuseShare),
    /// Of sampled addresses, watched until they are touched again.
    Sampled,
}

impl ExactArgs {
    /// Whether reuse is to be sampled at full speed.
    ///
    /// # Errors
    /// When it is to be measured in a way that only the exact source can.
    pub(crate) fn samples_reuse(&self) -> anyhow::Result<bool> {
        match self.reuse {
            Some(ReuseChoice::Share(_)) => bail!(
                "--reuse all and --reuse 1/N see every access of a line: add --source exact, or take \
                 --reuse sampled"
            ),
            Some(ReuseChoice::Sampled) => Ok(true),
            Some(ReuseChoice::None) | None => Ok(false),
        }
    }

    /// Fails where one option leaves another without a meaning.
    fn check(&self) -> anyhow::Result<()> {
        let no_reuse = self.reuse == Some(ReuseChoice::None);
        if self.element.is_some() && no_reuse {
            bail!("--element is about reuse, which --reuse none leaves out: give one of the two");
        }
        let hides_calls = match (self.lines, &self.only) {
            (Some(2..), _) => Some("--lines"),
            (_, Some(_)) => Some("--only"),
            _ => no_reuse.then_some("--reuse none"),
        };
        if let Some(other) = hides_calls.filter(|_| self.calls) {
            bail!(
                "--calls tells reuse by calls, which are seen only where all accesses are followed and reuse is \
                 measured: leave out {other}, or --calls"
            );
        }
        if self.order == Some(OrderChoice::EqualRate) && self.only.is_some() {
            bail!(
                "--order equal-rate takes seeing all that threads do, and --only follows a part: leave out one of the two"
            );
        }
        Ok(())
    }

    /// How the exact source records into `directory`, where an older recording gives way if `replace`.
    ///
    /// # Errors
    /// Options that leave each other without a meaning, too few descriptors, an unknown machine.
    pub(crate) fn source(
        &self,
        directory: &Path,
        replace: bool,
    ) -> anyhow::Result<ExactRecordOptions> {
        self.check()?;
        check_descriptors()?;
        let reuse = match self.reuse {
            None => ReuseShare::default(),
            Some(ReuseChoice::None) => ReuseShare::None,
            Some(ReuseChoice::Share(share)) => share,
            Some(ReuseChoice::Sampled) => bail!(
                "--reuse sampled is for programs at full speed: the exact source sees every access, so \
                 take --reuse all or --reuse 1/64"
            ),
        };
        let machine = match self.machine.and_then(SimulatedMachine::named) {
            Some(machine) => machine,
            None => SimulatedMachine::this(sysfs::read_topology(Path::new("/")).context(
                "the caches of this machine cannot be read; name another with --machine",
            )?),
        };
        let keep_trace = self.keep_trace.then(|| KeepTrace {
            path: trace_path(directory),
            max_bytes: self.max_size,
        });
        if let Some(KeepTrace { path, .. }) = &keep_trace
            && std::fs::symlink_metadata(path).is_ok()
            && !replace
        {
            bail!(
                "{} is there already; choose another name with --output, or replace it with --force",
                path.display()
            );
        }
        Ok(ExactRecordOptions {
            one_line_in: self.lines.unwrap_or(1),
            only: self.only.clone(),
            order: match self.order {
                Some(OrderChoice::AsRun) => Order::AsRun,
                Some(OrderChoice::EqualRate) | None => Order::EqualRate,
            },
            keep_trace,
            caches: self.caches || self.machine.is_some(),
            reuse,
            element_bytes: self.element,
            call_paths: self.calls,
            repeat: self.repeat.unwrap_or(1),
            reason: "asked for with --source exact".to_owned(),
            ..ExactRecordOptions::new(machine)
        })
    }

    /// The first option that was given though only the exact source knows it.
    pub(crate) fn given(&self) -> Option<&'static str> {
        [
            (self.lines.is_some(), "--lines"),
            (self.only.is_some(), "--only"),
            (self.order.is_some(), "--order"),
            (self.repeat.is_some(), "--repeat"),
            (self.keep_trace, "--keep-trace"),
            (self.machine.is_some(), "--machine"),
            (self.caches, "--caches"),
            (self.element.is_some(), "--element"),
            (self.calls, "--calls"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }

    /// Whether the trace is to be kept.
    pub(crate) fn keeps_trace(&self) -> bool {
        self.keep_trace
    }
}

fn parse_share(text: &str) -> Result<u32, String> {
    let number = text
        .strip_prefix("1/")
        .and_then(|number| number.parse::<u32>().ok());
    match (text, number) {
        ("1", _) => Ok(1),
        (_, Some(number)) if (1..=1 << 20).contains(&number) => Ok(number),
        (_, Some(_)) => Err("N must lie between 1 and 1048576".to_owned()),
        _ => Err("a share like 1/64 is wanted".to_owned()),
    }
}

fn parse_element(text: &str) -> Result<u32, String> {
    let bytes = text
        .parse()
        .ok()
        .filter(|bytes: &u32| bytes.is_power_of_two());
    bytes.filter(|&bytes| bytes < 64).ok_or_else(|| {
        "a power of two from 1 to 32 is wanted: a line's worth is measured anyway".to_owned()
    })
}

fn parse_reuse(text: &str) -> Result<ReuseChoice, String> {
    match text {
        "all" => Ok(ReuseChoice::Share(ReuseShare::OneLineIn(1))),
        "none" => Ok(ReuseChoice::None),
        "sampled" => Ok(ReuseChoice::Sampled),
        share => parse_share(share)
            .map(|share| ReuseChoice::Share(ReuseShare::OneLineIn(share)))
            .map_err(|error| format!("{error}, or all, sampled or none")),
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits
        .trim()
        .parse()
        .map_err(|_| "a size is wanted, like 500MB or 2GB".to_owned())?;
    let scale = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1.0,
        "K" | "KB" => 1e3,
        "M" | "MB" => 1e6,
        "G" | "GB" => 1e9,
        "T" | "TB" => 1e12,
        "KIB" => 1024.0,
        "MIB" => 1024.0 * 1024.0,
        "GIB" => 1024.0 * 1024.0 * 1024.0,
        unit => return Err(format!("`{unit}` is no unit of size: use KB, MB, GB or TB")),
    };
    let bytes = number * scale;
    if (1e6..=1e15).contains(&bytes) {
        Ok(bytes as u64)
    } else {
        Err("it must lie between 1MB and 1000TB".to_owned())
    }
}

fn parse_machine(text: &str) -> Result<&'static str, String> {
    let known = SimulatedMachine::NAMES;
    known
        .into_iter()
        .find(|&name| name == text)
        .ok_or_else(|| format!("the machines are {}", known.join(", ")))
}

/// NAME.trace beside NAME.linewise.
fn trace_path(directory: &Path) -> PathBuf {
    directory.with_extension("trace")
}

/// A count with its thousands marked.
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_sizes_are_read_as_people_write_them() {
        assert_eq!(parse_share("1/64"), Ok(64));
        assert_eq!(parse_share("1"), Ok(1));
        for wrong in ["0", "1/0", "2/3", "64", "1/", "-1/2", ""] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
        let all = ReuseChoice::Share(ReuseShare::OneLineIn(1));
        assert_eq!(parse_reuse("all"), Ok(all));
        assert_eq!(parse_reuse("none"), Ok(ReuseChoice::None));
        assert_eq!(parse_reuse("sampled"), Ok(ReuseChoice::Sampled));
        assert!(parse_reuse("some").is_err());
        assert_eq!(parse_element("8"), Ok(8));
        for wrong in ["0", "3", "64", "1/8", ""] {
            assert!(parse_element(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_size("2GB"), Ok(2_000_000_000));
        assert_eq!(parse_size("1.5 MiB"), Ok(1_572_864));
        for wrong in ["", "GB", "1KB", "-2GB", "2 pages"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_machine("2x10"), Ok("2x10"));
        assert!(parse_machine("cray").unwrap_err().contains("epyc-8x8"));
    }

    #[test]
    fn thousands_are_marked() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
