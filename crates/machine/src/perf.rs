//! Perf events: the timer sampler, one-shot breakpoints and watchpoints, and their ring buffers.
//!
//! Everything here works from another process, and but for what is said otherwise unprivileged at
//! `perf_event_paranoid` 2 for one's own processes. Samplers of a thread are opened for each CPU with
//! `inherit`, so that the kernel itself follows new threads and forks and all of a CPU's events share
//! one ring. Samplers of a CPU, whoever runs there, cost nothing at a switch between threads, but take
//! a privilege. Breakpoints are opened for one thread and bring a ring of their own, because the kernel
//! lets an event write only into a ring of the same CPU and task.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use perf_event_open_sys::bindings as sys;

use crate::records::{ReadFormat, SampleFormat};
use crate::registers::REGISTER_MASK;
use crate::ring::Ring;

/// The fields that every sample of ours carries.
const SAMPLE_TYPE: u64 = (sys::PERF_SAMPLE_IP
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_ADDR
    | sys::PERF_SAMPLE_ID
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_PERIOD
    | sys::PERF_SAMPLE_READ
    | sys::PERF_SAMPLE_CALLCHAIN
    | sys::PERF_SAMPLE_REGS_USER) as u64;

const READ_FORMAT: u64 =
    (sys::PERF_FORMAT_TOTAL_TIME_ENABLED | sys::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;

/// Bytes of the user's stack that samplers copy, for callers in code without frame pointers: those of some ten
/// functions.
const STACK_BYTES: u32 = 2048;

/// Depth of the call chains.
const MAX_STACK: u16 = 24;

/// What a breakpoint waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakOn {
    /// Execution of the instruction at the address.
    Execute,
    /// A load or a store of any byte of the chunk.
    ReadWrite,
    /// A store to any byte of the chunk.
    Write,
}

/// One open perf event.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
    format: SampleFormat,
}

fn attributes(kind: u32) -> sys::perf_event_attr {
    let mut attr = sys::perf_event_attr::default();
    attr.type_ = kind;
    attr.size = size_of::<sys::perf_event_attr>() as u32;
    attr.sample_type = SAMPLE_TYPE;
    attr.sample_regs_user = REGISTER_MASK;
    attr.clockid = libc::CLOCK_MONOTONIC;
    attr.sample_max_stack = MAX_STACK;
    attr.set_disabled(1);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr.set_exclude_callchain_kernel(1);
    attr.set_use_clockid(1);
    attr
}

/// Whom an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// This thread.
    Thread(u32),
    /// Everyone on its CPU. Takes CAP_PERFMON, root or `perf_event_paranoid` at 0 or below.
    Everyone,
}

impl Whom {
    /// As the kernel wants it.
    fn tid(self) -> io::Result<i32> {
        match self {
            Self::Thread(tid) => {
                i32::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))
            }
            Self::Everyone => Ok(-1),
        }
    }
}

fn open(
    attr: &mut sys::perf_event_attr,
    whom: Whom,
    cpu: i32,
    group: Option<&Event>,
) -> io::Result<Event> {
    let tid = whom.tid()?;
    // SAFETY: `attr` is a valid, fully initialised attribute block whose `size` field says how
    // long it is; the call reads it and returns a new descriptor or an error.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_mut(attr),
            tid,
            cpu,
            group.map_or(-1, Event::raw_fd),
            libc::c_ulong::from(sys::PERF_FLAG_FD_CLOEXEC),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor to us and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
    let format = SampleFormat {
        fields: attr.sample_type,
        counts: attr.read_format,
        registers: attr.sample_regs_user,
    };
    Ok(Event { fd, format })
}

/// How a timer sampler is opened.
#[derive(Clone, Copy, Debug)]
pub struct SamplerOptions {
    /// Thread time between two samples, in ns.
    pub period_ns: u64,
    /// Start counting when the thread calls exec, rather than on [`Event::enable`].
    pub enable_on_exec: bool,
    /// Follow new threads and child processes.
    pub inherit: bool,
}

