//! The accesses of a batch that trackers have to look at, and how many there are in between.

/// A chosen access of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pick {
    /// Which one of the batch.
    pub(super) index: u32,
    /// How many accesses its thread has made in the batch until then, this one included.
    pub(super) nth: u32,
    /// How many all threads have.
    pub(super) all: u32,
}

/// The chosen accesses of a batch, and how many each thread made.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    pub(super) picks: Vec<Pick>,
    /// By thread; zero for those that made none.
    pub(super) counts: Vec<u32>,
    /// Of each of the batch: its thread, and how many accesses it stands for.
    pub(super) made: Vec<(u16, u32)>,
}

impl Chosen {
    /// Notes the accesses of a batch, each by its thread, for how many of that thread's it stands (others
    /// that are not in the batch came before it), and whether the [`Chooser`](super::Chooser) chose it.
    /// What was noted before is forgotten.
    ///
    /// # Panics
    ///
    /// When there are 2^32 accesses or more.
    pub fn note(&mut self, batch: impl Iterator<Item = (u16, u32, bool)>) {
        self.picks.clear();
        self.made.clear();
        self.counts.fill(0);
        let mut all = 0;
        for (index, (thread, stands_for, chosen)) in batch.enumerate() {
            self.made.push((thread, stands_for));
            let thread = usize::from(thread);
            if thread >= self.counts.len() {
                self.counts.resize(thread + 1, 0);
            }
            self.counts[thread] = self.counts[thread].saturating_add(stands_for);
            all = stands_for.saturating_add(all);
            if chosen {
                let index = u32::try_from(index).expect("a batch has fewer than 2^32 accesses");
                let nth = self.counts[thread];
                self.picks.push(Pick { index, nth, all });
            }
        }
    }
}
