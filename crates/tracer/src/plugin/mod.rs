//! The plugin: what QEMU calls.
//!
//! `qemu-x86_64 -plugin liblinewise_tracer.so,region=/proc/1234/fd/5 program` loads it. Between
//! architectures of 64 bits QEMU lets guest addresses be host addresses (its `guest_base` is 0), so
//! what it maps for the guest is where the guest sees it, and arguments of system calls can be read.
//!
//! Written for interface 1 (QEMU 6.0 to 8.1) and tested with QEMU 7.2. The functions used have kept
//! their types in interfaces 2 to 4 but for one, so it offers itself to those as well; that is
//! untested.

mod api;
mod calls;
mod code;
mod exec;
mod guest;
mod lock;
mod process;
mod writer;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use api::{Api, Block, Instruction, InstructionData};
use code::{Architecture, Classifier};
use guest::{Guest, Wanted};
use writer::Access;

use crate::line;
use crate::program::Qemu;
use crate::region::Region;
use crate::words;

/// The interface that this plugin asks for. QEMU reads it after the library's constructors ran,
/// which set it to what that QEMU offers.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

extern "C" fn choose_interface() {
    qemu_plugin_version.store(api::newest_interface(), Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE_INTERFACE: extern "C" fn() = choose_interface;

/// In the user pointer of an access: it wants a stamp, it orders threads. Below the slot, where the
/// word has size and kind.
const STAMPED: u64 = 1;
const ORDERING: u64 = 2;
/// Four bits from here: how often a block that jumps to itself runs again without a stamp.
const LOOPS_SHIFT: u32 = 3;
const SLOT_BITS: u64 = 0xff80;
/// A stamp is taken at least at every so many-th instruction that accesses memory.
const STAMP_EVERY: usize = 16;

/// Called by QEMU when the plugin is loaded; 0 if it can work.
///
/// # Safety
/// `info` and `argv` are as QEMU promises: valid, `argc` strings that end in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const api::Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let arguments = (0..argc as usize).map(|index| unsafe {
        CStr::from_ptr(*argv.add(index))
            .to_string_lossy()
            .into_owned()
    });
    // SAFETY: as above.
    let (target, system) = unsafe {
        (
            CStr::from_ptr((*info).target_name)
                .to_string_lossy()
                .into_owned(),
            (*info).system_emulation,
        )
    };
    match install(id, &target, system, arguments) {
        Ok(()) => 0,
        Err(error) => {
            process::say(&format!(
                "linewise: the tracer cannot work in this QEMU: {error}\n"
            ));
            1
        }
    }
}

/// One for each kind of value of the configuration, which is a list of `key=value` that end in NUL.
#[derive(Default)]
struct Configuration {
    qemu: Qemu,
    wanted: Vec<Wanted>,
}

impl Configuration {
    fn parse(text: &[u8]) -> Result<Self, String> {
        let mut this = Self::default();
        for entry in text
            .split(|&byte| byte == 0)
            .filter(|entry| !entry.is_empty())
        {
            let malformed = || format!("bad configuration: {}", String::from_utf8_lossy(entry));
            let at = entry
                .iter()
                .position(|&byte| byte == b'=')
                .ok_or_else(malformed)?;
            let value = &entry[at + 1..];
            match &entry[..at] {
                b"qemu" => this.qemu.path = value.to_vec(),
                b"option" => this.qemu.options.push(value.to_vec()),
                b"plugin" => this.qemu.plugin = value.to_vec(),
                b"only-module" => this.wanted.push(Wanted {
                    module: value.to_vec(),
                    ranges: Vec::new(),
                }),
                b"only-range" => {
                    let range = std::str::from_utf8(value)
                        .ok()
                        .and_then(|text| text.split_once('-'))
                        .and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
                    let module = this.wanted.last_mut().ok_or_else(malformed)?;
                    module.ranges.push(range.ok_or_else(malformed)?);
                }
                _ => return Err(malformed()),
            }
        }
        Ok(this)
    }
}

