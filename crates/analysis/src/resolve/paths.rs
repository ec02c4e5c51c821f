//! From object access histories to the paths that objects take (Pesterev, 2010, section 5.4).
//!
//! A history tells of one to three places of an object, so a path has to be put together from many:
//!
//! 1. What a place sees in a life is a *variant*: which instructions of which threads, in order, loops folded.
//!    Who frees the object is a variant, too, which every whole history tells.
//! 2. A path has one variant for each place. Candidates are all choices whose variants were seen together,
//!    pair by pair, as far as the histories tell: of a variant that none of the histories of a pair saw nobody knows
//!    what it goes with there, and to leave it out would lose what is rare.
//! 3. How frequent each is: the most likely shares by expectation maximisation, with each history consistent
//!    with some of the candidates. A history that was cut short is consistent with all that it is the
//!    beginning of: without these, paths of many accesses would come out too rare. Candidates without which the
//!    histories are as likely, but for what a parameter is worth (Schwarz, 1978), are left out, those that rest on
//!    the most guesses and the rarest first; each guess counts as a parameter.
//! 4. The variants of a path are merged into one sequence: of two accesses to different places the one is
//!    first that came first in most histories of the pair.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{
    Address, CpuId, History, HistoryAccess, HistoryOutcome, Operation, PathEvent, PathStep, Pid,
    SampleClass, StackId, Tables, Tid, Time, TypedAccess,
};

use super::heap::HeapBlocks;
use crate::quantity::median;

/// Variants of a place that are told apart, the most frequent.
const MOST_VARIANTS: usize = 12;
/// Candidates for paths.
const MOST_PATHS: usize = 512;
/// Paths rarer than this are left out.
const RARE: f64 = 0.01;
/// Variants, and candidates that are looked at closely, may be rarer by so much: few histories scatter.
const RARER: f64 = 0.25;
/// The longest loop that is folded, in accesses.
const LOOP: usize = 4;
/// Rounds of the estimate, at most, and the change of a share at which it ends.
const ROUNDS: usize = 1000;
const SETTLED: f64 = 1e-6;
/// Places that a path is put together from, at most.
const MOST_PLACES: usize = 24;

/// Objects that are alike.
type Site<'a> = (Pid, StackId, u64, &'a str);

/// What a place saw once or in a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Token {
    ip: Address,
    thread: u64,
}

/// A token in a history.
#[derive(Clone, Copy, Debug)]
struct Seen {
    token: Token,
    operation: Option<Operation>,
    /// Since the allocation, ns.
    time: u64,
    cpu_changed: bool,
    times: u32,
}

/// A history by place.
#[derive(Debug)]
struct Life {
    /// Offset of each watched place, and what it saw.
    places: Vec<(u64, Vec<Seen>)>,
    /// The thread that freed it, and when; `None` if it was cut short.
    freed: Option<(u64, u64)>,
}

impl Life {
    fn tokens(&self, place: usize) -> Vec<Token> {
        self.places[place].1.iter().map(|seen| seen.token).collect()
    }
}

/// The variants of the places, by offset, and of who frees.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    freed_by: u64,
    /// Pairs of its variants that no history could have seen together.
    guesses: usize,
    places: BTreeMap<u64, Vec<Token>>,
}

impl Candidate {
    /// Whether a history can be of this path.
    fn fits(&self, life: &Life) -> bool {
        let whole = life.freed.map(|(thread, _)| thread);
        if whole.is_some_and(|thread| thread != self.freed_by) {
            return false;
        }
        (0..life.places.len()).all(|place| {
            // A place that nothing touches, or one too many.
            let Some(variant) = self.places.get(&life.places[place].0) else {
                return true;
            };
            let tokens = life.tokens(place);
            match whole {
                Some(_) => tokens == *variant,
                None => variant.starts_with(&tokens),
            }
        })
    }
}

