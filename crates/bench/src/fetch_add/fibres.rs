//! Fibres that wait for their answers: Gepard's way. A module of its own, since only a promise about
//! their bodies lets them run.
#![expect(unsafe_code, reason = "fibres are not safe, whatever runs them")]

use super::delegated::{Setting, settle};
use super::harness::{Next, Outcome, Tally, play};
use super::messages::Variable;
use super::spec::{FIBRES, FetchAddError};
use std::cell::Cell;

/// Clients that wait for every answer, in many fibres each.
pub(super) fn waiting<N: Next>(setting: &Setting<'_>) -> Result<Outcome, FetchAddError> {
    let (domain, shards, variables) = setting.dedicated()?;
    let played = play(&setting.clients(), |seat| {
        let tally = Cell::new(Tally::default());
        let client = domain.client()?;
        let (asks, values, sum) = (&client, &variables, &tally);
        seat.begin();
        // SAFETY: the bodies call, count, and leave nothing in their thread.
        unsafe {
            client.fibres(|fibres| {
                for fibre in 0..FIBRES {
                    fibres.spawn(move |_| {
                        let mine = seat.hammer_as(fibre, |random| {
                            let answer = asks.call(
                                values.at(shards.any(random)),
                                |variable: &mut Variable, _| variable.fetch::<N>(),
                                0,
                            );
                            answer.unwrap_or(u64::MAX)
                        });
                        sum.set(sum.get().plus(mine));
                    });
                }
            })?;
        }
        Ok(tally.get())
    })?;
    settle(&domain, &variables, played)
}
