//! What holds for the whole recording, at its end and as far as it goes before: threads, losses, the account.

use linewise_machine::process::Ended;
use linewise_recording::{Loss, Time};

use super::{Collector, ReuseSampling, SHORT_SHARE};
use crate::error::Error;
use crate::kernel::Kernel;

/// So many threads are told of before the end; with more of them, writing them all again would cost more than
/// it is worth to whoever is killed.
const THREADS_SO_FAR: usize = 20_000;
/// The kernel is asked for the CPU times of so many threads before the end, once a second: one takes some 10 µs.
const ACCOUNTS_AT_ONCE: usize = 200;

impl<K: Kernel> Collector<K> {
    /// Writes what holds so far: a recording that is cut short because this process is killed then lacks
    /// what came last, and heap blocks that were not yet freed.
    pub(super) fn tell_so_far(&mut self, now: Time) -> Result<(), Error> {
        let share = self.duty.share(now);
        if share < 1.0 {
            self.threads
                .read_accounts(&self.kernel, now, ACCOUNTS_AT_ONCE);
        }
        if self.threads.known() <= THREADS_SO_FAR {
            self.writer.replace(&self.threads.rows(now, share))?;
        }
        self.writer.replace(&self.losses(share))?;
        self.account_for(self.own_ns());
        self.writer.update(&self.info);
        Ok(self.writer.flush()?)
    }

    /// Ends the recording.
    pub(crate) fn finish(mut self, ended_by: &str, ended: Option<Ended>) -> Result<(), Error> {
        // What is done after its end takes nothing from a target.
        let until_its_end = ended.map(|_| self.own_ns());
        let now = self.read_records()?;
        let share = self.duty.share(now);
        if share < 1.0 {
            self.threads
                .read_accounts(&self.kernel, now, THREADS_SO_FAR);
        }
        // On a busy machine this may wait for a CPU before all of them are: nothing is told of that time.
        self.samplers.stop();
        self.take_down(now, true)?;
        self.read_maps(now)?;
        let latency = self.latencies.look_anyway(&self.kernel, now);
        self.latency(latency)?;
        let stays = self.threads.cut(now);
        self.writer.push(stays)?;
        self.finish_flow()?;
        self.finish_heap(now)?;
        let fresh = self.stacks.fresh();
        self.writer.push(fresh)?;
        self.writer.replace(&self.threads.rows(now, share))?;
        self.writer.replace(&self.losses(share))?;
        self.info.end = now;
        self.info.ended_by = ended_by.to_owned();
        match ended {
            Some(Ended::Code(code)) => self.info.exit_code = Some(code),
            Some(Ended::Signal(signal)) => self.info.exit_signal = Some(signal),
            None => {}
        }
        let own = until_its_end.unwrap_or_else(|| self.own_ns());
        self.account(now);
        self.account_for(own);
        Ok(self.writer.finish(&self.info)?)
    }

    /// CPU time of ours since the recording began, ns.
    fn own_ns(&self) -> u64 {
        self.kernel.own_cpu_time_ns() - self.first_ns
    }

    /// Puts what was taken from the target into the facts of the run; `own_ns` of our CPU time are ours.
    fn account_for(&mut self, own_ns: u64) {
        self.info.reuse = self.reuse.as_ref().map(ReuseSampling::describe);
        self.info.overhead = self.budget.account(self.thread_ns, own_ns, self.in_the_way);
    }

    /// What was not recorded; switches were told for `share` of the time.
    fn losses(&self, share: f64) -> Vec<Loss> {
        let time = self.kernel.now();
        let loss = |what: &str, count, detail: String| Loss::new(time, what, count, detail);
        let mut losses: Vec<Loss> = self
            .losses
            .iter()
            .map(|(what, (count, detail))| loss(what, *count, detail.clone()))
            .collect();
        if self.threads.stays_thinned > 0 {
            let detail = "threads came and went too often: not every stay on a CPU is recorded; the CPU times of threads are all there";
            losses.push(loss(
                "stays-thinned",
                self.threads.stays_thinned,
                detail.to_owned(),
            ));
        }
        let in_pauses = self.samplers.stop_in_pauses();
        if share < 0.95 {
            let (what, detail) = match in_pauses {
                true => (
                    "sampled-part-time",
                    "sampling all the time would cost more than the budget: the sampler was on",
                ),
                false => (
                    "switches-part-time",
                    "recording each switch would cost more than the budget: they were recorded",
                ),
            };
            let detail = format!(
                "this program's threads, or others on its CPUs, come and go so often that {detail} for {:.0} % of the time; CPU times are the kernel's, what a thread used just before it ended is scaled up from that",
                share * 100.0
            );
            losses.push(loss(what, 1, detail));
        }
        let unsampled = self.threads.unsampled();
        // A CPU's sampler does not begin anew with each thread. And a life of many periods was not too
        // short for a sample, but spent in the kernel.
        let were_short = unsampled.life_ns() < 8 * self.budget.period_ns();
        if in_pauses && were_short && unsampled.share() >= SHORT_SHARE {
            let detail = format!(
                "threads that ended before their first sample, with {:.0} % of the target's CPU time: they used {} µs each on average; `--rate {}` sees more of them",
                unsampled.share() * 100.0,
                unsampled.life_ns() / 1000,
                2_000_000_000 / unsampled.life_ns().max(1)
            );
            losses.push(loss("threads-too-short", unsampled.threads, detail));
        }
        if self.threads.forgotten > 0 {
            let detail = "threads that ended without a sample and have no row: there were too many";
            losses.push(loss(
                "threads-forgotten",
                self.threads.forgotten,
                detail.to_owned(),
            ));
        }
        if self.stacks.dropped > 0 {
            let detail = "too many distinct call chains: these samples have none";
            losses.push(loss("call-chains", self.stacks.dropped, detail.to_owned()));
        }
        losses
    }
}
