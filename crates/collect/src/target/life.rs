//! A target from the moment at which it runs to its end, by itself or because it was asked to.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use linewise_machine::process::{Change, Ended};
use linewise_recording::Time;

use super::family::{Ending, Family};
use crate::error::Error;
use crate::kernel::{Kernel, Launching, Processes, Signals, TargetChild};

/// Between two looks at a target that is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// Its target ended by itself.
    TargetExited,
    /// Its time was over.
    Duration,
    /// Somebody asked for it.
    Interrupted,
}

impl EndedBy {
    /// As it stands in [`linewise_recording::RunInfo::ended_by`].
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::TargetExited => "target-exited",
            Self::Duration => "duration",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The target while it is recorded.
pub(crate) enum Running<K: Kernel> {
    /// It was launched here.
    Child(K::Child, Family<K>),
    /// These processes ran before.
    Processes(Vec<Attachment>),
}

/// A target that runs, and what ends its recording.
pub(crate) struct Life<'a, K: Kernel, S> {
    kernel: K,
    running: Running<K>,
    signals: &'a S,
    /// How long it is recorded, at most.
    duration: Option<Duration>,
    start: Time,
    over: Option<EndedBy>,
    ending: Option<Ending<K>>,
}

impl<'a, K: Kernel, S: Signals> Life<'a, K, S> {
    /// That of a target whose recording begins now.
    pub(crate) fn new(
        kernel: K,
        running: Running<K>,
        signals: &'a S,
        duration: Option<Duration>,
    ) -> Self {
        Self {
            start: kernel.now(),
            kernel,
            running,
            signals,
            duration,
            over: None,
            ending: None,
        }
    }

