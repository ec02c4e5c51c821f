//! Hardware counters of a task in an interval, as they are read, and the activity that they tell (SAM, sections 2.1
//! to 2.3).

use crate::snapshot::Activity;

/// What was counted of one task. Counters that were not read in this interval are those of the interval before: seven
/// events take turns on four counters (SAM, section 2.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counts {
    /// Intel, two sockets with one last-level cache each.
    Intel(IntelCounts),
    /// AMD Zen 4 and 5.
    Zen(ZenCounts),
}

/// `MEM_LOAD_UOPS_RETIRED` and its kin: loads alone, which SAM found to be enough, since who writes has mostly read before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IntelCounts {
    /// Loads that missed the last private cache (`L2_MISS`).
    pub l2_miss: f64,
    /// Loads that the last-level cache had (`L3_HIT`).
    pub l3_hit: f64,
    /// Loads that missed it (`L3_MISS`).
    pub l3_miss: f64,
    /// Lines that another socket had and had changed (`REMOTE_HITM`).
    pub remote_hitm: f64,
    /// Lines that another socket had (`REMOTE_FWD`).
    pub remote_fwd: f64,
    /// Loads from the memory of another socket (`REMOTE_DRAM`).
    pub remote_dram: f64,
    /// All that missed the last-level cache, stores too (`LLC_MISSES`).
    pub llc_misses: f64,
}

/// Fills of the first-level cache, `ls_any_fills_from_sys`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ZenCounts {
    /// From another core's cache below the same last-level cache, or from that (`local_ccx`).
    pub local_ccx: f64,
    /// Of them those that the last-level cache itself had; 0 where it is not counted.
    pub local_l3: f64,
    /// From below another last-level cache of the same socket (`near_cache`).
    pub near_cache: f64,
    /// From another socket's cache (`far_cache`).
    pub far_cache: f64,
    /// From the memory of this node (`dram_io_near`).
    pub dram_near: f64,
    /// From another node's (`dram_io_far`).
    pub dram_far: f64,
}

impl Counts {
    /// The activity of a task that executed for `load` of the interval, with `cycles` at `hertz` and so many
    /// `instructions`. Without cycles nothing is known, and nothing counts.
    #[must_use]
    pub fn activity(
        self,
        load: f32,
        cycles: f64,
        hertz: f64,
        instructions: Option<f64>,
    ) -> Activity {
        let per_second = |count: f64| {
            let rate = count.max(0.0) / cycles * hertz;
            if rate.is_finite() { rate as f32 } else { 0.0 }
        };
        let (transfers, remote, misses) = match self {
            // What the last-level cache neither had nor missed came from a core below it; what it missed and no memory
            // had, from another socket.
            Self::Intel(counts) => (
                [
                    counts.l2_miss - counts.l3_hit - counts.l3_miss,
                    0.0,
                    counts.remote_hitm + counts.remote_fwd,
                ],
                counts.remote_dram,
                counts.llc_misses,
            ),
            Self::Zen(counts) => (
                [
                    counts.local_ccx - counts.local_l3,
                    counts.near_cache,
                    counts.far_cache,
                ],
                counts.dram_far,
                counts.dram_near + counts.dram_far,
            ),
        };
        Activity {
            load,
            executed: load,
            transfers: transfers.map(per_second),
            remote: per_second(remote),
            misses: per_second(misses),
            progress: instructions.map(per_second),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_of_the_paper_is_half_a_million_a_second() {
        // 2.5e-4 events a cycle at 2.2 GHz are 550,000 a second (section 2.1).
        let counts = IntelCounts {
            l2_miss: 5_000.0,
            l3_hit: 1_000.0,
            l3_miss: 3_000.0,
            remote_hitm: 1_500.0,
            remote_fwd: 1_000.0,
            ..IntelCounts::default()
        };
        let told = Counts::Intel(counts).activity(0.5, 1e7, 2.2e9, Some(2e7));
        assert_eq!(told.transfers, [220_000.0, 0.0, 550_000.0]);
        assert_eq!(told.progress, Some(4.4e9));
    }

    #[test]
    fn a_task_that_did_not_run_or_counters_that_took_turns_badly_give_no_rates() {
        let counts = IntelCounts {
            l2_miss: 1.0,
            l3_hit: 2.0,
            remote_dram: 5.0,
            ..IntelCounts::default()
        };
        assert_eq!(
            Counts::Intel(counts).activity(0.0, 0.0, 2e9, None).remote,
            0.0
        );
        assert_eq!(
            Counts::Intel(counts)
                .activity(0.0, 10.0, 2e9, None)
                .transfers[0],
            0.0
        );
    }

    #[test]
    fn fills_of_zen_are_told_by_where_they_come_from() {
        let counts = ZenCounts {
            local_ccx: 30.0,
            local_l3: 10.0,
            near_cache: 5.0,
            far_cache: 2.0,
            dram_near: 7.0,
            dram_far: 1.0,
        };
        let told = Counts::Zen(counts).activity(1.0, 1.0, 1.0, None);
        assert_eq!(told.transfers, [20.0, 5.0, 2.0]);
        assert_eq!((told.remote, told.misses), (1.0, 8.0));
    }
}