/// The paths of all objects that were followed.
pub(super) fn path_traces(tables: &Tables, typed: &[TypedAccess]) -> Vec<PathStep> {
    if tables.histories.is_empty() {
        return Vec::new();
    }
    let typed: HashMap<(Pid, Address), &TypedAccess> = typed
        .iter()
        .filter(|row| row.reason.is_none())
        .map(|row| ((row.pid, row.ip), row))
        .collect();
    let mut accesses: HashMap<u64, Vec<&HistoryAccess>> = HashMap::new();
    for access in &tables.history_accesses {
        accesses.entry(access.history).or_default().push(access);
    }
    let mut sites: BTreeMap<Site<'_>, Vec<&History>> = BTreeMap::new();
    for history in &tables.histories {
        let site = (
            history.pid,
            history.stack,
            history.size,
            history.label.as_str(),
        );
        sites.entry(site).or_default().push(history);
    }
    let sampled = sampled(tables);
    let none = Vec::new();
    let mut rows = Vec::new();
    for (site, histories) in sites {
        let mut types: BTreeMap<&str, u64> = BTreeMap::new();
        for history in &histories {
            for access in accesses.get(&history.id).unwrap_or(&none) {
                if let Some(row) = typed.get(&(history.pid, access.access_ip)) {
                    *types.entry(row.type_name.as_str()).or_default() += 1;
                }
            }
        }
        let lives: Vec<Life> = by_life(&histories)
            .into_values()
            .map(|rows| life(&rows, &accesses))
            .collect();
        let most = types.into_iter().max_by_key(|(_, votes)| *votes);
        let type_name = match site.3 {
            "" => most.map_or("", |(name, _)| name),
            label => label,
        };
        let ip = tables.stacks.iter().find(|stack| stack.id == site.1);
        let ip = ip.and_then(|stack| stack.frames.first().copied());
        for path in paths(&lives) {
            let place = |step: &PathStep| (site.0, site.1, site.2, step.ip, step.offset);
            rows.extend(
                path.steps(ip.unwrap_or(Address(0)))
                    .into_iter()
                    .map(|step| PathStep {
                        type_name: type_name.to_owned(),
                        pid: site.0,
                        stack: site.1,
                        size: site.2,
                        sampled_ns: sampled.get(&place(&step)).copied().unwrap_or(0.0),
                        ..step
                    }),
            );
        }
    }
    rows
}

/// The paths of an exact run, which has them without histories: of objects without a name the type is what
/// most of their accesses name.
pub(super) fn named_by_accesses(steps: &[PathStep], typed: &[TypedAccess]) -> Vec<PathStep> {
    let typed = typed.iter().filter(|row| row.reason.is_none());
    let typed: HashMap<(Pid, Address), &str> = typed
        .map(|row| ((row.pid, row.ip), row.type_name.as_str()))
        .collect();
    let site = |step: &PathStep| (step.pid, step.stack, step.size);
    let mut votes: BTreeMap<(Pid, StackId, u64), BTreeMap<&str, f64>> = BTreeMap::new();
    for step in steps {
        if let Some(name) = typed.get(&(step.pid, step.ip)) {
            let votes = votes.entry(site(step)).or_default();
            *votes.entry(name).or_default() += step.times * step.histories as f64;
        }
    }
    let winner = |step: &PathStep| {
        let votes = votes.get(&site(step))?.iter();
        votes
            .max_by(|a, b| a.1.total_cmp(b.1))
            .map(|(name, _)| *name)
    };
    let named = steps.iter().map(|step| {
        let mut step = step.clone();
        if step.type_name.is_empty() {
            step.type_name = winner(&step).unwrap_or_default().to_owned();
        }
        step
    });
    named.collect()
}

/// Thread time of samples, by objects that are alike, instruction and place.
type Sampled = HashMap<(Pid, StackId, u64, Address, u64), f64>;

fn sampled(tables: &Tables) -> Sampled {
    let blocks = HeapBlocks::new(&tables.heap_blocks);
    let mut sampled = Sampled::new();
    let samples = tables.samples.iter();
    for sample in samples.filter(|sample| sample.class == SampleClass::Access) {
        if let Some(block) = blocks.at(sample.pid, sample.address, sample.time) {
            let offset = (sample.address.0 - block.address.0) & !7;
            let key = (
                sample.pid,
                block.stack,
                block.size,
                sample.access_ip,
                offset,
            );
            *sampled.entry(key).or_default() += sample.weight as f64;
        }
    }
    sampled
}

/// The rows of each life: of one that was watched at more than two places there are several.
fn by_life<'a>(histories: &[&'a History]) -> BTreeMap<(Time, Address), Vec<&'a History>> {
    let mut lives: BTreeMap<(Time, Address), Vec<&History>> = BTreeMap::new();
    for history in histories {
        let key = (history.allocated, history.address);
        lives.entry(key).or_default().push(history);
    }
    lives
}

