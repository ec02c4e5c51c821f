//! Of what type is a contended object? The instructions that touch it say so, each for itself: the
//! most accesses win, but where one of the types has the others in it. A heap block has votes of its own, and those
//! of all blocks that its site allocated; where the two disagree the finding says so.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{Address, HeapBlock, Pid, SampleClass, Tables, TypeMember, TypedAccess};

use super::names::Names;
use super::whole::{Seen, Whole};
use crate::model::TypeVote;
use crate::own_code::Packages;
use crate::resolve::{HeapBlocks, allocation_site, chains_by_id};
use crate::views::sharing::LineSharing;
use crate::views::types::owner;

/// Votes that are shown.
const SHOWN: usize = 4;
/// Fields that are named.
const FIELDS: usize = 4;
/// Members and variables that lead to an object that are named.
const HOLDERS: usize = 2;
/// A field with a smaller share of the votes for its type is not fought over.
const SLIGHT: f64 = 0.02;

/// Where blocks are allocated: process and return address.
type Site = (Pid, Address);

/// How often which type was named.
#[derive(Debug, Default)]
struct Ballot<'a>(BTreeMap<&'a str, f64>);

impl<'a> Ballot<'a> {
    fn add(&mut self, name: &'a str, votes: f64) {
        *self.0.entry(name).or_default() += votes;
    }

    /// Most votes first, as shares.
    fn counted(&self) -> Vec<(&'a str, f64)> {
        let all: f64 = self.0.values().sum();
        let mut votes: Vec<_> = self
            .0
            .iter()
            .map(|(name, votes)| (*name, votes / all.max(f64::MIN_POSITIVE)))
            .collect();
        votes.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        votes
    }
}

/// What the accesses of a recording say of types.
pub(crate) struct Votes<'a> {
    typed: HashMap<(Pid, Address), &'a TypedAccess>,
    /// By type and its size.
    members: HashMap<&'a str, BTreeMap<u64, Vec<&'a TypeMember>>>,
    blocks: HashMap<(Pid, Address, u64), Site>,
    sites: HashMap<Site, Ballot<'a>>,
    /// Where in their blocks the accesses of a site were seen.
    seen: HashMap<Site, Vec<Seen<'a>>>,
    packages: Packages,
}

/// What the accesses to one object say of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Verdict<'a> {
    /// The type that fills its block and has in it what they name, or else that most of them name; `None` if none does.
    pub(crate) kind: Option<&'a TypedAccess>,
    /// The fields of it that they name, the most named first.
    pub(crate) fields: Vec<String>,
    /// The members and static variables through which most of them reach it, the most named first.
    pub(crate) reached: Vec<&'a str>,
    /// The votes: of a heap block whose site is known those of the site, else its own.
    pub(crate) votes: Vec<TypeVote>,
    /// What most accesses to blocks of the same site name, if that is another type.
    pub(crate) disagrees: Option<&'a str>,
    /// Where a value of the type begins, if all accesses that tell agree on it.
    pub(crate) base: Option<u64>,
    /// The type, if it fills the block and others were found in it, and the bytes of the block.
    whole: Option<(Whole<'a>, u64)>,
}