impl Event {
    /// A `cpu-clock` sampler on `cpu`, whose samples have a slice of the user's stack. That of a thread samples user
    /// code alone and tells of its switches, too; that of everyone samples the kernel as well where that is allowed.
    ///
    /// # Errors
    /// The kernel's: EACCES (not ours, or `perf_event_paranoid` above 2), ESRCH (gone), EMFILE.
    pub fn sampler(whom: Whom, cpu: u32, options: SamplerOptions) -> io::Result<Self> {
        let mut attr = attributes(sys::PERF_TYPE_SOFTWARE);
        attr.config = u64::from(sys::PERF_COUNT_SW_CPU_CLOCK);
        attr.__bindgen_anon_1.sample_period = options.period_ns;
        attr.set_inherit(options.inherit.into());
        attr.set_enable_on_exec(options.enable_on_exec.into());
        attr.set_context_switch(matches!(whom, Whom::Thread(_)).into());
        attr.set_exclude_idle(1);
        attr.set_sample_id_all(1);
        // The kernel refuses PERF_SAMPLE_READ together with inherit before 6.12.
        attr.sample_type &= !u64::from(sys::PERF_SAMPLE_READ);
        attr.sample_type |= u64::from(sys::PERF_SAMPLE_STACK_USER);
        attr.sample_stack_user = STACK_BYTES;
        attr.__bindgen_anon_2.wakeup_events = 0;
        attr.set_watermark(1);
        attr.__bindgen_anon_2.wakeup_watermark = 1 << 15;
        let cpu = i32::try_from(cpu).unwrap_or(-1);
        if whom == Whom::Everyone {
            attr.set_exclude_kernel(0);
            if let Ok(event) = open(&mut attr, whom, cpu, None) {
                return Ok(event);
            }
            attr.set_exclude_kernel(1);
        }
        open(&mut attr, whom, cpu, None)
    }

