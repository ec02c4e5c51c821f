//! What stands in a trace, and who takes it.

use std::io;

use linewise_cache::{Access, Kind};
use linewise_recording::{Map, Pid};
use linewise_tracer::words::EventKind;

use crate::calls::CallKind;

/// Bits of an address that are the guest's own; those above are the number of the address space.
pub const GUEST_BITS: u32 = 48;

/// The number of an image, in its place in an address.
#[must_use]
pub fn space_of(image: u32) -> u64 {
    u64::from(image.min(u32::from(u16::MAX))) << GUEST_BITS
}

/// One access of the target, in its place among all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedAccess {
    /// First byte: the guest's address in the low 48 bits, above them the number of the address
    /// space (0 for the launched program; a new one for each fork and exec), so that equal addresses
    /// of different processes are different lines. Of memory that processes share it is its
    /// [home](linewise_recording::SharedMemory::home): the address that it has where it was first mapped.
    pub address: u64,
    /// CLOCK_MONOTONIC ns, never decreasing. Taken once for up to sixteen accesses.
    pub time_ns: u64,
    /// Index in [`TraceTables::instructions`](crate::TraceTables::instructions).
    pub site: u32,
    /// Accesses of the thread right before this one that are not told, since no other thread touched their lines.
    pub before: u32,
    /// Bytes, at least 1; may reach into the next line.
    pub size: u16,
    /// Index in [`TraceTables::threads`](crate::TraceTables::threads).
    pub thread: u16,
    /// What it does.
    pub kind: Kind,
    /// It orders threads: atomic, acquiring or releasing.
    pub orders: bool,
}

impl TracedAccess {
    /// As the cache algorithms take it.
    #[inline]
    #[must_use]
    pub fn access(&self) -> Access {
        Access {
            address: self.address,
            size: self.size,
            kind: self.kind,
            thread: self.thread,
            site: self.site,
        }
    }

    /// The address as the guest sees it.
    #[inline]
    #[must_use]
    pub fn guest_address(&self) -> u64 {
        self.address & ((1 << GUEST_BITS) - 1)
    }
}

/// Something else that a thread did, in its place among the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedEvent {
    /// The thread.
    pub thread: u16,
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// What.
    pub kind: EventKind,
    /// See [`EventKind`]; addresses as in [`TracedAccess::address`].
    pub a: u64,
    /// See [`EventKind`].
    pub b: u64,
}

impl TracedEvent {
    /// An event as a ring has it; `place` makes an address of the guest's what it is in [`TracedAccess::address`].
    #[cold]
    pub fn of(
        kind: EventKind,
        a: u64,
        b: u64,
        thread: u16,
        time_ns: u64,
        place: impl Fn(u64) -> u64,
    ) -> Self {
        let a = match kind {
            EventKind::FutexWaits | EventKind::FutexWakes => place(a),
            EventKind::Creates if a != 0 => place(a),
            _ => a,
        };
        Self {
            thread,
            time_ns,
            kind,
            a,
            b,
        }
    }
}

/// A record of the heap recorder, in its place among the accesses of a thread.
#[derive(Clone, Copy, Debug)]
pub struct HeapRecord<'a> {
    /// The thread.
    pub thread: u16,
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// Number of the thread's address space, and of the one that this was forked from or the same.
    pub spaces: (u16, u16),
    /// The process.
    pub pid: Pid,
    /// What `linewise_heap::Record` takes apart; stamps are 0.
    pub words: &'a [u64],
    /// What all processes have mapped so far.
    pub maps: &'a [Map],
}

/// What a thread did to a line while no other touched it, and its accesses were
/// not told; told when another comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The thread.
    pub thread: u16,
    /// Others had the line before it.
    pub again: bool,
    /// The last load, and store or update, each if there was one.
    pub load: Option<TracedAccess>,
    /// See `load`.
    pub store: Option<TracedAccess>,
    /// The last access was the load.
    pub load_is_last: bool,
    /// Address of the line's first byte.
    pub line: u64,
    /// The bytes of the line that were loaded and those that were stored to, a bit for each, as far as the last load and store do not
    /// tell; next to bytes of theirs they are told by fours.
    pub more: [u64; 2],
}