/// The life that these rows tell of, at least one.
fn life(rows: &[&History], accesses: &HashMap<u64, Vec<&HistoryAccess>>) -> Life {
    let history = rows[0];
    let mut accesses: Vec<&HistoryAccess> = rows
        .iter()
        .filter_map(|row| accesses.get(&row.id))
        .flatten()
        .copied()
        .collect();
    // Equal moments are of one instruction that touched several places.
    accesses.sort_by_key(|access| access.time);
    let mut threads = vec![history.allocated_by];
    let mut number = |tid: Tid| -> u64 {
        let known = threads.iter().position(|known| *known == tid);
        known.unwrap_or_else(|| {
            threads.push(tid);
            threads.len() - 1
        }) as u64
    };
    let mut places: Vec<(u64, Vec<Seen>)> = rows
        .iter()
        .flat_map(|row| [Some(row.offset), row.other_offset])
        .flatten()
        .map(|offset| (offset, Vec::new()))
        .collect();
    let mut before: Option<CpuId> = None;
    for access in accesses {
        let seen = Seen {
            token: Token {
                ip: access.access_ip,
                thread: number(access.tid),
            },
            operation: access.operation,
            time: access.time.since(history.allocated),
            cpu_changed: before.is_some_and(|before| before != access.cpu),
            times: 1,
        };
        before = Some(access.cpu);
        if let Some((_, place)) = places.iter_mut().find(|it| it.0 == access.offset) {
            place.push(seen);
            fold(place);
        }
    }
    let whole = history.outcome == HistoryOutcome::Whole;
    let end = history.freed.zip(history.freed_by).filter(|_| whole);
    Life {
        places,
        freed: end.map(|(time, by)| (number(by), time.since(history.allocated))),
    }
}

/// Folds the repetition at the end of what a place saw, if there is one.
fn fold(seen: &mut Vec<Seen>) {
    for period in 1..=LOOP.min(seen.len() / 2) {
        let (first, second) = (seen.len() - 2 * period, seen.len() - period);
        let tokens = |range: std::ops::Range<usize>| seen[range].iter().map(|it| it.token);
        if tokens(first..second).eq(tokens(second..seen.len())) {
            for place in 0..period {
                seen[first + place].times += seen[second + place].times;
            }
            seen.truncate(second);
            return;
        }
    }
}

/// A path and the histories of it.
struct Path<'a> {
    candidate: Candidate,
    frequency: f64,
    number: u64,
    /// Whole histories of which it is the likeliest path.
    histories: u64,
    /// All whole histories that fit it.
    lives: Vec<&'a Life>,
}

/// The paths, the most frequent first.
fn paths(lives: &[Life]) -> Vec<Path<'_>> {
    let candidates = candidates(lives);
    let fits: Vec<Vec<usize>> = lives
        .iter()
        .map(|life| {
            let fit = |index: &usize| candidates[*index].fits(life);
            (0..candidates.len()).filter(fit).collect()
        })
        .collect();
    let all: Vec<usize> = (0..candidates.len()).collect();
    let mut shares = likeliest(&fits, candidates.len(), &all);
    let mut kept: Vec<usize> = (all.into_iter())
        .filter(|&index| shares[index] >= RARE * RARER)
        .collect();
    // What is rare and little known shares its histories among many guesses, all of them too rare: the candidate with
    // the fewest guesses and the most common variants stands for them, which are in this order.
    for fits in fits.iter().filter(|fits| !fits.is_empty()) {
        if !fits.iter().any(|index| kept.contains(index)) {
            kept.push(fits[0]);
        }
    }
    let guesses = |index: usize| candidates[index].guesses;
    kept.sort_by(|&a, &b| {
        let order = guesses(b).cmp(&guesses(a));
        order.then(match guesses(a) {
            0 => shares[a].total_cmp(&shares[b]),
            // What the histories cannot tell apart: what is common goes with more.
            _ => b.cmp(&a),
        })
    });
    shares = likeliest(&fits, candidates.len(), &kept);
    let mut likelihood = log_likelihood(&fits, &shares);
    let of_one = (lives.len().max(1) as f64).ln() / 2.0;
    for index in kept.clone() {
        // Rare variants that no history sees apart would else make one path of them all.
        let worth = of_one * (1 + guesses(index)) as f64;
        let others: Vec<usize> = kept.iter().copied().filter(|&it| it != index).collect();
        let without = likeliest(&fits, candidates.len(), &others);
        let likelihood_without = log_likelihood(&fits, &without);
        if likelihood_without >= likelihood - worth {
            (kept, shares, likelihood) = (others, without, likelihood_without);
        }
    }
    let mut histories = vec![0; candidates.len()];
    for (_, fits) in lives
        .iter()
        .zip(&fits)
        .filter(|(life, _)| life.freed.is_some())
    {
        let likeliest = fits
            .iter()
            .max_by(|&&a, &&b| shares[a].total_cmp(&shares[b]));
        likeliest
            .into_iter()
            .for_each(|&index| histories[index] += 1);
    }
    let mut paths: Vec<Path<'_>> = candidates
        .into_iter()
        .zip(shares.into_iter().zip(histories))
        .filter(|(_, (share, _))| *share >= RARE)
        .map(|(candidate, (frequency, histories))| {
            let own = |life: &&Life| life.freed.is_some() && candidate.fits(life);
            let lives = lives.iter().filter(own).collect();
            Path {
                candidate,
                frequency,
                number: 0,
                histories,
                lives,
            }
        })
        .collect();
    paths.sort_by(|a, b| b.frequency.total_cmp(&a.frequency));
    for (path, number) in paths.iter_mut().zip(1..) {
        path.number = number;
    }
    paths
}

