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
mod configuration;
mod exec;
mod group;
mod guest;
mod heap;
mod joint;
mod lock;
mod messages;
mod order;
mod others;
mod process;
mod qemu;
mod shadow;
mod shared;
mod sleep;
mod surroundings;
mod writer;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use api::{Api, Block, Instruction, InstructionData};
use code::{Architecture, Class, Classifier};
use configuration::{Arguments, Configuration};
use guest::Guest;
use writer::Told;

use linewise_cache::reuse::StratifiedUnits;

use crate::line;
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

/// In the user pointer of an access, which has the slot in its word's place and the bank above: it
/// orders threads. So it is of another bank than any that was marked.
const ORDERING: u64 = 1 << 63;
/// There, where own lines are left out: the instruction reads and writes the same bytes.
const UPDATES: u64 = 1 << 62;
/// There, from this bit on: which part of its instruction's access a piece of up to 8 bytes is, in quarters.
const QUARTERS_SHIFT: u32 = 48;
/// There: slot and bank, as in an access word and above it.
const SLOT_AND_BANK: u64 = 0xffff_ffff << 4;

/// Which accesses are told.
mod told {
    /// All.
    pub(super) const ALL: u8 = 0;
    /// Those to a share of the lines, and all that order threads.
    pub(super) const SHARE: u8 = 1;
    /// Those to lines that more than one thread touches, see [`super::shadow`].
    pub(super) const SHARED: u8 = 2;
}

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
    let mut arguments = Arguments::of(arguments);
    if arguments.fixed {
        exec::hide_fixed_addresses();
    }
    match install(id, &target, system, &mut arguments) {
        Ok(()) => 0,
        // The guest's program runs all the same, as it would without us; that it is missing is told by who reads.
        Err(_) if arguments.again => 0,
        Err(error) => {
            process::say(&format!(
                "linewise: the tracer cannot work in this QEMU: {error}\n"
            ));
            1
        }
    }
}

fn install(id: u64, target: &str, system: bool, arguments: &mut Arguments) -> Result<(), String> {
    let architecture = Architecture::named(target)
        .filter(|_| !system)
        .ok_or_else(|| format!("it emulates {target}, which the tracer does not know"))?;
    if let Some(argument) = &arguments.unknown {
        return Err(format!("unknown argument {argument}"));
    }
    let path = arguments
        .region
        .take()
        .ok_or("no region=PATH was given; linewise starts the tracer itself")?;
    let region = Region::open(Path::new(&path)).map_err(|error| format!("{path}: {error}"))?;
    // Of the program that this process executed before.
    region.free_own_turns();
    let configuration = Configuration::parse(&region.configuration())?;
    let version = qemu_plugin_version.load(Ordering::Relaxed);
    let api = Api::find(version).map_err(|name| format!("it has no {name}"))?;
    let whole = StratifiedUnits::new(&configuration.whole);
    let direct = describes_directly(&api);
    let told = if region.header().threshold.load(Ordering::Relaxed) != u64::MAX {
        told::SHARE
    } else if configuration.leaves_own && direct {
        told::SHARED
    } else {
        told::ALL
    };

    let mut qemu = configuration.qemu;
    qemu.region = path.into_bytes();
    qemu.again = true;
    exec::remember(qemu);
    surroundings::remember();
    messages::lead_here();
    let guest = Guest::new(Classifier::new(architecture), configuration.wanted);
    code::remember(architecture);
    if configuration.makes_order {
        order::want(direct);
    }
    if let Some(path) = configuration.heap {
        heap::open(&path, configuration.heap_returns)?;
    }
    guest::set(guest);
    process::set(id, region, api, (told == told::SHARED).then_some(whole));
    if told == told::SHARE {
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
            match (told, direct) {
                (told::SHARE, true) => translate::<{ told::SHARE }, true>,
                (told::SHARE, false) => translate::<{ told::SHARE }, false>,
                (told::SHARED, _) => translate::<{ told::SHARED }, true>,
                (_, true) => translate::<{ told::ALL }, true>,
                (_, false) => translate::<{ told::ALL }, false>,
            },
        );
        (api.register_vcpu_init)(id, calls::on_vcpu_init);
        (api.register_vcpu_exit)(id, on_vcpu_exit);
        (api.register_flush)(id, qemu::on_flush);
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
    if let Some(guest) = guest::current() {
        guest.acquire();
    }
}

