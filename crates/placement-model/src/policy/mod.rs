//! Who decides where tasks run.

mod balancer;
mod cache_aware;
mod event;
mod fixed;
pub(crate) mod oracle;
mod placed;

use balancer::Policy;
pub use placed::Hold;

use linewise_placer::Thresholds;
use serde::Serialize;

use crate::random::Random;
use crate::world::World;

/// A policy by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyKind {
    /// Linux' balancer: spreads by the number of tasks, knows nothing of what they do.
    Balancer,
    /// Cache-aware scheduling as merged into Linux: every process aims at one last-level cache.
    Cas,
    /// The woken follow their wakers, as in `scx_cosmos`.
    Event,
    /// Every process is confined to one last-level cache.
    Llc,
    /// Every task is pinned to a random CPU.
    Random,
    /// `linewise_placer::decide` with SAM's counters.
    Sam,
    /// The same with sampled sharing.
    Matrix,
    /// The best placement that never changes, found by search with knowledge of everything.
    Oracle,
}

impl PolicyKind {
    /// All, in the order of every output.
    pub const ALL: [Self; 8] = [
        Self::Balancer,
        Self::Cas,
        Self::Event,
        Self::Llc,
        Self::Random,
        Self::Sam,
        Self::Matrix,
        Self::Oracle,
    ];

    /// Its name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Balancer => "balancer",
            Self::Cas => "cas",
            Self::Event => "event",
            Self::Llc => "llc",
            Self::Random => "random",
            Self::Sam => "sam",
            Self::Matrix => "matrix",
            Self::Oracle => "oracle",
        }
    }
}

/// The policy of a kind. `oracle` is the placement that was searched, `thresholds` what the placer is told.
pub(crate) fn build(
    kind: PolicyKind,
    world: &World<'_>,
    oracle: &[u32],
    thresholds: Thresholds,
    hold: Hold,
    random: &mut Random,
) -> Box<dyn Policy> {
    match kind {
        PolicyKind::Balancer => Box::new(balancer::Balancer),
        PolicyKind::Cas => Box::new(cache_aware::CacheAware),
        PolicyKind::Event => Box::new(event::Event),
        PolicyKind::Llc => Box::new(fixed::one_llc(world)),
        PolicyKind::Random => Box::new(fixed::random(world, random)),
        PolicyKind::Sam => Box::new(placed::Placed::new(world, thresholds, hold, false)),
        PolicyKind::Matrix => Box::new(placed::Placed::new(world, thresholds, hold, true)),
        PolicyKind::Oracle => Box::new(fixed::pinned(oracle)),
    }
}
