//! Who tells of blocks: the recorder that was loaded into the target, or probes on its allocator.

use linewise_heap::Region;
use linewise_recording::{Address, HeapRun, Pid, Tid, Time, Writer};

use super::cost::{HeapCost, HeapLoss};
use super::ledger::Ledger;
use super::loaded::Loaded;
use super::probed::Probed;
use crate::error::Error;
use crate::kernel::{Kernel, Machine};
use crate::sources::timer::flow::Observed;
use crate::target::follow::Stacks;

/// The heap as part of a recording.
pub(crate) enum HeapRecorder<K: Kernel = Machine> {
    /// By a library in the target.
    Loaded(Box<Loaded>),
    /// By probes on its allocator.
    Probed(Box<Probed<K>>),
}

impl<K: Kernel> HeapRecorder<K> {
    /// By the library that writes to `region`; tells of as much as a part of `overhead` pays for, or of everything.
    pub(crate) fn loaded(region: Region, overhead: Option<f64>) -> Self {
        Self::Loaded(Box::new(Loaded::new(region, overhead)))
    }

    /// Says at the end why the blocks of an allocator that is linked into the program were not seen.
    pub(crate) fn unseen(mut self, why: Option<String>) -> Self {
        if let Self::Loaded(loaded) = &mut self {
            loaded.unseen = why;
        }
        self
    }

    /// Has marks told and no blocks.
    pub(crate) fn only_marks(self) -> Self {
        if let Self::Loaded(loaded) = &self {
            loaded.tell_only_marks();
        }
        self
    }

    /// Ends the recording of marks; those without an end stop when `ended` says that their thread did. Call it before
    /// [`HeapRecorder::finish`].
    ///
    /// # Errors
    /// The recording cannot be written.
    pub(crate) fn finish_marks(
        &mut self,
        writer: &mut Writer,
        stacks: &mut Stacks,
        ended: impl Fn(Pid, Tid, Time) -> Time,
    ) -> Result<(), Error> {
        match self {
            Self::Loaded(loaded) => loaded.finish_marks(writer, stacks, ended),
            Self::Probed(_) => Ok(()),
        }
    }

    fn ledger(&mut self) -> &mut Ledger {
        match self {
            Self::Loaded(loaded) => &mut loaded.ledger,
            Self::Probed(probed) => &mut probed.ledger,
        }
    }

    /// Whether rounds should follow each other closely.
    pub(crate) fn is_hurried(&self) -> bool {
        match self {
            Self::Loaded(loaded) => loaded.is_young(),
            Self::Probed(probed) => probed.is_hurried(),
        }
    }

    /// Whether there is enough to read that rounds should not be rare.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Loaded(loaded) => loaded.is_busy(),
            Self::Probed(_) => true,
        }
    }

    /// Tells [`HeapRecorder::observed`] from now on, and leaves most of the budget to who asks for it. Call it before
    /// the first round.
    pub(crate) fn observe(&mut self) {
        if let Self::Loaded(loaded) = self {
            loaded.make_way();
        }
        self.ledger().observer.listen();
    }

    /// What happened since the last call, in the order of time but for touches.
    pub(crate) fn observed(&mut self) -> Vec<Observed> {
        self.ledger().observer.take()
    }

    /// Has the next so many blocks at `address` told of in any case, whatever part of the others is told of; 0 blocks:
    /// none. Probes tell of all or of none.
    pub(crate) fn follow(&self, address: u64, blocks: u32) {
        match self {
            Self::Loaded(loaded) => loaded.follow(address, blocks),
            Self::Probed(_) => {}
        }
    }

    /// The name that the program gave to objects.
    pub(crate) fn label(&self, number: u16) -> Option<&String> {
        match self {
            Self::Loaded(loaded) => loaded.ledger.labels.get(number),
            Self::Probed(_) => None,
        }
    }

    /// Has nothing more told.
    pub(crate) fn detach(&mut self) {
        match self {
            Self::Loaded(loaded) => loaded.detach(),
            Self::Probed(probed) => probed.detach(),
        }
    }

    /// An access was seen: the block that it touched is worth a row.
    pub(crate) fn touched(&mut self, pid: Pid, address: Address, time: Time) {
        self.ledger().touched(pid, address, time);
    }

    /// A process went on as another program.
    pub(crate) fn replaced(&mut self, pid: Pid, time: Time) {
        if let Self::Probed(probed) = self {
            probed.replaced(pid, time);
        }
    }

    /// A process made another one.
    pub(crate) fn forked(&mut self, parent: Pid) {
        if let Self::Probed(probed) = self {
            probed.forked(parent);
        }
    }

    /// A process mapped code.
    pub(crate) fn mapped(&mut self, pid: Pid) {
        if let Self::Probed(probed) = self {
            probed.mapped(pid);
        }
    }

    /// Reads what was told until now. `thread_ns` of the target's time have passed since the last round,
    /// and `in_the_way` of ours is taken from the target (0 to 1).
    ///
    /// # Errors
    /// The recording cannot be written.
    pub(crate) fn round(
        &mut self,
        writer: &mut Writer,
        stacks: &mut Stacks,
        thread_ns: u64,
        in_the_way: f64,
    ) -> Result<HeapCost, Error> {
        match self {
            Self::Loaded(loaded) => loaded.round(writer, stacks, thread_ns, in_the_way),
            Self::Probed(probed) => probed.round(writer, stacks, thread_ns, in_the_way),
        }
    }

    /// The end: what was told last, and rows of all that is still allocated. What was recorded, if blocks were, with
    /// what was lost: name, number, sentence.
    ///
    /// # Errors
    /// The recording cannot be written.
    pub(crate) fn finish(
        self,
        writer: &mut Writer,
        stacks: &mut Stacks,
    ) -> Result<(Option<HeapRun>, Vec<HeapLoss>), Error> {
        match self {
            Self::Loaded(loaded) => loaded.finish(writer, stacks),
            Self::Probed(probed) => {
                let (run, losses) = probed.finish(writer, stacks)?;
                Ok((Some(run), losses))
            }
        }
    }
}
