//! View `types`, the data profile: which types are dear to touch, where in them, and by whom?
//!
//! DProf's data profile (Pesterev, 2010, sections 3 and 4.1), with what it did not draw: the type
//! byte by byte, its use by thread, and the layout that this use suggests. From samples the cost is
//! thread time at the accesses of a type; from an exact run it is a share of all accesses, with the
//! misses of each level. A type's row counts all its objects.

mod declaration;
mod layout;
mod owner;
mod reached;
#[cfg(test)]
mod tests;
mod uses;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{
    Address, CacheCounts, CacheLevel, CacheSubject, Frame, Map, Operation, Pid, Sample,
    SampleClass, SharedMemory, Thread, Tid, TransferCount, Trap, TypeMember, TypedAccess,
    UntypedReason, Watch,
};
use serde::{Deserialize, Serialize};

use crate::own_code::Packages;
use crate::users::{Goroutines, User};
pub(crate) use declaration::{declaration, padded_field};
pub use layout::{Group, Layout};
pub(crate) use owner::owner;
use reached::Holders;
pub use uses::{FieldThread, Reached};
use uses::{Objects, Use, field_threads, share};

/// Types that a result names, at most; the rest is a sum.
const MOST_TYPES: usize = 100;
/// The share of the run from which on a type matters.
const DEAR: f64 = 0.01;
/// Reasons why debug info is missing that a result names, at most.
const MOST_MISSING: usize = 4;
/// Objects of one type whose use by threads is told apart, at most.
const MOST_OBJECTS: usize = 4096;

/// The tables that the view needs.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Bytes of a line.
    pub line_size: u64,
    /// Table `typed_accesses`.
    pub typed: &'a [TypedAccess],
    /// Table `type_members`.
    pub members: &'a [TypeMember],
    /// Table `samples`.
    pub samples: &'a [Sample],
    /// Table `watches`.
    pub watches: &'a [Watch],
    /// Table `traps`.
    pub traps: &'a [Trap],
    /// Table `caches`, of an exact run.
    pub caches: &'a [CacheCounts],
    /// Table `transfers`, of an exact run.
    pub transfers: &'a [TransferCount],
    /// Table `threads`.
    pub threads: &'a [Thread],
    /// Table `maps`: whose code touches a type.
    pub maps: &'a [Map],
    /// Which memory processes share.
    pub shared: &'a SharedMemory,
    /// Which goroutines threads ran.
    pub(crate) goroutines: &'a Goroutines,
    /// Table `frames`: why code has no debug info.
    pub frames: &'a [Frame],
    /// CPU time of all threads, ns.
    pub thread_ns: f64,
}

/// Which types are dear to touch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypesView {
    /// The dearest first; at most 100.
    pub types: Vec<TypeRow>,
    /// What could be typed, and why not the rest.
    pub coverage: Coverage,
}

/// How many accesses could be typed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Sampled accesses; of an exact run the accesses of all instructions that it names.
    pub accesses: f64,
    /// Of these, those whose type is known.
    pub typed: f64,
    /// Of these, by reason, those whose type is not known.
    pub untyped: std::collections::BTreeMap<String, f64>,
    /// Of those without debug info, what is missing and where to get it: at most 4, the most accesses first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingInfo>,
}

/// Debug info that is missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MissingInfo {
    /// What, and what to install or how to build.
    pub reason: String,
    /// Accesses whose type it would tell, in the unit of [`Coverage::accesses`].
    pub accesses: f64,
}

