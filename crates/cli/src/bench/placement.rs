//! `linewise bench placement`: policies that place threads, on simulated machines.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use linewise_bench::simulated::{self, Replayed, Spec};
use serde_json::json;

use crate::say::{ProgressLine, out, out_line, outlet};

/// Simulates programs on machines with two sockets, eight last-level caches, or two times four, in intervals of 100 ms,
/// under policies that place their threads: Linux' balancer, cache-aware scheduling, followers of wakers, one cache a
/// process, chance, linewise's placer with counters (sam) and with sampled sharing (matrix), and the best placement that
/// never changes (oracle).
///
/// A figure is progress over that of the oracle with the program alone on the machine. Nothing of this machine is
/// measured or changed: the same seeds give the same figures everywhere.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct PlacementArgs {
    /// Seeds of the random choices: from 1 to this
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Only workloads whose names contain one of these
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Three seeds, short runs, and a short search for the oracle
    #[arg(long)]
    quick: bool,
    /// Instead: replay traces that `linewise record --source exact --keep-trace` kept at four placements on two sockets, by simulated
    /// caches and by the model
    #[arg(long, value_name = "TRACE", num_args = 1.., conflicts_with_all = ["seeds", "only", "quick", "html"])]
    replay: Vec<PathBuf>,
    /// Write a page with the figures as bars
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &PlacementArgs) -> anyhow::Result<ExitCode> {
    if !args.replay.is_empty() {
        return replay(args);
    }
    let spec = Spec {
        seeds: args.seeds,
        only: args.only.clone(),
        quick: args.quick,
    };
    let page_to = args.html.as_deref().map(outlet).transpose()?;
    let line = ProgressLine::on_a_terminal();
    let done = AtomicUsize::new(0);
    let results = simulated::run(&spec, &|name: &str, of: usize| {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        line.show(&format!("{done} of {of}: {name}"));
    });
    line.clear();
    anyhow::ensure!(
        !results.rows.is_empty(),
        "no workload is called like {:?}; see the names in the table without --only",
        args.only
    );
    if args.json {
        out_line(format_args!("{:#}", simulated::json(&results)))?;
    } else {
        out(format_args!("{}", simulated::table(&results)))?;
    }
    if let Some((path, outlet)) = page_to {
        outlet
            .write(simulated::page(&results).as_bytes())
            .with_context(|| format!("cannot write the page {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn replay(args: &PlacementArgs) -> anyhow::Result<ExitCode> {
    let one = |path: &PathBuf| {
        let replayed =
            simulated::replay(path).with_context(|| format!("cannot replay {}", path.display()))?;
        Ok((path.display().to_string(), replayed))
    };
    let programs = args.replay.iter().map(one);
    let programs: Vec<(String, Replayed)> = programs.collect::<anyhow::Result<_>>()?;
    if args.json {
        let rows = programs.iter().map(|(trace, replayed)| {
            json!({
                "trace": trace, "threads": replayed.threads, "accesses": replayed.accesses, "complete": replayed.complete,
                "ordered": replayed.is_ordered(), "worst_count": replayed.worst_count(), "placements": replayed.placements,
            })
        });
        out_line(format_args!(
            "{:#}",
            json!({ "replayed": rows.collect::<Vec<_>>() })
        ))?;
    } else {
        out(format_args!("{}", simulated::replay_table(&programs)))?;
    }
    Ok(ExitCode::SUCCESS)
}
