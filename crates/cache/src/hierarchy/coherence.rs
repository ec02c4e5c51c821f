//! What happens between caches: who supplies a line, who loses it, who takes a victim.

use super::config::{Inclusion, Protocol, SharedSupply};
use super::counts::{Answer, Class, Served};
use super::engine::{Engine, Fetched, class};
use super::lines::{Info, NO_INFO, NOBODY, NONE, flag, state};
use super::mask::Mask;
use super::outcome::{Party, Transfer};
use super::stays::Fetch;
use super::touch::Touch;

impl<M: Mask> Engine<M> {
    /// The way of a core's first level that has a line.
    pub(super) fn way_of(&mut self, core: usize, line: u64) -> Option<usize> {
        let l1 = &self.l1[core];
        let set = l1.sets.of(line);
        if let Some(way) = l1.find(set, line) {
            return Some(way);
        }
        if !l1.wide {
            return None;
        }
        let node = self.node_of[self.group_of[core] as usize];
        let id = self.lines.id(line, node);
        let at = self.lines.core_line(id, core);
        let mine = &self.lines.core_lines[at];
        (mine.flags & flag::IN_L1 != 0).then_some(mine.way as usize)
    }

    /// Gives what the first level noted of a way's line since the last flush to all who wait for
    /// it: open misses, cores and groups that lost the line, its statistics.
    pub(super) fn flush(&mut self, core: usize, way: usize) {
        let held = &mut self.l1[core].held[way];
        let (read, written, id) = (held.read, held.written, held.id);
        let thread = Info::thread(held.last);
        let touched = read | written;
        if touched.is_empty() {
            return;
        }
        held.read = M::default();
        held.written = M::default();

        let at = self.lines.core_line(id, core);
        let mine = &mut self.lines.core_lines[at];
        mine.stored |= written;
        if mine.flags & (flag::L1_OPEN | flag::L2_OPEN) != 0 && !(mine.foreign & touched).is_empty()
        {
            self.close_core(at, Class::TrueSharing);
        }
        let line = &self.lines.lines[id as usize];
        let (lost, lost_groups, detail) = (line.lost, line.lost_groups, line.detail);
        if line.stays != NONE {
            self.stays.did(line.stays, core, touched, written);
        }
        let group = self.group_of[core] as usize;
        if line.opened && self.llc[group].is_some() {
            let at = self.lines.group_line(id, group);
            let ours = &self.lines.group_lines[at];
            if ours.flags & flag::L1_OPEN != 0 && !(ours.foreign & touched).is_empty() {
                self.close_group(at, Class::TrueSharing);
            }
        }
        if !written.is_empty() && lost | u128::from(lost_groups) != 0 {
            for loser in bits(lost) {
                let at = self.lines.core_line(id, loser);
                self.lines.core_lines[at].foreign |= written;
            }
            for loser in bits(lost_groups.into()) {
                let at = self.lines.group_line(id, loser);
                self.lines.group_lines[at].foreign |= written;
            }
        }
        if detail != NONE {
            self.follow.touched(detail, thread, read, written);
        }
    }

    /// Opens the sharing misses of a core that this access did not decide.
    pub(super) fn open(&mut self, at: usize, answers: &[Answer; 3], touch: &Touch) {
        let mine = &mut self.lines.core_lines[at];
        for (answer, open) in answers.iter().zip([flag::L1_OPEN, flag::L2_OPEN]) {
            if *answer == Answer::Miss(Class::FalseSharing) {
                mine.flags |= open;
                mine.site = touch.counted;
                mine.thread = touch.thread;
            }
        }
    }

    /// A core's private caches have a line no more.
    fn end_stay(&mut self, core: usize, id: u32, at: usize) {
        self.close_core(at, Class::FalseSharing);
        let stays = self.lines.lines[id as usize].stays;
        if stays != NONE {
            self.stays.end(stays, core);
        }
    }

    /// Decides the open misses of a core's record.
    pub(super) fn close_core(&mut self, at: usize, class: Class) {
        let mine = &mut self.lines.core_lines[at];
        for (level, open) in [flag::L1_OPEN, flag::L2_OPEN].into_iter().enumerate() {
            if mine.flags & open != 0 {
                self.threads[usize::from(mine.thread)].classes[level][class as usize] += 1;
                self.sites[mine.site as usize].classes[level][class as usize] += 1;
            }
        }
        mine.flags &= !(flag::L1_OPEN | flag::L2_OPEN);
    }

