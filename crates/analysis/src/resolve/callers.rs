//! Through which member or variable of a caller a function reaches what it was given, by the stacks of the samples that
//! fell there.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{Address, Pid, SampleClass, Tables, TypedAccess};

use super::source_frames::chains_by_id;

use super::Resolver;
use super::typer::{Argument, Given, Typer};

/// Stacks of one instruction that are looked at, the most frequent.
const MOST_STACKS: usize = 32;
/// Callers of one stack that are asked.
const MOST_CALLERS: usize = 6;
/// The share of an instruction's samples that has to agree on what is named.
const AGREED: f64 = 0.9;
/// Names of one instruction.
const MOST_NAMES: usize = 2;

/// The stacks of one instruction without itself, each with the number of its samples.
type Stacks<'a> = Vec<(&'a [Address], u64)>;

/// Who called the functions of instructions, as samples and traps saw them.
#[derive(Debug, Default)]
pub struct Callers<'a>(HashMap<(Pid, Address), Stacks<'a>>);

impl<'a> Callers<'a> {
    /// Of the samples and traps of a recording.
    #[must_use]
    pub fn new(tables: &'a Tables) -> Self {
        let stacks = chains_by_id(&tables.stacks);
        let samples = tables
            .samples
            .iter()
            .filter(|sample| sample.class == SampleClass::Access)
            .map(|sample| (sample.pid, sample.access_ip, sample.stack));
        let traps = tables
            .traps
            .iter()
            .map(|trap| (trap.pid, trap.access_ip, trap.stack));
        let mut seen: HashMap<(Pid, Address), BTreeMap<&[Address], u64>> = HashMap::new();
        for (pid, ip, stack) in samples.chain(traps) {
            if let Some((_, callers)) = stacks.get(&stack).and_then(|frames| frames.split_first()) {
                let callers = callers.get(..MOST_CALLERS).unwrap_or(callers);
                let of_this = seen.entry((pid, ip)).or_default();
                *of_this.entry(callers).or_default() += 1;
            }
        }
        let most_first = |callers: BTreeMap<&'a [Address], u64>| {
            let mut callers: Vec<_> = callers.into_iter().collect();
            callers.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            callers.truncate(MOST_STACKS);
            callers
        };
        Self(
            seen.into_iter()
                .map(|(code, callers)| (code, most_first(callers)))
                .collect(),
        )
    }
}

/// A function that was called with an argument.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Called {
    pid: Pid,
    /// The number of its module.
    module: usize,
    argument: Argument,
}

/// One stack of an instruction on the way up.
struct Climb<'a> {
    row: usize,
    /// Samples that had it.
    count: u64,
    called: Called,
    /// Callers that were not asked, the nearest first.
    callers: &'a [Address],
}

impl Resolver<'_> {
    /// Says of the accesses `given`, numbers of rows and the arguments through which they reach memory, what holds these
    /// in the callers; they keep the parameter's name where callers differ or do not know.
    pub(super) fn ask_callers(
        &mut self,
        rows: &mut [TypedAccess],
        given: Vec<(usize, Argument)>,
        callers: &Callers<'_>,
    ) {
        let mut climbing: Vec<Climb<'_>> = Vec::new();
        let mut samples: BTreeMap<usize, u64> = BTreeMap::new();
        for (row, argument) in given {
            let code @ (pid, ip) = (rows[row].pid, rows[row].ip);
            let Some((module, _)) = self.module_at(pid, ip) else {
                continue;
            };
            for &(callers, count) in callers.0.get(&code).into_iter().flatten() {
                *samples.entry(row).or_default() += count;
                let called = Called {
                    pid,
                    module,
                    argument,
                };
                climbing.push(Climb {
                    row,
                    count,
                    called,
                    callers,
                });
            }
        }
        let mut names: BTreeMap<usize, BTreeMap<String, u64>> = BTreeMap::new();
        for _ in 0..MOST_CALLERS {
            let given = self.given(&climbing);
            climbing.retain_mut(|climb| {
                let Some((back, callers)) = climb.callers.split_first() else {
                    return false;
                };
                match given.get(&(climb.called, *back)) {
                    Some(Given::Argument(argument)) => {
                        (climb.callers, climb.called.argument) = (callers, *argument);
                        true
                    }
                    Some(Given::Held(name)) => {
                        let of_row = names.entry(climb.row).or_default();
                        *of_row.entry(name.clone()).or_default() += climb.count;
                        false
                    }
                    None => false,
                }
            });
        }
        for (row, names) in names {
            if let Some(name) = agreed(names, samples[&row]) {
                rows[row].through = name;
            }
        }
    }

    /// What the nearest callers give, each asked once and those of one function one after the other.
    fn given(&mut self, climbing: &[Climb<'_>]) -> HashMap<(Called, Address), Given> {
        let mut asked: Vec<(Called, Address)> = climbing
            .iter()
            .filter_map(|climb| Some((climb.called, *climb.callers.first()?)))
            .collect();
        asked.sort_by_key(|(called, back)| (called.pid, *back, called.argument));
        asked.dedup();
        let mut given = HashMap::new();
        for (called, back) in asked {
            let call = Address(back.0.saturating_sub(1));
            let module = self.module_at(called.pid, call);
            let Some((number, bias)) = module.filter(|(number, _)| *number == called.module) else {
                continue;
            };
            let typer = self.module(number).and_then(Typer::new);
            let own = back.0.wrapping_sub(bias);
            if let Some(answer) = typer.and_then(|typer| typer.given(own, &called.argument)) {
                given.insert((called, back), answer);
            }
        }
        given
    }
}

/// The name, or the few, that nearly all of `samples` agree on.
fn agreed(names: BTreeMap<String, u64>, samples: u64) -> Option<String> {
    let mut names: Vec<(String, u64)> = names.into_iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut covered = 0;
    let needed = names.iter().position(|(_, count)| {
        covered += count;
        covered as f64 >= AGREED * samples as f64
    })?;
    names.truncate(needed + 1);
    let names: Vec<String> = names.into_iter().map(|(name, _)| name).collect();
    (names.len() <= MOST_NAMES).then(|| names.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nearly_all_samples_agree_on_is_named() {
        let names = |counts: &[(&str, u64)]| {
            counts
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect()
        };
        let one = names(&[("S.a", 95), ("S.b", 5)]);
        assert_eq!(agreed(one, 100).as_deref(), Some("S.a"));
        let two = names(&[("S.a", 40), ("S.b", 55)]);
        assert_eq!(agreed(two.clone(), 100).as_deref(), Some("S.b | S.a"));
        // Many of which nobody knows.
        assert_eq!(agreed(two, 110), None);
        let three = names(&[("S.a", 40), ("S.b", 30), ("S.c", 30)]);
        assert_eq!(agreed(three, 100), None);
    }
}