fn install(
    id: u64,
    target: &str,
    system: bool,
    arguments: impl Iterator<Item = String>,
) -> Result<(), String> {
    let architecture = Architecture::named(target)
        .filter(|_| !system)
        .ok_or_else(|| format!("it emulates {target}, which the tracer does not know"))?;
    let mut path = None;
    for argument in arguments {
        match argument.split_once('=') {
            Some(("region", value)) => path = Some(value.to_owned()),
            _ => return Err(format!("unknown argument {argument}")),
        }
    }
    let path = path.ok_or("no region=PATH was given; linewise starts the tracer itself")?;
    let region = Region::open(Path::new(&path)).map_err(|error| format!("{path}: {error}"))?;
    let configuration = Configuration::parse(&region.configuration())?;
    let version = qemu_plugin_version.load(Ordering::Relaxed);
    let api = Api::find(version).map_err(|name| format!("it has no {name}"))?;
    let share = region.header().threshold.load(Ordering::Relaxed) != u64::MAX;

    let mut qemu = configuration.qemu;
    qemu.region = path.into_bytes();
    exec::remember(qemu);
    let guest = Guest::new(Classifier::new(architecture), configuration.wanted);
    calls::remember(architecture);
    process::set(region, api, guest);
    if share {
        THRESHOLD.store(
            process::current().map_or(u64::MAX, |process| {
                process.region.header().threshold.load(Ordering::Relaxed)
            }),
            Ordering::Relaxed,
        );
    }
    // SAFETY: QEMU's functions with the id it gave; the callbacks live as long as the library, which
    // is never unloaded. The handlers of fork are plain functions.
    unsafe {
        (api.register_translation)(
            id,
            if share {
                translate::<true>
            } else {
                translate::<false>
            },
        );
        (api.register_vcpu_exit)(id, on_vcpu_exit);
        (api.register_call)(id, calls::on_call);
        (api.register_call_end)(id, calls::on_call_end);
        libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
    }
    if let Some(process) = process::current() {
        process
            .region
            .header()
            .installed
            .store(1, Ordering::Release);
    }
    Ok(())
}

/// See `Header::threshold`.
static THRESHOLD: AtomicU64 = AtomicU64::new(u64::MAX);

extern "C" fn before_fork() {
    if let Some(process) = process::current() {
        process.guest.acquire();
    }
}

extern "C" fn after_fork() {
    if let Some(process) = process::current() {
        process.guest.release();
    }
}

unsafe extern "C" fn in_child() {
    if let Some(process) = process::current() {
        process.become_child();
        writer::forget();
        process.guest.release();
        process.guest().announce_all();
    }
}

extern "C" fn on_vcpu_exit(_id: u64, vcpu: c_uint) {
    // SAFETY: QEMU calls it in the thread that ends.
    unsafe { writer::close(vcpu) };
}

/// Asks for a callback at each access of a block, and tells the collector what the block is.
extern "C" fn translate<const SHARE: bool>(_id: u64, block: *mut Block) {
    let Some(process) = process::current() else {
        return;
    };
    if process.detached() {
        return;
    }
    let api = &process.api;
    let mut guest = process.guest();
    guest.look();
    let id = process
        .region
        .header()
        .next_block
        .fetch_add(1, Ordering::Relaxed);
    let mut record = std::mem::take(&mut guest.record);
    record.clear();
    record.push(0);
    record.push(u64::from(id));
    // SAFETY: QEMU's functions on the block and the instructions that it handed out for the time of
    // this call.
    unsafe {
        let mut accessing: Vec<(*mut Instruction, bool)> = Vec::new();
        let (mut first, mut target) = (None, None);
        for index in 0..(api.block_length)(block) {
            let instruction = (api.block_instruction)(block, index);
            let address = (api.instruction_address)(instruction);
            let mut bytes = [0u8; 16];
            let length = (api.instruction_size)(instruction).min(bytes.len());
            match api.instruction_data {
                InstructionData::Points(data) => {
                    let data: *const u8 = data(instruction).cast();
                    std::ptr::copy_nonoverlapping(data, bytes.as_mut_ptr(), length);
                }
                InstructionData::Copies(copy) => {
                    copy(instruction, bytes.as_mut_ptr().cast(), length);
                }
            }
            let bytes = &bytes[..length];
            first = first.or(Some(address));
            target = guest.classifier.jumps_to(bytes, address);
            let class = guest.classifier.classify(bytes);
            if class.accesses && accessing.len() < words::MAX_SLOTS && guest.wants(address) {
                record.push((address & ((1 << words::ADDRESS_BITS) - 1)) | class.bits());
                record.extend(words::pack_instruction(bytes));
                accessing.push((instruction, class.orders));
            }
        }
        let loops = if target.is_some() && target == first {
            STAMP_EVERY / accessing.len().max(1)
        } else {
            1
        };
        let loops = (loops.clamp(1, 15) as u64 - 1) << LOOPS_SHIFT;
        for (slot, &(instruction, orders)) in accessing.iter().enumerate() {
            let mut user = (u64::from(id) << 16) | ((slot as u64) << 7) | loops;
            if slot % STAMP_EVERY == 0 {
                user |= STAMPED;
            }
            if orders {
                user |= ORDERING;
            }
            (api.register_access)(
                instruction,
                on_access::<SHARE>,
                api::NO_REGISTERS,
                api::LOADS_AND_STORES,
                user as *mut c_void,
            );
        }
    }
    if record.len() > 2 {
        record[0] = words::definition(words::DEFINES_BLOCK, record.len() as u16 - 1);
        // SAFETY: the guest's lock is held.
        unsafe { writer::define(&record) };
    }
    guest.record = record;
}