extern "C" fn after_fork() {
    if let Some(guest) = guest::current() {
        guest.release();
    }
}

unsafe extern "C" fn in_child() {
    if let (Some(process), Some(guest)) = (process::current(), guest::current()) {
        process.become_child();
        writer::forget();
        shadow::forget();
        joint::forget();
        shared::forget_lock();
        guest.release();
        guest.lock().announce_all();
    }
}

extern "C" fn on_vcpu_exit(_id: u64, vcpu: c_uint) {
    // SAFETY: QEMU calls it in the thread that ends.
    unsafe { writer::close(vcpu) };
    calls::on_vcpu_gone(vcpu);
}

/// The bytes of an instruction, in `room`.
///
/// # Safety
/// QEMU has handed out the instruction, and for the time of this call.
unsafe fn code_of<'a>(
    api: &Api,
    instruction: *mut Instruction,
    room: &'a mut [u8; 16],
) -> &'a [u8] {
    // SAFETY: QEMU's functions on an instruction of its own, by the contract; it has at least the `length` bytes that
    // it says, and the room is as large.
    unsafe {
        let length = (api.instruction_size)(instruction).min(room.len());
        match api.instruction_data {
            InstructionData::Points(data) => {
                let data: *const u8 = data(instruction).cast();
                std::ptr::copy_nonoverlapping(data, room.as_mut_ptr(), length);
            }
            InstructionData::Copies(copy) => {
                copy(instruction, room.as_mut_ptr().cast(), length);
            }
        }
        &room[..length]
    }
}

/// Asks for a callback at each access of a block, and tells the collector what the block is.
extern "C" fn translate<const TOLD: u8, const DIRECT: bool>(_id: u64, block: *mut Block) {
    let (Some(process), Some(guest)) = (process::current(), guest::current()) else {
        return;
    };
    if process.detached() {
        process.let_go();
        return;
    }
    let api = &process.api;
    let mut guest = guest.lock();
    guest.look();
    let mut record = std::mem::take(&mut guest.record);
    record.clear();
    record.extend([0, 0]);
    let first;
    let ordered = DIRECT && order::is_on();
    order::translates();
    // SAFETY: QEMU's functions on the block and the instructions that it handed out for the time of
    // this call.
    unsafe {
        let mut accessing: Vec<(*mut Instruction, Class)> = Vec::new();
        for index in 0..(api.block_length)(block) {
            let instruction = (api.block_instruction)(block, index);
            let address = (api.instruction_address)(instruction);
            let mut bytes = [0u8; 16];
            let bytes = code_of(api, instruction, &mut bytes);
            if heap::is_marker(bytes) {
                let user = std::ptr::null_mut();
                let (flags, kinds) = (api::NO_REGISTERS, api::LOADS_AND_STORES);
                (api.register_access)(instruction, heap::on_marker, flags, kinds, user);
                continue;
            }
            let class = guest.classifier.classify(bytes);
            if guest.is_recorder(address) && !(class.returns && heap::tells_returns()) {
                continue;
            }
            if class.accesses && accessing.len() < words::MAX_SLOTS && guest.wants(address) {
                record.push((address & ((1 << words::ADDRESS_BITS) - 1)) | class.bits());
                record.extend(words::pack_instruction(bytes));
                accessing.push((instruction, class));
            }
        }
        // What has no number is handed on as not described.
        first = process
            .region
            .take_slots(accessing.len() as u32)
            .unwrap_or(words::NO_SLOT);
        for (slot, &(instruction, class)) in (u64::from(first)..).zip(&accessing) {
            let (callback, user): (api::OnAccess, u64) = match TOLD {
                told::SHARED if ordered => (
                    on_own_access::<true>,
                    user(slot, class.orders) | parts(class),
                ),
                told::SHARED => (
                    on_own_access::<false>,
                    user(slot, class.orders) | parts(class),
                ),
                told::SHARE if ordered => (
                    on_ordered_access::<true>,
                    user(slot, class.orders) | parts(class),
                ),
                _ if ordered => (
                    on_ordered_access::<false>,
                    user(slot, class.orders) | parts(class),
                ),
                told::SHARE => (on_access::<true, DIRECT>, user(slot, class.orders)),
                _ => (on_access::<false, DIRECT>, user(slot, class.orders)),
            };
            if ordered {
                let before = if class.orders {
                    before_ordering
                } else {
                    before_access
                };
                (api.register_instruction)(
                    instruction,
                    before,
                    api::NO_REGISTERS,
                    slot as *mut c_void,
                );
            }
            (api.register_access)(
                instruction,
                callback,
                api::NO_REGISTERS,
                api::LOADS_AND_STORES,
                user as *mut c_void,
            );
        }
    }
    if record.len() > 2 {
        record[0] = words::definition(words::DEFINES_BLOCK, record.len() as u16 - 1);
        record[1] = u64::from(first);
        // SAFETY: the guest's lock is held.
        unsafe { writer::define(&record) };
    }
    guest.record = record;
}