/// What a type costs, and who touches it where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypeRow {
    /// Its name as its language writes it.
    pub name: String,
    /// Where it is declared, `file:line`, or of Rust the module (`core::option`); empty if unknown.
    pub description: String,
    /// Its bytes; 0 if unknown.
    pub size: u64,
    /// What its accesses cost.
    pub cost: TypeCost,
    /// Sampled accesses, or accesses of an exact run.
    pub accesses: f64,
    /// Of an exact run, its misses at each level that it asked, the nearest to the core first.
    pub misses: Vec<LevelMisses>,
    /// Lines of it that samples touched: at least so much of it is in use. 0 of an exact run.
    pub lines_seen: u64,
    /// Objects of it at which samples saw accesses: static variables, and heap blocks that the recorder told of. Of an exact run
    /// static variables only.
    #[serde(default)]
    pub objects: u64,
    /// Who allocates those blocks, most samples first: `function (file:line)`; at most 4.
    #[serde(default)]
    pub allocated_at: Vec<String>,
    /// Whether its lines move between cores.
    pub bounces: bool,
    /// The static variables of this type that instructions name.
    pub variables: Vec<String>,
    /// Its direct members by offset, gaps between them included.
    pub fields: Vec<FieldRow>,
    /// The members and variables that hold the pointers through which it is reached, the dearest first; at most 16. An array of
    /// numbers has no fields, and these tell one from another.
    #[serde(default)]
    pub reached: Vec<Reached>,
    /// The layout that its use suggests; `null` if that is the one it has, and for a type that is not the program's to change.
    pub layout: Option<Layout>,
    /// Who declares it if the program does not, so that no layout is suggested: `a header of the system`, `the C++ library`,
    /// `Rust's library`, `the compiler`, or the system's library whose code alone touches it (`libc.so.6`). Empty for a type of the
    /// program, and where nothing tells.
    #[serde(default)]
    pub owner: String,
}

impl TypeRow {
    /// Whether code of the system's libraries alone touches it, as of the loader.
    pub(crate) fn is_of_system(&self) -> bool {
        self.owner.contains(".so")
    }

    /// Of types that matter equally much, the program's come first: the system's would push them out of sight.
    pub(crate) fn rank(&self) -> (bool, bool) {
        (self.cost.share < DEAR, self.is_of_system())
    }
}

/// What the accesses of a type cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TypeCost {
    /// Thread time at its accesses, ns; 0 of an exact run.
    pub ns: f64,
    /// The same as a share of all thread time; of an exact run its share of all accesses. 0 to 1.
    pub share: f64,
}

/// Misses of a type at one level of the simulated hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelMisses {
    /// The level.
    pub level: CacheLevel,
    /// Its misses.
    pub misses: f64,
    /// The same as a share of all misses at that level, 0 to 1.
    pub share: f64,
}

/// A direct member of a type, or the padding between two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldRow {
    /// Its name; empty for padding, a base class, or an unnamed struct or union.
    pub name: String,
    /// Its type; empty for padding.
    pub type_name: String,
    /// Whether it is padding.
    pub padding: bool,
    /// Its first byte in the type.
    pub offset: u64,
    /// Its bytes.
    pub size: u64,
    /// Its share of the cost of the type, 0 to 1.
    pub share: f64,
    /// Loads: samples and traps, or loads of an exact run.
    pub loads: f64,
    /// Stores and updates likewise.
    pub stores: f64,
    /// Who touches it, most accesses first.
    pub threads: Vec<FieldThread>,
}

impl FieldRow {
    /// What to call it: its name, or what it is where it has none.
    #[must_use]
    pub fn label(&self) -> Cow<'_, str> {
        match self.name.as_str() {
            "" if self.padding => Cow::Borrowed("(padding)"),
            "" => Cow::Owned(format!("({})", self.type_name)),
            name => Cow::Borrowed(name),
        }
    }
}

/// The key of a type: name, size, declaration.
type TypeKey<'a> = (&'a str, u64, &'a str);

/// What was seen of one type.
#[derive(Default)]
struct Seen<'a> {
    cost: f64,
    accesses: f64,
    lines: BTreeSet<(Pid, u64)>,
    bounces: bool,
    variables: BTreeSet<&'a str>,
    misses: BTreeMap<CacheLevel, f64>,
    /// Cost by member.
    costs: BTreeMap<usize, f64>,
    /// Use by member, all threads.
    uses: BTreeMap<usize, Use>,
    /// Use by member and thread.
    by_thread: BTreeMap<(usize, Tid), Use>,
    /// Use by object (its first byte), member and thread.
    objects: Objects,
    holders: Holders<'a>,
}