    /// Decides the open miss of a group's record.
    pub(super) fn close_group(&mut self, at: usize, class: Class) {
        let ours = &mut self.lines.group_lines[at];
        if ours.flags & flag::L1_OPEN != 0 {
            ours.flags &= !flag::L1_OPEN;
            self.threads[usize::from(ours.thread)].classes[2][class as usize] += 1;
            self.sites[ours.site as usize].classes[2][class as usize] += 1;
        }
    }

    /// Decides a group's open miss if no cache of the group has the line any more.
    fn close_group_if_gone(&mut self, group: usize, id: u32) {
        let line = &self.lines.lines[id as usize];
        if line.opened
            && self.llc[group].is_some()
            && line.llcs >> group & 1 == 0
            && line.holders & self.members[group] == 0
        {
            let at = self.lines.group_line(id, group);
            self.close_group(at, Class::FalseSharing);
        }
    }

    /// Gives a core that has a line in `known` state the right to store; whether it had to ask.
    pub(super) fn gain(&mut self, core: usize, id: u32, known: u8, touch: &Touch) -> bool {
        let asks = known < state::EXCLUSIVE;
        if asks {
            let between = self.invalidate_others(core, id);
            self.coherence[usize::from(between)].upgrades += 1;
            debug_assert!(touch.kind.writes());
            // What it stored to before is known to whoever loaded it since.
            let at = self.lines.core_line(id, core);
            self.lines.core_lines[at].stored = M::default();
        }
        let line = &mut self.lines.lines[id as usize];
        line.owner = core as u8;
        line.state = state::MODIFIED;
        line.dirty_llc = NOBODY;
        asks
    }

    /// Takes a line from everyone but `core` and its group's last level; whether that reached
    /// another socket.
    fn invalidate_others(&mut self, core: usize, id: u32) -> bool {
        let line = self.lines.lines[id as usize];
        let group = self.group_of[core] as usize;
        let mut between = false;
        for other in bits(line.holders & !(1 << core)) {
            self.lose(other, id);
            let far = self.socket_of[self.group_of[other] as usize] != self.socket_of[group];
            self.coherence[usize::from(far)].invalidations += 1;
            between |= far;
        }
        let mut losers = line.llcs & !(1 << group);
        for other in bits(losers.into()) {
            let llc = self.llc[other]
                .as_mut()
                .expect("a group whose LLC has a line has an LLC");
            let at = self.lines.group_line(id, other);
            let set = llc.array.sets.of(self.lines.number(id));
            llc.array.remove(set, id, self.lines.group_lines[at].place);
            let far = self.socket_of[other] != self.socket_of[group];
            self.coherence[usize::from(far)].invalidations += 1;
            between |= far;
        }
        for other in bits(line.holders & !self.members[group]) {
            losers |= 1 << self.group_of[other];
        }
        let line = &mut self.lines.lines[id as usize];
        line.llcs &= 1 << group;
        for other in bits(losers.into()) {
            if self.llc[other].is_some() {
                self.lines.lines[id as usize].lost_groups |= 1 << other;
                let at = self.lines.group_line(id, other);
                self.close_group(at, Class::FalseSharing);
                self.lines.group_lines[at].foreign = M::default();
            }
        }
        between
    }

    /// Invalidates a core's copies.
    fn lose(&mut self, core: usize, id: u32) {
        let at = self.lines.core_line(id, core);
        let flags = self.lines.core_lines[at].flags;
        self.drop_l1(core, at);
        let exclusive = self.drop_l2(core, id, at);
        self.end_stay(core, id, at);
        let mine = &mut self.lines.core_lines[at];
        mine.foreign = M::default();
        if flags & flag::IN_L1 != 0 {
            mine.flags |= flag::L1_LOST;
        }
        // Two levels that exclude each other lose as one.
        if flags & flag::IN_L2 != 0 || exclusive {
            mine.flags |= flag::L2_LOST;
        }
        let line = &mut self.lines.lines[id as usize];
        line.holders &= !(1 << core);
        line.lost |= 1 << core;
        if line.owner as usize == core {
            line.owner = NOBODY;
        }
    }