impl<'a> Votes<'a> {
    /// Counts the votes for the blocks of each site.
    pub(crate) fn new(tables: &'a Tables, names: &Names<'a>) -> Self {
        let mut votes = Self {
            typed: tables
                .typed_accesses
                .iter()
                .filter(|row| row.reason.is_none())
                .map(|row| ((row.pid, row.ip), row))
                .collect(),
            members: HashMap::new(),
            blocks: HashMap::new(),
            sites: HashMap::new(),
            seen: HashMap::new(),
            packages: Packages::of(&tables.frames),
        };
        for member in &tables.type_members {
            let sizes = votes.members.entry(&member.type_name).or_default();
            sizes.entry(member.type_size).or_default().push(member);
        }
        let stacks = chains_by_id(&tables.stacks);
        let site_of = |pid: Pid, callers: &[Address]| -> Option<Site> {
            Some((pid, allocation_site(names.callers(pid, callers))?.address))
        };
        let site = |block: &HeapBlock| site_of(block.pid, stacks.get(&block.stack)?);
        let blocks = HeapBlocks::new(&tables.heap_blocks);
        let samples = tables.samples.iter();
        let sampled = samples
            .filter(|sample| sample.class == SampleClass::Access)
            .map(|it| (it.pid, it.access_ip, it.address, it.time));
        let traps = tables.traps.iter();
        let trapped = traps.map(|it| (it.pid, it.access_ip, it.address, it.time));
        // By block and not by place: where one was freed another site's may lie.
        let mut known: HashMap<u64, Option<Site>> = HashMap::new();
        for (pid, ip, address, time) in sampled.chain(trapped) {
            let Some(block) = blocks.at(pid, address, time) else {
                continue;
            };
            let Some(site) = *known.entry(block.id).or_insert_with(|| site(block)) else {
                continue;
            };
            votes.blocks.insert((pid, block.address, block.size), site);
            if let Some(row) = votes.typed.get(&(pid, ip)) {
                let ballot = votes.sites.entry(site).or_default();
                ballot.add(&row.type_name, 1.0);
                votes.seen.entry(site).or_default().push(Seen {
                    row,
                    within: address.0 - block.address.0,
                    block: block.size,
                });
            }
        }
        // An exact run tells which block lay on a line, and what instructions did to the blocks of a place.
        let numbered: HashMap<u64, &HeapBlock> =
            tables.heap_blocks.iter().map(|it| (it.id, it)).collect();
        let moved = tables.transfers.iter();
        for id in moved
            .flat_map(|row| [row.from_block, row.to_block])
            .flatten()
        {
            if let Some(&block) = numbered.get(&id)
                && let Some(site) = *known.entry(id).or_insert_with(|| site(block))
            {
                let place = (block.pid, block.address, block.size);
                votes.blocks.insert(place, site);
            }
        }
        for row in &tables.block_uses {
            let Some(callers) = stacks.get(&row.stack) else {
                continue;
            };
            if let Some(site) = site_of(row.pid, callers)
                && let Some(typed) = votes.typed.get(&(row.pid, row.ip))
            {
                let ballot = votes.sites.entry(site).or_default();
                ballot.add(&typed.type_name, row.accesses);
            }
        }
        votes
    }