/// The data profile; `None` if the recording has no typed accesses.
#[must_use]
pub fn types(input: &Input<'_>) -> Option<TypesView> {
    if input.typed.is_empty() && input.frames.is_empty() {
        return None;
    }
    let mut profile = Profile {
        input,
        typed: input
            .typed
            .iter()
            .map(|row| ((row.pid, row.ip), row))
            .collect(),
        members: HashMap::new(),
        libraries: libraries(input),
        seen: BTreeMap::new(),
        coverage: Coverage::default(),
        missing: BTreeMap::new(),
        reasons: (input.frames.iter())
            .filter(|frame| !frame.reason.is_empty())
            .map(|frame| ((frame.pid, frame.address), frame.reason.as_str()))
            .collect(),
    };
    for member in input.members {
        let key = (
            member.type_name.as_str(),
            member.type_size,
            member.declared_at.as_str(),
        );
        profile.members.entry(key).or_default().push(member);
    }
    profile.add_samples();
    profile.add_traps();
    profile.add_caches();
    profile.add_transfers();
    Some(profile.finish())
}

struct Profile<'i, 'a> {
    input: &'i Input<'a>,
    typed: HashMap<(Pid, Address), &'a TypedAccess>,
    members: HashMap<TypeKey<'a>, Vec<&'a TypeMember>>,
    libraries: HashMap<TypeKey<'a>, Option<&'a str>>,
    seen: BTreeMap<TypeKey<'a>, Seen<'a>>,
    coverage: Coverage,
    /// Accesses of code without debug info, by why there is none.
    missing: BTreeMap<&'a str, f64>,
    /// Why code has none.
    reasons: HashMap<(Pid, Address), &'a str>,
}

