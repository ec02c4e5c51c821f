//! A ring: one writer, a thread of the target, and one reader, the collector.

use core::sync::atomic::Ordering;

use crate::record::{AllocatorCode, MarkCode, RecordKind, header, length};
use crate::region::Region;
use crate::ring_header::{RING_WORDS, RINGS, RingHeader};

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const OPEN: u32 = 2;
const CLOSED: u32 = 3;

/// Whose ring it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingIds {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The process's number: another one after each fork and exec.
    pub image: u32,
    /// The number of the process that it was forked from; its own if it began with exec.
    pub parent: u32,
}

/// Whether more can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingState {
    /// Nobody uses it.
    Free,
    /// Somebody writes.
    Open,
    /// Its writer is done.
    Closed,
}

/// The writer's end. Its thread alone uses it, and not from a signal handler that interrupts it.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    index: u32,
}

impl Writer {
    /// Takes a free ring; `None` if all are in use. Where it `may_map` those that nobody used before are mapped, by
    /// system calls.
    #[must_use]
    pub fn claim(
        region: &Region,
        ids: RingIds,
        layout: u32,
        opened: u64,
        may_map: bool,
    ) -> Option<Self> {
        // Threads begin to look at different places, and among those that were used before: the collector looks at
        // all of them in every round.
        let used = region.header().rings_used.load(Ordering::Acquire) as usize;
        let used = used.min(RINGS);
        let first = ids.tid as usize;
        let again = (0..used).map(|step| first.wrapping_add(step) % used);
        for index in again.chain(used..RINGS) {
            let ring = region.ring_header(index);
            let is_mapped =
                || region.ring_words(index).is_some() || may_map && region.map_ring(index);
            if ring.state.load(Ordering::Relaxed) != FREE
                || !is_mapped()
                || ring
                    .state
                    .compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            ring.pid.store(ids.pid, Ordering::Relaxed);
            ring.tid.store(ids.tid, Ordering::Relaxed);
            ring.image.store(ids.image, Ordering::Relaxed);
            ring.parent.store(ids.parent, Ordering::Relaxed);
            ring.layout.store(layout, Ordering::Relaxed);
            ring.opened.store(opened, Ordering::Relaxed);
            ring.spent.store(0, Ordering::Relaxed);
            ring.lost.store(0, Ordering::Relaxed);
            ring.lost_marks.store(0, Ordering::Relaxed);
            ring.lost_marks_since.store(0, Ordering::Relaxed);
            ring.head.store(0, Ordering::Relaxed);
            ring.tail.store(0, Ordering::Relaxed);
            ring.state.store(OPEN, Ordering::Release);
            region
                .header()
                .rings_used
                .fetch_max(index as u32 + 1, Ordering::AcqRel);
            return Some(Self {
                index: index as u32,
            });
        }
        None
    }

    /// Words that can be written now.
    #[must_use]
    pub fn room(self, region: &Region) -> usize {
        let ring = region.ring_header(self.index as usize);
        let used = ring
            .head
            .load(Ordering::Relaxed)
            .wrapping_sub(ring.tail.load(Ordering::Acquire));
        RING_WORDS.saturating_sub(used as usize)
    }

    /// Writes a record of the parts of `payload`, one after the other; false if there is no room.
    pub fn write(
        self,
        region: &Region,
        (kind, allocator, upper): (RecordKind, AllocatorCode, u32),
        payload: &[&[u64]],
    ) -> bool {
        let words = 1 + payload.iter().map(|part| part.len()).sum::<usize>();
        if words > 255 || self.room(region) < words {
            return false;
        }
        let ring = region.ring_header(self.index as usize);
        let Some(data) = region.ring_words(self.index as usize) else {
            return false;
        };
        let mut head = ring.head.load(Ordering::Relaxed);
        let mut put = |word: u64| {
            if let Some(place) = data.get(head as usize % RING_WORDS) {
                place.store(word, Ordering::Relaxed);
            }
            head = head.wrapping_add(1);
        };
        put(header(kind, words, allocator, upper));
        for part in payload {
            for &word in *part {
                put(word);
            }
        }
        ring.head.store(head, Ordering::Release);
        true
    }

    /// Writes a mark, or counts it where `room` words of the ring are not free beside it. Once there is room again it is
    /// told first since when nothing is known.
    pub fn mark(self, region: &Region, room: usize, code: MarkCode, mark: [u64; 3]) {
        const WORDS: usize = 4;
        let ring = region.ring_header(self.index as usize);
        let since = ring.lost_marks_since.load(Ordering::Relaxed);
        let header = |code| (RecordKind::Mark, AllocatorCode::Malloc, code as u32);
        let told = self.room(region) >= room + 2 * WORDS
            && (since == 0 || self.write(region, header(MarkCode::Lost), &[&[since, 0, 0]]))
            && self.write(region, header(code), &[&mark]);
        if told {
            if since != 0 {
                ring.lost_marks_since.store(0, Ordering::Relaxed);
            }
            return;
        }
        if since == 0 {
            let [stamp, ..] = mark;
            ring.lost_marks_since.store(stamp, Ordering::Relaxed);
        }
        let lost = ring.lost_marks.load(Ordering::Relaxed);
        ring.lost_marks
            .store(lost.wrapping_add(1), Ordering::Relaxed);
    }

