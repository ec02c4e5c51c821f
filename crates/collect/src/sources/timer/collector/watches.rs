//! Which lines are watched in which threads, for how long, and what that costs.

use linewise_recording::{Address, Tid, Time, Watch};

use super::Collector;
use crate::error::Error;
use crate::kernel::{Denial, Kernel};
use crate::sources::timer::board::Choice;
use crate::sources::timer::watch::{CHUNK, EXPIRY_NS, Refused, SHORT_EXPIRY_NS, watched_bytes};

/// A watch that would cost its thread more than this by the switches until it is given up is given up
/// earlier, ns.
const DEAR_WATCH_NS: f64 = 30_000.0;

impl<K: Kernel> Collector<K> {
    /// Arms watches for as long as the budget lasts.
    pub(super) fn arm(&mut self, now: Time) -> Result<(), Error> {
        let shots = self.info.watchpoint_bytes / CHUNK as u32;
        while shots > 0 && self.budget.affords(shots) {
            let (threads, watcher, shared) = (&self.threads, &self.watcher, self.maps.shared());
            let choice = self.board.choose(
                now,
                &mut self.chance,
                |home| {
                    let sharers = shared.sharers(home).into_iter();
                    sharers.flat_map(|pid| threads.active(pid, now)).collect()
                },
                |tid| watcher.free(tid),
            );
            let Some(choice) = choice.and_then(|choice| self.in_its_process(choice)) else {
                return Ok(());
            };
            let expiry_ns = self.expiry_ns(choice.watched, shots, now);
            let watched = self
                .watcher
                .watch(&choice, expiry_ns, now, &mut self.chance);
            match watched {
                Ok(shots) => self.budget.armed(shots),
                Err(refused) if refused.is_gone() => self.threads.gone(choice.watched),
                Err(Refused::Unguarded(reason)) => self.unguarded(reason)?,
                Err(Refused::Kernel(error)) if Denial::of(&error) == Denial::NoRegister => {
                    let detail = "all watchpoints of a thread were taken: by a debugger or another profiler; end it to see more";
                    return self.lose("watchpoint-refused", 1, detail.to_owned());
                }
                Err(Refused::Kernel(error)) => {
                    return self.lose(
                        "watchpoint-refused",
                        1,
                        format!("the kernel refused a watchpoint: {error}"),
                    );
                }
            }
        }
        Ok(())
    }

    /// The same with the line where the watched thread's process has it: of several places that at which the thread was seen,
    /// else any.
    fn in_its_process(&mut self, mut choice: Choice) -> Option<Choice> {
        let published = &mut choice.published;
        let pid = self.threads.process_of(choice.watched)?;
        let home = (published.pid, published.address);
        let places = self.maps.shared().at(pid, home);
        let line_of = |it: &Address| it.line(watched_bytes(self.info.line_size));
        let seen = places.iter().find(|it| Some(line_of(it)) == choice.at);
        let any = places.get(self.chance.below(places.len()));
        published.address = *seen.or(any)?;
        published.pid = pid;
        Some(choice)
    }

    /// How long a thread is watched at most. One that comes to its CPU very often is slowed down at each
    /// of its stays; it also comes to the line in a shorter time, if it does.
    fn expiry_ns(&self, tid: Tid, shots: u32, now: Time) -> u64 {
        let stays = self.stays_within(tid, EXPIRY_NS, now);
        if stays * self.budget.armed_stay_ns(shots) > DEAR_WATCH_NS {
            SHORT_EXPIRY_NS
        } else {
            EXPIRY_NS
        }
    }

    /// How often a thread comes to a CPU in so much time, judging by what was told of it lately.
    pub(super) fn stays_within(&self, tid: Tid, ns: u64, now: Time) -> f64 {
        let told_ns = self.duty.lately_on_ns(now).max(1);
        self.threads.lately_stays(tid) as f64 / told_ns as f64 * ns as f64
    }

    /// Charges the budget for a watch that was taken down; `trapped`: when the last of its watchpoints
    /// fired, which takes down all.
    pub(super) fn was_watched(&mut self, watch: &Watch, trapped: Option<Time>) {
        let armed_ns = trapped.unwrap_or(watch.closed).since(watch.armed);
        let stays = self.stays_within(watch.tid, armed_ns, watch.closed);
        let shots = watch.chunks.count_ones();
        self.budget.was_armed(watch.exposure_ns, stays, shots);
    }
}
