//! Where threads run.

use crate::error::Error;

/// Pins the calling thread to `cpu`.
///
/// # Errors
/// [`Error::System`] if the process may not run there.
pub fn pin(cpu: u32) -> Result<(), Error> {
    let system = |why: String, errno| Error::System {
        what: "pinning a thread to a CPU",
        why: format!("CPU {cpu}: {why}"),
        errno,
    };
    if cpu as usize >= libc::CPU_SETSIZE as usize {
        return Err(system("no such CPU".to_owned(), Some(libc::EINVAL)));
    }
    // SAFETY: a CPU set is plain bits, and zero is an empty one. The number is below its size, checked above, and
    // it is valid for that; 0 is the calling thread.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result == 0 {
        Ok(())
    } else {
        let error = std::io::Error::last_os_error();
        Err(system(error.to_string(), error.raw_os_error()))
    }
}