/// Size and kind of the accesses seen so far, by a hash of QEMU's description of them: bit 63 set,
/// description, word bits. QEMU's functions would have to be called twice for each access.
static METAS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// The word bits of an access, if such a one was seen before.
#[inline(always)]
fn known_meta(info: u32) -> Option<u64> {
    let entry = METAS[place_of_meta(info)].load(Ordering::Relaxed);
    ((entry >> 8) as u32 == info && entry >> 63 != 0).then_some(entry & 0xff)
}

#[inline(always)]
fn place_of_meta(info: u32) -> usize {
    ((info >> 4) ^ (info >> 13)) as usize & 255
}

/// An access has happened.
///
/// What is rare ends in calls of its own, so that nothing has to be saved for them here.
extern "C" fn on_access<const SHARE: bool>(
    vcpu: c_uint,
    info: u32,
    address: u64,
    user: *mut c_void,
) {
    let Some(meta) = known_meta(info) else {
        return on_new_access::<SHARE>(vcpu, info, address, user);
    };
    let flags = user as u64;
    if SHARE && flags & ORDERING == 0 {
        let last = address.wrapping_add((1 << ((meta >> 4) & 7)) - 1);
        if !line::kept(address, last, THRESHOLD.load(Ordering::Relaxed)) {
            return;
        }
    }
    // SAFETY: QEMU calls it in the thread that runs this virtual CPU, and no callback is interrupted
    // by another.
    let Some(end) = (unsafe { writer::end(vcpu) }) else {
        return;
    };
    if !end.has_room() {
        return on_first_access::<SHARE>(vcpu, info, address, user);
    }
    end.access(Access {
        address,
        slot_and_meta: (flags & SLOT_BITS) | meta,
        block: (flags >> 16) as u32,
        // The stamped access of this run of the block may have been on another line.
        stamped: SHARE || flags & STAMPED != 0,
        loops: if SHARE {
            0
        } else {
            (flags >> LOOPS_SHIFT) as u32 & 15
        },
        ordering: flags & ORDERING != 0,
    });
    // Waiting for room comes after an access was written, not between it and its stamp.
    if !end.has_room() {
        make_room(vcpu);
    }
}

/// Empties a ring that has just become full.
#[cold]
#[inline(never)]
extern "C" fn make_room(vcpu: c_uint) {
    // SAFETY: as in `on_access`.
    if let Some(end) = unsafe { writer::end(vcpu) } {
        end.make_room(vcpu);
    }
}

/// An access of a size and kind that was not seen before.
#[cold]
#[inline(never)]
extern "C" fn on_new_access<const SHARE: bool>(
    vcpu: c_uint,
    info: u32,
    address: u64,
    user: *mut c_void,
) {
    let Some(process) = process::current() else {
        return;
    };
    // SAFETY: QEMU's functions on a description that it just handed out.
    let (log2_size, store) = unsafe {
        (
            (process.api.access_size)(info),
            (process.api.access_is_store)(info),
        )
    };
    let meta = words::meta(log2_size, store);
    METAS[place_of_meta(info)].store((1 << 63) | (u64::from(info) << 8) | meta, Ordering::Relaxed);
    on_access::<SHARE>(vcpu, info, address, user);
}

/// An access for which the ring has to be opened first, or for which none is left.
#[cold]
#[inline(never)]
extern "C" fn on_first_access<const SHARE: bool>(
    vcpu: c_uint,
    info: u32,
    address: u64,
    user: *mut c_void,
) {
    // SAFETY: as in `on_access`.
    if unsafe { writer::end(vcpu) }.is_some_and(|end| end.make_room(vcpu)) {
        on_access::<SHARE>(vcpu, info, address, user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_and_nonsense_is_refused() {
        let text =
            b"qemu=/q\0option=-cpu\0option=max\0plugin=/p\0only-module=/m\0only-range=16-32\0";
        let configuration = Configuration::parse(text).unwrap();
        assert_eq!(configuration.qemu.path, b"/q");
        assert_eq!(
            configuration.qemu.options,
            [b"-cpu".to_vec(), b"max".to_vec()]
        );
        assert_eq!(configuration.qemu.plugin, b"/p");
        assert_eq!(
            configuration.wanted,
            [Wanted {
                module: b"/m".to_vec(),
                ranges: vec![(16, 32)]
            }]
        );
        for text in [
            &b"what=1\0"[..],
            b"qemu",
            b"only-range=1-2\0",
            b"only-module=m\0only-range=x\0",
        ] {
            assert!(Configuration::parse(text).is_err());
        }
    }

    #[test]
    fn outside_of_qemu_the_first_interface_is_asked_for() {
        assert_eq!(qemu_plugin_version.load(Ordering::Relaxed), 1);
    }
}
