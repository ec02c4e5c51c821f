//! What is known of every line: where it is, and what each core and group remembers of it.
//!
//! Lines are numbered densely in blocks of 64 neighbours, as pages of memory are. A stream that
//! walks through memory therefore walks through these records too, and the hash table that finds
//! a block is 64 times smaller than one that finds a line.

use super::config::Homes;
use super::mask::Mask;
use super::outcome::Party;

/// No core, no group.
pub(super) const NOBODY: u8 = u8::MAX;
/// No number.
pub(super) const NONE: u32 = u32::MAX;
/// No access; see [`Info`].
pub(super) const NO_INFO: u64 = u64::MAX;

/// States of a copy in private caches. Copies of cores that do not own the line are shared.
pub(super) mod state {
    pub(in super::super) const SHARED: u8 = 0;
    pub(in super::super) const OWNED: u8 = 1;
    pub(in super::super) const EXCLUSIVE: u8 = 2;
    pub(in super::super) const MODIFIED: u8 = 3;
}

/// Flags of [`CoreLine`] and [`GroupLine`].
pub(super) mod flag {
    /// Has had the line.
    pub(in super::super) const TOUCHED: u8 = 1;
    /// The first-level cache has it.
    pub(in super::super) const IN_L1: u8 = 2;
    /// The second-level cache has it.
    pub(in super::super) const IN_L2: u8 = 4;
    /// The first-level cache lost it to an invalidation.
    pub(in super::super) const L1_LOST: u8 = 8;
    /// The second-level cache lost it to an invalidation.
    pub(in super::super) const L2_LOST: u8 = 16;
    /// A sharing miss of the first-level cache (of a group: of the last level) waits for its
    /// verdict.
    pub(in super::super) const L1_OPEN: u8 = 32;
    /// The same of the second-level cache.
    pub(in super::super) const L2_OPEN: u8 = 64;
}

/// Where a line is. One line of the host.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Line {
    /// Cores whose private caches have it.
    pub(super) holders: u128,
    /// Cores that lost it to an invalidation and have not had it since.
    pub(super) lost: u128,
    /// Groups whose last-level cache has it.
    pub(super) llcs: u64,
    /// Groups that lost it to an invalidation and have not had it since.
    pub(super) lost_groups: u64,
    /// Its statistics of its own, [`NONE`], or [`super::follow::SUMMED`].
    pub(super) detail: u32,
    /// Its stays ([`super::stays::Stays`]), or [`NONE`].
    pub(super) stays: u32,
    /// The core that has it exclusive, modified or owned.
    pub(super) owner: u8,
    /// In which of these states.
    pub(super) state: u8,
    /// The group whose last-level cache is newer than memory.
    pub(super) dirty_llc: u8,
    /// Whether a group ever had a sharing miss that the access itself did not decide.
    pub(super) opened: bool,
}

impl Line {
    const NEW: Self = Self {
        holders: 0,
        lost: 0,
        llcs: 0,
        lost_groups: 0,
        detail: NONE,
        stays: NONE,
        owner: NOBODY,
        state: state::SHARED,
        dirty_llc: NOBODY,
        opened: false,
    };
}

/// What a core remembers of a line. One line of the host.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct CoreLine<M> {
    /// Last slot in the window of the first level, unless the first level has the line.
    pub(super) l1_slot: u64,
    /// Last slot in the window of the second level.
    pub(super) l2_slot: u64,
    /// Last access of this residency ([`Info`]), unless the first level has the line.
    pub(super) last: u64,
    /// Last store of this residency, likewise.
    pub(super) last_store: u64,
    /// While lost: the bytes that others wrote since. While a miss is open: those that were.
    pub(super) foreign: M,
    /// Bytes that it stored to since it alone has the line, as of the last flush.
    pub(super) stored: M,
    /// The site of the open miss.
    pub(super) site: u32,
    /// Where the second level has it.
    pub(super) place: u32,
    /// Where the first level has it.
    pub(super) way: u32,
    /// The thread of the open miss.
    pub(super) thread: u16,
    /// [`flag`]s.
    pub(super) flags: u8,
}

/// What a group's last level remembers of a line. Half a line of the host.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub(super) struct GroupLine<M> {
    /// Last slot in the window.
    pub(super) slot: u64,
    /// While lost: the bytes that other groups wrote since. While a miss is open: those that were.
    pub(super) foreign: M,
    /// The site of the open miss.
    pub(super) site: u32,
    /// Where the last level has it.
    pub(super) place: u32,
    /// The thread of the open miss.
    pub(super) thread: u16,
    /// [`flag`]s.
    pub(super) flags: u8,
}

/// An access in a word: site, thread, first and last byte in the line.
pub(super) struct Info;

impl Info {
    #[inline]
    pub(super) fn pack(site: u32, thread: u16, first: u32, last: u32) -> u64 {
        u64::from(site) << 32 | u64::from(thread) << 16 | u64::from(first << 8 | last)
    }

    pub(super) fn site(info: u64) -> u32 {
        (info >> 32) as u32
    }

    #[inline]
    pub(super) fn thread(info: u64) -> u16 {
        (info >> 16) as u16
    }