    /// Takes a line out of a core's first level, if it is there; whether it was dirty there.
    fn drop_l1(&mut self, core: usize, at: usize) -> bool {
        if self.lines.core_lines[at].flags & flag::IN_L1 == 0 {
            return false;
        }
        let way = self.lines.core_lines[at].way as usize;
        self.flush(core, way);
        while self.l1[core].is_young(way) {
            self.age(core, self.l1[core].oldest_young());
        }
        let l1 = &mut self.l1[core];
        let mine = &mut self.lines.core_lines[at];
        mine.l1_slot = l1.slots[way];
        mine.last = l1.held[way].last;
        mine.last_store = l1.held[way].last_store;
        mine.flags &= !flag::IN_L1;
        l1.clear(way);
        l1.held[way].dirty
    }

    /// Takes a line out of a core's second level, if it is there; whether that level is exclusive.
    fn drop_l2(&mut self, core: usize, id: u32, at: usize) -> bool {
        let Some(l2) = &mut self.l2[core] else {
            return false;
        };
        let mine = &mut self.lines.core_lines[at];
        if mine.flags & flag::IN_L2 != 0 {
            mine.flags &= !flag::IN_L2;
            let place = mine.place;
            let set = l2.array.sets.of(self.lines.number(id));
            l2.array.remove(set, id, place);
        }
        l2.inclusion == Inclusion::Exclusive
    }

    /// Gets a line that a core's private caches do not have.
    pub(super) fn fetch(&mut self, core: usize, id: u32, at: usize, touch: &Touch) -> Fetched {
        let group = self.group_of[core] as usize;
        let me = 1u128 << core;
        let line = self.lines.lines[id as usize];
        let owner = (line.owner != NOBODY).then_some(line.owner as usize);
        let peers = line.holders & self.members[group];
        let in_llc = line.llcs >> group & 1 == 1;
        let dirty_in_llc = in_llc && usize::from(line.dirty_llc) == group;
        let exclusive = self.llc[group]
            .as_ref()
            .is_some_and(|llc| llc.inclusion == Inclusion::Exclusive);

        let supplier = owner.or_else(|| {
            if in_llc || peers == 0 && line.dirty_llc != NOBODY {
                None
            } else if peers != 0 {
                Some(peers.trailing_zeros() as usize)
            } else {
                self.clean_supplier(group, id)
            }
        });
        let served = if let Some(supplier) = supplier {
            self.distance(group, self.group_of[supplier] as usize)
        } else if in_llc {
            Served::Llc
        } else if line.dirty_llc != NOBODY {
            self.distance(group, line.dirty_llc.into())
        } else if line.llcs != 0 && self.shared_supply == SharedSupply::Cache {
            self.distance(group, self.nearest(group, line.llcs))
        } else if self.lines.home(id) == self.node_of[group] {
            Served::LocalDram
        } else {
            Served::RemoteDram
        };
        let supplier = supplier.map(|supplier| self.transfer(supplier, core, id, touch));
        if matches!(
            served,
            Served::Peer | Served::OtherGroup | Served::OtherSocket
        ) {
            self.coherence[usize::from(served == Served::OtherSocket)].supplied += 1;
        }

        // The supplier's bytes are known now: was the line lost for bytes that this access needs?
        let bytes = self.bits_of(touch);
        let mine = &self.lines.core_lines[at];
        let overlaps = line.lost & me != 0 && !(mine.foreign & bytes).is_empty();
        let llc = self.llc[group].is_some().then(|| {
            let class = self.ask_llc(group, id, in_llc || peers != 0);
            if class != Some(Class::FalseSharing) {
                return class;
            }
            let at = self.lines.group_line(id, group);
            let ours = &mut self.lines.group_lines[at];
            if !(ours.foreign & bytes).is_empty() {
                return Some(Class::TrueSharing);
            }
            ours.flags |= flag::L1_OPEN;
            ours.site = touch.counted;
            ours.thread = touch.thread;
            self.lines.lines[id as usize].opened = true;
            class
        });
        if in_llc && exclusive {
            self.take_from_exclusive(group, id);
        }
        {
            let line = &mut self.lines.lines[id as usize];
            line.lost &= !me;
            line.lost_groups &= !(1 << group);
        }

        let (new_state, dirty_for_llc) = if touch.kind.writes() {
            self.invalidate_others(core, id);
            let line = &mut self.lines.lines[id as usize];
            line.owner = core as u8;
            line.state = state::MODIFIED;
            line.dirty_llc = NOBODY;
            (state::MODIFIED, false)
        } else {
            let moved_dirt = exclusive && dirty_in_llc;
            self.share(core, id, moved_dirt)
        };
        self.lines.lines[id as usize].holders |= me;
        if self.llc[group].is_some() && !exclusive {
            if !in_llc {
                self.llc_insert(group, id, dirty_for_llc, false);
            } else if dirty_for_llc {
                self.lines.lines[id as usize].dirty_llc = group as u8;
            }
        }
        Fetched {
            served,
            state: new_state,
            llc,
            supplier,
            overlaps,
        }
    }