    /// Adds to the ticks that the thread spent here, and takes them from the allowance.
    pub fn spend(self, region: &Region, ticks: u64) {
        let spent = &region.ring_header(self.index as usize).spent;
        spent.store(
            spent.load(Ordering::Relaxed).wrapping_add(ticks),
            Ordering::Relaxed,
        );
        region.take(ticks);
    }

    /// Counts a record that there was no room for.
    pub fn lose(self, region: &Region) {
        let lost = &region.ring_header(self.index as usize).lost;
        lost.store(
            lost.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    /// Whether the ring is still the one that this thread claimed.
    #[must_use]
    pub fn is_of(self, region: &Region, ids: (u32, u32)) -> bool {
        let ring = region.ring_header(self.index as usize);
        ring.state.load(Ordering::Relaxed) == OPEN
            && (
                ring.tid.load(Ordering::Relaxed),
                ring.image.load(Ordering::Relaxed),
            ) == ids
    }

    /// Its number, below [`RINGS`].
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// The code that the thread's process has loaded is another set from here on.
    pub fn set_layout(self, region: &Region, layout: u32) {
        region
            .ring_header(self.index as usize)
            .layout
            .store(layout, Ordering::Relaxed);
    }

    /// No more will come.
    pub fn close(self, region: &Region) {
        region
            .ring_header(self.index as usize)
            .state
            .store(CLOSED, Ordering::Release);
    }
}

/// The reader's end.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    region: &'a Region,
    index: usize,
}

impl Region {
    /// The rings that have ever been in use.
    pub fn rings(&self) -> impl Iterator<Item = Ring<'_>> {
        let used = self.header().rings_used.load(Ordering::Acquire) as usize;
        (0..used.min(RINGS)).map(move |index| Ring {
            region: self,
            index,
        })
    }
}

impl Ring<'_> {
    fn header(&self) -> &RingHeader {
        self.region.ring_header(self.index)
    }

    /// Its number, below [`RINGS`].
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whether more can come.
    #[must_use]
    pub fn state(&self) -> RingState {
        match self.header().state.load(Ordering::Acquire) {
            OPEN => RingState::Open,
            CLOSED => RingState::Closed,
            _ => RingState::Free,
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn ids(&self) -> RingIds {
        let header = self.header();
        RingIds {
            pid: header.pid.load(Ordering::Relaxed),
            tid: header.tid.load(Ordering::Relaxed),
            image: header.image.load(Ordering::Relaxed),
            parent: header.parent.load(Ordering::Relaxed),
        }
    }

    /// The set of loaded code that its stacks are of.
    #[must_use]
    pub fn layout(&self) -> u32 {
        self.header().layout.load(Ordering::Relaxed)
    }

    /// The stamp when it was opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.header().opened.load(Ordering::Relaxed)
    }

    /// Ticks that the writer's thread has spent in the recorder.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.header().spent.load(Ordering::Relaxed)
    }

    /// Records that its writer had no room for.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.header().lost.load(Ordering::Relaxed)
    }

    /// Marks that its writer had no room for.
    #[must_use]
    pub fn lost_marks(&self) -> u64 {
        self.header().lost_marks.load(Ordering::Relaxed)
    }

    /// The stamp of the first mark that was lost since one was written.
    #[must_use]
    pub fn lost_marks_since(&self) -> Option<u64> {
        let since = self.header().lost_marks_since.load(Ordering::Relaxed);
        (since != 0).then_some(since)
    }

    /// Hands out the words of each whole record that was written until now, wipes what they showed of the stack, and
    /// frees their room. The number of records; what makes no sense ends the ring's contents, and is the error.
    ///
    /// # Errors
    /// Words that are no record: the target wrote over the memory.
    pub fn drain(&self, mut each: impl FnMut(&[u64])) -> Result<usize, Malformed> {
        let ring = self.header();
        if !self.region.map_ring(self.index) {
            return Ok(0);
        }
        let data = self.region.ring_words(self.index).ok_or(Malformed)?;
        let head = ring.head.load(Ordering::Acquire);
        let mut tail = ring.tail.load(Ordering::Relaxed);
        let mut words = [0_u64; 255];
        let mut records = 0;
        while tail != head {
            let left = head.wrapping_sub(tail);
            let first = data[tail as usize % RING_WORDS].load(Ordering::Relaxed);
            let count = length(first);
            if left > RING_WORDS as u64 || count == 0 || count as u64 > left {
                ring.tail.store(head, Ordering::Release);
                return Err(Malformed);
            }
            for (place, word) in words[..count].iter_mut().enumerate() {
                let at = tail.wrapping_add(place as u64) as usize % RING_WORDS;
                *word = data[at].load(Ordering::Relaxed);
            }
            if first as u8 == RecordKind::Slice as u8 {
                // A child of another user shares this memory.
                for place in 0..count {
                    let at = tail.wrapping_add(place as u64) as usize % RING_WORDS;
                    data[at].store(0, Ordering::Relaxed);
                }
            }
            each(&words[..count]);
            records += 1;
            tail = tail.wrapping_add(count as u64);
            // A writer that waits for room should not wait for the whole round.
            ring.tail.store(tail, Ordering::Release);
        }
        Ok(records)
    }

    /// Its writer is gone.
    pub fn close(&self) {
        self.header().state.store(CLOSED, Ordering::Release);
    }

    /// Gives back a ring whose writer is done or gone.
    pub fn recycle(&self) {
        self.header().state.store(FREE, Ordering::Release);
    }
}