impl<'a> Profile<'_, 'a> {
    /// What the instruction at `ip` touches: its row, its type, and the members of that.
    fn at(&self, pid: Pid, ip: Address) -> Result<(&'a TypedAccess, Vec<usize>), &'static str> {
        let row = self
            .typed
            .get(&(pid, ip))
            .ok_or(UntypedReason::NoDebugInfo.word())?;
        if let Some(reason) = row.reason {
            return Err(reason.word());
        }
        let end = row.offset.saturating_add(row.size.max(1));
        let members = self
            .members
            .get(&key(row))
            .into_iter()
            .flatten()
            .enumerate()
            .filter(|(_, member)| {
                member.offset < end && row.offset < member.offset.saturating_add(member.size)
            })
            .map(|(number, _)| number)
            .collect();
        Ok((row, members))
    }

    /// Counts `count` accesses of this code as typed or not.
    fn cover(&mut self, count: f64, code: (Pid, Address), found: Result<(), &'static str>) {
        self.coverage.accesses += count;
        match found {
            Ok(()) => self.coverage.typed += count,
            Err(reason) => {
                *self.coverage.untyped.entry(reason.to_owned()).or_default() += count;
                if reason == UntypedReason::NoDebugInfo.word()
                    && let Some(why) = self.reasons.get(&code)
                {
                    *self.missing.entry(why).or_default() += count;
                }
            }
        }
    }

    fn add_samples(&mut self) {
        let samples = self.input.samples.iter();
        for sample in samples.filter(|sample| sample.class == SampleClass::Access) {
            let code = (sample.pid, sample.access_ip);
            let found = self.at(code.0, code.1);
            self.cover(1.0, code, found.as_ref().map(|_| ()).map_err(|it| *it));
            let Ok((row, members)) = found else { continue };
            let weight = sample.weight as f64;
            let home = self.input.shared.home(sample.pid, sample.address);
            let line = home.1.line(self.input.line_size).0;
            let seen = self.seen.entry(key(row)).or_default();
            seen.cost += weight;
            seen.accesses += 1.0;
            seen.lines.insert((home.0, line));
            if !row.variable.is_empty() {
                seen.variables.insert(&row.variable);
            }
            for &member in &members {
                *seen.costs.entry(member).or_default() += weight / members.len() as f64;
            }
            seen.holders.add_cost(row, weight);
            seen.touch(row, &members, sample.tid, sample.operation, 1.0);
            let user = self.input.goroutines.user(sample.tid, sample.time);
            seen.touch_object(row, &members, home, user, sample.operation);
        }
    }

    fn add_traps(&mut self) {
        let watches: HashMap<u64, &Watch> = self
            .input
            .watches
            .iter()
            .map(|watch| (watch.id, watch))
            .collect();
        for trap in self.input.traps {
            let Ok((row, members)) = self.at(trap.pid, trap.access_ip) else {
                continue;
            };
            let watch = watches.get(&trap.watch);
            let seen = self.seen.entry(key(row)).or_default();
            // Two CPUs at one line, and one of the two accesses writes.
            seen.bounces |= watch.is_some_and(|watch| {
                watch.publisher_cpu != trap.cpu
                    && (watch.operation != Operation::Load || trap.operation != Operation::Load)
            });
            let operation = Some(trap.operation);
            seen.touch(row, &members, trap.tid, operation, 1.0);
            let home = self.input.shared.home(trap.pid, trap.address);
            let user = self.input.goroutines.user(trap.tid, trap.time);
            seen.touch_object(row, &members, home, user, operation);
        }
    }

    fn add_caches(&mut self) {
        let rows = self.input.caches.iter();
        for row in rows.filter(|row| row.subject == CacheSubject::Instruction) {
            let (Some(pid), Some(ip)) = (row.pid, row.ip) else {
                continue;
            };
            let count = row.loads + row.stores + row.updates;
            let first = row.level.is_first();
            let found = self.at(pid, ip);
            if first {
                let covered = found.as_ref().map(|_| ()).map_err(|it| *it);
                self.cover(count, (pid, ip), covered);
            }
            let Ok((typed, members)) = found else {
                continue;
            };
            let seen = self.seen.entry(key(typed)).or_default();
            *seen.misses.entry(row.level).or_default() += misses(row);
            if first {
                seen.cost += count;
                seen.accesses += count;
                if !typed.variable.is_empty() {
                    seen.variables.insert(&typed.variable);
                }
                seen.holders.add_cost(typed, count);
                let stores = row.stores + row.updates;
                seen.holders.add_uses(typed, row.loads, stores);
                for &member in &members {
                    *seen.costs.entry(member).or_default() += count / members.len() as f64;
                    let uses = seen.uses.entry(member).or_default();
                    uses.loads += row.loads;
                    uses.stores += stores;
                }
            }
        }
    }

    fn add_transfers(&mut self) {
        // Older recordings tell what an instruction does to memory by the counts of the caches only.
        let mut operations: HashMap<(Pid, Address), Operation> = HashMap::new();
        for row in self.input.caches {
            if let (Some(pid), Some(ip)) = (row.pid, row.ip) {
                let operation = if row.updates > 0.0 {
                    Operation::Update
                } else if row.stores > 0.0 {
                    Operation::Store
                } else {
                    Operation::Load
                };
                operations.insert((pid, ip), operation);
            }
        }
        for row in self.input.transfers {
            let (Some(pid), Some(line)) = (row.pid, row.line) else {
                continue;
            };
            let ends = [
                (
                    row.from_ip,
                    row.from_tid,
                    row.from_bytes,
                    row.from_operation,
                ),
                (row.to_ip, row.to_tid, row.to_bytes, row.to_operation),
            ];
            for (ip, tid, bytes, operation) in ends {
                let (Some(ip), Some(tid)) = (ip, tid) else {
                    continue;
                };
                let Ok((typed, members)) = self.at(pid, ip) else {
                    continue;
                };
                let operation = operation.or_else(|| operations.get(&(pid, ip)).copied());
                let seen = self.seen.entry(key(typed)).or_default();
                seen.bounces = true;
                seen.holders.add_thread(typed, tid, operation, row.count);
                for &member in &members {
                    seen.by_thread
                        .entry((member, tid))
                        .or_default()
                        .add(operation, row.count);
                }
                if let Some((first, _)) =
                    crate::resolve::byte_runs(bytes, self.input.line_size).first()
                {
                    let address = Address(line.0.saturating_add(*first));
                    seen.touch_object(
                        typed,
                        &members,
                        (pid, address),
                        User::Thread(tid),
                        operation,
                    );
                }
            }
        }
    }

    fn finish(self) -> TypesView {
        let whole = if self.input.samples.is_empty() {
            accesses_of(self.input.caches)
        } else {
            self.input.thread_ns
        };
        let sampled = !self.input.samples.is_empty();
        let all_misses = misses_of(self.input.caches);
        let names: HashMap<Tid, &str> = self
            .input
            .threads
            .iter()
            .map(|thread| (thread.tid, thread.name.as_str()))
            .collect();
        let packages = Packages::of(self.input.frames);
        let mut rows: Vec<TypeRow> = self
            .seen
            .iter()
            .map(|(key, seen)| {
                let members = self.members.get(key).map_or(&[][..], Vec::as_slice);
                let fields = fields(*key, members, seen, &names);
                let language = members.first().map_or("", |it| it.language.as_str());
                let library = self.libraries.get(key).copied().flatten();
                let owner = owner(key.0, language, key.2, library, &packages);
                TypeRow {
                    name: key.0.to_owned(),
                    description: key.2.to_owned(),
                    size: key.1,
                    cost: TypeCost {
                        ns: if sampled { seen.cost } else { 0.0 },
                        share: share(seen.cost, whole),
                    },
                    accesses: seen.accesses,
                    misses: seen
                        .misses
                        .iter()
                        .map(|(level, misses)| LevelMisses {
                            level: *level,
                            misses: *misses,
                            share: share(*misses, all_misses.get(level).copied().unwrap_or(0.0)),
                        })
                        .collect(),
                    lines_seen: seen.lines.len() as u64,
                    objects: seen.variables.len() as u64,
                    allocated_at: Vec::new(),
                    bounces: seen.bounces,
                    variables: seen.variables.iter().map(|&name| name.to_owned()).collect(),
                    layout: layout::suggest(&layout::Usage {
                        line_size: self.input.line_size,
                        type_name: key.0,
                        size: key.1,
                        members,
                        objects: &seen.objects,
                        costs: &seen.costs,
                        uses: &seen.uses,
                        has_all_threads: sampled,
                        whole,
                        names: &names,
                    })
                    .filter(|_| owner.is_empty()),
                    owner,
                    fields,
                    reached: seen.holders.rows(seen.cost, &names),
                }
            })
            .collect();
        rows.sort_by(|a, b| {
            let by_share = b.cost.share.total_cmp(&a.cost.share);
            let by_rank = a.rank().cmp(&b.rank());
            by_rank.then(by_share).then_with(|| a.name.cmp(&b.name))
        });
        rows.truncate(MOST_TYPES);
        let missing = self.missing.into_iter();
        let mut missing: Vec<MissingInfo> = missing
            .map(|(reason, accesses)| MissingInfo {
                reason: reason.to_owned(),
                accesses,
            })
            .collect();
        missing.sort_by(|a, b| b.accesses.total_cmp(&a.accesses));
        missing.truncate(MOST_MISSING);
        TypesView {
            types: rows,
            coverage: Coverage {
                missing,
                ..self.coverage
            },
        }
    }
}

