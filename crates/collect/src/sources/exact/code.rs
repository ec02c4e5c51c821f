//! The code that the target ran: its slots, instructions, mappings.

use std::collections::{BTreeMap, HashMap};

use linewise_cache::Kind;
use linewise_recording::{Address, Map, MapKind, Pid, SharedMemory, Time};
use linewise_trace::{Handover, Instruction, MOST_INSTRUCTIONS, TracedAccess, space_of};
use linewise_tracer::words::{self, ExecTrouble};

use crate::kernel::Machine;
use crate::target::build_id::build_id;
use crate::target::clock::Clock;

/// A program that ran without being traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Untraced {
    pub(super) path: String,
    pub(super) trouble: Option<ExecTrouble>,
}

/// What an access needs to know of its instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// [`NO_SITE`] for one that was never defined.
    pub(super) site: u32,
    pub(super) updates: bool,
    pub(super) orders: bool,
    /// Bytes of its operand if more than 8, which QEMU accesses in pieces; else 0.
    pub(super) wide: u8,
    /// Its accesses are not simply handed on.
    pub(super) special: bool,
}

impl Slot {
    /// What an access of its instruction is; the load of an update is not asked for.
    pub(super) fn kind(self, store: bool) -> Kind {
        match (store, self.updates) {
            (false, _) => Kind::Load,
            (true, false) => Kind::Store,
            (true, true) => Kind::Update,
        }
    }
}

/// No instruction.
pub(super) const NO_SITE: u32 = u32::MAX;

const UNDEFINED: Slot = Slot {
    site: NO_SITE,
    updates: false,
    orders: false,
    wide: 0,
    special: true,
};

/// The slots of a bank, see [`words`].
pub(super) type Bank = [Slot; words::BANK_SLOTS as usize];

pub(super) static UNDEFINED_BANK: Bank = [UNDEFINED; words::BANK_SLOTS as usize];

/// All code seen so far.
#[derive(Debug, Default)]
pub(super) struct Code {
    /// Slots by bank.
    banks: Banks,
    pub(super) instructions: Vec<Instruction>,
    sites: HashMap<(u32, u64, [u64; 2]), u32>,
    pub(super) maps: Vec<Map>,
    pub(super) untraced: Vec<Untraced>,
    /// The mappings of each process, by their places in `maps`.
    maps_of: HashMap<Pid, Vec<u32>>,
    path_bytes: usize,
    /// The build ids of mapped files, by image and path.
    build_ids: HashMap<(u32, String), String>,
    /// The memory that processes share, by image: what stands for a process there is its number.
    pub(super) shared: SharedMemory,
    /// Mappings that change what is shared, by their stamps and numbers, until the accesses have come to them.
    changes: BTreeMap<(u64, usize), Map>,
    changed: usize,
    /// Programs that ran untraced beyond those.
    pub(super) more_untraced: u64,
    /// Instructions and mappings that there was no room for.
    pub(super) dropped: [u64; 2],
    /// Definitions that made no sense.
    pub(super) malformed: u64,
}

/// Slots by bank. Those of which nothing was told take no memory.
#[derive(Debug, Default)]
pub(super) struct Banks {
    of: Vec<Option<Box<Bank>>>,
    count: usize,
}

impl Banks {
    /// The slots of a bank.
    #[inline]
    pub(super) fn get(&self, number: u32) -> &Bank {
        match self.of.get(number as usize) {
            Some(Some(bank)) => bank,
            _ => &UNDEFINED_BANK,
        }
    }

    /// The same to be changed; `None` if there is no room for it.
    pub(super) fn make(&mut self, number: usize) -> Option<&mut Bank> {
        if self.of.len() <= number {
            self.of.resize_with(number + 1, || None);
        }
        let bank = &mut self.of[number];
        if bank.is_none() {
            if self.count >= MOST_BANKS {
                return None;
            }
            self.count += 1;
            *bank = Some(Box::new(UNDEFINED_BANK));
        }
        bank.as_deref_mut()
    }
}

/// Banks beyond this are not believed.
const MAX_BANKS: usize = words::BANKS as usize;
/// What is kept at most, since a target that writes over the shared memory could tell of any number: banks, instructions,
/// mappings, bytes of their paths, and programs that ran untraced.
const MOST_BANKS: usize = 1 << 12;
const MOST_CHANGES: usize = 1 << 12;
const MOST_MAPS: usize = 1 << 19;
const MOST_PATH_BYTES: usize = 1 << 26;
const MOST_UNTRACED: usize = 1 << 10;
/// Files of which the build id is known, at most.
const MOST_BUILD_IDS: usize = 1 << 14;
const BANK_SLOTS: usize = words::BANK_SLOTS as usize;

impl Code {
    /// The slots of a bank.
    #[inline]
    pub(super) fn bank(&self, number: u32) -> &Bank {
        self.banks.get(number)
    }

    /// Where the accesses of an image to an address count: at its home, if its memory is shared.
    pub(super) fn home(&self, image: u32, address: u64) -> u64 {
        let (image, address) = self.shared.home(Pid(image), Address(address));
        address.0 | space_of(image.0)
    }

