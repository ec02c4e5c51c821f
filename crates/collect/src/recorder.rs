//! How a target is recorded from its first to its last moment, by whatever source.

use std::time::Duration;

use linewise_machine::process::Ended;

use crate::bug;
use crate::error::Error;
use crate::kernel::{Kernel, Signals};
use crate::options::{Event, Progress};
use crate::target::life::{EndedBy, Life};

/// From one progress line to the next.
const PROGRESS: Duration = Duration::from_millis(500);

/// What came of a recording.
#[derive(Debug)]
pub struct Outcome {
    /// How the target ended, if it ended while recorded and is a child of this process.
    pub ended: Option<Ended>,
    /// Why the recording ended.
    pub ended_by: EndedBy,
    /// Samples recorded, of an exact run accesses followed.
    pub observed: u64,
    /// Why the recording is not whole: [`Event::Failed`] or [`Event::CutShort`] told so at that moment. What was
    /// flushed until then can be read.
    pub failure: Option<Error>,
}

/// A source at work on a target that runs. When it is dropped the target runs on by itself.
pub(crate) trait Follower<K: Kernel, S: Signals> {
    /// Waits until there may be something new, or it is time to look at the target.
    fn wait(&mut self, life: &mut Life<'_, K, S>) -> Result<(), Error>;

    /// Takes what there is: once more after the target's end.
    fn take(&mut self) -> Result<(), Error>;

    /// Samples or accesses so far, and threads that are alive.
    fn progress(&self) -> (u64, usize);

    /// The recording is over: nothing of it stands in the way of a target that is asked to end.
    fn release(&mut self) -> Result<(), Error>;

    /// Waits while the target ends.
    fn wait_for_the_end(&mut self, life: &mut Life<'_, K, S>) -> Result<(), Error>;
}

/// A source that writes a recording.
pub(crate) trait Recorder<K: Kernel, S: Signals>: Follower<K, S> + Sized {
    /// Takes in what is known at the beginning.
    fn begin(&mut self, tell: &mut impl FnMut(Event<'_>)) -> Result<(), Error>;

    /// Takes what is left behind the target's end, and says how a target has ended that ended like this under the source.
    ///
    /// # Errors
    /// It never began.
    fn close(&mut self, why: EndedBy, ended: Option<Ended>) -> Result<Option<Ended>, Error>;

    /// Completes the recording.
    fn finish(self, why: EndedBy, ended: Option<Ended>) -> Result<(), Error>;
}

/// Has `recorder` record a target until that is over, and the target ended if it was launched.
///
/// # Errors
/// [`Error::Wait`]: nobody knows what became of the target; those of [`Recorder::close`].
pub(crate) fn carry<K: Kernel, S: Signals>(
    mut life: Life<'_, K, S>,
    mut recorder: impl Recorder<K, S>,
    mut tell: impl FnMut(Event<'_>),
) -> Result<Outcome, Error> {
    let followed = bug::caught(|| {
        recorder.begin(&mut tell)?;
        follow(&mut life, &mut recorder, &mut tell)
    });
    let (why, mut ended) = match followed {
        Ok(followed) => followed,
        Err(error) => {
            let observed = recorder.progress().0;
            bug::drop_caught(recorder);
            return failed(life, error, observed, tell);
        }
    };
    // The target has ended: how is known, and is not lost with the rest.
    let closed = bug::caught(|| recorder.close(why, ended));
    let observed = recorder.progress().0;
    let failure = match closed {
        Ok(own) => {
            ended = own;
            bug::caught(|| recorder.finish(why, ended)).err()
        }
        Err(error @ Error::Bug { .. }) => {
            bug::drop_caught(recorder);
            Some(error)
        }
        Err(error) => return Err(error),
    };
    if let Some(error) = &failure {
        tell(Event::CutShort(error));
    }
    Ok(Outcome {
        ended,
        ended_by: why,
        observed,
        failure,
    })
}

/// Has `follower` follow a target until that is over, and the target ended if it was launched: why, and how that one did.
///
/// # Errors
/// [`Error::Wait`], and those of the follower.
pub(crate) fn follow<K: Kernel, S: Signals>(
    life: &mut Life<'_, K, S>,
    follower: &mut impl Follower<K, S>,
    tell: &mut impl FnMut(Event<'_>),
) -> Result<(EndedBy, Option<Ended>), Error> {
    let why = until_over(life, follower, tell)?;
    follower.release()?;
    loop {
        if let Some(ended) = life.ended()? {
            return Ok((why, ended));
        }
        follower.wait_for_the_end(life)?;
    }
}

/// Until the recording is over; why it is.
fn until_over<K: Kernel, S: Signals>(
    life: &mut Life<'_, K, S>,
    follower: &mut impl Follower<K, S>,
    tell: &mut impl FnMut(Event<'_>),
) -> Result<EndedBy, Error> {
    let mut shown = Duration::ZERO;
    loop {
        follower.wait(life)?;
        let over = life.over()?;
        follower.take()?;
        let elapsed = life.elapsed();
        if elapsed.saturating_sub(shown) >= PROGRESS {
            shown = elapsed;
            let (observed, threads) = follower.progress();
            tell(Event::Progress(Progress {
                elapsed,
                observed,
                threads,
            }));
        }
        if let Some(why) = over {
            return Ok(why);
        }
    }
}

/// It is the recording that failed, and the target runs on to its end, unwatched.
///
/// # Errors
/// [`Error::Wait`].
pub(crate) fn failed<K: Kernel, S: Signals>(
    mut life: Life<'_, K, S>,
    error: Error,
    observed: u64,
    mut tell: impl FnMut(Event<'_>),
) -> Result<Outcome, Error> {
    tell(Event::Failed(&error));
    let (ended_by, ended) = life.outlast()?;
    Ok(Outcome {
        ended,
        ended_by,
        observed,
        failure: Some(error),
    })
}