/// What the callback of an access is given.
fn user(slot: u64, orders: bool) -> u64 {
    let bank = slot / u64::from(words::BANK_SLOTS);
    let ordering = if orders { ORDERING } else { 0 };
    ordering | (bank << 16) | ((slot << 4) & words::SLOT_BITS)
}

/// What the callback is given besides where own lines are left out. QEMU accesses operands of 16 and 32 bytes in
/// pieces of 8.
fn parts(class: Class) -> u64 {
    let quarters: u64 = match class.bytes {
        16 => 2,
        32 => 1,
        _ => 4,
    };
    let updates = if class.updates { UPDATES } else { 0 };
    updates | (quarters << QUARTERS_SHIFT)
}

/// Size and kind of an access by QEMU's description of it: a `MemOpIdx`, whose size stands in bits 4 to
/// 6, and from bit 16 on 1 for a load and 2 for a store. As the word has them, see [`words::meta`].
#[inline(always)]
fn direct_meta(info: u32) -> u64 {
    u64::from(((info >> 3) & 14) | ((info >> 17) & 1))
}

/// Whether this QEMU describes accesses as [`direct_meta`] has it. Its functions say the same; they
/// would have to be called twice for each access.
fn describes_directly(api: &Api) -> bool {
    (0..6).all(|log2_size| {
        [1, 2].into_iter().all(|kind| {
            let info = (kind << 16) | (log2_size << 4);
            // SAFETY: functions that do nothing but compute.
            let (said, store) = unsafe { ((api.access_size)(info), (api.access_is_store)(info)) };
            words::meta(said, store) == direct_meta(info) && said == log2_size
        })
    })
}

/// An access has happened.
///
/// What is rare ends in a call of its own, so that nothing has to be saved for it here. There is always
/// room for one access, unless the ring is not open: room is made after an access was written, not
/// between it and its stamp.
extern "C" fn on_access<const SHARE: bool, const DIRECT: bool>(
    vcpu: c_uint,
    info: u32,
    address: u64,
    user: *mut c_void,
) {
    if !DIRECT {
        return on_described_access::<SHARE>(vcpu, info, address, user);
    }
    let meta = direct_meta(info);
    let user = user as u64;
    if SHARE && !is_chosen(address, meta) {
        return;
    }
    // SAFETY: QEMU calls it in the thread that runs this virtual CPU, and no callback is interrupted
    // by another.
    let Some(end) = (unsafe { writer::end(vcpu) }) else {
        return;
    };
    if SHARE || meta >= words::MARK || !end.follows(user >> 16) {
        return on_marked_access::<SHARE>(vcpu, info, address, user);
    }
    end.access((address << 16) | (user & words::SLOT_BITS) | meta);
}

/// An instruction that may meet a line of others.
extern "C" fn before_access(vcpu: c_uint, slot: *mut c_void) {
    if order::meets(slot as u64) {
        before_ordering(vcpu, slot);
    }
}

/// An instruction that orders threads, or is expected to meet a line of others.
extern "C" fn before_ordering(vcpu: c_uint, _slot: *mut c_void) {
    // SAFETY: QEMU calls it in the thread that runs this virtual CPU, and no callback is interrupted by another.
    if let Some(end) = unsafe { writer::end(vcpu) } {
        end.takes_turn(true);
    }
}

