//! Many small requests in one call: what a call asks of a client is asked once, and a line is filled in
//! one go.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::client::Client;
use crate::error::Error;
use crate::owned::{Values, nth};
use crate::prepared::{Job, Prepared};

/// Requests that are put together before they are handed on.
const CHUNK: usize = 64;

/// Refuses an index beyond the values. All are looked at without a branch between.
#[inline(always)]
fn check<R>(requests: &[R], count: usize, index: impl Fn(&R) -> usize) {
    let beyond = |beyond, request| beyond | (index(request) >= count);
    if requests.iter().fold(false, beyond) {
        let index = requests.iter().map(index).find(|index| *index >= count);
        panic!("index {} of {count}", index.unwrap_or(count));
    }
}

impl<T, A, F, G, C> Prepared<'_, '_, T, A, F, G, C>
where
    T: Send + 'static,
    A: Copy + Send + 'static,
    F: Fn(&mut T, A) -> u64 + Copy + Send + 'static,
    G: Copy,
    C: Fn(G, Result<u64, Error>),
{
    /// Calls the operation on many of `values`: for each request the index of its value, an operand
    /// and a tag for the callback. What [`Prepared::call`] does for each in turn, at a fraction of its
    /// cost where all values are in one shard.
    ///
    /// # Errors
    /// As [`Prepared::call`]; after [`Error::Nested`], which only [`Ordered::Client`] knows, requests
    /// before the refused one are made.
    ///
    /// [`Ordered::Client`]: crate::Ordered::Client
    ///
    /// # Panics
    /// If an index is beyond the values: then nothing is called. If a callback panics that is run
    /// meanwhile: then requests behind it are not made.
    #[inline]
    pub fn call_batch(
        &self,
        values: &impl Values<T>,
        requests: &[(usize, A, G)],
    ) -> Result<(), Error> {
        if !values.are_of(self.client.domain()) {
            return Err(Error::Foreign);
        }
        self.gate.check()?;
        check(requests, values.count(), |(index, ..)| *index);
        if let Some((shard, first)) = values.run() {
            return self.fill(shard as usize, first, requests);
        }
        for &(index, operand, tag) in requests {
            let (shard, offset) = values.place(index);
            // SAFETY: a value of the client's domain.
            unsafe { self.put(shard as usize, offset, operand, tag)? };
        }
        Ok(())
    }

    /// Puts requests for values of one shard, which begin at the offset `first`, into lines.
    #[inline(always)]
    fn fill(&self, shard: usize, first: u32, requests: &[(usize, A, G)]) -> Result<(), Error> {
        let capacity = Job::<T, A, F, G, C>::CAPACITY;
        let lane = self.lanes.wrapping_add(shard);
        let mut rest = requests;
        while !rest.is_empty() {
            // SAFETY: a value of the domain is in one of its shards, each of which has a lane; this thread
            // alone has them, and no user code runs while a line is filled. A line that has our callback is
            // one of this kind, with room for another request.
            unsafe {
                if !(*lane).takes_common(self.common()) {
                    self.open(shard)?;
                }
                let room = capacity - (*lane).filled() as usize;
                let (now, later) = rest.split_at(rest.len().min(room));
                rest = later;
                let (words, tag_bytes) =
                    (Job::<T, A, F, G, C>::WORDS, Job::<T, A, F, G, C>::TAG_BYTES);
                let write = |place: *mut u32, tag_place: *mut u8| {
                    let one = |number: usize| {
                        let (index, operand, tag) = now[number];
                        let places = (place.add(number * words), tag_place.add(number * tag_bytes));
                        Job::<T, A, F, G, C>::write(places, nth::<T>(first, index), operand, tag);
                    };
                    // A whole line by a loop of known length, which needs no counter.
                    if now.len() == capacity {
                        (0..capacity).for_each(one);
                    } else {
                        (0..now.len()).for_each(one);
                    }
                };
                if (*lane).put(now.len(), words, tag_bytes, capacity, write) {
                    self.send(lane, shard);
                }
            }
        }
        Ok(())
    }
}

impl Client<'_> {
    /// Calls a small operation on the values at `indexes` and waits for all answers, which come in
    /// that order. The packed path: sixty-three requests share a line.
    ///
    /// ```
    /// # use linewise_delegate::{Domain, Error};
    /// # fn main() -> Result<(), Error> {
    /// let domain = Domain::dedicated(2).build()?;
    /// let counters = domain.own_sharded(100, |index| index as u64)?;
    /// let add = |counter: &mut u64, more: u64| {
    ///     *counter += more;
    ///     *counter
    /// };
    /// let client = domain.client()?;
    /// assert_eq!(client.call_batch(&counters, add, 5, &[7, 8, 7])?, [12, 13, 17]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::apply`]; of several the first in the order of the indexes.
    ///
    /// # Panics
    /// As [`Client::apply`]; if an index is beyond the values, before anything is called.
    pub fn call_batch<T, F>(
        &self,
        values: &impl Values<T>,
        operation: F,
        operand: u64,
        indexes: &[usize],
    ) -> Result<Vec<u64>, Error>
    where
        T: Send + 'static,
        F: Fn(&mut T, u64) -> u64 + Copy + Send + 'static,
    {
        self.may_wait()?;
        check(indexes, values.count(), |index| *index);
        // The callback may outlive this call, where one of another request throws.
        let answers: Rc<[Cell<u64>]> = indexes.iter().map(|_| Cell::new(0)).collect();
        let failed: Rc<RefCell<Option<(usize, Error)>>> = Rc::default();
        let then = {
            let (answers, failed) = (answers.clone(), failed.clone());
            move |place: usize, answer| match answer {
                Ok(answer) => answers[place].set(answer),
                Err(error) => {
                    let mut failed = failed.borrow_mut();
                    if failed.as_ref().is_none_or(|(first, _)| place < *first) {
                        *failed = Some((place, error));
                    }
                }
            }
        };
        let ask = self.prepare(move |value: &mut T, ()| operation(value, operand), then);
        let mut chunk = [(0, (), 0); CHUNK];
        for (number, some) in indexes.chunks(CHUNK).enumerate() {
            for (place, (request, index)) in chunk.iter_mut().zip(some).enumerate() {
                *request = (*index, (), number * CHUNK + place);
            }
            ask.call_batch(values, &chunk[..some.len()])?;
        }
        self.barrier()?;
        let failed = failed.borrow_mut().take();
        match failed {
            Some((_, error)) => Err(error),
            None => Ok(answers.iter().map(Cell::get).collect()),
        }
    }
}
