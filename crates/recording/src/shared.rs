//! Memory that processes share: which addresses of different processes are the same bytes.
//!
//! A shared mapping is known by the file behind it, which shared anonymous memory, memfds and System V segments have, too: by its
//! device, inode and offset. Of all addresses of a byte one is its *home*: that in the mapping that was seen first.

use std::collections::HashMap;

use crate::tables::Map;
use crate::values::{Address, Pid};

/// What the kernel adds to the path of a file that has no name any more.
const DELETED: &str = " (deleted)";

/// Mappings that are homes, at most: more files are shared by nobody, but by a program that makes them without end.
const HOMES: usize = 1 << 16;

/// Shared mappings of a process, at most; those beyond are taken for its own.
const PIECES: usize = 1 << 12;

/// The device and inode of what lies behind a mapping.
type Backing = (u32, u64);

/// A shared mapping, or what is left of it.
#[derive(Clone, Copy, Debug)]
struct Piece {
    backing: Backing,
    start: u64,
    end: u64,
    offset: u64,
}

impl Piece {
    /// Where in the file an address lies.
    fn offset_of(&self, address: u64) -> Option<u64> {
        (self.start..self.end)
            .contains(&address)
            .then(|| address - self.start + self.offset)
    }

    /// At which address a byte of the file lies.
    fn address_of(&self, offset: u64) -> Option<u64> {
        let distance = offset.checked_sub(self.offset)?;
        let address = self.start.checked_add(distance)?;
        (address < self.end).then_some(address)
    }

    /// What is left of it beside `start..end`.
    fn without(self, start: u64, end: u64) -> impl Iterator<Item = Self> {
        let below = Self {
            end: self.end.min(start),
            ..self
        };
        let from = self.start.max(end);
        let above = Self {
            start: from,
            offset: self.offset + (from - self.start),
            ..self
        };
        [below, above].into_iter().filter(|it| it.start < it.end)
    }
}

/// Where a file was mapped first, part by part.
#[derive(Clone, Debug, Default)]
struct Homes {
    path: String,
    pieces: Vec<(Pid, Piece)>,
}

/// The shared mappings of some processes.
#[derive(Clone, Debug, Default)]
pub struct SharedMemory {
    processes: HashMap<Pid, Vec<Piece>>,
    homes: HashMap<Backing, Homes>,
    homes_of: HashMap<Pid, Vec<Piece>>,
    count: usize,
}

impl SharedMemory {
    /// Those of a recording, in the order in which they were seen.
    #[must_use]
    pub fn of(maps: &[Map]) -> Self {
        let mut memory = Self::default();
        maps.iter().for_each(|map| memory.add(map));
        memory
    }

    /// A mapping was seen. What was known of its addresses before holds no more.
    pub fn add(&mut self, map: &Map) {
        let piece = map.device.zip(map.inode).map(|backing| Piece {
            backing,
            start: map.start.0,
            end: map.end.0,
            offset: map.offset,
        });
        if piece.is_none() && !self.processes.contains_key(&map.pid) {
            return;
        }
        let pieces = self.processes.entry(map.pid).or_default();
        *pieces = (pieces.drain(..))
            .flat_map(|it| it.without(map.start.0, map.end.0))
            .collect();
        let has_room = pieces.len() < PIECES;
        let Some(piece) = piece.filter(|it| it.start < it.end && has_room) else {
            return;
        };
        let path = map.path.strip_suffix(DELETED).unwrap_or(&map.path);
        let is_another = (self.homes.get(&piece.backing)).is_some_and(|homes| homes.path != path);
        // An inode that nobody has mapped may be given to another file.
        if is_another && !self.is_mapped(piece.backing) {
            self.forget_homes(piece.backing);
        }
        self.processes.entry(map.pid).or_default().push(piece);
        let homes = self.homes.entry(piece.backing).or_insert_with(|| Homes {
            path: path.to_owned(),
            ..Homes::default()
        });
        let homes = &mut homes.pieces;
        let covers = |home: &Piece| {
            let length = piece.end - piece.start;
            home.address_of(piece.offset).is_some()
                && home.address_of(piece.offset + length - 1).is_some()
        };
        if self.count < HOMES && !homes.iter().any(|(_, home)| covers(home)) {
            homes.push((map.pid, piece));
            self.homes_of.entry(map.pid).or_default().push(piece);
            self.count += 1;
        }
    }

    /// `child` has what `parent` has.
    pub fn forked(&mut self, parent: Pid, child: Pid) {
        match self.processes.get(&parent).cloned() {
            Some(pieces) => self.processes.insert(child, pieces),
            None => self.processes.remove(&child),
        };
    }