/// An access has happened, and lines that one thread alone touches are left out.
extern "C" fn on_own_access<const ORDERED: bool>(
    vcpu: c_uint,
    info: u32,
    address: u64,
    user: *mut c_void,
) {
    let (meta, user) = (direct_meta(info), user as u64);
    let store = meta & 1;
    // The store of an update stands for both.
    if user & UPDATES != 0 && store == 0 {
        return;
    }
    // SAFETY: as in `on_access`.
    let Some(end) = (unsafe { writer::end(vcpu) }) else {
        return;
    };
    let offset = address & 63;
    // Of at most 8 bytes.
    if let Some(line) = shadow::find(address)
        && meta < 8
        && offset + (1 << (meta >> 1)) <= 64
        && user & ORDERING == 0
    {
        let slot_and_meta = (user & SLOT_AND_BANK) | meta;
        let quarters = user >> QUARTERS_SHIFT & 7;
        if let Some(notes) = end.notes(line) {
            let kind = (store + (user >> 62 & 1)) as usize;
            if end.note::<ORDERED>(notes, offset, slot_and_meta, kind, quarters) {
                on_sample(vcpu, slot_and_meta);
            }
            return;
        }
        if store == 0 && end.knows(line) {
            if end.pass::<ORDERED>(0, quarters) {
                on_sample(vcpu, slot_and_meta);
            }
            return;
        }
    }
    on_shared_access::<ORDERED>(vcpu, info, address, user);
}

/// An access has happened in the order that is made, and all are told, or those to a share of the lines.
extern "C" fn on_ordered_access<const SHARE: bool>(
    vcpu: c_uint,
    info: u32,
    address: u64,
    user: *mut c_void,
) {
    let (meta, user) = (direct_meta(info), user as u64);
    // SAFETY: as in `on_access`.
    let Some(end) = (unsafe { writer::end(vcpu) }) else {
        return;
    };
    if !end.opens(vcpu) {
        return;
    }
    let (log2_size, store) = ((info >> 4) & 7, meta & 1 == 1);
    let quarters = ((user >> QUARTERS_SHIFT & 7) << log2_size.saturating_sub(3)).min(4);
    let last = address.wrapping_add((1 << log2_size) - 1);
    let ordering = user & ORDERING != 0;
    let is_own = |address| end.needs_no_turn(shadow::find(address), store);
    let own = !ordering && is_own(address) && (last >> 6 == address >> 6 || is_own(last));
    if !own {
        end.takes_turn(true);
        end.claims(address, store);
        if last >> 6 != address >> 6 {
            end.claims(last, store);
        }
        order::met((user & SLOT_AND_BANK) >> 4);
    }
    if !SHARE || is_chosen(address, meta) {
        let bank = (user & SLOT_AND_BANK) >> 16;
        let word = (address << 16) | (user & words::SLOT_BITS) | meta;
        if !SHARE && own && meta < words::MARK && end.follows(bank) {
            end.access(word);
        } else {
            end.marked_access(vcpu, word, bank as u32, SHARE || !own, !own);
        }
    }
    // The store of an update stands for both.
    if user & UPDATES == 0 || store {
        end.let_pass(quarters);
        end.looks_up();
    }
}

/// An access that is not told but sampled.
#[cold]
#[inline(never)]
extern "C" fn on_sample(vcpu: c_uint, slot_and_meta: u64) {
    // SAFETY: as in `on_access`.
    if let Some(end) = unsafe { writer::end(vcpu) } {
        end.sample_or_look_up(vcpu, slot_and_meta);
    }
}

/// An access to a line that its thread does not have for itself yet, or to two, or that orders threads.
#[cold]
#[inline(never)]
extern "C" fn on_shared_access<const ORDERED: bool>(
    vcpu: c_uint,
    info: u32,
    address: u64,
    user: u64,
) {
    // SAFETY: as in `on_access`.
    let Some(end) = (unsafe { writer::end(vcpu) }) else {
        return;
    };
    let log2_size = (info >> 4) & 7;
    let store = info & (2 << 16) != 0;
    let meta = words::meta(log2_size, store);
    // The first access of a thread is told: it tells where the stack is.
    let first = !end.is_open();
    if !end.opens(vcpu) {
        return;
    }
    let last = address.wrapping_add((1 << log2_size) - 1);
    let crosses = last >> 6 != address >> 6;
    let is_own = |address| end.needs_no_turn(shadow::find(order::place(address)), store);
    let own = ORDERED && user & ORDERING == 0 && is_own(address) && (!crosses || is_own(last));
    if ORDERED && !own {
        end.takes_turn(true);
    }
    let told = end.touches(vcpu, address, store);
    let told_of_next = match crosses {
        true => end.touches(vcpu, last, store),
        false => Told::No,
    };
    let is_told = [told, told_of_next].contains(&Told::Yes);
    let ordering = user & ORDERING != 0;
    let kind = if store && user & UPDATES != 0 {
        2
    } else {
        usize::from(store)
    };
    let quarters = ((user >> QUARTERS_SHIFT & 7) << log2_size.saturating_sub(3)).min(4);
    let slot_and_meta = (user & SLOT_AND_BANK) | meta;
    if !is_told && !ordering && !first {
        let notes = shadow::find(address).and_then(|line| end.notes(line));
        let sampled = match notes {
            Some(notes) if told == Told::WithItsLine => {
                end.note::<ORDERED>(notes, address & 63, slot_and_meta, kind, quarters)
            }
            _ => end.pass::<ORDERED>(kind, quarters),
        };
        if sampled {
            on_sample(vcpu, slot_and_meta);
        }
        return;
    }
    end.count(kind, quarters);
    let word = (address << 16) | (slot_and_meta & (words::SLOT_BITS | 15));
    let bank = (slot_and_meta >> 16) as u32;
    end.marked_access(vcpu, word, bank, ordering || ORDERED, ordering || ORDERED);
    if ORDERED {
        if !own {
            for address in [address, last] {
                let place = order::place(address);
                if place != address {
                    end.claims(place, store);
                }
            }
            order::met((user & SLOT_AND_BANK) >> 4);
        }
        end.looks_up();
    }
}