/// The most likely shares of the candidates that are `kept`, and 0 for the others.
fn likeliest(fits: &[Vec<usize>], candidates: usize, kept: &[usize]) -> Vec<f64> {
    let mut shares = vec![0.0; candidates];
    for &index in kept {
        shares[index] = 1.0 / kept.len() as f64;
    }
    // Histories that fit the same of them, once.
    let mut alike: BTreeMap<Vec<usize>, f64> = BTreeMap::new();
    for fits in fits {
        let own = fits.iter().copied().filter(|&index| shares[index] > 0.0);
        *alike.entry(own.collect()).or_default() += 1.0;
    }
    for _ in 0..ROUNDS {
        let mut next = vec![0.0; candidates];
        for (fits, count) in &alike {
            let all: f64 = fits.iter().map(|&index| shares[index]).sum();
            for &index in fits {
                next[index] += count * shares[index] / all.max(f64::MIN_POSITIVE);
            }
        }
        let all: f64 = next.iter().sum();
        let mut change = 0.0_f64;
        for (share, next) in shares.iter_mut().zip(next) {
            let next = next / all.max(f64::MIN_POSITIVE);
            change = change.max((*share - next).abs());
            *share = next;
        }
        if change < SETTLED {
            break;
        }
    }
    shares
}

/// How likely the histories are that fit any candidate; one that fits none with a share is hardly possible.
fn log_likelihood(fits: &[Vec<usize>], shares: &[f64]) -> f64 {
    let known = fits.iter().filter(|fits| !fits.is_empty());
    let each = known.map(|fits| fits.iter().map(|&index| shares[index]).sum::<f64>());
    each.map(|share| share.max(f64::MIN_POSITIVE).ln()).sum()
}

/// A place and its variant: index of the place, index of the variant. The first place is who frees.
type Chosen = Vec<usize>;

/// The places that the most histories tell of, in order.
fn most_seen(counts: &BTreeMap<u64, BTreeMap<Vec<Token>, u64>>) -> Vec<u64> {
    let mut offsets: Vec<(u64, u64)> = counts
        .iter()
        .map(|(offset, variants)| (*offset, variants.values().sum()))
        .collect();
    offsets.sort_by_key(|(_, seen)| std::cmp::Reverse(*seen));
    offsets.truncate(MOST_PLACES);
    offsets.sort_unstable();
    offsets.into_iter().map(|(offset, _)| offset).collect()
}