impl<'a> Seen<'a> {
    /// Counts accesses of `row`, to `members`, by thread `tid`.
    fn touch(
        &mut self,
        row: &'a TypedAccess,
        members: &[usize],
        tid: Tid,
        operation: Option<Operation>,
        count: f64,
    ) {
        let mut uses = Use::default();
        uses.add(operation, count);
        self.holders.add_uses(row, uses.loads, uses.stores);
        self.holders.add_thread(row, tid, operation, count);
        for &member in members {
            self.uses.entry(member).or_default().add(operation, count);
            self.by_thread
                .entry((member, tid))
                .or_default()
                .add(operation, count);
        }
    }

    /// Notes which object was touched: that whose field is at the address.
    fn touch_object(
        &mut self,
        row: &TypedAccess,
        members: &[usize],
        (pid, address): (Pid, Address),
        user: User,
        operation: Option<Operation>,
    ) {
        // Which element of an array in the type was touched is not known, so where the object
        // begins is not either.
        let Some(base) = address.0.checked_sub(row.offset) else {
            return;
        };
        if row.path.contains("[]") || members.is_empty() {
            return;
        }
        if self.objects.len() >= MOST_OBJECTS && !self.objects.contains_key(&(pid, base)) {
            return;
        }
        let object = self.objects.entry((pid, base)).or_default();
        for &member in members {
            object
                .entry((member, user))
                .or_default()
                .add(operation, 1.0);
        }
    }
}