    /// What the instruction at `ip` touches, if that is known.
    pub(crate) fn access(&self, pid: Pid, ip: Address) -> Option<&'a TypedAccess> {
        self.typed.get(&(pid, ip)).copied()
    }

    /// The members of the type that `row` names.
    pub(crate) fn members(&self, row: &TypedAccess) -> &[&'a TypeMember] {
        self.members_of(&row.type_name, row.type_size)
    }

    /// The language of the type that `row` names; empty if it has no members, or nobody knows.
    pub(crate) fn language(&self, row: &TypedAccess) -> &'a str {
        (self.members(row).first()).map_or("", |it| it.language.as_str())
    }

    /// Who declares the type that `row` names, if it is not the program; empty if it is, or nobody knows.
    pub(crate) fn owner(&self, row: &TypedAccess) -> String {
        owner(
            &row.type_name,
            self.language(row),
            &row.declared_at,
            None,
            &self.packages,
        )
    }

    fn members_of(&self, name: &str, size: u64) -> &[&'a TypeMember] {
        let of_size = self.members.get(name).and_then(|sizes| sizes.get(&size));
        of_size.map_or(&[], Vec::as_slice)
    }

    /// The member that an access which says `row` touches at `address`, from the type that `verdict` names for the object
    /// there.
    pub(crate) fn path(
        &self,
        verdict: &Verdict<'a>,
        row: &TypedAccess,
        address: Address,
    ) -> String {
        match (&verdict.whole, verdict.base) {
            (Some((whole, size)), Some(base))
                if verdict.speaks_of(row) && address.0.wrapping_sub(base) < *size =>
            {
                let members = |name: &str, size| self.members_of(name, size);
                whole.path(address.0 - base, row, &members)
            }
            _ => row.path.clone(),
        }
    }

    /// What the accesses to `lines`, all of one object, say of it. `object` is its first byte and size,
    /// if these are known: what else lies on its lines has no say.
    pub(crate) fn verdict(
        &self,
        lines: &[&LineSharing],
        object: Option<(Address, u64)>,
    ) -> Verdict<'a> {
        let touches_it = |address: Address| {
            object.is_none_or(|(first, size)| address.0.wrapping_sub(first.0) < size)
        };
        let pid = lines.first().map(|line| line.pid);
        let site = object
            .zip(pid)
            .and_then(|((address, size), pid)| self.blocks.get(&(pid, address, size)));
        let mut own = Ballot::default();
        let mut holders = Ballot::default();
        let mut rows: Vec<(Address, f64, &TypedAccess)> = Vec::new();
        for line in lines {
            let places = line.places.iter();
            for place in places.filter(|place| touches_it(place.touch.address)) {
                let Some(row) = self.access(place.touch.pid, place.touch.ip) else {
                    continue;
                };
                // Traps count a little, for accesses that are hardly ever sampled.
                let votes = place.weight + place.traps as f64;
                own.add(&row.type_name, votes);
                holders.add(&row.through, votes);
                rows.push((place.touch.address, votes, row));
            }
        }
        let counted = own.counted();
        let Some(&(most, _)) = counted.first() else {
            return Verdict::default();
        };
        let whole = object.zip(site).and_then(|((first, size), site)| {
            let of_site = self.seen.get(site).into_iter().flatten().copied();
            let own = rows.iter().map(|&(address, _, row)| Seen {
                row,
                within: address.0 - first.0,
                block: size,
            });
            let seen: Vec<Seen<'_>> = of_site.chain(own).collect();
            let whole = Whole::find(&seen, |row| !self.members(row).is_empty())?;
            Some((whole, size))
        });
        let mut verdict = Verdict {
            kind: match &whole {
                Some((whole, _)) => Some(whole.row),
                None => rows.iter().map(|it| it.2).find(|row| row.type_name == most),
            },
            whole,
            ..Verdict::default()
        };
        rows.retain(|(_, _, row)| verdict.speaks_of(row));
        verdict.base = match (&verdict.whole, object) {
            (Some(_), Some((first, _))) => Some(first.0),
            _ => base(&rows),
        };
        let mut fields: BTreeMap<String, f64> = BTreeMap::new();
        for (address, votes, row) in &rows {
            *fields
                .entry(self.path(&verdict, row, *address))
                .or_default() += votes;
        }
        let all: f64 = rows.iter().map(|it| it.1).sum();
        let mut fields: Vec<(String, f64)> = fields
            .into_iter()
            .filter(|(path, votes)| !path.is_empty() && *votes >= SLIGHT * all)
            .collect();
        fields.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        verdict.fields = fields.into_iter().take(FIELDS).map(|it| it.0).collect();
        // A local variable is no name for an object.
        verdict.reached = holders
            .counted()
            .into_iter()
            .filter(|(name, votes)| {
                !name.is_empty() && !name.ends_with("(local)") && *votes >= SLIGHT
            })
            .take(HOLDERS)
            .map(|it| it.0)
            .collect();
        let of_site = site
            .and_then(|site| self.sites.get(site))
            .map(Ballot::counted)
            .filter(|votes| !votes.is_empty());
        verdict.disagrees = of_site
            .as_ref()
            .and_then(|votes| votes.first())
            .map(|(name, _)| *name)
            .filter(|name| !verdict.speaks_of_type(name));
        verdict.votes = verdict.shown(of_site.unwrap_or(counted));
        verdict
    }
}

impl<'a> Verdict<'a> {
    /// Whether an access touches the type that the verdict names, or a part of it as such.
    pub(crate) fn speaks_of(&self, row: &TypedAccess) -> bool {
        self.speaks_of_type(&row.type_name)
    }

    fn speaks_of_type(&self, name: &str) -> bool {
        self.kind.is_some_and(|kind| kind.type_name == name) || self.has_part(name)
    }

    fn has_part(&self, name: &str) -> bool {
        self.whole
            .as_ref()
            .is_some_and(|(whole, _)| whole.has_part(name))
    }