/// Whether the line of an access is in the share.
#[inline(always)]
fn is_chosen(address: u64, meta: u64) -> bool {
    let last = address.wrapping_add((1 << (meta >> 1)) - 1);
    line::kept(address, last, THRESHOLD.load(Ordering::Relaxed))
}

/// An access in front of which a mark has to stand, or the ring to be opened.
#[cold]
#[inline(never)]
extern "C" fn on_marked_access<const SHARE: bool>(
    vcpu: c_uint,
    info: u32,
    address: u64,
    user: u64,
) {
    // No access that QEMU describes is longer than 32 bytes so far.
    let meta = words::meta((info >> 4) & 7, info & (2 << 16) != 0);
    write_marked::<SHARE>(vcpu, meta, address, user);
}

/// An access that only QEMU's functions can describe.
#[cold]
#[inline(never)]
extern "C" fn on_described_access<const SHARE: bool>(
    vcpu: c_uint,
    info: u32,
    address: u64,
    user: *mut c_void,
) {
    let Some(process) = process::current() else {
        return;
    };
    // SAFETY: QEMU's functions on a description that it just handed out.
    let meta = unsafe {
        words::meta(
            (process.api.access_size)(info),
            (process.api.access_is_store)(info),
        )
    };
    let user = user as u64;
    if SHARE && !is_chosen(address, meta) {
        return;
    }
    write_marked::<SHARE>(vcpu, meta, address, user);
}

/// Writes an access, after a mark if there has to be one.
fn write_marked<const SHARE: bool>(vcpu: c_uint, meta: u64, address: u64, user: u64) {
    // SAFETY: as in `on_access`.
    let Some(end) = (unsafe { writer::end(vcpu) }) else {
        return;
    };
    // Of a share each access has its stamp: the one before may have been long ago.
    let stamped = SHARE || user & ORDERING != 0;
    let bank = (user >> 16) as u32;
    let word = (address << 16) | (user & words::SLOT_BITS) | meta;
    end.marked_access(vcpu, word, bank, stamped, user & ORDERING != 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_pointer_names_the_slot_and_whether_it_orders() {
        let slot = 5 * u64::from(words::BANK_SLOTS) + 7;
        for (orders, flag) in [(false, 0), (true, ORDERING)] {
            let user = user(slot, orders);
            assert_eq!(user & ORDERING, flag);
            assert_eq!((user >> 16) as u32, 5);
            let word = (user & words::SLOT_BITS) | words::meta(3, true);
            assert_eq!(word, words::access(0, slot as u32, words::meta(3, true)));
        }
    }

    #[test]
    fn a_description_is_read_as_the_words_have_it() {
        for log2_size in 0..6 {
            for store in [false, true] {
                let info = (log2_size << 4) | if store { 2 << 16 } else { 1 << 16 };
                assert_eq!(direct_meta(info | 7), words::meta(log2_size, store));
            }
        }
    }

    #[test]
    fn outside_of_qemu_the_first_interface_is_asked_for() {
        assert_eq!(qemu_plugin_version.load(Ordering::Relaxed), 1);
    }
}