/// All choices of variants that were seen together, pair by pair: those with the fewest guesses first, of these
/// those of the most common variants.
fn candidates(lives: &[Life]) -> Vec<Candidate> {
    let whole = || lives.iter().filter_map(|life| Some((life, life.freed?.0)));
    let mut freers: BTreeMap<Vec<Token>, u64> = BTreeMap::new();
    let mut counts: BTreeMap<u64, BTreeMap<Vec<Token>, u64>> = BTreeMap::new();
    // Who frees is a place like the others, with one token.
    let freer = |thread: u64| {
        vec![Token {
            ip: Address(0),
            thread,
        }]
    };
    for (life, thread) in whole() {
        *freers.entry(freer(thread)).or_default() += 1;
        for place in 0..life.places.len() {
            let variants = counts.entry(life.places[place].0).or_default();
            *variants.entry(life.tokens(place)).or_default() += 1;
        }
    }
    // Places that nothing touches say nothing.
    counts.retain(|_, variants| variants.keys().any(|variant| !variant.is_empty()));
    let offsets = most_seen(&counts);
    let mut variants = vec![frequent(&freers)];
    variants.extend(offsets.iter().map(|offset| frequent(&counts[offset])));
    // How often two variants were seen together.
    let mut together: HashMap<(usize, usize, usize, usize), u64> = HashMap::new();
    for (life, thread) in whole() {
        let mut known = vec![(0, freer(thread))];
        for place in 0..life.places.len() {
            if let Ok(index) = offsets.binary_search(&life.places[place].0) {
                known.push((index + 1, life.tokens(place)));
            }
        }
        known.sort();
        for (i, (a, of_a)) in known.iter().enumerate() {
            for (b, of_b) in &known[i + 1..] {
                let index =
                    |place: usize, tokens| variants[place].iter().position(|it| it == tokens);
                if let (Some(x), Some(y)) = (index(*a, of_a), index(*b, of_b)) {
                    *together.entry((*a, x, *b, y)).or_default() += 1;
                }
            }
        }
    }
    // How often a variant was seen in the histories of a pair.
    let mut alone: HashMap<(usize, usize, usize), u64> = HashMap::new();
    for (&(a, x, b, y), count) in &together {
        *alone.entry((a, x, b)).or_default() += count;
        *alone.entry((b, y, a)).or_default() += count;
    }
    // `None`: impossible; else whether it is a guess.
    let compatible = |a: usize, x: usize, b: usize, y: usize| {
        if together.contains_key(&(a, x, b, y)) {
            return Some(false);
        }
        let unseen = !alone.contains_key(&(a, x, b)) || !alone.contains_key(&(b, y, a));
        unseen.then_some(true)
    };
    let common = |place: usize, variant: usize| -> f64 {
        let counts = match place {
            0 => &freers,
            _ => &counts[&offsets[place - 1]],
        };
        let all: u64 = counts.values().sum();
        (counts[&variants[place][variant]] as f64 / all.max(1) as f64).ln()
    };
    // With their guesses, and how common their variants are.
    let mut choices: Vec<(usize, f64, Chosen)> = vec![(0, 0.0, Vec::new())];
    for (place, of_place) in variants.iter().enumerate() {
        let mut next: Vec<(usize, f64, Chosen)> = Vec::new();
        for (guesses, commonness, choice) in &choices {
            for variant in 0..of_place.len() {
                let more = choice
                    .iter()
                    .enumerate()
                    .try_fold(0, |sum, (before, &chosen)| {
                        let is_guess = compatible(before, chosen, place, variant)?;
                        Some(sum + usize::from(is_guess))
                    });
                if let Some(more) = more {
                    let choice = [choice.as_slice(), &[variant]].concat();
                    let commonness = commonness + common(place, variant);
                    next.push((guesses + more, commonness, choice));
                }
            }
        }
        // Those that rest on what was seen, before guesses.
        next.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        next.truncate(MOST_PATHS);
        choices = next;
    }
    let candidate = |(guesses, _, choice): (usize, f64, Chosen)| Candidate {
        guesses,
        freed_by: variants[0][choice[0]].first().map_or(0, |it| it.thread),
        places: offsets
            .iter()
            .zip(&choice[1..])
            .zip(&variants[1..])
            .map(|((offset, &variant), of_place)| (*offset, of_place[variant].clone()))
            .collect(),
    };
    if variants[0].is_empty() {
        return Vec::new();
    }
    choices.into_iter().map(candidate).collect()
}

/// The variants of a place that are not rare, the most frequent first.
fn frequent(counts: &BTreeMap<Vec<Token>, u64>) -> Vec<Vec<Token>> {
    let all: u64 = counts.values().sum();
    let mut variants: Vec<_> = counts
        .iter()
        .filter(|(_, count)| **count as f64 >= RARE * RARER * all as f64)
        .collect();
    variants.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let kept = variants.into_iter().take(MOST_VARIANTS);
    kept.map(|(variant, _)| variant.clone()).collect()
}