    /// First and last byte in the line.
    pub(super) fn bytes(info: u64) -> (u8, u8) {
        ((info >> 8) as u8, info as u8)
    }

    /// The access of a core.
    pub(super) fn party(core: impl Into<u16>, info: u64) -> Party {
        Party {
            core: core.into(),
            thread: Self::thread(info),
            site: Self::site(info),
            bytes: Self::bytes(info),
        }
    }

    /// The other way round.
    pub(super) fn of(party: &Party) -> u64 {
        let (first, last) = party.bytes;
        Self::pack(party.site, party.thread, first.into(), last.into())
    }

    /// Who hands a line over to the access `to`: the core whose conflicting access is `last`. `common` are the
    /// bytes of `to` that the core stored to since it alone had the line, `1 << granule` bytes of the line each bit.
    pub(super) fn supplier(
        core: usize,
        last: u64,
        to: u64,
        common: impl Into<u128>,
        granule: u32,
    ) -> Party {
        let common = common.into();
        let bytes = if Self::overlap(last, to) || common == 0 {
            Self::bytes(last)
        } else {
            let (first, end) = (common.trailing_zeros(), 128 - common.leading_zeros());
            ((first << granule) as u8, ((end << granule) - 1) as u8)
        };
        Party {
            bytes,
            ..Self::party(core as u16, last)
        }
    }

    /// Whether two accesses touch a common byte.
    pub(super) fn overlap(a: u64, b: u64) -> bool {
        let first = |info: u64| info >> 8 & 0xff;
        let last = |info: u64| info & 0xff;
        first(a) <= last(b) && first(b) <= last(a)
    }
}

/// All lines.
#[derive(Clone, Debug)]
pub(super) struct Lines<M> {
    cores: usize,
    groups: usize,
    /// Open addressing: block number plus one beside its index; zero is free.
    index: Vec<(u64, u32)>,
    /// 64 minus the logarithm of the table's length.
    index_shift: u32,
    /// The block found last.
    recent: (u64, u32),
    /// Number of each block: the line number without its lowest six bits.
    numbers: Vec<u64>,
    /// NUMA node of each block.
    homes: Vec<u8>,
    pub(super) lines: Vec<Line>,
    core_blocks: Vec<u32>,
    pub(super) core_lines: Vec<CoreLine<M>>,
    group_blocks: Vec<u32>,
    pub(super) group_lines: Vec<GroupLine<M>>,
    policy: Homes,
    nodes: u64,
}

impl<M: Mask> Lines<M> {
    pub(super) fn new(cores: usize, groups: usize, policy: Homes, nodes: u32) -> Self {
        Self {
            cores,
            groups,
            index: vec![(0, 0); 1024],
            index_shift: 64 - 10,
            recent: (u64::MAX, 0),
            numbers: Vec::new(),
            homes: Vec::new(),
            lines: Vec::new(),
            core_blocks: Vec::new(),
            core_lines: Vec::new(),
            group_blocks: Vec::new(),
            group_lines: Vec::new(),
            policy,
            nodes: u64::from(nodes),
        }
    }

    /// The id of line number `line`; a new one is homed for a core on `node`.
    #[inline]
    pub(super) fn id(&mut self, line: u64, node: u8) -> u32 {
        let number = line >> 6;
        let low = (line & 63) as u32;
        if self.recent.0 == number {
            return self.recent.1 << 6 | low;
        }
        let block = match self.find(number) {
            Some(block) => block,
            None => self.add(number, node),
        };
        self.recent = (number, block);
        block << 6 | low
    }

    /// The line number of an id.
    #[inline]
    pub(super) fn number(&self, id: u32) -> u64 {
        self.numbers[(id >> 6) as usize] << 6 | u64::from(id & 63)
    }

    /// The NUMA node of a line.
    pub(super) fn home(&self, id: u32) -> u8 {
        self.homes[(id >> 6) as usize]
    }

    /// Where `core`'s record of a line is; made if it is not.
    #[inline]
    pub(super) fn core_line(&mut self, id: u32, core: usize) -> usize {
        let block = &mut self.core_blocks[(id >> 6) as usize * self.cores + core];
        if *block == NONE {
            *block = (self.core_lines.len() >> 6) as u32;
            self.core_lines
                .resize(self.core_lines.len() + 64, CoreLine::default());
        }
        (*block << 6 | id & 63) as usize
    }

    /// The last access of `core` to a line that it has or had ([`Info`]), as far as its record knows it.
    pub(super) fn last(&self, id: u32, core: usize) -> Option<u64> {
        let block = self.core_blocks[(id >> 6) as usize * self.cores + core];
        if block == NONE {
            return None;
        }
        let record = self.core_lines.get((block << 6 | id & 63) as usize)?;
        let known = record.flags & flag::TOUCHED != 0 && record.last != NO_INFO;
        known.then_some(record.last)
    }

