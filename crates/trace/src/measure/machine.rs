//! The machine that is simulated: this one, or an invented one.

use linewise_cache::hierarchy::{Assumption, CacheShape, Config, ConfigError, Ways};
use linewise_recording::{CacheLevel, SimulatedCache};
use linewise_topology::{CacheKind, Topology, synthetic};

/// The name of the machine that the collector runs on.
pub const THIS_MACHINE: &str = "this machine";

/// The machine whose caches are simulated.
#[derive(Clone, Debug)]
pub struct SimulatedMachine {
    /// Its name in the recording.
    pub name: String,
    /// Its shape.
    pub topology: Topology,
}

impl SimulatedMachine {
    /// The machine with this shape, under the name `this machine`.
    #[must_use]
    pub fn this(topology: Topology) -> Self {
        Self {
            name: THIS_MACHINE.to_owned(),
            topology,
        }
    }

    /// The invented machine of this name, if there is one: see [`SimulatedMachine::NAMES`].
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let topology = match name {
            "2x10" => synthetic::two_sockets_of_ten(),
            "2x10x2" => synthetic::two_sockets_of_ten_with_hyperthreads(),
            "epyc-8x8" => synthetic::epyc_of_eight_ccxs(),
            "apple" => synthetic::apple_of_three_clusters(),
            "vm-2" => synthetic::virtual_machine_of_two(),
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            topology,
        })
    }

    /// The names of the invented machines: 2 sockets of 10 cores, with hyperthreads, an EPYC of 8
    /// last-level caches, an Apple-like one of clusters, and a virtual machine of 2.
    pub const NAMES: [&'static str; 5] = ["2x10", "2x10x2", "epyc-8x8", "apple", "vm-2"];
}

/// Cores that are simulated at least: with caches, and without, where a core costs nothing that it does not use.
const CORES: usize = 32;
const CORES_WITHOUT_CACHES: usize = Config::MOST_CORES;

/// The simulation's view of a machine.
#[derive(Clone, Debug)]
pub struct Model {
    /// For one order.
    pub config: Config,
    /// What `run.json` says of it.
    pub caches: Vec<SimulatedCache>,
    /// What was assumed, in sentences.
    pub assumptions: Vec<String>,
    /// The name of the last level.
    pub last_level: CacheLevel,
    /// Whether its caches are simulated, or only the cores.
    pub simulated: bool,
}

impl Model {
    /// The model of `machine` for a trace that holds one line in `one_line_in`; `simulated`: its
    /// caches have the sizes that they have.
    ///
    /// # Errors
    /// The machine's shape makes no sense.
    pub fn new(
        machine: &SimulatedMachine,
        one_line_in: u32,
        simulated: bool,
    ) -> Result<Self, ConfigError> {
        let mut config = Config::from_topology(&machine.topology)?;
        let deepest = machine
            .topology
            .caches
            .iter()
            .filter(|cache| cache.kind != CacheKind::Instruction)
            .map(|cache| cache.level)
            .max();
        let private_second = config.cores.iter().any(|core| core.l2.is_some());
        let last_level = match deepest {
            Some(4..) => CacheLevel::L4,
            Some(2) if !private_second => CacheLevel::L2,
            _ => CacheLevel::L3,
        };
        let caches = describe(&config, last_level);
        let mut assumptions: Vec<String> = config
            .assumptions
            .iter()
            .map(|Assumption { what, assumed }| format!("{what}: {assumed}"))
            .collect();
        let cores = match simulated {
            true => CORES,
            false => CORES_WITHOUT_CACHES,
        };
        if widen(&mut config, cores) {
            assumptions.push(format!(
                "core: each thread has a core of its own, up to {cores} of them, all like those of \
                 the machine; further threads share those of all but the first"
            ));
        }
        if one_line_in > 1 {
            thin(&mut config, one_line_in);
            assumptions.push(format!(
                "one line in {one_line_in} was followed, in caches of 1/{one_line_in} of their size; \
                 misses by conflict are those of the small caches"
            ));
        }
        if !simulated {
            assumptions.push(
                "cache: no core loses a line for want of room, so the transfers are an upper bound; \
                 --caches simulates the sizes"
                    .to_owned(),
            );
        }
        Ok(Self {
            config,
            caches,
            assumptions,
            last_level,
            simulated,
        })
    }

    /// The number of the last-level cache of a thread.
    #[must_use]
    pub fn group(&self, thread: u16) -> u32 {
        self.config.cores[self.core(thread) as usize].group
    }

    /// The number of the core of a thread.
    #[must_use]
    pub fn core(&self, thread: u16) -> u32 {
        self.config.core_of_thread(thread.into())
    }
}

/// Adds cores like those that there are, in the same groups, so that few threads have to share one:
/// lines do not move between threads of one core, and who shares with whom would be an accident of
/// how the threads are numbered. Whether there was need.
fn widen(config: &mut Config, cores: usize) -> bool {
    let own = config.cores.len();
    for at in own..cores.max(own) {
        config.threads.push(at as u32);
        config.cores.push(config.cores[at % own]);
    }
    config.cores.len() > own
}