    /// Prepares a line for one more reader: the reader's state, and whether the reader's last
    /// level gets dirty data.
    fn share(&mut self, core: usize, id: u32, moved_dirt: bool) -> (u8, bool) {
        let group = self.group_of[core] as usize;
        let line = self.lines.lines[id as usize];
        if line.dirty_llc != NOBODY
            && usize::from(line.dirty_llc) != group
            && self.protocol == Protocol::Mesi
        {
            self.write_backs.to_memory += 1;
            self.lines.lines[id as usize].dirty_llc = NOBODY;
        }
        if line.owner != NOBODY {
            let owner = usize::from(line.owner);
            let moesi = self.protocol == Protocol::Moesi;
            let (owners_state, keeps) = match line.state {
                state::MODIFIED | state::OWNED if moesi => (state::OWNED, true),
                _ => (state::SHARED, false),
            };
            let at = self.lines.core_line(id, owner);
            if self.lines.core_lines[at].flags & flag::IN_L1 != 0 {
                let way = self.lines.core_lines[at].way as usize;
                let held = &mut self.l1[owner].held[way];
                held.state = owners_state;
                held.ready = false;
                held.dirty &= keeps;
            }
            let modified = line.state == state::MODIFIED;
            let line = &mut self.lines.lines[id as usize];
            line.state = owners_state;
            if keeps {
                return (state::SHARED, false);
            }
            line.owner = NOBODY;
            if !modified {
                return (state::SHARED, false);
            }
            let keeps_dirt = self.llc[group]
                .as_ref()
                .is_some_and(|llc| llc.inclusion != Inclusion::Exclusive);
            if keeps_dirt && usize::from(self.group_of[owner]) == group {
                self.write_backs.private_to_llc += 1;
                return (state::SHARED, true);
            }
            self.write_backs.to_memory += 1;
            return (state::SHARED, false);
        }
        let elsewhere = line.holders != 0 || line.llcs & !(1 << group) != 0;
        let new_state = match (moved_dirt, elsewhere) {
            (true, false) => state::MODIFIED,
            (true, true) => state::OWNED,
            (false, false) => state::EXCLUSIVE,
            (false, true) => return (state::SHARED, false),
        };
        let line = &mut self.lines.lines[id as usize];
        line.owner = core as u8;
        line.state = new_state;
        (new_state, false)
    }

    /// A core of another group that supplies a line of which there are clean copies only.
    fn clean_supplier(&self, group: usize, id: u32) -> Option<usize> {
        let line = &self.lines.lines[id as usize];
        if self.shared_supply == SharedSupply::Memory || line.holders == 0 {
            return None;
        }
        let mut groups = line.llcs;
        for holder in bits(line.holders) {
            groups |= 1 << self.group_of[holder];
        }
        let nearest = self.nearest(group, groups);
        let holders = line.holders & self.members[nearest];
        (line.llcs >> nearest & 1 == 0).then(|| holders.trailing_zeros() as usize)
    }

    /// The group nearest to `group` of some others: of its socket, then by number.
    fn nearest(&self, group: usize, groups: u64) -> usize {
        bits(groups.into())
            .min_by_key(|&other| (self.distance(group, other), other))
            .expect("there is a group to choose")
    }

    fn distance(&self, group: usize, other: usize) -> Served {
        if group == other {
            Served::Peer
        } else if self.socket_of[group] == self.socket_of[other] {
            Served::OtherGroup
        } else {
            Served::OtherSocket
        }
    }

