//! What threads say that they work for: sessions and phases.
//!
//! A mark is one clock read and one record. It waits for nothing: an event loop marks each switch of connections.

use linewise_heap::{MarkCode, RING_WORDS, key_of_bytes, stamp};

use crate::recorder::{LONGEST, with_ring, write_label};
use crate::shared::{region, told};

/// Words of a ring that marks leave to the records of blocks.
const ROOM: usize = RING_WORDS / 8;

/// One mark of so many is timed, and stands for the others in the account: to time one takes half as long as to tell it.
const TIMED: u32 = 64;

/// The calling thread says what it works for from now on.
pub(crate) fn marked(code: MarkCode, id: u64, label: &[u8]) {
    if told().is_none() {
        return;
    }
    let when = stamp();
    let told = with_ring(|region, thread, writer| {
        let key = match label {
            [] => 0,
            _ => key_of_bytes(label),
        };
        // Where there is no room for the name the mark is lost, too.
        if key != 0 && !region.is_known(key) && writer.room(region) >= ROOM {
            write_label(region, writer, label);
        }
        writer.mark(region, ROOM, code, [when, id, key]);
        thread.marks = thread.marks.wrapping_add(1);
        if thread.marks.is_multiple_of(TIMED) {
            let ticks = stamp().wrapping_sub(when).min(LONGEST);
            writer.spend(region, ticks * u64::from(TIMED));
        }
    });
    if !told {
        region().lose_mark();
    }
}