/// Words in a ring that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    const FREE_RECORD: (RecordKind, AllocatorCode, u32) =
        (RecordKind::Free, AllocatorCode::Malloc, 0);

    fn ring(region: &Region) -> Writer {
        let ids = RingIds {
            pid: 1,
            tid: 5,
            image: 1,
            parent: 1,
        };
        Writer::claim(region, ids, 1, 0, true).unwrap()
    }

    #[test]
    fn records_come_out_as_they_went_in_over_many_laps() {
        let region = Region::create().unwrap();
        let writer = ring(&region);
        let reader = region.rings().last().unwrap();
        assert_eq!(reader.ids().tid, 5);
        let mut expected = 0;
        for lap in 0..50_u64 {
            for place in 0..3_000 {
                assert!(writer.write(&region, FREE_RECORD, &[&[lap, place]]));
            }
            reader
                .drain(|words| {
                    let (lap, place) = (expected / 3_000, expected % 3_000);
                    assert!(matches!(
                        Record::parse(words),
                        Some(Record::Free { stamp, address, .. }) if (stamp, address) == (lap, place)
                    ));
                    expected += 1;
                })
                .unwrap();
        }
        assert_eq!(expected, 150_000);
    }

    #[test]
    fn a_full_ring_takes_nothing_and_a_damaged_one_is_emptied() {
        let region = Region::create().unwrap();
        let writer = ring(&region);
        let mut written = 0;
        while writer.write(&region, FREE_RECORD, &[&[1, 2]]) {
            written += 1;
        }
        assert_eq!(written, RING_WORDS / 3);
        let reader = region.rings().last().unwrap();
        assert_eq!(reader.drain(|_| ()), Ok(written));
        assert!(writer.write(&region, FREE_RECORD, &[&[1, 2]]));
        for word in region.ring_words(reader.index()).unwrap() {
            word.store(0, Ordering::Relaxed);
        }
        assert_eq!(reader.drain(|_| ()), Err(Malformed));
        assert_eq!(reader.drain(|_| ()), Ok(0));
    }

    #[test]
    fn marks_without_room_are_counted_and_what_is_not_known_is_told_first() {
        let region = Region::create().unwrap();
        let writer = ring(&region);
        let mark = |stamp| writer.mark(&region, 1000, MarkCode::Session, [stamp, 7, 0]);
        let count = RING_WORDS as u64;
        (1..=count).for_each(mark);
        let reader = region.rings().last().unwrap();
        assert!(writer.room(&region) >= 1000);
        let mut told = 0;
        reader.drain(|_| told += 1).unwrap();
        assert_eq!(told + reader.lost_marks(), count);
        assert_eq!(reader.lost_marks_since(), Some(told + 1));
        assert_eq!(reader.lost(), 0);
        mark(count + 1);
        let mut codes = Vec::new();
        let mut keep = |words: &[u64]| match Record::parse(words) {
            Some(Record::Mark { code, stamp, .. }) => codes.push((code, stamp)),
            other => panic!("{other:?}"),
        };
        reader.drain(&mut keep).unwrap();
        let expected = [(MarkCode::Lost, told + 1), (MarkCode::Session, count + 1)];
        assert_eq!(codes, expected);
        assert_eq!(reader.lost_marks_since(), None);
    }

    #[test]
    fn what_was_read_of_a_stack_is_gone_from_the_memory() {
        let region = Region::create().unwrap();
        let writer = ring(&region);
        let secret = [0x5ec2e7; 100];
        let header = (RecordKind::Slice, AllocatorCode::Malloc, 0);
        assert!(writer.write(&region, header, &[&[1, 2, 3, 4], &secret]));
        let holds = || {
            let words = region.ring_words(0).unwrap();
            words
                .iter()
                .any(|it| it.load(Ordering::Relaxed) == secret[0])
        };
        assert!(holds());
        let reader = region.rings().last().unwrap();
        let mut read = 0;
        assert_eq!(reader.drain(|words| read = words.len()), Ok(1));
        assert_eq!(read, 105);
        assert!(!holds());
    }

    #[test]
    fn a_ring_is_somebody_elses_after_it_was_given_back() {
        let region = Region::create().unwrap();
        let writer = ring(&region);
        writer.close(&region);
        let reader = region.rings().last().unwrap();
        assert_eq!(reader.state(), RingState::Closed);
        reader.recycle();
        assert_eq!(reader.state(), RingState::Free);
        assert_eq!(ring(&region).index, writer.index);
    }
}