    /// Begins the stay of a core that gets a line from another one's private caches. Makes the supplier's writes known.
    fn transfer(&mut self, supplier: usize, core: usize, id: u32, touch: &Touch) -> Party {
        if self.lines.lines[id as usize].detail == NONE {
            let number = self.lines.number(id);
            self.lines.lines[id as usize].detail = self.follow.begin(number);
        }
        let at = self.lines.core_line(id, supplier);
        let theirs = self.lines.core_lines[at];
        let (last, last_store) = if theirs.flags & flag::IN_L1 != 0 {
            self.flush(supplier, theirs.way as usize);
            let held = &self.l1[supplier].held[theirs.way as usize];
            (held.last, held.last_store)
        } else {
            (theirs.last, theirs.last_store)
        };
        let other = if touch.kind.writes() || last_store == NO_INFO {
            last
        } else {
            last_store
        };
        let stored = self.lines.core_lines[at].stored;
        let common = stored & self.bits_of(touch);
        let from = Info::supplier(supplier, other, touch.info(), common, self.granule);
        if self.lines.lines[id as usize].stays == NONE {
            let number = self.lines.number(id);
            self.lines.lines[id as usize].stays = self.stays.begin(number, supplier, stored);
        }
        let fetch = Fetch {
            from: Some(from),
            to: touch.info(),
            is_sharing_miss: false,
        };
        self.stays
            .open(self.lines.lines[id as usize].stays, core, &fetch);
        from
    }

    /// Counts the transfers that were decided, and tells of them.
    #[inline]
    pub(super) fn count_moves(&mut self, moved: &mut impl FnMut(&Transfer)) {
        while let Some(verdict) = self.stays.next_verdict() {
            let Some(transfer) = verdict.transfer(self.line_shift) else {
                continue;
            };
            let (from, to, is_true) = (&transfer.from, &transfer.to, transfer.is_true);
            self.core_transfers.add(from.core, to.core, is_true);
            self.thread_transfers.add(from.thread, to.thread, is_true);
            let number = transfer.line >> self.line_shift;
            // The line moved, so that it has a block.
            let id = self.lines.id(number, 0);
            let detail = self.lines.lines[id as usize].detail;
            self.follow.transfer(detail, from.site, to.site, is_true);
            moved(&transfer);
        }
    }

    /// Asks a group's last level for a line; why the group misses, `None` if it hits. Sharing is
    /// not told apart yet.
    pub(super) fn ask_llc(&mut self, group: usize, id: u32, hits: bool) -> Option<Class> {
        let at = self.lines.group_line(id, group);
        let ours = &self.lines.group_lines[at];
        let (slot, place, flags) = (ours.slot, ours.place, ours.flags);
        let llc = self.llc[group].as_mut()?;
        let in_window = llc.window.holds(slot);
        if llc.inclusion == Inclusion::Exclusive {
            llc.window.remove(slot);
            self.lines.group_lines[at].slot = 0;
        } else {
            if self.lines.lines[id as usize].llcs >> group & 1 == 1 {
                let set = llc.array.sets.of(self.lines.number(id));
                llc.array.touch(set, id, place);
            }
            self.touch_llc_window(group, id, at);
        }
        self.lines.group_lines[at].flags |= flag::TOUCHED;
        if hits {
            return None;
        }
        let lost = self.lines.lines[id as usize].lost_groups >> group & 1 == 1;
        Some(class(flags & flag::TOUCHED != 0, lost, in_window))
    }

    /// Takes a line out of an exclusive last level for a core that fetches it.
    fn take_from_exclusive(&mut self, group: usize, id: u32) {
        let Some(llc) = &mut self.llc[group] else {
            return;
        };
        let at = self.lines.group_line(id, group);
        let set = llc.array.sets.of(self.lines.number(id));
        llc.array.remove(set, id, self.lines.group_lines[at].place);
        let line = &mut self.lines.lines[id as usize];
        line.llcs &= !(1 << group);
        if usize::from(line.dirty_llc) == group {
            line.dirty_llc = NOBODY;
        }
    }