/// The kinds of caches, level by level.
fn describe(config: &Config, last_level: CacheLevel) -> Vec<SimulatedCache> {
    let mut caches: Vec<SimulatedCache> = Vec::new();
    let mut add = |level: CacheLevel, shape: CacheShape, cores: u32| {
        let ways = match shape.ways {
            Ways::Number(ways) => ways,
            Ways::Full => 0,
        };
        let size_bytes = shape.size_bytes;
        let known = caches.iter_mut().find(|cache| {
            (cache.level, cache.size_bytes, cache.ways, cache.cores)
                == (level, size_bytes, ways, cores)
        });
        match known {
            Some(cache) => cache.count += 1,
            None => caches.push(SimulatedCache {
                level,
                size_bytes,
                ways,
                count: 1,
                cores,
            }),
        }
    };
    for core in &config.cores {
        add(CacheLevel::L1d, core.l1, 1);
    }
    for l2 in config.cores.iter().filter_map(|core| core.l2) {
        add(CacheLevel::L2, l2, 1);
    }
    for (number, group) in config.groups.iter().enumerate() {
        let members = config
            .cores
            .iter()
            .filter(|core| core.group as usize == number)
            .count();
        if let Some(llc) = group.llc {
            add(last_level, llc, members as u32);
        }
    }
    caches
}

/// Makes all caches smaller, so that a share of the lines finds the same share of the room.
fn thin(config: &mut Config, one_line_in: u32) {
    let line = u64::from(config.line_bytes);
    let thin = |shape: &mut CacheShape| {
        let lines = (shape.size_bytes / line / u64::from(one_line_in)).max(1);
        shape.ways = match shape.ways {
            Ways::Number(ways) if lines.is_multiple_of(u64::from(ways)) => Ways::Number(ways),
            Ways::Number(ways) if lines > u64::from(ways) => {
                // The nearest number of ways that divides what is left.
                let nearest = (1..=ways)
                    .rev()
                    .find(|&ways| lines.is_multiple_of(u64::from(ways)));
                Ways::Number(nearest.unwrap_or(1))
            }
            _ => Ways::Full,
        };
        shape.size_bytes = lines * line;
    };
    for core in &mut config.cores {
        thin(&mut core.l1);
        if let Some(l2) = &mut core.l2 {
            thin(l2);
        }
    }
    for llc in config
        .groups
        .iter_mut()
        .filter_map(|group| group.llc.as_mut())
    {
        thin(llc);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_machine_that_can_be_simulated() {
        for name in SimulatedMachine::NAMES {
            let machine = SimulatedMachine::named(name).unwrap();
            for one_line_in in [1, 64, 1 << 20] {
                let model = Model::new(&machine, one_line_in, true).unwrap();
                model.config.check().unwrap();
                assert_eq!(model.caches[0].level, CacheLevel::L1d, "{name}");
            }
        }
        assert!(SimulatedMachine::named("cray").is_none());
    }

    #[test]
    fn a_share_of_the_lines_gets_its_share_of_the_room() {
        let machine = SimulatedMachine::named("2x10").unwrap();
        let whole = Model::new(&machine, 1, true).unwrap();
        let thin = Model::new(&machine, 64, true).unwrap();
        let size = |model: &Model| model.config.cores[0].l2.unwrap().size_bytes;
        assert_eq!(size(&whole), 64 * size(&thin));
        // The recording tells of the machine, not of the sample.
        assert_eq!(whole.caches, thin.caches);
        assert!(thin.assumptions.iter().any(|text| text.contains("1/64")));
    }

    #[test]
    fn threads_beyond_the_cores_begin_again_and_sockets_have_caches_of_their_own() {
        let model = Model::new(&SimulatedMachine::named("2x10").unwrap(), 1, true).unwrap();
        assert_eq!(model.group(0), 0);
        assert_eq!(model.group(10), 1);
        assert_eq!(model.group(20), 0);
        assert_eq!(model.core(32), model.core(1));
        let two = Model::new(&SimulatedMachine::named("vm-2").unwrap(), 1, true).unwrap();
        let cores = |model: &Model, threads: u16| -> std::collections::BTreeSet<u32> {
            (0..threads).map(|thread| model.core(thread)).collect()
        };
        assert_eq!(cores(&two, 32).len(), 32, "a core for each thread");
        assert!((0..32).all(|thread| two.group(thread) == 0));
        let unbounded = Model::new(&SimulatedMachine::named("vm-2").unwrap(), 1, false).unwrap();
        assert_eq!(cores(&unbounded, 128).len(), 128);
        assert!((1..2000).all(|thread| unbounded.core(thread) != unbounded.core(0)));
        let apple = Model::new(&SimulatedMachine::named("apple").unwrap(), 1, true).unwrap();
        assert_eq!(apple.last_level, CacheLevel::L2);
    }
}
