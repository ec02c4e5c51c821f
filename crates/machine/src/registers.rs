//! The user registers that samples bring.

/// The user registers that every sample carries, in the order of the kernel's mask (x86-64).
///
/// ax bx cx dx si di bp sp ip flags, then r8 to r15; cs, ss and the other segments are left out.
#[cfg(target_arch = "x86_64")]
pub const REGISTER_MASK: u64 = 0x3ff | (0xff << 16);
/// x0 to x30, sp and pc (aarch64).
#[cfg(target_arch = "aarch64")]
pub const REGISTER_MASK: u64 = (1 << 33) - 1;

/// How many registers [`REGISTER_MASK`] names.
pub const REGISTER_COUNT: usize = REGISTER_MASK.count_ones() as usize;

/// The user registers of an interrupted thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    values: [u64; REGISTER_COUNT],
    /// Not sampled: found elsewhere, if at all.
    thread_base: Option<u64>,
}

impl Registers {
    /// Registers with every value zero except those given by the kernel's number.
    #[must_use]
    pub fn from_pairs(pairs: &[(u32, u64)]) -> Self {
        let mut registers = Self {
            values: [0; REGISTER_COUNT],
            thread_base: None,
        };
        for &(number, value) in pairs {
            if let Some(slot) = Self::slot(number) {
                registers.values[slot] = value;
            }
        }
        registers
    }

    /// All registers, in the order of [`REGISTER_MASK`].
    pub(crate) fn from_values(values: [u64; REGISTER_COUNT]) -> Self {
        Self {
            values,
            thread_base: None,
        }
    }

    fn slot(number: u32) -> Option<usize> {
        let bit = 1u64.checked_shl(number)?;
        (REGISTER_MASK & bit != 0).then(|| (REGISTER_MASK & (bit - 1)).count_ones() as usize)
    }

    /// The value of the register with the kernel's number `number` (`asm/perf_regs.h`).
    #[must_use]
    pub fn get(&self, number: u32) -> Option<u64> {
        Self::slot(number).map(|slot| self.values[slot])
    }

    /// The same with the base that the thread's local variables are counted from, if it is known.
    #[must_use]
    pub fn with_thread_base(self, thread_base: Option<u64>) -> Self {
        Self {
            thread_base,
            ..self
        }
    }

    /// The base that the thread's local variables are counted from (x86-64: of the segment `fs`).
    #[must_use]
    pub fn thread_base(&self) -> Option<u64> {
        self.thread_base
    }

    /// The user's instruction that runs next.
    #[must_use]
    pub fn instruction_pointer(&self) -> u64 {
        self.get(INSTRUCTION_POINTER).unwrap_or(0)
    }

    /// The first two arguments of the system call that a thread in the kernel is in; `None` if it is in none, or that
    /// cannot be told from the registers.
    #[must_use]
    pub fn call_arguments(&self) -> Option<[u64; 2]> {
        #[cfg(target_arch = "x86_64")]
        {
            // At its entry the kernel puts the error of a call that does not exist where the result will be.
            let pending = self.get(0)? as i64 == -i64::from(libc::ENOSYS);
            pending.then_some([self.get(5)?, self.get(4)?])
        }
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// Where a thread goes on after its last system call, if it has done nothing since: the call itself leaves that in a
    /// register.
    #[must_use]
    pub fn call_returns_to(&self) -> Option<u64> {
        #[cfg(target_arch = "x86_64")]
        {
            self.get(2)
        }
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// The user stack pointer.
    #[must_use]
    pub fn stack_pointer(&self) -> u64 {
        self.get(STACK_POINTER).unwrap_or(0)
    }

    /// Whether string instructions go down in memory.
    #[must_use]
    pub fn goes_down(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            const FLAGS: u32 = 9;
            const DIRECTION: u64 = 1 << 10;
            self.get(FLAGS).is_some_and(|flags| flags & DIRECTION != 0)
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// The register in which compiled Go keeps the running goroutine's descriptor.
    #[must_use]
    pub fn goroutine(&self) -> Option<u64> {
        self.get(GOROUTINE)
    }

    /// The register that points to the frame, in code that uses it so.
    #[must_use]
    pub fn frame_pointer(&self) -> u64 {
        self.get(FRAME_POINTER).unwrap_or(0)
    }
}

#[cfg(target_arch = "x86_64")]
const STACK_POINTER: u32 = 7;
#[cfg(target_arch = "x86_64")]
const FRAME_POINTER: u32 = 6;
#[cfg(target_arch = "x86_64")]
const GOROUTINE: u32 = 22;
#[cfg(target_arch = "x86_64")]
const INSTRUCTION_POINTER: u32 = 8;
#[cfg(target_arch = "aarch64")]
const STACK_POINTER: u32 = 31;
#[cfg(target_arch = "aarch64")]
const FRAME_POINTER: u32 = 29;
#[cfg(target_arch = "aarch64")]
const GOROUTINE: u32 = 28;
#[cfg(target_arch = "aarch64")]
const INSTRUCTION_POINTER: u32 = 32;