    /// Puts a line into a group's last level, which does not have it. A victim from a private
    /// cache is noted in the window; for a fetched line [`ask_llc`](Self::ask_llc) has done so.
    pub(super) fn llc_insert(&mut self, group: usize, id: u32, dirty: bool, victim: bool) {
        let at = self.lines.group_line(id, group);
        if victim {
            self.touch_llc_window(group, id, at);
        }
        let Some(llc) = &mut self.llc[group] else {
            return;
        };
        let set = llc.array.sets.of(self.lines.number(id));
        let (place, evicted) = llc.array.insert(set, id);
        self.lines.group_lines[at].place = place;
        let line = &mut self.lines.lines[id as usize];
        line.llcs |= 1 << group;
        if dirty {
            line.dirty_llc = group as u8;
        }
        if let Some(evicted) = evicted {
            self.sets[2][set].evictions += 1;
            self.llc_evict(group, evicted);
        }
    }

    fn llc_evict(&mut self, group: usize, id: u32) {
        let inclusive = self.llc[group]
            .as_ref()
            .is_some_and(|llc| llc.inclusion == Inclusion::Inclusive);
        let line = &mut self.lines.lines[id as usize];
        line.llcs &= !(1 << group);
        let mut dirty = usize::from(line.dirty_llc) == group;
        if dirty {
            line.dirty_llc = NOBODY;
        }
        let holders = line.holders & self.members[group];
        if inclusive {
            for core in bits(holders) {
                self.back_invalidations += 1;
                let at = self.lines.core_line(id, core);
                self.drop_l1(core, at);
                self.drop_l2(core, id, at);
                self.end_stay(core, id, at);
                let line = &mut self.lines.lines[id as usize];
                line.holders &= !(1 << core);
                if usize::from(line.owner) == core {
                    dirty |= line.state != state::EXCLUSIVE;
                    line.owner = NOBODY;
                }
            }
        }
        self.write_backs.to_memory += u64::from(dirty);
        self.close_group_if_gone(group, id);
    }

    /// Brings a line into a core's private caches; the first-level way, which is empty now.
    pub(super) fn fill(
        &mut self,
        core: usize,
        set: usize,
        id: u32,
        at: usize,
        in_l2: bool,
    ) -> usize {
        self.in_flight = (id, false);
        match self.l2[core].as_ref().map(|l2| l2.inclusion) {
            Some(Inclusion::Inclusive) => {
                if !in_l2 {
                    self.l2_insert(core, id, at);
                }
                self.make_room(core, set)
            }
            Some(Inclusion::NonInclusive) => {
                let way = self.make_room(core, set);
                if !in_l2 {
                    self.l2_insert(core, id, at);
                }
                way
            }
            Some(Inclusion::Exclusive) | None => self.make_room(core, set),
        }
    }

    /// Empties a way of a first-level set.
    fn make_room(&mut self, core: usize, set: usize) -> usize {
        let way = self.l1[core].choose(set);
        if self.l1[core].tags[way] == super::l1::EMPTY {
            return way;
        }
        self.sets[0][set].evictions += 1;
        let id = self.l1[core].held[way].id;
        let at = self.lines.core_line(id, core);
        let dirty = self.drop_l1(core, at);
        let in_l2 = self.lines.core_lines[at].flags & flag::IN_L2 != 0;
        match self.l2[core].as_ref().map(|l2| l2.inclusion) {
            None => self.leave(core, id, at),
            Some(Inclusion::Exclusive) => {
                self.write_backs.l1_to_l2 += u64::from(dirty);
                self.touch_l2_window(core, id, at);
                self.l2_insert(core, id, at);
            }
            Some(Inclusion::NonInclusive) if !in_l2 && dirty && self.victims_allocate => {
                self.write_backs.l1_to_l2 += 1;
                self.touch_l2_window(core, id, at);
                self.l2_insert(core, id, at);
            }
            Some(_) if in_l2 => self.write_backs.l1_to_l2 += u64::from(dirty),
            Some(_) => self.leave(core, id, at),
        }
        way
    }