    /// Makes room for those of another file.
    fn forget_homes(&mut self, backing: Backing) {
        let gone = self.homes.remove(&backing).unwrap_or_default();
        self.count -= gone.pieces.len();
        for (pid, _) in gone.pieces {
            if let Some(pieces) = self.homes_of.get_mut(&pid) {
                pieces.retain(|piece| piece.backing != backing);
            }
        }
    }

    fn is_mapped(&self, backing: Backing) -> bool {
        let mut pieces = self.processes.values().flatten();
        pieces.any(|piece| piece.backing == backing)
    }

    /// A process has ended. Its mappings stay homes.
    pub fn end(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// Forgets the processes for which `lives` says no. Their mappings stay homes.
    pub fn keep(&mut self, lives: impl Fn(Pid) -> bool) {
        self.processes.retain(|&pid, _| lives(pid));
    }

    /// Whether a process has any.
    #[must_use]
    pub fn has(&self, pid: Pid) -> bool {
        self.processes.get(&pid).is_some_and(|it| !it.is_empty())
    }

    /// The home of an address of a process: itself, where its memory is not shared.
    #[must_use]
    pub fn home(&self, pid: Pid, address: Address) -> (Pid, Address) {
        let found = self.byte(pid, address).and_then(|(backing, offset)| {
            let homes = self.homes.get(&backing)?;
            let mut found = homes.pieces.iter().filter_map(|(pid, home)| {
                let address = home.address_of(offset)?;
                Some((*pid, Address(address)))
            });
            found.next()
        });
        found.unwrap_or((pid, address))
    }

    /// Where in a process the byte lies whose home that is: nowhere if it is not mapped there, and at several places if it is
    /// mapped more than once.
    #[must_use]
    pub fn at(&self, pid: Pid, home: (Pid, Address)) -> Vec<Address> {
        let Some((backing, offset)) = self.byte_at_home(home) else {
            return (pid == home.0).then_some(home.1).into_iter().collect();
        };
        let pieces = self.processes.get(&pid).into_iter().flatten();
        let of_it = pieces.filter(|piece| piece.backing == backing);
        of_it
            .filter_map(|piece| piece.address_of(offset))
            .map(Address)
            .collect()
    }

    /// The processes that have the byte whose home that is.
    #[must_use]
    pub fn sharers(&self, home: (Pid, Address)) -> Vec<Pid> {
        if self.byte_at_home(home).is_none() {
            return vec![home.0];
        }
        let all = self.processes.keys().copied();
        all.filter(|&pid| !self.at(pid, home).is_empty()).collect()
    }

    fn byte(&self, pid: Pid, address: Address) -> Option<(Backing, u64)> {
        let pieces = self.processes.get(&pid)?.iter();
        pieces
            .filter_map(|piece| Some((piece.backing, piece.offset_of(address.0)?)))
            .next()
    }

    /// The byte whose home that is. The process may have ended, or have something else there now.
    fn byte_at_home(&self, (pid, address): (Pid, Address)) -> Option<(Backing, u64)> {
        if let Some(byte) = self.byte(pid, address) {
            return Some(byte);
        }
        let mut homes = self.homes_of.get(&pid)?.iter();
        homes.find_map(|piece| Some((piece.backing, piece.offset_of(address.0)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{MapKind, Time};

    fn map(pid: u32, start: u64, end: u64, offset: u64, inode: Option<u64>) -> Map {
        Map {
            pid: Pid(pid),
            time: Time(0),
            start: Address(start),
            end: Address(end),
            offset,
            executable: false,
            writable: true,
            kind: MapKind::File,
            path: "/memfd:counters (deleted)".to_owned(),
            build_id: String::new(),
            device: inode.map(|_| 1),
            inode,
        }
    }

    #[test]
    fn the_same_byte_has_one_home_wherever_it_is_mapped() {
        let memory = SharedMemory::of(&[
            map(1, 0x10000, 0x14000, 0, Some(7)),
            map(2, 0x50000, 0x52000, 0x1000, Some(7)),
            map(3, 0x10000, 0x14000, 0, Some(8)),
            map(4, 0x10000, 0x14000, 0, None),
        ]);
        let home = (Pid(1), Address(0x11040));
        assert_eq!(memory.home(Pid(2), Address(0x50040)), home);
        assert_eq!(memory.home(Pid(1), Address(0x11040)), home);
        assert_eq!(memory.at(Pid(2), home), [Address(0x50040)]);
        assert_eq!(memory.at(Pid(2), (Pid(1), Address(0x10040))), []);
        // A second time in one process.
        let mut twice = memory.clone();
        twice.add(&map(1, 0x20000, 0x24000, 0, Some(7)));
        assert_eq!(twice.home(Pid(1), Address(0x21040)), home);
        let both = [Address(0x11040), Address(0x21040)];
        assert_eq!(twice.at(Pid(1), home), both);
        let mut sharers = memory.sharers(home);
        sharers.sort_unstable();
        assert_eq!(sharers, [Pid(1), Pid(2)]);
        for alone in [3, 4, 5] {
            let own = (Pid(alone), Address(0x11040));
            assert_eq!(memory.home(own.0, own.1), own);
            assert_eq!(memory.sharers(own), [own.0]);
        }
        // What is mapped only by the second has its home there.
        let memory = SharedMemory::of(&[
            map(1, 0x10000, 0x11000, 0, Some(7)),
            map(2, 0x50000, 0x52000, 0, Some(7)),
        ]);
        let second = (Pid(2), Address(0x51000));
        assert_eq!(memory.home(second.0, second.1), second);
    }

    #[test]
    fn a_child_has_what_its_parent_has_and_another_mapping_takes_its_place() {
        let mut memory = SharedMemory::of(&[map(1, 0x10000, 0x14000, 0, Some(7))]);
        memory.forked(Pid(1), Pid(2));
        let home = (Pid(1), Address(0x12000));
        assert_eq!(memory.home(Pid(2), Address(0x12000)), home);
        memory.add(&map(2, 0x11000, 0x13000, 0, None));
        assert_eq!(
            memory.home(Pid(2), Address(0x12000)),
            (Pid(2), Address(0x12000))
        );
        assert_eq!(
            memory.home(Pid(2), Address(0x13000)),
            (Pid(1), Address(0x13000))
        );
        // The home outlives its process.
        memory.keep(|pid| pid == Pid(2));
        let home = (Pid(1), Address(0x13000));
        assert_eq!(memory.sharers(home), [Pid(2)]);
        assert_eq!(memory.at(Pid(2), home), [Address(0x13000)]);
    }

    #[test]
    fn an_inode_that_nobody_has_mapped_may_be_another_file_s_next() {
        let named = |pid, start: u64, inode, path: &str| Map {
            path: path.to_owned(),
            ..map(pid, start, start + 0x1000, 0, inode)
        };
        let mut memory = SharedMemory::of(&[named(1, 0x10000, Some(7), "/dev/shm/a")]);
        // It lost its name, and is the same.
        memory.add(&named(2, 0x20000, Some(7), "/dev/shm/a (deleted)"));
        let home = (Pid(1), Address(0x10000));
        assert_eq!(memory.home(Pid(2), Address(0x20000)), home);
        // Another name of what is still mapped is the same, too.
        memory.add(&named(3, 0x30000, Some(7), "/dev/shm/b"));
        assert_eq!(memory.home(Pid(3), Address(0x30000)), home);
        memory.end(Pid(3));
        memory.end(Pid(2));
        memory.add(&map(1, 0x10000, 0x11000, 0, None));
        memory.add(&named(1, 0x40000, Some(7), "/dev/shm/c"));
        let own = (Pid(1), Address(0x40000));
        assert_eq!(memory.home(own.0, own.1), own);
    }

    #[test]
    fn files_that_are_gone_take_no_room_from_those_to_come() {
        let mut memory = SharedMemory::default();
        let named = |pid, inode, path: String| Map {
            path,
            ..map(pid, 0x10000, 0x11000, 0, inode)
        };
        for number in 0..HOMES + 10 {
            memory.add(&named(1, Some(7), format!("/tmp/{number}")));
            memory.add(&named(1, None, String::new()));
        }
        memory.add(&named(1, Some(7), "/tmp/last".to_owned()));
        memory.add(&Map {
            path: "/tmp/last".to_owned(),
            ..map(2, 0x50000, 0x51000, 0, Some(7))
        });
        let home = (Pid(1), Address(0x10040));
        assert_eq!(memory.home(Pid(2), Address(0x50040)), home);
        assert_eq!(memory.count, 1);
    }

    #[test]
    fn two_mappings_of_one_process_are_one_memory() {
        let memory = SharedMemory::of(&[
            map(1, 0x10000, 0x11000, 0, Some(7)),
            map(1, 0x11000, 0x12000, 0, Some(7)),
        ]);
        assert_eq!(
            memory.home(Pid(1), Address(0x11008)),
            (Pid(1), Address(0x10008))
        );
    }
}