/// A token of a path: offset of its place, and its number there.
type Step = (u64, usize);

impl Path<'_> {
    /// Its steps, but for what the site says of them.
    fn steps(&self, allocation: Address) -> Vec<PathStep> {
        let mut order: HashMap<(Step, Step), i64> = HashMap::new();
        let mut seen: HashMap<Step, Vec<Seen>> = HashMap::new();
        for life in &self.lives {
            let all: Vec<(Step, Seen)> = life
                .places
                .iter()
                .flat_map(|(offset, tokens)| {
                    let numbered = tokens.iter().enumerate();
                    numbered.map(|(number, token)| ((*offset, number), *token))
                })
                .collect();
            for (step, token) in &all {
                seen.entry(*step).or_default().push(*token);
                for (other, later) in all.iter().filter(|(other, _)| other.0 != step.0) {
                    let first = (token.time, step.0) < (later.time, other.0);
                    *order.entry((*step, *other)).or_default() += if first { 1 } else { -1 };
                }
            }
        }
        let time = |step: &Step| {
            let times = seen.get(step).into_iter().flatten();
            median(times.map(|seen| seen.time as f64)).unwrap_or(0.0)
        };
        // Of the next steps of all places, the one that is before most of the others.
        let mut next: Vec<Step> = self
            .candidate
            .places
            .keys()
            .map(|&offset| (offset, 0))
            .collect();
        let mut steps: Vec<Step> = Vec::new();
        let is_left = |step: &Step| step.1 < self.candidate.places[&step.0].len();
        next.retain(is_left);
        while !next.is_empty() {
            let before = |step: &Step| -> (i64, f64) {
                let others = next.iter().filter(|other| *other != step);
                let wins =
                    others.map(|other| order.get(&(*step, *other)).copied().unwrap_or(0).signum());
                (-wins.sum::<i64>(), time(step))
            };
            let ranks: Vec<(i64, f64)> = next.iter().map(before).collect();
            let first = (0..next.len())
                .min_by(|&a, &b| {
                    ranks[a]
                        .0
                        .cmp(&ranks[b].0)
                        .then(ranks[a].1.total_cmp(&ranks[b].1))
                })
                .unwrap_or(0);
            steps.push(next[first]);
            next[first].1 += 1;
            next.retain(is_left);
        }
        let mut rows = vec![self.row(PathEvent::Allocated, allocation, 0, 0.0)];
        for step in steps {
            let token = self.candidate.places[&step.0][step.1];
            let all = seen.get(&step).map_or(&[][..], Vec::as_slice);
            let mean = |part: &dyn Fn(&Seen) -> f64| {
                all.iter().map(part).sum::<f64>() / all.len().max(1) as f64
            };
            rows.push(PathStep {
                offset: step.0,
                operation: all.iter().find_map(|seen| seen.operation),
                cpu_change: mean(&|seen| f64::from(u8::from(seen.cpu_changed))),
                times: mean(&|seen| f64::from(seen.times)).max(1.0),
                ..self.row(PathEvent::Accessed, token.ip, token.thread, time(&step))
            });
        }
        let ends = self.lives.iter().filter_map(|life| life.freed);
        let end = median(ends.map(|(_, time)| time as f64)).unwrap_or(0.0);
        rows.push(self.row(PathEvent::Freed, Address(0), self.candidate.freed_by, end));
        let mut before = 0;
        for (row, number) in rows.iter_mut().zip(0..) {
            row.step = number;
            row.thread_change = row.thread != before;
            before = row.thread;
        }
        rows
    }

    fn row(&self, event: PathEvent, ip: Address, thread: u64, time_ns: f64) -> PathStep {
        PathStep {
            type_name: String::new(),
            size: 0,
            pid: Pid(0),
            stack: StackId(0),
            path: self.number,
            frequency: self.frequency,
            histories: self.histories,
            step: 0,
            event,
            ip,
            thread_change: false,
            thread,
            cpu_change: 0.0,
            offset: 0,
            operation: None,
            times: 1.0,
            time_ns,
            sampled_ns: 0.0,
            from_l1: None,
            from_l2: None,
            from_llc: None,
            from_core: None,
            from_memory: None,
        }
    }
}

#[cfg(test)]
mod tests;