    /// Names what was done to a line by the thread that another took it from. `space` is the part of an
    /// address that tells its address space.
    pub(super) fn handover(
        &self,
        taken: &words::Taken,
        thread: u16,
        time_ns: u64,
        space: u64,
    ) -> Handover {
        let access = |deed: u64, store: bool| {
            let (number, slot, offset, size) = words::deed_parts(deed);
            let slot = self.bank(number)[slot];
            // The last of its pieces was noted; those before it lie below.
            let end = offset + u64::from(size);
            let size = size.max(slot.wide.into()).min(end as u16);
            let offset = end - u64::from(size);
            TracedAccess {
                address: (taken.line + offset) | space,
                time_ns,
                site: slot.site,
                before: 0,
                size,
                thread,
                kind: slot.kind(store),
                orders: false,
            }
        };
        let [load, store] = taken.last.map(|deed| (deed != 0).then_some(deed));
        let number = |deed: Option<u64>| deed.map(|deed| words::deed_number(deed, taken.first));
        let known = |access: &TracedAccess| access.site != NO_SITE;
        let load_is_last = number(load) > number(store);
        let last = [
            load.map(|deed| access(deed, false)).filter(known),
            store.map(|deed| access(deed, true)).filter(known),
        ];
        let more = |kind: usize| {
            let last = last[kind].map_or(0, |access| {
                words::granules(access.address & 63, access.size.into())
            });
            bytes_of(taken.granules[kind] & !last)
        };
        Handover {
            thread,
            again: taken.again,
            load: last[0],
            store: last[1],
            load_is_last,
            line: taken.line | space,
            more: [more(0), more(1)],
        }
    }

    /// Takes a definition: what stands behind its first word. `program` tells apart programs that
    /// have different code at the same address.
    pub(super) fn define(
        &mut self,
        kind: u64,
        rest: &[u64],
        program: u32,
        (pid, image): (Pid, u32),
        clock: &Clock,
    ) {
        let done = match kind {
            words::DEFINES_BLOCK => self.define_block(rest, program, pid),
            words::DEFINES_MAP => self.define_map(rest, (pid, image), clock),
            words::DEFINES_UNTRACED => self.define_untraced(rest),
            _ => None,
        };
        if done.is_none() {
            self.malformed += 1;
        }
    }

    fn define_block(&mut self, rest: &[u64], program: u32, pid: Pid) -> Option<()> {
        let (&first, slots) = rest.split_first()?;
        let bank = usize::try_from(first).ok()? / BANK_SLOTS;
        let place = first as usize % BANK_SLOTS;
        let count = slots.len() / 3;
        if slots.len() % 3 != 0 || place + count > BANK_SLOTS || bank >= MAX_BANKS {
            return None;
        }
        let Some(defined) = self.banks.make(bank) else {
            self.dropped[0] += count as u64;
            return Some(());
        };
        for (place, slot) in (place..).zip(slots.chunks_exact(3)) {
            let packed = [slot[1], slot[2]];
            let address = slot[0] & ((1 << words::ADDRESS_BITS) - 1);
            let updates = slot[0] & words::UPDATES != 0;
            let orders = slot[0] & words::ORDERS != 0;
            let instructions = &mut self.instructions;
            let key = (program, address, packed);
            if instructions.len() >= MOST_INSTRUCTIONS && !self.sites.contains_key(&key) {
                self.dropped[0] += 1;
                continue;
            }
            let site = *self.sites.entry(key).or_insert_with(|| {
                let (bytes, length) = words::unpack_instruction(packed);
                instructions.push(Instruction {
                    address,
                    pid,
                    bytes,
                    length: length as u8,
                    updates,
                    orders,
                });
                instructions.len() as u32 - 1
            });
            let bytes = (slot[0] >> 56) as u8;
            defined[place] = Slot {
                site,
                updates,
                orders,
                wide: if bytes > 8 { bytes } else { 0 },
                special: updates || bytes > 8,
            };
        }
        Some(())
    }

    /// A process that was made has its parent's mappings.
    pub(super) fn inherit(&mut self, parent: Pid, child: Pid) {
        if parent == child {
            return;
        }
        let theirs = self.maps_of.get(&parent).cloned().unwrap_or_default();
        for place in theirs {
            let map = Map {
                pid: child,
                ..self.maps[place as usize].clone()
            };
            self.add_map(map);
        }
    }

    fn add_map(&mut self, map: Map) {
        if self.maps.len() >= MOST_MAPS || self.path_bytes + map.path.len() > MOST_PATH_BYTES {
            self.dropped[1] += 1;
            return;
        }
        self.path_bytes += map.path.len();
        let places = self.maps_of.entry(map.pid).or_default();
        places.push(self.maps.len() as u32);
        self.maps.push(map);
    }