    /// The votes that are shown, its own first.
    fn shown(&self, mut counted: Vec<(&'a str, f64)>) -> Vec<TypeVote> {
        let named = |name: &str| self.kind.is_some_and(|kind| kind.type_name == name);
        counted.sort_by_key(|(name, _)| !named(name));
        let shown = counted.into_iter().take(SHOWN);
        shown
            .map(|(name, share)| TypeVote {
                name: name.to_owned(),
                share,
                part: self.has_part(name),
            })
            .collect()
    }
}

/// Where a value of the type begins that all `rows` name: which element of an array they touch does not
/// matter, but all must agree on the distance modulo the size of the type.
fn base(rows: &[(Address, f64, &TypedAccess)]) -> Option<u64> {
    let mut bases = rows
        .iter()
        .filter(|(_, _, row)| row.type_size > 0 && !row.path.contains("[]"))
        .map(|(address, _, row)| (address.0.wrapping_sub(row.offset), row.type_size));
    let (first, size) = bases.next()?;
    bases
        .all(|(base, _)| base.abs_diff(first).is_multiple_of(size))
        .then_some(first)
}

#[cfg(test)]
mod tests {
    use linewise_recording::{Allocator, Frame, Operation, Sample, Stack, StackId, Tid, Time};

    use super::*;
    use crate::views::Touch;
    use crate::views::sampled_rows::{self, PID};
    use crate::views::sharing::{Basis, Estimate, Place};

    fn typed(ip: u64, name: &str, offset: u64, path: &str) -> TypedAccess {
        TypedAccess {
            type_size: 32,
            offset,
            path: path.into(),
            ..sampled_rows::typed(ip, name)
        }
    }

    fn sample(ip: u64, address: u64) -> Sample {
        Sample {
            time: Time(50),
            operation: Some(Operation::Update),
            ..sampled_rows::sample(1, ip, address)
        }
    }

    fn block(id: u64, address: u64) -> HeapBlock {
        HeapBlock {
            id,
            pid: PID,
            address: Address(address),
            size: 64,
            allocator: Allocator::Malloc,
            label: String::new(),
            allocated: Time(10),
            allocated_by: Tid(1),
            stack: StackId(5),
            freed: None,
            freed_by: None,
            weight: 1.0,
        }
    }

    /// Two blocks of one site: the first is mostly touched as `node`, the second as `list`.
    fn tables() -> Tables {
        Tables {
            typed_accesses: vec![
                typed(0x10, "node", 8, "key"),
                typed(0x18, "node", 16, "next"),
                typed(0x20, "list", 0, "head"),
            ],
            heap_blocks: vec![block(1, 0x1000), block(2, 0x2000)],
            stacks: vec![Stack {
                id: StackId(5),
                frames: vec![Address(0x100)],
            }],
            frames: vec![Frame {
                pid: PID,
                address: Address(0x100),
                depth: 0,
                function: "make".into(),
                file: String::new(),
                line: 0,
                module: String::new(),
                reason: String::new(),
            }],
            samples: vec![
                sample(0x10, 0x1008),
                sample(0x10, 0x1028),
                sample(0x18, 0x1010),
                sample(0x20, 0x2000),
                // In no block.
                sample(0x20, 0x9000),
            ],
            ..Tables::default()
        }
    }

    /// A line touched by these instructions at these addresses, so many ns each.
    fn line(touches: &[(u64, u64, f64)]) -> LineSharing {
        let place = |&(ip, address, weight)| Place {
            tid: Tid(1),
            touch: Touch {
                pid: PID,
                ip: Address(ip),
                address: Address(address),
                size: 8,
                operation: Operation::Update,
                locked: false,
                goroutine: None,
            },
            weight,
            samples: 1,
            traps: 0,
        };
        LineSharing {
            pid: PID,
            line: Address(touches[0].1).line(64),
            transfers: Estimate::default(),
            cost_ns: Estimate::default(),
            flows: Vec::new(),
            false_share: Estimate::default(),
            cpu_flows: BTreeMap::new(),
            places: touches.iter().map(place).collect(),
            basis: Basis::Sampled {
                samples: 1,
                watches: 0,
                traps: 0,
            },
        }
    }