/// The system's library whose code alone touches a type; `None` where other code does as well.
fn libraries<'a>(input: &Input<'a>) -> HashMap<TypeKey<'a>, Option<&'a str>> {
    let code = owner::Code::new(input.maps);
    let mut libraries = HashMap::new();
    for row in input.typed.iter().filter(|row| row.reason.is_none()) {
        let library = code.library(row.pid, row.ip);
        libraries
            .entry(key(row))
            .and_modify(|known: &mut Option<&str>| *known = known.and(library))
            .or_insert(library);
    }
    libraries
}

fn key(row: &TypedAccess) -> TypeKey<'_> {
    (&row.type_name, row.type_size, &row.declared_at)
}

fn misses(row: &CacheCounts) -> f64 {
    row.compulsory + row.capacity + row.conflict + row.true_sharing + row.false_sharing
}

/// All accesses of an exact run.
fn accesses_of(rows: &[CacheCounts]) -> f64 {
    totals(rows)
        .filter(|row| row.level.is_first())
        .map(|row| row.loads + row.stores + row.updates)
        .sum()
}

/// All misses of an exact run, by level.
fn misses_of(rows: &[CacheCounts]) -> BTreeMap<CacheLevel, f64> {
    totals(rows).map(|row| (row.level, misses(row))).collect()
}

fn totals(rows: &[CacheCounts]) -> impl Iterator<Item = &CacheCounts> {
    rows.iter().filter(|row| row.subject == CacheSubject::Total)
}

/// The members of a type with their use, and the padding between them.
fn fields(
    (_, size, _): TypeKey<'_>,
    members: &[&TypeMember],
    seen: &Seen<'_>,
    names: &HashMap<Tid, &str>,
) -> Vec<FieldRow> {
    let mut fields = Vec::new();
    let mut end = 0;
    let padding = |from: u64, to: u64| FieldRow {
        name: String::new(),
        type_name: String::new(),
        padding: true,
        offset: from,
        size: to - from,
        share: 0.0,
        loads: 0.0,
        stores: 0.0,
        threads: Vec::new(),
    };
    for (number, member) in members.iter().enumerate() {
        if member.offset > end {
            fields.push(padding(end, member.offset));
        }
        end = end.max(member.offset.saturating_add(member.size));
        let uses = seen.uses.get(&number).copied().unwrap_or_default();
        let threads = seen
            .by_thread
            .range((number, Tid(0))..=(number, Tid(u32::MAX)))
            .map(|((_, tid), uses)| (*tid, uses));
        let threads = field_threads(threads, names);
        fields.push(FieldRow {
            name: member.name.clone(),
            type_name: member.member_type.clone(),
            padding: false,
            offset: member.offset,
            size: member.size,
            share: share(seen.costs.get(&number).copied().unwrap_or(0.0), seen.cost),
            loads: uses.loads,
            stores: uses.stores,
            threads,
        });
    }
    if !members.is_empty() && size > end {
        fields.push(padding(end, size));
    }
    fields
}
