//! Coherent cache hierarchies: placeholder
mod array;
mod coherence;
mod config;
mod counts;
mod engine;
mod follow;
mod from_topology;
mod l1;
mod lines;
mod mask;
mod outcome;
mod window;

pub use config::{
    Assumption, CacheShape, Config, ConfigError, Core, Group, Homes, Inclusion, Protocol,
    Replacement, SharedSupply, Spanning, Ways,
};
pub use counts::{
    ByteMasks, Class, Coherence, Counts, FollowedLine, Level, Matrix, Report, Served, SetCounts,
    SitePair, Transfers, WriteBacks,
};
pub use outcome::{Answer, Outcome, Transfer};

use crate::Access;
use engine::Engine;

/// A simulation in progress.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    engine: AnyEngine,
    cpus: Vec<(u32, u32)>,
}

/// The widths of byte masks.
#[derive(Clone, Debug)]
enum AnyEngine {
    Narrow(Box<Engine<u64>>),
    Wide(Box<Engine<u128>>),
}

impl Hierarchy {
    /// An empty machine.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when the machine cannot be simulated.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            engine: if config.line_bytes <= 64 {
                AnyEngine::Narrow(Box::new(Engine::new(config)))
            } else {
                AnyEngine::Wide(Box::new(Engine::new(config)))
            },
            cpus: config.cpus.clone(),
        })
    }

    /// Simulates accesses in their order. May be called again and again: the batches are one
    /// stream.
    pub fn run(&mut self, accesses: &[Access]) {
        match &mut self.engine {
            AnyEngine::Narrow(engine) => engine.run(accesses, |_, _| {}),
            AnyEngine::Wide(engine) => engine.run(accesses, |_, _| {}),
        }
    }

    /// The same, and tells `observe` for every line that an access touches the index of the
    /// access and what it did. With [`Spanning::OneReference`] once for each access.
    pub fn run_with(&mut self, accesses: &[Access], observe: impl FnMut(usize, &Outcome)) {
        match &mut self.engine {
            AnyEngine::Narrow(engine) => engine.run(accesses, observe),
            AnyEngine::Wide(engine) => engine.run(accesses, observe),
        }
    }

    /// Moves a thread to a CPU, from its next access on.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Cpu`] when no core has this CPU.
    pub fn place(&mut self, thread: u16, cpu: u32) -> Result<(), ConfigError> {
        let of_cpu = |&&(number, _): &&(u32, u32)| number == cpu;
        let core = self
            .cpus
            .iter()
            .find(of_cpu)
            .ok_or(ConfigError::Cpu(cpu))?
            .1 as usize;
        match &mut self.engine {
            AnyEngine::Narrow(engine) => engine.place(thread, core),
            AnyEngine::Wide(engine) => engine.place(thread, core),
        }
        Ok(())
    }

    /// The lines that a level holds now, by address of their first byte, in no order: the working
    /// set. `core` is an index in [`Config::cores`]; the last level is that of its group.
    ///
    /// # Panics
    ///
    /// When there is no such core.
    #[must_use]
    pub fn resident(&self, core: usize, level: Level) -> Vec<u64> {
        match &self.engine {
            AnyEngine::Narrow(engine) => engine.resident(core, level),
            AnyEngine::Wide(engine) => engine.resident(core, level),
        }
    }

    /// Ends the stream and hands over the counts. For counts in the middle of a stream, finish a
    /// clone.
    #[must_use]
    pub fn finish(self) -> Report {
        match self.engine {
            AnyEngine::Narrow(engine) => engine.finish(),
            AnyEngine::Wide(engine) => engine.finish(),
        }
    }
}
