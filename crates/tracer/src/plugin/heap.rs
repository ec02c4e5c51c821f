//! What the heap recorder in the guest tells: the marker that it executes, and the stacks behind it.
//!
//! The recorder's record lies in the guest's memory, where the marker stored; it is copied by a system call,
//! so that nothing a program does can make this read what is not there. The stack is walked here, at the
//! machine's own speed, by rules that the collector fills in; where one is missing the collector gets a slice
//! of the stack and gives the rules.

use std::ffi::{CString, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use linewise_heap::{
    AllocatorCode, Cursor, MAGIC, MARKER, Note, RecordKind, Region, SLICE_WORDS, Traced,
    TracedKind, Walked, header, key_of_bytes,
};

use super::{process, writer};

/// Bytes of a name, at most.
const LABEL_BYTES: usize = 128;
/// Words from a hook's frame on: the frame pointer, the return address, and the caller's stack.
const FRAME_WORDS: usize = 2 + SLICE_WORDS;
/// Words of the longest record: a slice behind all frames.
const LONGEST: usize = 5 + linewise_heap::MOST_FRAMES + SLICE_WORDS;

/// The memory with the rules, if the heap is told of.
static REGION: OnceLock<Region> = OnceLock::new();
/// The recorder's returns are told: calls are followed.
static RETURNS: AtomicBool = AtomicBool::new(false);
/// The set of loaded code. A child of fork has that of its parent.
static LAYOUT: AtomicU32 = AtomicU32::new(0);
/// Numbers slices.
static SERIAL: AtomicU32 = AtomicU32::new(0);

/// Opens the memory with the rules.
///
/// # Errors
/// What cannot be done, in a sentence.
pub(super) fn open(path: &[u8], returns: bool) -> Result<(), String> {
    let shown = String::from_utf8_lossy(path);
    let path = CString::new(path).map_err(|_| format!("bad path: {shown}"))?;
    let region = Region::open(&path, None)
        .ok_or_else(|| format!("{shown}: the memory for the heap recorder cannot be mapped"))?;
    LAYOUT.store(region.next_layout(), Ordering::Relaxed);
    RETURNS.store(returns, Ordering::Relaxed);
    // Opened once, when the plugin is installed.
    let _ = REGION.set(region);
    Ok(())
}

/// Whether an instruction is the marker, where somebody wants to know.
pub(super) fn is_marker(bytes: &[u8]) -> bool {
    bytes == MARKER && REGION.get().is_some()
}

/// See [`open`].
pub(super) fn tells_returns() -> bool {
    RETURNS.load(Ordering::Relaxed)
}

/// Copies memory of this process from `address` on, as far as there is any; how many bytes.
fn copy(address: u64, to: &mut [u8]) -> usize {
    // In two pieces, since a piece is copied whole or not at all.
    let in_page = (4096 - (address & 4095)) as usize;
    let first = to.len().min(in_page);
    let pieces = [
        libc::iovec {
            iov_base: address as *mut c_void,
            iov_len: first,
        },
        libc::iovec {
            iov_base: address.wrapping_add(first as u64) as *mut c_void,
            iov_len: to.len() - first,
        },
    ];
    let into = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: to.len(),
    };
    // SAFETY: the kernel checks what is read, and writes at most as many bytes as `to` has.
    let copied = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const into, 1, pieces.as_ptr(), 2, 0)
    };
    usize::try_from(copied).unwrap_or(0)
}

/// Copies words likewise; how many.
fn copy_words(address: u64, to: &mut [u64]) -> usize {
    // SAFETY: the bytes of these words, any of which are words.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u8>(), size_of_val(to)) };
    copy(address, bytes) / 8
}

/// The marker was executed: it stored to the first word of a record at `address`.
pub(super) extern "C" fn on_marker(vcpu: c_uint, _info: u32, address: u64, _user: *mut c_void) {
    let mut words = [0; size_of::<Traced>() / 8];
    let (Some(region), Some(process)) = (REGION.get(), process::current()) else {
        return;
    };
    if process.detached() || copy_words(address, &mut words) < words.len() {
        return;
    }
    let [magic, kind, allocator, block, size, frame, label @ ..] = words;
    // Another program's code may have these bytes by chance.
    let (MAGIC, Some(kind)) = (magic, TracedKind::from_number(kind)) else {
        return;
    };
    // SAFETY: QEMU calls it in the thread that runs this virtual CPU, and no callback is interrupted by
    // another.
    let Some(end) = (unsafe { writer::end(vcpu) }) else {
        return;
    };
    let from = AllocatorCode::from_byte(allocator as u8).unwrap_or(AllocatorCode::Other);
    let head = |kind, words| header(kind, words, from, 0);
    let told = match kind {
        TracedKind::Loaded => {
            region.next_image();
            if size != 0 {
                region.note(Note::OwnMalloc);
            }
            return;
        }
        TracedKind::Unloaded => {
            LAYOUT.store(region.next_layout(), Ordering::Relaxed);
            return;
        }
        TracedKind::Free => vec![head(RecordKind::Free, 3), 0, block],
        TracedKind::Unname => vec![head(RecordKind::Unname, 3), 0, block],
        TracedKind::Unmap => vec![head(RecordKind::Unmap, 4), 0, block, size],
        TracedKind::Alloc => {
            let stack = stack(region, frame, |record| end.heap(vcpu, record));
            vec![head(RecordKind::Alloc, 5), 0, block, size, stack]
        }
        TracedKind::Named => {
            let stack = stack(region, frame, |record| end.heap(vcpu, record));
            let name = name(region, label, |record| end.heap(vcpu, record));
            vec![head(RecordKind::Named, 6), 0, block, size, stack, name]
        }
    };
    end.heap(vcpu, &told);
}