    /// An event that counts nothing and tells of new threads, their names, ends and mappings, also
    /// while the sampler beside it is off.
    ///
    /// # Errors
    /// As for [`Event::sampler`].
    pub fn tracker(whom: Whom, cpu: u32, options: SamplerOptions) -> io::Result<Self> {
        let mut attr = attributes(sys::PERF_TYPE_SOFTWARE);
        attr.config = u64::from(sys::PERF_COUNT_SW_DUMMY);
        attr.set_inherit(options.inherit.into());
        attr.set_enable_on_exec(options.enable_on_exec.into());
        attr.set_task(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_mmap(1);
        attr.set_sample_id_all(1);
        attr.sample_type &= !u64::from(sys::PERF_SAMPLE_READ);
        open(&mut attr, whom, i32::try_from(cpu).unwrap_or(-1), None)
    }

    /// A counter of what a kind of event, with its number there, does in someone's code outside the kernel, disabled.
    ///
    /// # Errors
    /// The kernel's: ENOENT and EOPNOTSUPP where there is no such event.
    pub fn counter(whom: Whom, kind: u32, number: u64) -> io::Result<Self> {
        let mut attr = sys::perf_event_attr::default();
        attr.type_ = kind;
        attr.size = size_of::<sys::perf_event_attr>() as u32;
        attr.config = number;
        attr.read_format = READ_FORMAT;
        attr.set_disabled(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        open(&mut attr, whom, -1, None)
    }

    /// An event that counts nothing and tells which threads come to and leave a CPU, whosever they are.
    ///
    /// # Errors
    /// As for [`Event::sampler`] of [`Whom::Everyone`].
    pub fn switches(cpu: u32) -> io::Result<Self> {
        let mut attr = attributes(sys::PERF_TYPE_SOFTWARE);
        attr.config = u64::from(sys::PERF_COUNT_SW_DUMMY);
        attr.set_context_switch(1);
        attr.set_sample_id_all(1);
        attr.sample_type &= !u64::from(sys::PERF_SAMPLE_READ);
        open(
            &mut attr,
            Whom::Everyone,
            i32::try_from(cpu).unwrap_or(-1),
            None,
        )
    }

    /// What a BPF program writes into on its CPU: samples with process, thread, time, what the program says, user registers
    /// and `stack_bytes` of the stack. `kind` is the number of that event.
    ///
    /// # Errors
    /// As for [`Event::sampler`] of [`Whom::Everyone`].
    pub(crate) fn program_output(cpu: u32, kind: u64, stack_bytes: u32) -> io::Result<Self> {
        let mut attr = attributes(sys::PERF_TYPE_SOFTWARE);
        attr.config = kind;
        attr.__bindgen_anon_1.sample_period = 1;
        attr.sample_type = u64::from(
            sys::PERF_SAMPLE_TID
                | sys::PERF_SAMPLE_TIME
                | sys::PERF_SAMPLE_RAW
                | sys::PERF_SAMPLE_REGS_USER,
        );
        if stack_bytes > 0 {
            attr.sample_type |= u64::from(sys::PERF_SAMPLE_STACK_USER);
            attr.sample_stack_user = stack_bytes;
        }
        attr.set_disabled(0);
        open(
            &mut attr,
            Whom::Everyone,
            i32::try_from(cpu).unwrap_or(-1),
            None,
        )
    }

    /// A breakpoint in thread `tid` that delivers one sample and then stays silent. Nothing happens
    /// before [`Event::arm_once`].
    ///
    /// A second `arm_once` of the same event must not happen: Linux 6.18 then leaves the debug
    /// register armed but silent, and the target crawls. Open a new event for each shot.
    ///
    /// Members of a `group` reach the hardware together with its first event: arm the members
    /// before it, and the thread is interrupted once for all of them. When the first event fires or
    /// is disabled, the others are taken down with it. Close the members before it: without a first
    /// event they would be armed again, each for itself.
    ///
    /// # Errors
    /// ENOSPC: all debug registers of the thread are taken. EACCES, ESRCH as above.
    pub fn breakpoint(
        tid: u32,
        address: u64,
        length: u32,
        on: BreakOn,
        group: Option<&Self>,
    ) -> io::Result<Self> {
        let mut attr = attributes(sys::PERF_TYPE_BREAKPOINT);
        attr.read_format = READ_FORMAT;
        attr.__bindgen_anon_1.sample_period = 1;
        attr.bp_type = match on {
            BreakOn::Execute => sys::HW_BREAKPOINT_X,
            BreakOn::ReadWrite => sys::HW_BREAKPOINT_RW,
            BreakOn::Write => sys::HW_BREAKPOINT_W,
        };
        attr.__bindgen_anon_3.bp_addr = address;
        // An execution breakpoint's length is that of a long, whatever the instruction's.
        attr.__bindgen_anon_4.bp_len = match on {
            BreakOn::Execute => size_of::<libc::c_long>() as u64,
            _ => u64::from(length),
        };
        // A member that counts as enabled while its group is off is opened and given its one shot
        // without interrupting the thread.
        attr.set_disabled(group.is_none().into());
        open(&mut attr, Whom::Thread(tid), -1, group)
    }

    fn ioctl(&self, request: u64, argument: libc::c_ulong) -> io::Result<()> {
        // SAFETY: the descriptor is open for as long as `self` lives; the requests used here take
        // an integer by value, no pointer.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), request as libc::Ioctl, argument) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Starts counting, in inherited events too.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable(&self) -> io::Result<()> {
        self.ioctl(u64::from(sys::ENABLE), 0)
    }

    /// Stops counting, in inherited events too.
    ///
    /// # Errors
    /// The kernel's.
    pub fn disable(&self) -> io::Result<()> {
        self.ioctl(u64::from(sys::DISABLE), 0)
    }

    /// Arms a breakpoint for one shot.
    ///
    /// # Errors
    /// The kernel's.
    pub fn arm_once(&self) -> io::Result<()> {
        self.arm_shots(1)
    }

    /// Arms a breakpoint for several shots, each of which delivers a sample. As with
    /// [`Event::arm_once`], only once.
    ///
    /// # Errors
    /// The kernel's.
    pub fn arm_shots(&self, shots: u32) -> io::Result<()> {
        self.ioctl(u64::from(sys::REFRESH), shots.into())
    }

    /// Lets this event write into the ring of `other` (same CPU and task), whose records are read in the format of `other`.
    ///
    /// # Errors
    /// EINVAL if CPU or task differ.
    pub fn redirect_to(&self, other: &Self) -> io::Result<()> {
        self.ioctl(
            u64::from(sys::SET_OUTPUT),
            other.fd.as_raw_fd() as libc::c_ulong,
        )
    }

    /// The kernel's id of this event: what its samples carry.
    ///
    /// # Errors
    /// The kernel's.
    pub fn id(&self) -> io::Result<u64> {
        let mut id = 0u64;
        // SAFETY: the request writes one u64 through the pointer, which is valid for the call.
        let result = unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                sys::ID as libc::Ioctl,
                std::ptr::from_mut(&mut id),
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(id)
    }

    /// Count, and the time in ns that the event was enabled and that it was really counting.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> io::Result<ReadFormat> {
        let mut words = [0u64; 3];
        // SAFETY: the buffer is valid for its whole length; read writes at most that many bytes.
        let got = unsafe {
            libc::read(
                self.fd.as_raw_fd(),
                words.as_mut_ptr().cast(),
                size_of_val(&words),
            )
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(ReadFormat {
            count: words[0],
            enabled_ns: words[1],
            running_ns: words[2],
        })
    }

    /// Maps a ring of `pages` data pages (a power of two) for this event.
    ///
    /// # Errors
    /// EPERM: more than `perf_event_mlock_kb` allows this user. ENOMEM.
    pub fn map_ring(&self, pages: usize) -> io::Result<Ring> {
        Ring::map(self.fd.as_raw_fd(), pages, self.format)
    }

    /// The descriptor, for polling.
    #[must_use]
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
