//! The functions of QEMU's plugin interface that are used, looked up in the running QEMU.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// Registers of the guest are neither read nor written by a callback.
pub(super) const NO_REGISTERS: c_int = 0;
/// Loads and stores.
pub(super) const LOADS_AND_STORES: c_int = 3;

/// What QEMU tells a plugin about itself.
#[repr(C)]
pub struct Info {
    /// The guest's architecture, as QEMU names it.
    pub target_name: *const c_char,
    /// The oldest interface that this QEMU offers.
    pub version_minimum: c_int,
    /// The newest.
    pub version_current: c_int,
    /// Whether a whole machine is emulated.
    pub system_emulation: bool,
}

/// A block that is being translated.
#[repr(C)]
pub(super) struct Block([u8; 0]);
/// An instruction of it.
#[repr(C)]
pub(super) struct Instruction([u8; 0]);

pub(super) type OnVcpu = extern "C" fn(id: u64, vcpu: c_uint);
pub(super) type OnFlush = extern "C" fn(id: u64);
pub(super) type OnReset = extern "C" fn(id: u64);
pub(super) type OnTranslation = extern "C" fn(id: u64, block: *mut Block);
pub(super) type OnAccess = extern "C" fn(vcpu: c_uint, info: u32, address: u64, user: *mut c_void);
pub(super) type OnInstruction = extern "C" fn(vcpu: c_uint, user: *mut c_void);
pub(super) type OnCall = extern "C" fn(
    id: u64,
    vcpu: c_uint,
    number: i64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    a6: u64,
    a7: u64,
    a8: u64,
);
pub(super) type OnCallEnd = extern "C" fn(id: u64, vcpu: c_uint, number: i64, result: i64);

/// How an instruction's bytes are had: interfaces 1 and 2 give a pointer, 3 and later copy.
#[derive(Clone, Copy)]
pub(super) enum InstructionData {
    Points(unsafe extern "C" fn(*const Instruction) -> *const c_void),
    Copies(unsafe extern "C" fn(*const Instruction, *mut c_void, usize) -> usize),
}

/// The functions.
#[derive(Clone, Copy)]
pub(super) struct Api {
    /// `None` in a QEMU that does not have it: then callbacks stay, and do nothing.
    pub(super) reset: Option<unsafe extern "C" fn(u64, OnReset)>,
    pub(super) register_vcpu_init: unsafe extern "C" fn(u64, OnVcpu),
    pub(super) register_instruction:
        unsafe extern "C" fn(*mut Instruction, OnInstruction, flags: c_int, user: *mut c_void),
    pub(super) register_vcpu_exit: unsafe extern "C" fn(u64, OnVcpu),
    /// For when all translated code has just been thrown away, while all threads stand still.
    pub(super) register_flush: unsafe extern "C" fn(u64, OnFlush),
    pub(super) register_translation: unsafe extern "C" fn(u64, OnTranslation),
    pub(super) register_call: unsafe extern "C" fn(u64, OnCall),
    pub(super) register_call_end: unsafe extern "C" fn(u64, OnCallEnd),
    pub(super) register_access: unsafe extern "C" fn(
        *mut Instruction,
        OnAccess,
        flags: c_int,
        rw: c_int,
        user: *mut c_void,
    ),
    pub(super) block_length: unsafe extern "C" fn(*const Block) -> usize,
    pub(super) block_instruction: unsafe extern "C" fn(*const Block, usize) -> *mut Instruction,
    pub(super) instruction_address: unsafe extern "C" fn(*const Instruction) -> u64,
    pub(super) instruction_size: unsafe extern "C" fn(*const Instruction) -> usize,
    pub(super) instruction_data: InstructionData,
    pub(super) access_size: unsafe extern "C" fn(u32) -> c_uint,
    pub(super) access_is_store: unsafe extern "C" fn(u32) -> bool,
}

fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a name that ends in NUL; looks in what the process has loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The newest interface that this source knows and the process offers, by functions that came with
/// each; 1 outside of QEMU.
pub(super) fn newest_interface() -> c_int {
    if find(c"qemu_plugin_mem_get_value").is_some() {
        4
    } else if find(c"qemu_plugin_read_register").is_some() {
        3
    } else if find(c"qemu_plugin_scoreboard_new").is_some() {
        2
    } else {
        1
    }
}

impl Api {
    /// Looks the functions up for interface `version`.
    ///
    /// # Errors
    /// The name of one that is missing.
    pub(super) fn find(version: c_int) -> Result<Self, String> {
        /// Looks one up; the field it goes to names its type.
        macro_rules! function {
            ($name:literal) => {{
                let found = find($name).ok_or_else(|| $name.to_string_lossy().into_owned())?;
                #[expect(
                    clippy::missing_transmute_annotations,
                    reason = "the field that it goes to names the type"
                )]
                // SAFETY: the function of this name has the type of the field since interface 1;
                // where it does not, the caller chooses by version.
                unsafe {
                    std::mem::transmute(found)
                }
            }};
        }
        let instruction_data = if version >= 3 {
            InstructionData::Copies(function!(c"qemu_plugin_insn_data"))
        } else {
            InstructionData::Points(function!(c"qemu_plugin_insn_data"))
        };
        // SAFETY: the function of this name has this type in every interface; a null pointer is `None`.
        let reset = find(c"qemu_plugin_reset").map(|found| unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64, OnReset)>(found)
        });
        Ok(Self {
            reset,
            register_vcpu_init: function!(c"qemu_plugin_register_vcpu_init_cb"),
            register_instruction: function!(c"qemu_plugin_register_vcpu_insn_exec_cb"),
            register_vcpu_exit: function!(c"qemu_plugin_register_vcpu_exit_cb"),
            register_flush: function!(c"qemu_plugin_register_flush_cb"),
            register_translation: function!(c"qemu_plugin_register_vcpu_tb_trans_cb"),
            register_call: function!(c"qemu_plugin_register_vcpu_syscall_cb"),
            register_call_end: function!(c"qemu_plugin_register_vcpu_syscall_ret_cb"),
            register_access: function!(c"qemu_plugin_register_vcpu_mem_cb"),
            block_length: function!(c"qemu_plugin_tb_n_insns"),
            block_instruction: function!(c"qemu_plugin_tb_get_insn"),
            instruction_address: function!(c"qemu_plugin_insn_vaddr"),
            instruction_size: function!(c"qemu_plugin_insn_size"),
            instruction_data,
            access_size: function!(c"qemu_plugin_mem_size_shift"),
            access_is_store: function!(c"qemu_plugin_mem_is_store"),
        })
    }
}