/// The key of the stack above a hook's frame; `tell` is given what it stands for, if that is not known.
fn stack(region: &Region, frame: u64, mut tell: impl FnMut(&[u64])) -> u64 {
    let mut words = [0; FRAME_WORDS];
    let count = copy_words(frame, &mut words);
    let Some([bp, ip, above @ ..]) = words.get(..count) else {
        return 0;
    };
    let at = Cursor {
        ip: *ip,
        sp: frame + 16,
        bp: *bp,
    };
    let low = at.sp;
    let read = |address: u64| {
        let distance = address.checked_sub(low)?;
        let word = usize::try_from(distance / 8).ok()?;
        (distance % 8 == 0).then(|| above.get(word).copied())?
    };
    let layout = LAYOUT.load(Ordering::Relaxed);
    let walked = Walked::up(region, layout, at, read);
    let frames = walked.frames();
    let mut record = Vec::with_capacity(LONGEST);
    let Some(missing) = walked.missing else {
        if !region.is_known(walked.key) {
            let head = header(
                RecordKind::Stack,
                2 + frames.len(),
                AllocatorCode::Malloc,
                0,
            );
            record.extend([head, walked.key]);
            record.extend(frames);
            tell(&record);
            region.set_known(walked.key);
        }
        return walked.key;
    };
    let above = usize::try_from((missing.sp - low) / 8).ok();
    let slice = above
        .and_then(|from| words.get(2 + from..count))
        .unwrap_or_default();
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let key = 1 << 63 | u64::from(std::process::id()) << 32 | u64::from(serial);
    let upper = frames.len() as u32 | layout << 16;
    let length = 5 + frames.len() + slice.len();
    record.push(header(
        RecordKind::Slice,
        length,
        AllocatorCode::Malloc,
        upper,
    ));
    record.extend([key, missing.ip, missing.sp, missing.bp]);
    record.extend(frames);
    record.extend(slice);
    tell(&record);
    key
}

/// The key of a name, which `tell` is given if it is not known.
fn name(region: &Region, [address, length]: [u64; 2], tell: impl FnOnce(&[u64])) -> u64 {
    let mut bytes = [0; LABEL_BYTES];
    let length = (length as usize).min(LABEL_BYTES);
    let copied = copy(address, &mut bytes[..length]);
    let bytes = &bytes[..copied];
    let key = key_of_bytes(bytes);
    if !region.is_known(key) {
        let words = bytes.chunks(8).map(|piece| {
            let mut padded = [0; 8];
            padded[..piece.len()].copy_from_slice(piece);
            u64::from_le_bytes(padded)
        });
        let length = 2 + copied.div_ceil(8);
        let head = header(
            RecordKind::Label,
            length,
            AllocatorCode::Pool,
            copied as u32,
        );
        let record: Vec<u64> = [head, key].into_iter().chain(words).collect();
        tell(&record);
        region.set_known(key);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use linewise_heap::Record;

    #[test]
    fn memory_is_copied_as_far_as_it_is_there() {
        let words = [1_u64, 2, 3];
        let mut copied = [0; 3];
        assert_eq!(copy_words(words.as_ptr() as u64, &mut copied), 3);
        assert_eq!(copied, words);
        assert_eq!(copy_words(8, &mut copied), 0);
    }

    #[test]
    fn a_stack_without_rules_is_told_as_a_slice_and_with_them_as_its_frames() {
        let region = Region::create().unwrap();
        let stack_words: Vec<u64> = (100..100 + FRAME_WORDS as u64).collect();
        let frame = stack_words.as_ptr() as u64;
        let mut told = Vec::new();
        let key = stack(&region, frame, |record| told = record.to_vec());
        let Some(Record::Slice {
            key: of, at, words, ..
        }) = Record::parse(&told)
        else {
            panic!("{told:?}");
        };
        assert_eq!((of, at.bp, at.ip, at.sp), (key, 100, 101, frame + 16));
        assert_eq!(words, &stack_words[2..]);
        let layout = LAYOUT.load(Ordering::Relaxed);
        region.set_rule(layout, 101, linewise_heap::Rule::End);
        let key = stack(&region, frame, |record| told = record.to_vec());
        assert_eq!(
            Record::parse(&told),
            Some(Record::Stack {
                key,
                frames: &[101]
            })
        );
        told.clear();
        assert_eq!(stack(&region, frame, |record| told = record.to_vec()), key);
        assert_eq!(told, [], "it is known");
    }
}
