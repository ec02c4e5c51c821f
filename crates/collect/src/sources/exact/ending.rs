//! By which signal the program ended, in its own numbers.
//!
//! QEMU keeps the first real-time signals to itself, and the program's are some numbers higher outside: two in QEMU 7.2.
//! How many is measured, when it matters: a shell that ends by a signal under this QEMU.

use std::env::consts::ARCH;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use linewise_machine::process::Ended;

/// The first real-time signals are the threading library's own; a program ends by later ones.
const FIRST: i32 = 34;
/// One in the middle, with which the shell ends.
const TRIED: i32 = 40;

/// How the program under `qemu`, which ended like this, would have ended by itself. A signal of the threading library was
/// no program's: it came from outside, with the number that it has there.
pub(super) fn of_the_program(ended: Ended, qemu: &[u8]) -> Ended {
    match ended {
        Ended::Signal(outside) if outside >= FIRST => {
            let inside = outside - shift(Path::new(OsStr::from_bytes(qemu)));
            Ended::Signal(if inside < FIRST { outside } else { inside })
        }
        _ => ended,
    }
}

/// How much higher the numbers are outside; 0 if that cannot be found out. The emulators of one folder are of one version,
/// and there is a shell for that of this architecture.
fn shift(qemu: &Path) -> i32 {
    let status = Command::new(qemu.with_file_name(format!("qemu-{ARCH}")))
        .args(["/bin/sh", "-c", &format!("kill -{TRIED} $$")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let signal = status.ok().and_then(|status| status.signal());
    signal.map_or(0, |outside| outside - TRIED)
}
