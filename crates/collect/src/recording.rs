//! A recording, by one of the sources.

use linewise_machine::signals::StopSignals;

use crate::error::Error;
use crate::kernel::Machine;
use crate::options::{Event, RecordOptions, TimerOptions};
use crate::recorder::Outcome;
use crate::sources::exact::{self, ExactRecordOptions};
use crate::sources::timer;

/// Where the rows come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Samples in proportion to thread time, and watches.
    Timer(TimerOptions),
    /// Every access, under emulation.
    Exact(ExactRecordOptions),
}

/// Records until the target ends (of named processes the last), the duration is over, or one of `signals` asks for that: any,
/// of a target that ran before; SIGTERM, of a launched one, which gets the others ([`Heard::pass_on`]). Call it from the only
/// thread of the process. The target is never stopped; nothing stays armed in it.
///
/// [`Heard::pass_on`]: linewise_machine::signals::Heard::pass_on
///
/// A launched target that is still running when its recording ends is asked to end (SIGTERM) with
/// all processes that descend from it, and waited for: after ten seconds of its duration, or when SIGTERM comes again, all are
/// killed. From here on this process is the one that orphans of its descendants come to.
///
/// # Errors
/// See [`Error`]. When the command cannot be run, no recording is left behind, and an older one that
/// was to be replaced is still there. A failure after the target has begun is no error but part of
/// the [`Outcome`].
pub fn record(
    options: &RecordOptions,
    source: &Source,
    signals: &StopSignals,
    tell: impl FnMut(Event<'_>),
) -> Result<Outcome, Error> {
    match source {
        Source::Timer(source) => timer::session::record(&Machine, (options, source), signals, tell),
        Source::Exact(source) => exact::record::record(options, source, signals, tell),
    }
}
