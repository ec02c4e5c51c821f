//! The processes that descend from a launched target.
//!
//! A shell script that is asked to end leaves its children behind, who then belong to init and to
//! nobody's care. So the collector takes the place of init: orphans of the target become its children
//! (`PR_SET_CHILD_SUBREAPER`), and whoever descends from the collector and was not there before the
//! target descends from the target, whatever became of the processes between.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use linewise_machine::process::Ended;
use linewise_recording::Time;

use crate::kernel::{Kernel, Processes, TargetChild};

/// How long a target whose time is over may take to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// A signal that comes so soon after the first is the same one again: timeout(1) sends each twice.
const ECHO: Duration = Duration::from_millis(100);

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// A launched target that was asked to end, with all that descends from it.
#[derive(Debug)]
pub(crate) struct Ending<K> {
    kernel: K,
    asked: Time,
    by_duration: bool,
    killing: bool,
}

impl<K: Kernel> Ending<K> {
    /// Asks the target and the `members` of its family (SIGTERM). What they start after this, to end in good order, is
    /// not asked. A target whose time is over is [ordered](Self::look) to after ten seconds.
    ///
    /// # Errors
    /// The kernel's, of waiting for the target.
    pub(crate) fn of(
        kernel: K,
        target: &mut K::Child,
        members: &[u32],
        by_duration: bool,
    ) -> io::Result<Self> {
        // One that is already ending does not mind another.
        if target.try_wait()?.is_none() {
            let _ = kernel.signal(target.pid(), SIGTERM);
        }
        for &pid in members.iter().filter(|&&pid| pid != target.pid()) {
            let _ = kernel.signal(pid, SIGTERM);
        }
        Ok(Self {
            asked: kernel.now(),
            kernel,
            by_duration,
            killing: false,
        })
    }

    /// How long ago it was asked.
    fn lasted(&self) -> Duration {
        Duration::from_nanos(self.kernel.now().since(self.asked))
    }

    /// Somebody asks again: the user insists.
    pub(crate) fn insist(&mut self) {
        self.killing |= self.lasted() > ECHO;
    }

    /// How the target ended, once all have; kills who goes on though the user insists or patience is at its end.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(crate) fn look(
        &mut self,
        target: &mut K::Child,
        members: impl FnOnce() -> Vec<u32>,
    ) -> io::Result<Option<Ended>> {
        self.killing |= self.by_duration && self.lasted() > PATIENCE;
        // First, since what it started until then is among the others.
        let ended = target.try_wait()?;
        let mut left = members();
        if ended.is_none() && left.is_empty() {
            // Where /proc tells nothing, the target itself is known.
            left.push(target.pid());
        }
        if self.killing {
            // Again and again, for what was forked meanwhile. Whom we may not end, we do not wait for.
            left.retain(|&pid| self.kernel.signal(pid, SIGKILL).is_ok());
        }
        Ok(ended.filter(|_| left.is_empty()))
    }
}

/// The descendants of a launched target.
#[derive(Debug)]
pub(crate) struct Family<K> {
    kernel: K,
    /// What descended from this process before there was a target.
    strangers: HashSet<u32>,
    adopts: bool,
    /// The target, where its orphans are not adopted.
    below: Option<u32>,
}

impl<K: Kernel> Family<K> {
    /// The family of a target that is launched after this call.
    pub(crate) fn before(kernel: K) -> Self {
        Self {
            strangers: descendants(&kernel).into_iter().collect(),
            adopts: kernel.adopt_orphans().is_ok(),
            below: None,
            kernel,
        }
    }

    /// The family of a target beside which this process may have other children: without orphans.
    pub(crate) fn below(kernel: K, target: u32) -> Self {
        Self {
            kernel,
            strangers: HashSet::new(),
            adopts: false,
            below: Some(target),
        }
    }

    /// All that are alive, the target among them.
    pub(crate) fn members(&self) -> Vec<u32> {
        if let Some(target) = self.below {
            let below = self.kernel.descendants(&[target]).unwrap_or_default();
            let mut members = descendants(&self.kernel);
            members.retain(|&pid| pid == target || below.contains(&pid));
            return members;
        }
        let mut members = descendants(&self.kernel);
        members.retain(|pid| !self.strangers.contains(pid));
        members
    }

    /// Takes away what is left of orphans that have ended; `target` waits for the target itself.
    pub(crate) fn reap(&self, target: &K::Child) {
        if self.adopts {
            let is_other = |pid| pid == target.pid() || self.strangers.contains(&pid);
            self.kernel.reap_orphans(is_other);
        }
    }
}

fn descendants(kernel: &impl Processes) -> Vec<u32> {
    // Without /proc nothing here works; the target itself is then ended all the same.
    let own = kernel.own_pid();
    kernel.descendants(&[own]).unwrap_or_default()
}
