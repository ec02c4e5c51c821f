//! `linewise place`: puts threads where what they share is near, as long as it runs.

mod args;
mod claims;
mod hands;
#[cfg(test)]
mod hands_tests;
mod journal;
mod kernel;
mod live;
mod observe;
mod placing;
mod remembered;
mod say_moves;
mod stream;
mod target;
mod trial;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use linewise_machine::signals::StopSignals;
use linewise_machine::{procfs, sysfs};
use linewise_placer::{History, Machine, Move, Thresholds, ThresholdsFile};
use serde_json::json;

use crate::say::say;
pub(crate) use args::PlaceArgs;
use claims::{Claim, Claims, left_by_killed};
use hands::{Hands, Undone};
use journal::{Journal, own_folder};
use kernel::Linux;
use live::ByCounters;
use observe::{ByRecording, Observer};
use placing::Placing;
use remembered::Remembered;
use say_moves::Events;
use stream::ByStream;
use target::Target;

/// After so many looks without a move the next comes later.
const CALM_LOOKS: u32 = 2;
/// The same where threads share across domains: the kernel puts them together and apart by turns, and what is not worth
/// a move in one look is in the next.
const CALM_LOOKS_AT_CROSSING: u32 = 6;

/// A file of thresholds is shorter than this, bytes.
const LONGEST_THRESHOLDS: u64 = 1 << 20;

/// Places, and undoes it.
pub(crate) fn run(args: &PlaceArgs) -> anyhow::Result<ExitCode> {
    if args.undo {
        return undo_leftovers(args);
    }
    if [
        !args.command.is_empty(),
        !args.pid.is_empty(),
        args.system,
        args.counters.is_some(),
    ]
    .into_iter()
    .all(|given| !given)
    {
        bail!("what is to be placed? `linewise place -- COMMAND`, --pid PID, or --system");
    }
    let root = args.topology.as_deref().unwrap_or(Path::new("/"));
    let topology = sysfs::read_topology(root)
        .with_context(|| format!("cannot read the machine's shape from {}", root.display()))?;
    let machine = Machine::new(&topology);
    let mut events = Events::open(args.events.as_deref())?;
    let mut target = Target::begin(args)?;
    let signals = StopSignals::block().context("cannot wait for signals")?;
    let placed = match nothing_to_gain(&machine) {
        None => place(args, &machine, &mut target, &signals, &mut events),
        Some(reason) => {
            if !args.quiet {
                say(&format!("nothing is to be moved: {reason}"));
            }
            events.tell("nothing", json!({ "reason": reason }));
            Ok(())
        }
    };
    // A command has its own exit code, whatever failed of ours.
    match (placed, target.end(&signals)) {
        (Ok(()), code) => Ok(code.unwrap_or(ExitCode::SUCCESS)),
        (Err(error), Some(code)) => {
            crate::exit::report_failure(&error);
            Ok(code)
        }
        (Err(error), None) => Err(error),
    }
}

/// Why no placement can be better than another here, if that is so.
fn nothing_to_gain(machine: &Machine) -> Option<&'static str> {
    if machine.len() < 2 {
        return Some("this machine has one CPU");
    }
    let flat = machine.levels().is_empty() && machine.memory().domains.len() < 2;
    flat.then_some(
        "all CPUs are below one last-level cache, or the machine does not tell how they are connected, so no place is nearer than another",
    )
}

/// The thresholds of a file, or of the paper's machine.
fn thresholds(file: Option<&Path>) -> anyhow::Result<Thresholds> {
    let Some(file) = file else {
        return Ok(Thresholds::IVY_BRIDGE);
    };
    let bytes = linewise_foreign::read(file, LONGEST_THRESHOLDS);
    let bytes =
        bytes.with_context(|| format!("cannot read the thresholds in {}", file.display()))?;
    let told = ThresholdsFile::from_json(&String::from_utf8_lossy(&bytes));
    let told = told.with_context(|| format!("{} holds no thresholds", file.display()))?;
    Ok(told.thresholds())
}

