//! Sizes of working sets at and around the caches of this machine.

use super::element::LINE;
use super::error::AccesstestError;
use linewise_machine::sysfs::read_topology;
use linewise_topology::CacheKind;
use serde::Serialize;
use std::path::Path;

/// A cache that working sets are sized by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The data cache of the first level.
    L1d,
    /// The second level.
    L2,
    /// The third level.
    L3,
}

/// The caches of a CPU, bytes; `None` where the machine does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheSizes {
    /// The data cache of the first level.
    pub l1d: Option<u64>,
    /// The second level.
    pub l2: Option<u64>,
    /// The third level.
    pub l3: Option<u64>,
}

/// Working sets by the size of the cache, in eighths.
const AROUND: [u64; 10] = [2, 4, 6, 8, 10, 12, 14, 16, 20, 24];
/// Likewise for the third level, which is large.
const AROUND_L3: [u64; 7] = [1, 2, 4, 8, 10, 12, 16];

impl Level {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::L1d, Self::L2, Self::L3];

    /// Its name on the command line and in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::L1d => "l1d",
            Self::L2 => "l2",
            Self::L3 => "l3",
        }
    }

    /// Its name in texts.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::L1d => "L1d",
            Self::L2 => "L2",
            Self::L3 => "L3",
        }
    }

    /// Working sets at and around its size, in bytes.
    ///
    /// # Errors
    /// [`AccesstestError::NoCache`] if the machine does not tell its size.
    pub fn sizes(self, caches: &CacheSizes) -> Result<Vec<u64>, AccesstestError> {
        let size = caches.of(self).ok_or(AccesstestError::NoCache {
            cache: self.title(),
        })?;
        let around: &[u64] = if self == Self::L3 {
            &AROUND_L3
        } else {
            &AROUND
        };
        let whole = |eighths: &u64| (size / 8 * eighths).max(2 * LINE) / LINE * LINE;
        Ok(around.iter().map(whole).collect())
    }
}

impl CacheSizes {
    /// Those of this CPU; nothing is known where the kernel tells nothing.
    #[must_use]
    pub fn of_cpu(cpu: u32) -> Self {
        let Ok(topology) = read_topology(Path::new("/")) else {
            return Self::default();
        };
        let size = |level: u32| {
            let holds_data = topology.caches.iter().filter(|one| {
                one.level == level && one.kind != CacheKind::Instruction && one.cpus.contains(cpu)
            });
            holds_data.filter_map(|one| one.size_bytes).max()
        };
        Self {
            l1d: size(1),
            l2: size(2),
            l3: size(3),
        }
    }

    pub(super) fn of(&self, level: Level) -> Option<u64> {
        match level {
            Level::L1d => self.l1d,
            Level::L2 => self.l2,
            Level::L3 => self.l3,
        }
    }

    /// The largest.
    pub(super) fn last(&self) -> Option<u64> {
        self.l1d.max(self.l2).max(self.l3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_lie_around_the_cache_and_are_whole_lines() {
        let caches = CacheSizes {
            l1d: Some(48 << 10),
            l2: None,
            l3: Some(480 << 20),
        };
        let sizes = Level::L1d.sizes(&caches).unwrap();
        assert!(
            sizes.contains(&(48 << 10)) && sizes.contains(&(96 << 10)),
            "{sizes:?}"
        );
        assert!(sizes.iter().all(|size| size % LINE == 0));
        assert!(sizes.is_sorted());
        assert_eq!(Level::L3.sizes(&caches).unwrap().last(), Some(&(960 << 20)));
        let error = Level::L2.sizes(&caches).unwrap_err().to_string();
        assert!(error.contains("--sizes"), "{error}");
        assert_eq!(caches.last(), Some(480 << 20));
    }
}