/// Who takes the accesses, while the target runs.
///
/// The order is one that could have been: each thread's accesses in its own order, and between
/// threads by time stamp. The stamp is taken beside the access, not together with it, so accesses of
/// different threads that are less than about a microsecond apart may stand in the wrong order.
pub trait Consumer {
    /// Makes what it needs beside itself, threads above all: the target has not begun yet, and does not if this fails.
    ///
    /// # Errors
    /// The kernel's, if there are no more threads or there is no memory for them.
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Takes the next accesses.
    fn accesses(&mut self, batch: &[TracedAccess]);

    /// Takes an event that lies between the accesses before and those to come.
    fn event(&mut self, event: &TracedEvent) {
        let _ = event;
    }

    /// Takes what the heap recorder told, if it was loaded.
    fn heap(&mut self, told: &HeapRecord<'_>) {
        let _ = told;
    }

    /// Takes what a thread did to a line that another touches next.
    fn handover(&mut self, handover: &Handover) {
        let _ = handover;
    }

    /// Takes the instruction and kind of one of about 128 accesses that are not told.
    fn sampled(&mut self, site: u32, kind: Kind) {
        let _ = (site, kind);
    }

    /// Takes what further instructions do to the stack of calls, in the order of their numbers: those
    /// of accesses to come. All do [neither](CallKind::Neither) where that cannot be seen.
    fn calls(&mut self, kinds: &[CallKind]) {
        let _ = kinds;
    }

    /// There will be no more.
    fn finish(&mut self) {}
}

impl<C: Consumer + ?Sized> Consumer for &mut C {
    fn begin(&mut self) -> io::Result<()> {
        (**self).begin()
    }

    fn accesses(&mut self, batch: &[TracedAccess]) {
        (**self).accesses(batch);
    }

    fn event(&mut self, event: &TracedEvent) {
        (**self).event(event);
    }

    fn heap(&mut self, told: &HeapRecord<'_>) {
        (**self).heap(told);
    }

    fn handover(&mut self, handover: &Handover) {
        (**self).handover(handover);
    }

    fn sampled(&mut self, site: u32, kind: Kind) {
        (**self).sampled(site, kind);
    }

    fn calls(&mut self, kinds: &[CallKind]) {
        (**self).calls(kinds);
    }

    fn finish(&mut self) {
        (**self).finish();
    }
}

/// One that may be there.
impl<C: Consumer> Consumer for Option<C> {
    fn begin(&mut self) -> io::Result<()> {
        self.as_mut().map_or(Ok(()), Consumer::begin)
    }

    fn accesses(&mut self, batch: &[TracedAccess]) {
        if let Some(consumer) = self {
            consumer.accesses(batch);
        }
    }

    fn event(&mut self, event: &TracedEvent) {
        if let Some(consumer) = self {
            consumer.event(event);
        }
    }

    fn heap(&mut self, told: &HeapRecord<'_>) {
        if let Some(consumer) = self {
            consumer.heap(told);
        }
    }

    fn handover(&mut self, handover: &Handover) {
        if let Some(consumer) = self {
            consumer.handover(handover);
        }
    }

    fn sampled(&mut self, site: u32, kind: Kind) {
        if let Some(consumer) = self {
            consumer.sampled(site, kind);
        }
    }

    fn calls(&mut self, kinds: &[CallKind]) {
        if let Some(consumer) = self {
            consumer.calls(kinds);
        }
    }

    fn finish(&mut self) {
        if let Some(consumer) = self {
            consumer.finish();
        }
    }
}

/// Two consumers that both see everything.
#[derive(Clone, Debug, Default)]
pub struct Both<A, B>(pub A, pub B);

impl<A: Consumer, B: Consumer> Consumer for Both<A, B> {
    fn begin(&mut self) -> io::Result<()> {
        self.0.begin()?;
        self.1.begin()
    }

    fn accesses(&mut self, batch: &[TracedAccess]) {
        self.0.accesses(batch);
        self.1.accesses(batch);
    }

    fn event(&mut self, event: &TracedEvent) {
        self.0.event(event);
        self.1.event(event);
    }

    fn heap(&mut self, told: &HeapRecord<'_>) {
        self.0.heap(told);
        self.1.heap(told);
    }

    fn handover(&mut self, handover: &Handover) {
        self.0.handover(handover);
        self.1.handover(handover);
    }

    fn sampled(&mut self, site: u32, kind: Kind) {
        self.0.sampled(site, kind);
        self.1.sampled(site, kind);
    }

    fn calls(&mut self, kinds: &[CallKind]) {
        self.0.calls(kinds);
        self.1.calls(kinds);
    }

    fn finish(&mut self) {
        self.0.finish();
        self.1.finish();
    }
}