    #[test]
    fn the_accesses_of_an_object_name_its_type_its_fields_and_where_it_begins() {
        let tables = tables();
        let names = Names::new(&tables);
        let votes = Votes::new(&tables, &names);
        let line = line(&[
            (0x10, 0x1028, 100.0),
            (0x18, 0x1010, 300.0),
            (0x20, 0x1000, 10.0),
        ]);
        let block = Some((Address(0x1000), 64));
        let verdict = votes.verdict(&[&line], block);
        assert_eq!(verdict.kind.map(|row| row.type_name.as_str()), Some("node"));
        assert_eq!(verdict.fields, ["next", "key"]);
        // Two elements of an array, 32 bytes apart.
        assert_eq!(verdict.base.map(|base| base % 32), Some(0));
        assert_eq!(verdict.disagrees, None);
        let shown: Vec<_> = verdict
            .votes
            .iter()
            .map(|it| (it.name.as_str(), it.share))
            .collect();
        assert_eq!(shown, [("node", 0.75), ("list", 0.25)]);
    }

    #[test]
    fn an_object_that_is_touched_as_another_type_than_its_site_allocates_says_so() {
        let tables = tables();
        let names = Names::new(&tables);
        let votes = Votes::new(&tables, &names);
        let line = line(&[(0x20, 0x2000, 100.0)]);
        let verdict = votes.verdict(&[&line], Some((Address(0x2000), 64)));
        assert_eq!(verdict.kind.map(|row| row.type_name.as_str()), Some("list"));
        assert_eq!(verdict.disagrees, Some("node"));
        // Without a block its own accesses are all that is known.
        let verdict = votes.verdict(&[&line], None);
        assert_eq!(verdict.disagrees, None);
        assert_eq!(verdict.votes.len(), 1);
    }

    #[test]
    fn a_neighbour_on_the_line_has_no_say() {
        let tables = tables();
        let names = Names::new(&tables);
        let votes = Votes::new(&tables, &names);
        let line = line(&[(0x20, 0x3000, 900.0), (0x10, 0x3028, 100.0)]);
        let of = |object| votes.verdict(&[&line], object).kind;
        let named = |object| of(object).map(|row: &TypedAccess| row.type_name.as_str());
        assert_eq!(named(Some((Address(0x3020), 32))), Some("node"));
        assert_eq!(named(Some((Address(0x3030), 16))), None);
        assert_eq!(named(None), Some("list"));
    }

    #[test]
    fn a_block_is_what_fills_it_and_has_in_it_what_most_accesses_name() {
        let member = |offset, name: &str| TypeMember {
            type_name: "book".into(),
            type_size: 64,
            declared_at: String::new(),
            offset,
            size: 32,
            alignment: 8,
            bits: 0,
            name: name.into(),
            member_type: "node".into(),
            language: String::new(),
        };
        let book = TypedAccess {
            type_size: 64,
            ..typed(0x30, "book", 0, "bid.key")
        };
        let mut tables = tables();
        tables.typed_accesses[2] = book;
        let members = [member(0, "bid"), member(32, "ask")];
        tables.type_members = members.to_vec();
        tables.samples.push(sample(0x30, 0x1000));
        let names = Names::new(&tables);
        let votes = Votes::new(&tables, &names);
        // The last is of what lies behind the block.
        let line = line(&[
            (0x10, 0x1028, 9.0),
            (0x18, 0x1010, 5.0),
            (0x18, 0x1050, 2.0),
        ]);
        let verdict = votes.verdict(&[&line], Some((Address(0x1000), 64)));
        assert_eq!(verdict.kind.map(|row| row.type_name.as_str()), Some("book"));
        assert_eq!(verdict.fields, ["ask.key", "bid.next"]);
        assert_eq!((verdict.base, verdict.disagrees), (Some(0x1000), None));
        let shown = verdict.votes.iter().map(|it| (it.name.as_str(), it.part));
        assert_eq!(shown.collect::<Vec<_>>(), [("book", false), ("node", true)]);
        let path = |ip, address| {
            let row = votes.access(PID, Address(ip)).unwrap();
            votes.path(&verdict, row, Address(address))
        };
        assert_eq!(
            [path(0x30, 0x1000), path(0x18, 0x1050)],
            ["bid.key", "next"]
        );
    }

    #[test]
    fn accesses_that_disagree_where_it_begins_leave_that_open() {
        let tables = tables();
        let names = Names::new(&tables);
        let votes = Votes::new(&tables, &names);
        let line = line(&[(0x10, 0x1008, 1.0), (0x10, 0x1014, 1.0)]);
        assert_eq!(votes.verdict(&[&line], None).base, None);
    }
}
