//! Our placer: `linewise_placer::decide` beside the balancer, which may shift tasks within what their moves leave them.

use linewise_placer::{History, Move, Reason, Thresholds, decide};

use super::balancer::Policy;
use super::balancer::balance;
use crate::observe::{SampledSharing, snapshot};
use crate::random::Random;
use crate::world::{Allowed, World};

/// What holds a task where it was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It may run on all CPUs below the last-level cache of its target.
    Domain,
    /// Only on the target.
    Cpu,
}

/// Decides after every interval.
pub(super) struct Placed {
    history: History,
    thresholds: Thresholds,
    hold: Hold,
    sampled: Option<SampledSharing>,
}

impl Placed {
    pub(super) fn new(
        world: &World<'_>,
        thresholds: Thresholds,
        hold: Hold,
        is_sampled: bool,
    ) -> Self {
        Self {
            history: History::new(),
            thresholds,
            hold,
            sampled: is_sampled.then(|| SampledSharing::new(world.tasks.len())),
        }
    }

    fn apply(&self, world: &mut World<'_>, one: &Move) {
        let task = one.task.tid;
        world.tasks[task as usize].allowed = match self.hold {
            Hold::Domain => Allowed::Llc(world.machine.llc[one.to as usize]),
            Hold::Cpu => Allowed::Cpu(one.to),
        };
        world.migrate(task, one.to);
    }
}

impl Policy for Placed {
    fn act(&mut self, world: &mut World<'_>, random: &mut Random) -> u64 {
        let (mut seen, places) = snapshot(world, random);
        if let Some(sampled) = &mut self.sampled {
            sampled.sample(world, random);
            seen.sharing = sampled.pairs(&places);
        }
        let moves = decide(
            &world.machine.placer,
            &self.thresholds,
            &seen,
            &mut self.history,
        );
        for one in &moves {
            self.apply(world, one);
        }
        // Who shares where others were brought must not be balanced away from them.
        let joined = moves
            .iter()
            .filter(|one| matches!(one.reason, Reason::Coherence(..) | Reason::Group(..)));
        let joined: Vec<u32> = joined
            .map(|one| world.machine.llc[one.to as usize])
            .collect();
        for (task, &place) in seen.tasks.iter().zip(&places) {
            let llc = world.machine.llc[world.tasks[place as usize].cpu as usize];
            let shares = task.activity.transfers.iter().sum::<f32>() >= self.thresholds.coherence;
            let one = &mut world.tasks[place as usize];
            if shares && joined.contains(&llc) && one.allowed == Allowed::Everywhere {
                one.allowed = match self.hold {
                    Hold::Domain => Allowed::Llc(llc),
                    Hold::Cpu => Allowed::Cpu(one.cpu),
                };
            }
        }
        balance(world, random, &|_, _, _| true);
        moves.len() as u64
    }
}