    /// Puts a line into a core's second level, which does not have it.
    fn l2_insert(&mut self, core: usize, id: u32, at: usize) {
        let Some(l2) = &mut self.l2[core] else {
            return;
        };
        let set = l2.array.sets.of(self.lines.number(id));
        let (place, evicted) = l2.array.insert(set, id);
        let mine = &mut self.lines.core_lines[at];
        mine.flags |= flag::IN_L2;
        mine.place = place;
        let Some(evicted) = evicted else { return };
        self.sets[1][set].evictions += 1;
        let inclusion = l2.inclusion;
        let at = self.lines.core_line(evicted, core);
        let mine = &mut self.lines.core_lines[at];
        mine.flags &= !flag::IN_L2;
        let (in_l1, way) = (mine.flags & flag::IN_L1 != 0, mine.way as usize);
        let line = &self.lines.lines[evicted as usize];
        let dirty =
            usize::from(line.owner) == core && matches!(line.state, state::MODIFIED | state::OWNED);
        if inclusion == Inclusion::NonInclusive && (in_l1 || evicted == self.in_flight.0) {
            // The first level's copy stands for this one too.
            if in_l1 {
                self.l1[core].held[way].dirty |= dirty;
            } else {
                self.in_flight.1 = dirty;
            }
            return;
        }
        if in_l1 {
            self.back_invalidations += 1;
            self.drop_l1(core, at);
        }
        self.leave(core, evicted, at);
    }

    /// A line has left a core's private caches by eviction.
    fn leave(&mut self, core: usize, id: u32, at: usize) {
        self.end_stay(core, id, at);
        let group = self.group_of[core] as usize;
        let line = &mut self.lines.lines[id as usize];
        line.holders &= !(1 << core);
        let mut dirty = false;
        if usize::from(line.owner) == core {
            dirty = line.state != state::EXCLUSIVE;
            line.owner = NOBODY;
        }
        let in_llc = line.llcs >> group & 1 == 1;
        let peers = line.holders & self.members[group] != 0;
        match self.llc[group].as_ref().map(|llc| llc.inclusion) {
            Some(Inclusion::Exclusive) if !peers => {
                self.write_backs.private_to_llc += u64::from(dirty);
                self.llc_insert(group, id, dirty, true);
            }
            Some(Inclusion::Inclusive | Inclusion::NonInclusive) if dirty && in_llc => {
                self.write_backs.private_to_llc += 1;
                line.dirty_llc = group as u8;
            }
            Some(Inclusion::NonInclusive) if dirty && self.victims_allocate => {
                self.write_backs.private_to_llc += 1;
                self.llc_insert(group, id, true, true);
            }
            _ => self.write_backs.to_memory += u64::from(dirty),
        }
        self.close_group_if_gone(group, id);
    }

    /// Notes an access in a second level's window.
    pub(super) fn touch_l2_window(&mut self, core: usize, id: u32, at: usize) {
        let Some(l2) = &mut self.l2[core] else {
            return;
        };
        if l2.window.is_full() {
            let lines = &mut self.lines;
            l2.window.compact(|id, slot| {
                let at = lines.core_line(id, core);
                lines.core_lines[at].l2_slot = slot;
            });
        }
        let mine = &mut self.lines.core_lines[at];
        mine.l2_slot = l2.window.touch(mine.l2_slot, id);
    }

    /// Notes an access in a last level's window.
    fn touch_llc_window(&mut self, group: usize, id: u32, at: usize) {
        let Some(llc) = &mut self.llc[group] else {
            return;
        };
        if llc.window.is_full() {
            let lines = &mut self.lines;
            llc.window.compact(|id, slot| {
                let at = lines.group_line(id, group);
                lines.group_lines[at].slot = slot;
            });
        }
        let ours = &mut self.lines.group_lines[at];
        ours.slot = llc.window.touch(ours.slot, id);
    }

    /// The line in a young way of the first level goes to its window.
    pub(super) fn age(&mut self, core: usize, way: usize) {
        if self.l1[core].window.is_full() {
            self.compact_l1(core);
        }
        self.l1[core].age(way);
    }

    /// Makes room in a first level's window.
    fn compact_l1(&mut self, core: usize) {
        let lines = &mut self.lines;
        let l1 = &mut self.l1[core];
        let slots = &mut l1.slots;
        l1.window.compact(|id, slot| {
            let at = lines.core_line(id, core);
            let mine = &mut lines.core_lines[at];
            mine.l1_slot = slot;
            if mine.flags & flag::IN_L1 != 0 {
                slots[mine.way as usize] = slot;
            }
        });
    }
}

/// The numbers of the bits that are set.
fn bits(mut set: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if set == 0 {
            return None;
        }
        let lowest = set.trailing_zeros() as usize;
        set &= set - 1;
        Some(lowest)
    })
}