fn undo_leftovers(args: &PlaceArgs) -> anyhow::Result<ExitCode> {
    let (journal, left) = Journal::open(args.journal.as_deref())?;
    let mut hands = Hands::new(Linux, journal, left);
    if hands.is_empty() {
        say("there is nothing to undo");
        let lives = |pid, start| procfs::started(pid) == Some(start);
        let folder = own_folder().ok();
        for pid in folder.iter().flat_map(|it| left_by_killed(it, lives)) {
            say(&format!(
                "process {pid} had a placer that was killed and had a journal of its own: `linewise place --undo --journal FILE` with that undoes it"
            ));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let undone = hands.undo()?;
    say(&words(undone));
    Ok(if undone.refused == 0 {
        ExitCode::SUCCESS
    } else {
        crate::exit::LINEWISE_FAILED.into()
    })
}

/// The processes that are to be placed are nobody else's from here on. A dry run changes none.
///
/// # Errors
/// Another placer has one that was named.
fn claim(args: &PlaceArgs) -> anyhow::Result<Option<Claims>> {
    if args.dry_run {
        return Ok(None);
    }
    let mut claims = match own_folder() {
        Ok(folder) => Claims::new(folder),
        Err(error) => {
            let reason = crate::exit::chain(error.as_ref());
            say(&format!(
                "a placer of the same threads would not be noticed: {reason}"
            ));
            return Ok(None);
        }
    };
    for &pid in &args.pid {
        if let Some(start) = procfs::started(pid)
            && let Claim::Theirs(holder) = claims.take(pid, start)?
        {
            bail!(
                "{}: end it first, it undoes what it did",
                claims::placed_by(pid, holder)
            );
        }
    }
    Ok(Some(claims))
}

/// What was undone, in words.
fn words(undone: Undone) -> String {
    let mut text = format!(
        "{} threads may run where they might before",
        undone.restored
    );
    for (count, what) in [
        (undone.ended, "had ended"),
        (
            undone.theirs,
            "were changed by somebody else meanwhile and are left so",
        ),
        (
            undone.displaced,
            "of them on all CPUs, since those that they might use before are offline",
        ),
        (
            undone.refused,
            "could not be changed: end this as the user who placed them, `linewise place --undo`",
        ),
    ] {
        if count > 0 {
            text += &format!("; {count} {what}");
        }
    }
    text
}

fn place(
    args: &PlaceArgs,
    machine: &Machine,
    target: &mut Target,
    signals: &StopSignals,
    events: &mut Events,
) -> anyhow::Result<()> {
    let claims = claim(args)?;
    let (journal, left) = Journal::open(args.journal.as_deref())?;
    let mut hands = Hands::new(Linux, journal, left);
    if !hands.is_empty() {
        let undone = hands.undo()?;
        say(&format!("a placer before was killed; {}", words(undone)));
    }
    let mut placing = Placing {
        args,
        machine,
        thresholds: thresholds(args.thresholds.as_deref())?,
        history: History::new(),
        claims,
        hands,
        events,
        names: BTreeMap::new(),
        remembered: Remembered::default(),
    };
    let mut observer: Box<dyn Observer + '_> = match &args.counters {
        Some(file) => Box::new(ByStream::open(file, machine)?),
        None if args.hardware_counters => Box::new(ByCounters::begin(signals, args.look)?),
        None => Box::new(ByRecording {
            signals,
            time: args.look,
            overhead: args.overhead,
        }),
    };
    let result = follow(&mut placing, observer.as_mut(), target, signals);
    // Whatever happened: everything as it was.
    let undone = placing.hands.undo()?;
    placing.events.tell(
        "undone",
        json!({ "restored": undone.restored, "ended": undone.ended, "theirs": undone.theirs, "refused": undone.refused }),
    );
    if undone.refused > 0 || (!args.quiet && undone != Undone::default()) {
        say(&words(undone));
    }
    result
}

/// Looks and moves until the target, its time or the user ends it.
fn follow(
    placing: &mut Placing<'_>,
    observer: &mut dyn Observer,
    target: &mut Target,
    signals: &StopSignals,
) -> anyhow::Result<()> {
    let mut calm = 0;
    let mut said_nothing = false;
    loop {
        let processes = target.processes()?;
        let seen = observer.look(&processes)?;
        target.heard(seen.ended);
        let snapshot = placing.snapshot(&seen);
        let moves = placing.decided(&seen, &snapshot);
        calm = if moves.is_empty() { calm + 1 } else { 0 };
        if moves.is_empty() && calm == CALM_LOOKS && !said_nothing && !placing.args.quiet {
            said_nothing = true;
            say(&placing.why_nothing(&seen));
        }
        let carried = !moves.is_empty();
        if carried {
            carry_out(placing, &moves, observer, target, signals)?;
        }
        placing.hold(&snapshot, &moves)?;
        placing.free_heirs();
        let is_over = seen.is_last && placing.args.counters.is_none();
        if is_over || (seen.is_last && placing.args.dry_run) || target.is_over(signals) {
            return Ok(());
        }
        if (placing.args.once && carried) || seen.is_last {
            target.wait(signals, || placing.free_heirs_if_any());
            return Ok(());
        }
        let enough = match placing.crosses(&snapshot) {
            true => CALM_LOOKS_AT_CROSSING,
            false => CALM_LOOKS,
        };
        let waits = calm >= enough && placing.args.counters.is_none();
        if waits && !target.wait_for(signals, placing.args.every, || placing.free_heirs_if_any()) {
            return Ok(());
        }
    }
}

/// Carries moves out, or says only what they are, or tries them.
fn carry_out(
    placing: &mut Placing<'_>,
    moves: &[Move],
    observer: &mut dyn Observer,
    target: &mut Target,
    signals: &StopSignals,
) -> anyhow::Result<()> {
    for one in moves {
        placing.tell_move(one);
    }
    if placing.args.dry_run {
        // What was not done is not to be judged.
        moves
            .iter()
            .for_each(|one| placing.history.refused(one.task));
        return Ok(());
    }
    if placing.args.trial {
        return trial::run(placing, moves, observer, target, signals);
    }
    placing.give_all(moves)
}