    fn define_map(&mut self, rest: &[u64], (pid, image): (Pid, u32), clock: &Clock) -> Option<()> {
        let (fields, path) = rest.split_first_chunk::<7>()?;
        let path = String::from_utf8_lossy(&words::text(path)?).into_owned();
        let writable = fields[4] & 2 != 0;
        let shared = fields[4] & words::SHARED_MAP != 0;
        let backing = shared.then_some((fields[5] as u32, fields[6]));
        let mut map = Map {
            pid: Pid(image),
            time: Time(clock.ns(fields[0])),
            start: Address(fields[1]),
            end: Address(fields[2]),
            offset: fields[3],
            executable: fields[4] & 1 != 0,
            writable,
            kind: if path.is_empty() {
                MapKind::Anonymous
            } else {
                MapKind::File
            },
            path,
            build_id: String::new(),
            device: backing.map(|it| it.0),
            inode: backing.map(|it| it.1),
        };
        self.change(fields[0], &map);
        if fields[4] & words::UNMAPPED == 0 {
            map.pid = pid;
            map.build_id = self.build_id(image, &map);
            self.add_map(map);
        }
        Some(())
    }

    /// The build id of the file of `map`. Which files have code is not known: the emulator maps it as it likes.
    fn build_id(&mut self, image: u32, map: &Map) -> String {
        if map.kind != MapKind::File || !map.path.starts_with('/') {
            return String::new();
        }
        let key = (image, map.path.clone());
        // A program that is loaded again may have been rebuilt since.
        let again = |id: &&String| map.offset == 0 && !id.is_empty();
        if let Some(id) = self.build_ids.get(&key).filter(|id| !again(id)) {
            return id.clone();
        }
        let id = build_id(&Machine, map.pid, &map.path);
        if self.build_ids.len() < MOST_BUILD_IDS {
            self.build_ids.insert(key, id.clone());
        }
        id
    }

    /// Notes what changes who shares which memory, for when the accesses come to that moment.
    fn change(&mut self, stamp: u64, map: &Map) {
        let of_it = |change: &Map| change.pid == map.pid;
        let matters =
            map.device.is_some() || self.shared.has(map.pid) || self.changes.values().any(of_it);
        if !matters {
            return;
        }
        // So many at once nobody makes.
        if self.changes.len() >= MOST_CHANGES {
            self.change_until(u64::MAX);
        }
        self.changed += 1;
        self.changes.insert((stamp, self.changed), map.clone());
    }

    /// The stamp of the next change of what is shared.
    pub(super) fn next_change(&self) -> Option<u64> {
        Some(self.changes.first_key_value()?.0.0)
    }

    /// The accesses have come to this stamp.
    pub(super) fn change_until(&mut self, stamp: u64) {
        while let Some(first) = self.changes.first_entry()
            && first.key().0 <= stamp
        {
            self.shared.add(&first.remove());
        }
    }

    fn define_untraced(&mut self, rest: &[u64]) -> Option<()> {
        let (&trouble, path) = rest.split_first()?;
        if self.untraced.len() >= MOST_UNTRACED {
            self.more_untraced += 1;
            return Some(());
        }
        self.untraced.push(Untraced {
            path: String::from_utf8_lossy(&words::text(path)?).into_owned(),
            trouble: ExecTrouble::from_number(trouble),
        });
        Some(())
    }
}

/// The bytes of parts of a line.
fn bytes_of(granules: u16) -> u64 {
    let parts = (0..16).filter(|part| granules >> part & 1 != 0);
    parts.fold(0, |bytes, part| {
        bytes | ((1 << words::GRANULE) - 1) << (part * words::GRANULE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_last_store_does_not_tell_is_told_by_fours() {
        let mut code = Code::default();
        code.banks.make(0).unwrap()[0] = Slot {
            site: 7,
            ..UNDEFINED
        };
        let last = words::deed(0, 8, words::meta(0, true));
        let taken = words::Taken {
            line: 0x1000,
            granules: [
                words::granules(60, 4),
                words::granules(8, 1) | words::granules(14, 4),
            ],
            last: [0, last],
            ..words::Taken::default()
        };
        let told = code.handover(&taken, 0, 0, 0);
        assert_eq!(told.more, [0xf << 60, 0xff << 12]);
        assert_eq!(
            told.store.map(|it| (it.address, it.size)),
            Some((0x1008, 1))
        );
    }

    #[test]
    fn the_last_piece_of_a_wide_access_that_is_handed_over_stands_for_all_that_is_on_the_line() {
        let mut code = Code::default();
        let slots = code.banks.make(0).unwrap();
        slots[3] = Slot {
            site: 7,
            wide: 16,
            ..UNDEFINED
        };
        slots[4] = Slot {
            wide: 0,
            ..slots[3]
        };
        let store = |slot: u64, offset: u64| {
            let taken = words::Taken {
                line: 0x1000,
                last: [0, words::deed(0, offset, slot << 4 | words::meta(3, true))],
                ..words::Taken::default()
            };
            let store = code.handover(&taken, 0, 0, 0).store.unwrap();
            (store.address, store.size)
        };
        assert_eq!(store(3, 24), (0x1010, 16));
        // Its first piece lies on the line before.
        assert_eq!(store(3, 0), (0x1000, 8));
        assert_eq!(store(4, 24), (0x1018, 8));
    }
}
