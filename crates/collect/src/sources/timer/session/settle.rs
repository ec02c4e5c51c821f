//! How a target ends whose recording is over, or has failed.

use std::time::Duration;

use linewise_machine::process::Ended;
use linewise_recording::Time;

use super::begin::Running;
use crate::error::Error;
use crate::kernel::{Kernel, Signals, TargetChild};
use crate::target::family::{Ending, Family};

/// Between two looks at a target that is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Waits for what would have ended the recording of a launched target.
pub(super) fn outlast<K: Kernel>(
    kernel: &K,
    running: &mut Running<K>,
    family: &Family<K>,
    signals: &impl Signals,
    duration: Option<Duration>,
    start: Time,
) -> Result<&'static str, Error> {
    let Running::Child(child) = running else {
        return Ok("interrupted");
    };
    loop {
        family.reap(child);
        let gone = child.try_wait().map_err(Error::Wait)?.is_some();
        let came = signals.next();
        if came.is_some_and(|came| kernel.pass_on(came, child.pid())) {
            return Ok("interrupted");
        }
        if gone {
            return Ok("target-exited");
        }
        let lasted = u128::from(kernel.now().since(start));
        if duration.is_some_and(|duration| lasted >= duration.as_nanos()) {
            return Ok("duration");
        }
        kernel.wait_readable(&[signals.raw_fd()], LOOK);
    }
}

/// Brings a launched target to its end, with all that descends from it; an attached one goes on
/// untouched, and so does what a target left behind when it ended by itself.
pub(super) fn settle<K: Kernel>(
    kernel: &K,
    running: &mut Running<K>,
    family: &Family<K>,
    ended_by: &str,
    signals: &impl Signals,
) -> Result<Option<Ended>, Error> {
    let Running::Child(child) = running else {
        return Ok(None);
    };
    if ended_by == "target-exited" {
        return child.wait().map(Some).map_err(Error::Wait);
    }
    let wait = Error::Wait;
    let by_duration = ended_by == "duration";
    let asked = Ending::of(kernel.clone(), child, &family.members(), by_duration);
    let mut ending = asked.map_err(wait)?;
    loop {
        family.reap(child);
        if let Some(ended) = ending.look(child, || family.members()).map_err(wait)? {
            return Ok(Some(ended));
        }
        kernel.wait_readable(&[signals.raw_fd()], LOOK);
        let came = signals.next();
        if came.is_some_and(|came| kernel.pass_on(came, child.pid())) {
            ending.insist();
        }
    }
}
