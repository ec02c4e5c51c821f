//! What caches hold at a moment.

use std::collections::HashMap;

use super::counts::Level;
use super::engine::Engine;
use super::l1::EMPTY;
use super::lines::{Info, NO_INFO};
use super::mask::Mask;

/// The site of an access, if there was one.
fn site_of(info: u64) -> Option<u32> {
    (info != NO_INFO).then(|| Info::site(info))
}

impl<M: Mask> Engine<M> {
    /// The lines that a level of a core's path holds now, by address.
    pub(super) fn resident(&self, core: usize, level: Level) -> Vec<u64> {
        let outer = match level {
            Level::L1 => {
                let tags = self.l1[core].tags.iter();
                return tags
                    .filter(|&&tag| tag != EMPTY)
                    .map(|tag| tag << self.line_shift)
                    .collect();
            }
            Level::L2 => &self.l2[core],
            Level::Llc => &self.llc[self.group_of[core] as usize],
        };
        outer
            .iter()
            .flat_map(|outer| outer.array.ids())
            .map(|id| self.lines.number(id) << self.line_shift)
            .collect()
    }

    /// The same, with the site of each line's last access if it is known: of the core's own accesses in a private
    /// level, of the group's in the last.
    pub(super) fn contents(&self, core: usize, level: Level) -> Vec<(u64, Option<u32>)> {
        let group = self.group_of[core] as usize;
        let members = match level {
            Level::Llc => self.members[group],
            Level::L1 | Level::L2 => 1 << core,
        };
        let cores = || (0..self.l1.len()).filter(|core| members >> core & 1 == 1);
        // While a first level has the line it alone knows the last access.
        let mut nearest: HashMap<u32, u64> = HashMap::new();
        for core in cores() {
            let l1 = &self.l1[core];
            let held = l1.tags.iter().zip(&l1.held);
            let held = held.filter(|&(&tag, _)| tag != EMPTY);
            nearest.extend(held.map(|(_, way)| (way.id, way.last)));
        }
        let address = |id: u32| self.lines.number(id) << self.line_shift;
        let outer = match level {
            Level::L1 => {
                let lines = nearest.into_iter();
                return lines
                    .map(|(id, info)| (address(id), site_of(info)))
                    .collect();
            }
            Level::L2 => &self.l2[core],
            Level::Llc => &self.llc[group],
        };
        let ids = outer.iter().flat_map(|outer| outer.array.ids());
        ids.map(|id| {
            let known = nearest.get(&id).copied();
            let info = known.or_else(|| cores().find_map(|core| self.lines.last(id, core)));
            (address(id), info.and_then(site_of))
        })
        .collect()
    }
}