    /// Where `group`'s record of a line is; made if it is not.
    #[inline]
    pub(super) fn group_line(&mut self, id: u32, group: usize) -> usize {
        let block = &mut self.group_blocks[(id >> 6) as usize * self.groups + group];
        if *block == NONE {
            *block = (self.group_lines.len() >> 6) as u32;
            self.group_lines
                .resize(self.group_lines.len() + 64, GroupLine::default());
        }
        (*block << 6 | id & 63) as usize
    }

    /// Loads the host's memory of the records that an access of `core` in `group` needs; the value
    /// means nothing.
    #[inline]
    pub(super) fn warm(&self, line: u64, core: usize, group: usize) -> u64 {
        let Some(block) = self.find(line >> 6) else {
            return 0;
        };
        let (block, low) = (block as usize, (line & 63) as usize);
        let place = |block: u32| (block as usize) << 6 | low;
        let mine = place(self.core_blocks[block * self.cores + core]);
        let ours = place(self.group_blocks[block * self.groups + group]);
        self.lines[block << 6 | low].llcs
            ^ self.core_lines.get(mine).map_or(0, |mine| mine.l1_slot)
            ^ self.group_lines.get(ours).map_or(0, |ours| ours.slot)
    }

    /// The same for a line that `core` may evict.
    #[inline]
    pub(super) fn warm_victim(&self, id: u32, core: usize) -> u64 {
        let block = self.core_blocks[(id >> 6) as usize * self.cores + core];
        let mine = (block as usize) << 6 | (id & 63) as usize;
        self.lines[id as usize].llcs ^ self.core_lines.get(mine).map_or(0, |mine| mine.l1_slot)
    }

    /// Where all records of `core` are.
    pub(super) fn of_core(&self, core: usize) -> impl Iterator<Item = usize> + '_ {
        self.core_blocks
            .iter()
            .skip(core)
            .step_by(self.cores)
            .filter(|&&block| block != NONE)
            .flat_map(|&block| (0..64).map(move |low| (block as usize) << 6 | low))
    }

    #[inline]
    fn find(&self, number: u64) -> Option<u32> {
        let mut at = self.start(number);
        loop {
            let (key, block) = self.index[at];
            if key == number + 1 {
                return Some(block);
            }
            if key == 0 {
                return None;
            }
            at = (at + 1) & (self.index.len() - 1);
        }
    }

    #[inline]
    fn start(&self, number: u64) -> usize {
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.index_shift) as usize
    }

    #[cold]
    fn add(&mut self, number: u64, node: u8) -> u32 {
        let block = self.numbers.len() as u32;
        assert!(
            block < (NONE >> 6),
            "a stream touches fewer than 2^32 different lines"
        );
        if self.numbers.len() * 2 >= self.index.len() {
            let longer = self.index.len() * 2;
            let old = std::mem::replace(&mut self.index, vec![(0, 0); longer]);
            self.index_shift -= 1;
            for (key, block) in old.into_iter().filter(|&(key, _)| key != 0) {
                self.put(key - 1, block);
            }
        }
        self.put(number, block);
        self.numbers.push(number);
        self.homes.push(match self.policy {
            Homes::FirstTouch => node,
            Homes::Interleaved => (number % self.nodes) as u8,
            Homes::Node(node) => node,
        });
        self.lines.resize(self.lines.len() + 64, Line::NEW);
        self.core_blocks
            .resize(self.core_blocks.len() + self.cores, NONE);
        self.group_blocks
            .resize(self.group_blocks.len() + self.groups, NONE);
        block
    }

    fn put(&mut self, number: u64, block: u32) {
        let mut at = self.start(number);
        while self.index[at].0 != 0 {
            at = (at + 1) & (self.index.len() - 1);
        }
        self.index[at] = (number + 1, block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_stable_while_the_table_grows_and_numbers_lead_back() {
        let mut lines = Lines::<u64>::new(2, 1, Homes::Interleaved, 2);
        let number = |i: u64| i.wrapping_mul(0x1_0000_0001_2345) >> 6;
        let ids: Vec<u32> = (0..20_000).map(|i| lines.id(number(i), 0)).collect();
        for (i, &id) in ids.iter().enumerate() {
            assert_eq!(lines.id(number(i as u64), 0), id);
            assert_eq!(lines.number(id), number(i as u64));
            assert_eq!(u64::from(lines.home(id)), number(i as u64) / 64 % 2);
        }
    }

    #[test]
    fn records_do_not_reach_into_a_second_line_of_the_host() {
        assert_eq!(size_of::<Line>(), 64);
        assert_eq!(size_of::<CoreLine<u64>>(), 64);
        assert_eq!(size_of::<GroupLine<u64>>(), 32);
        // Of lines of 128 bytes it does, with two sets of bytes.
        assert_eq!(size_of::<CoreLine<u128>>(), 128);
    }

    #[test]
    fn ranges_overlap_where_they_share_a_byte() {
        let word = |first| Info::pack(9, 3, first, first + 7);
        assert!(Info::overlap(word(0), word(7)));
        assert!(!Info::overlap(word(0), word(8)));
        assert!(!Info::overlap(word(8), word(0)));
        assert_eq!(Info::site(word(8)), 9);
        assert_eq!(Info::thread(word(8)), 3);
    }
}