    /// How long it is recorded.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.kernel.now().since(self.start))
    }

    /// What can be read from when there is news.
    pub(crate) fn fds(&self) -> Vec<RawFd> {
        let mut fds = vec![self.signals.raw_fd()];
        if let Running::Processes(attachments) = &self.running {
            // Of one that has ended it is readable for good.
            let alive = attachments.iter().filter(|it| !it.has_ended);
            fds.extend(alive.filter_map(Attachment::raw_fd));
        }
        fds
    }

    /// Takes note of children that ended.
    ///
    /// # Errors
    /// [`Error::Wait`].
    pub(crate) fn hear_of_children(&mut self) -> Result<(), Error> {
        loop {
            match (self.kernel.next_change(), &mut self.running) {
                (Ok(Some((pid, change))), Running::Child(child, _)) => child.note(pid, change),
                // One that is a child of this process has no other way to tell how it ended.
                (Ok(Some((pid, change))), Running::Processes(attachments)) => {
                    if let Change::Ended(ended) = change
                        && let Some(it) = attachments.iter_mut().find(|it| it.pid == pid)
                    {
                        it.ended = Some(ended);
                    }
                }
                (Err(error), Running::Child(child, _)) if child.ended().is_none() => {
                    return Err(Error::Wait(error));
                }
                (Ok(None) | Err(_), _) => return Ok(()),
            }
        }
    }

    /// Whether the recording is over by now, and why: with the end of the last of its processes, a signal (any, of a
    /// target that ran before; SIGTERM, of a launched one, which gets the others), or its time.
    ///
    /// # Errors
    /// [`Error::Wait`].
    pub(crate) fn over(&mut self) -> Result<Option<EndedBy>, Error> {
        if self.over.is_some() {
            return Ok(self.over);
        }
        let kernel = &self.kernel;
        let gone = match &mut self.running {
            Running::Child(child, family) => {
                family.reap(child);
                child.try_wait().map_err(Error::Wait)?.is_some()
            }
            Running::Processes(attachments) => {
                attachments.iter_mut().for_each(|it| it.look(kernel));
                attachments.iter().all(|it| it.has_ended)
            }
        };
        // After the target's end: Ctrl-C reaches both, and then it is what ended it.
        let asked = self.is_asked_to_end();
        let lasted = self.duration.is_some_and(|most| self.elapsed() >= most);
        self.over = match (asked, gone, lasted) {
            (true, _, _) => Some(EndedBy::Interrupted),
            (false, true, _) => Some(EndedBy::TargetExited),
            (false, false, true) => Some(EndedBy::Duration),
            (false, false, false) => None,
        };
        Ok(self.over)
    }

    fn is_asked_to_end(&self) -> bool {
        self.signals.next().is_some_and(|came| match &self.running {
            Running::Child(child, _) => self.kernel.pass_on(came, child.pid()),
            Running::Processes(_) => true,
        })
    }

    /// Brings a launched target to its end, with all that descends from it, once its recording is over; an attached one goes on
    /// untouched, and so does what a target left behind when it ended by itself. `None` until then, with how a launched
    /// one ended afterwards.
    ///
    /// # Errors
    /// [`Error::Wait`].
    pub(crate) fn ended(&mut self) -> Result<Option<Option<Ended>>, Error> {
        let insists = self.ending.is_some() && self.is_asked_to_end();
        let (child, family) = match &mut self.running {
            Running::Child(child, family) => (child, family),
            Running::Processes(attachments) => {
                return Ok(Some(attachments.iter().find_map(|it| it.ended)));
            }
        };
        if self.over == Some(EndedBy::TargetExited) {
            return Ok(Some(Some(child.wait().map_err(Error::Wait)?)));
        }
        let ending = match &mut self.ending {
            Some(ending) => ending,
            None => {
                let by_duration = self.over == Some(EndedBy::Duration);
                let kernel = self.kernel.clone();
                let asked = Ending::of(kernel, child, &family.members(), by_duration);
                self.ending.insert(asked.map_err(Error::Wait)?)
            }
        };
        if insists {
            ending.insist();
        }
        family.reap(child);
        let ended = ending.look(child, || family.members());
        Ok(ended.map_err(Error::Wait)?.map(Some))
    }

    /// Waits for news, or until it is time for another look.
    pub(crate) fn pause(&self) {
        self.kernel.wait_readable(&[self.signals.raw_fd()], LOOK);
    }

    /// Waits for the target's end without recording it: an attached one is left alone at once.
    ///
    /// # Errors
    /// [`Error::Wait`].
    pub(crate) fn outlast(&mut self) -> Result<(EndedBy, Option<Ended>), Error> {
        if matches!(self.running, Running::Processes(_)) {
            self.over.get_or_insert(EndedBy::Interrupted);
        }
        let why = loop {
            if let Some(why) = self.over()? {
                break why;
            }
            self.pause();
        };
        loop {
            if let Some(ended) = self.ended()? {
                return Ok((why, ended));
            }
            self.pause();
        }
    }
}

/// A process that was named, until its end.
pub(crate) struct Attachment {
    pid: u32,
    /// Not there before Linux 5.3: then its end is noticed at the next tick.
    pidfd: Option<OwnedFd>,
    has_ended: bool,
    /// How, if it was a child of this process and was heard of.
    ended: Option<Ended>,
}

impl Attachment {
    pub(crate) fn to(kernel: &impl Processes, pid: u32) -> Self {
        Self {
            pid,
            pidfd: kernel.pidfd(pid).ok(),
            has_ended: false,
            ended: None,
        }
    }

    /// What can be read from when it ends.
    fn raw_fd(&self) -> Option<RawFd> {
        self.pidfd.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Looks whether it has ended. A process that nobody waits for can still be signalled after its end.
    fn look(&mut self, kernel: &(impl Processes + Launching)) {
        self.has_ended |= match self.raw_fd() {
            Some(fd) => kernel.wait_readable(&[fd], Duration::ZERO),
            None => kernel.standing(self.pid).is_some_and(|it| it.ended),
        } || kernel.signal(self.pid, 0).is_err();
    }
}
