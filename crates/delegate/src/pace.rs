//! As many requests at a time as a wanted latency allows.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::Error;

/// By how much a window that took too long shortens those after it.
const SHORTER: f64 = 0.9;
/// By how much one that did not lengthens them. The two balance where one window of 200 takes too long:
/// then fewer than one request of 100 waits longer than it should.
const LONGER: f64 = 1.000_53;
/// The same, before the first that took too long.
const FIRST_LONGER: f64 = 1.5;
/// The longest window: beyond it nothing is gained.
const MOST: f64 = 65_536.0;

/// Keeps what a client asks from waiting longer than wanted; made by [`Client::pace`].
pub struct Pace<'p, 'c> {
    client: &'p Client<'c>,
    target: Duration,
    /// Requests of a window.
    window: Cell<f64>,
    /// How many may follow in this one.
    left: Cell<u32>,
    begun: Cell<Option<Instant>>,
    longer: Cell<f64>,
}

impl<'c> Client<'c> {
    /// Keeps 99 of 100 requests from waiting longer than `target`, where that can be: who asks far ahead has
    /// much throughput, and each request waits behind those before it. After so many requests as were
    /// answered in time before, [`Pace::step`] waits for their answers; how many those are follows from what
    /// the last windows took.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use linewise_delegate::{Domain, Error};
    /// # fn main() -> Result<(), Error> {
    /// let domain = Domain::dedicated(1).build()?;
    /// let counters = domain.own_sharded(100, |_| 0u64)?;
    /// let client = domain.client()?;
    /// let add = client.prepare(|counter: &mut u64, more: u32| *counter += u64::from(more), |(), _| ());
    /// let pace = client.pace(Duration::from_micros(10));
    /// for index in 0..1000 {
    ///     add.call(counters.at(index % 100), 2, ())?;
    ///     pace.step()?;
    /// }
    /// client.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A target below what one waiting call takes makes every request wait for its answer, and so does a
    /// machine whose CPUs are taken by others for longer than that. The clock is read twice in a window.
    pub fn pace(&self, target: Duration) -> Pace<'_, 'c> {
        Pace {
            client: self,
            target,
            window: Cell::new(1.0),
            left: Cell::new(1),
            begun: Cell::new(None),
            longer: Cell::new(FIRST_LONGER),
        }
    }
}

impl Pace<'_, '_> {
    /// After a request: waits for the answers to all of this client's requests, where it is time. Who does
    /// something else for long between two requests calls [`Client::barrier`] before, as what was asked last
    /// is not sent until then.
    ///
    /// # Errors
    /// [`Error::Nested`] inside a delegated function or a callback.
    ///
    /// # Panics
    /// If a callback panics that is run meanwhile.
    #[inline(always)]
    pub fn step(&self) -> Result<(), Error> {
        let left = self.left.get() - 1;
        if left > 0 {
            self.left.set(left);
            return Ok(());
        }
        self.turn()
    }

    /// How many requests are asked before their answers are waited for, now.
    pub fn window(&self) -> usize {
        self.window.get() as usize
    }

    /// After the first request of a window, and after its last.
    #[inline(never)]
    fn turn(&self) -> Result<(), Error> {
        // Its time begins here: what its thread did before the first request counts for nothing.
        let begun = self.begun.get().unwrap_or_else(Instant::now);
        let rest = self.window.get() as u32 - 1;
        if rest > 0 && self.begun.get().is_none() {
            self.begun.set(Some(begun));
            self.left.set(rest);
            return Ok(());
        }
        self.client.barrier()?;
        self.begun.set(None);
        let factor = if begun.elapsed() > self.target {
            self.longer.set(LONGER);
            SHORTER
        } else {
            self.longer.get()
        };
        self.window
            .set((self.window.get() * factor).clamp(1.0, MOST));
        Ok(())
    }
}

impl std::fmt::Debug for Pace<'_, '_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Pace")
            .field("target", &self.target)
            .field("window", &self.window())
            .finish_non_exhaustive()
    }
}
