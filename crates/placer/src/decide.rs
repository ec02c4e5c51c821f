//! One decision: what moves, and why.

use crate::categories::Categories;
use crate::counters;
use crate::history::History;
use crate::machine::Machine;
use crate::memory;
use crate::plan::{Move, Plan, Reason};
use crate::seats;
use crate::snapshot::{Snapshot, Thresholds};

/// By how much a task may have been below a threshold in the interval before, to count as above it in both.
const NEARLY: f32 = 0.8;

/// What to move after an interval, so that what shares is near and what contends is apart; in the order of the tasks,
/// none twice. First for coherence, from the outermost level inwards, then for remote memory, then for bandwidth (SAM,
/// section 3.1). A task moves only for what it was in two intervals one after the other, rests afterwards, and goes back
/// if its move made it slower. Nothing is moved to a CPU where the task may not run.
///
/// The caller carries the moves out, tells [`History::refused`] of those that failed, and gives the same `history` to
/// the next decision.
#[must_use]
pub fn decide(
    machine: &Machine,
    thresholds: &Thresholds,
    snapshot: &Snapshot,
    history: &mut History,
) -> Vec<Move> {
    if machine.levels().is_empty() && machine.memory().domains.len() < 2 {
        return Vec::new();
    }
    let categories = |thresholds: &Thresholds| -> Vec<Categories> {
        let tasks = snapshot.tasks.iter();
        tasks
            .map(|task| Categories::of(task, machine, thresholds))
            .collect()
    };
    let (now, nearly) = (
        categories(thresholds),
        categories(&thresholds.times(NEARLY)),
    );
    let (agreed, free) = history.follow(snapshot, &now, &nearly);
    let mut plan = Plan::new(machine, snapshot, free);
    for (back, kept) in history.judge(snapshot, thresholds.coherence) {
        undo(&mut plan, &back, kept);
    }
    for level in 0..machine.levels().len() {
        if snapshot.sharing.is_empty() {
            counters::bring_together(&mut plan, &agreed, level);
        } else {
            seats::seat_groups(&mut plan, &agreed, thresholds, level);
        }
    }
    memory::send_home(&mut plan, &agreed, history);
    memory::balance(&mut plan, &agreed, thresholds.misses);
    let moves = plan.moves();
    history.decided(machine, &moves);
    moves
}

/// Sends a task back where it came from, if it still is where it was sent.
fn undo(plan: &mut Plan, back: &Move, kept: f32) {
    let tasks = &plan.snapshot.tasks;
    let Ok(at) = tasks.binary_search_by_key(&back.task, |task| task.key) else {
        return;
    };
    let at = at as u32;
    if plan.cpu_of[at as usize] == back.to && plan.may_run_on(at, back.from) {
        plan.go(at, back.from, Reason::Undo(kept));
    }
}
