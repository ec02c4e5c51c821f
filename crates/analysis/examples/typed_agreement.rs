//! Of the types that linewise derives from code alone, how many agree with what else is known of the
//! touched memory? For programs that do not tell themselves what lies where (fixtures/real).
//!
//! ```sh
//! cargo run --release -p linewise-analysis --example typed_agreement -- NAME.linewise
//! ```
//!
//! Only accesses whose field is known are checked, each by what it did not come from:
//!
//! - in a static variable: the member at the touched address, by the variable's own declaration, must
//!   have the name and type that the access is said to have. Instructions that name the variable
//!   themselves are left out;
//! - in a heap block: a value of the type must lie in the block where the access implies it, and begin
//!   where the values begin that other instructions saw in the blocks of that allocation site, modulo
//!   the size of the type. Of another type than most of these it is right if the one type has the other
//!   for a member there, wrong if it has another member there, and not checked if nothing tells. Nor is
//!   it where the others do not agree among themselves: values of different length lie in such blocks.
//!
//! Prints one line of JSON.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use linewise_analysis::resolve::{
    Callers, DiskFiles, HeapBlocks, Resolver, Store, allocation_site,
};
use linewise_recording::{
    Address, ObjectKind, Pid, Recording, Sample, SampleClass, StackId, TypeMember, TypedAccess,
};
use serde_json::json;

/// Members in members that are followed.
const DEEPEST: usize = 16;
/// Share of the accesses to values of one type that must agree where these begin.
const AGREED: f64 = 0.9;
/// Disagreements that are printed.
const SHOWN: usize = 20;

/// Where a value of a type begins in the blocks of a site: type, its size, distance modulo that.
type Claim<'a> = (&'a str, u64, u64);

/// Checked, and of these right.
#[derive(Default)]
struct Count {
    checked: u64,
    right: u64,
}

impl Count {
    fn add(&mut self, right: bool) {
        self.checked += 1;
        self.right += u64::from(right);
    }
}

/// An access to a heap block.
struct InBlock<'a> {
    row: &'a TypedAccess,
    /// Bytes of the block.
    size: u64,
    /// Of the access in the block.
    offset: u64,
}

impl<'a> InBlock<'a> {
    /// Where the touched value begins in the block; `None` where that depends on an index, or it would
    /// begin before the block.
    fn base(&self) -> Option<u64> {
        (!self.row.path.contains("[]"))
            .then(|| self.offset.checked_sub(self.row.offset))
            .flatten()
    }

    fn claim(&self) -> Option<Claim<'a>> {
        let (name, size) = (self.row.type_name.as_str(), self.row.type_size);
        Some((name, size, self.base()? % size))
    }

    /// Whether the touched value lies in the block as far as that can be told.
    fn fits(&self) -> bool {
        // An array at the end of a type may be longer than the type says.
        if self.row.path.contains("[]") {
            return self.offset >= self.row.offset;
        }
        // Blocks of types that end in an array are asked for by what is used of it.
        let touched = self.row.offset.saturating_add(self.row.size);
        self.base()
            .is_some_and(|base| base.saturating_add(touched) <= self.size)
    }
}

type Members<'a> = HashMap<(&'a str, u64), Vec<&'a TypeMember>>;

/// Whether a value of type `inner` begins `offset` bytes into one of type `outer`; `None` if the members
/// that the recording has do not tell.
fn holds(
    members: &Members<'_>,
    outer: (&str, u64),
    offset: u64,
    inner: (&str, u64),
) -> Option<bool> {
    let mut found = None;
    let mut waiting = vec![(outer.0.to_owned(), outer.1, offset, 0)];
    while let Some((name, size, offset, depth)) = waiting.pop() {
        if offset == 0 && (name.as_str(), size) == inner {
            return Some(true);
        }
        let Some(parts) = members.get(&(name.as_str(), size)) else {
            // A number, or a type whose members nobody asked for.
            let too_small = size < offset.saturating_add(inner.1);
            found = found.or(too_small.then_some(false));
            if !too_small {
                return None;
            }
            continue;
        };
        if depth >= DEEPEST {
            return None;
        }
        for part in parts {
            if offset >= part.offset && offset < part.offset.saturating_add(part.size) {
                let kind = element(&part.member_type);
                let whole = members
                    .keys()
                    .find(|(name, _)| *name == kind)
                    .map_or(part.size, |(_, size)| *size);
                let within = (offset - part.offset) % whole.max(1);
                waiting.push((kind.to_owned(), whole, within, depth + 1));
            }
        }
        found = found.or(Some(false));
    }
    found
}

/// `struct node` of `struct node[4]` and `Node` of `[Node; 4]`.
fn element(kind: &str) -> &str {
    if let Some(inner) = kind.strip_prefix('[') {
        return inner
            .rsplit_once("; ")
            .map_or(inner, |(element, _)| element);
    }
    kind.split_once('[').map_or(kind, |(element, _)| element)
}

/// The last name in a path: `size` of `items[3].size`.
fn last_name(path: &str) -> &str {
    let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
    name.split_once('[').map_or(name, |(name, _)| name)
}

/// Whether the members of a static variable at the touched bytes are what `row` says. Of several that
/// lie over each other one must be.
fn is_member(resolver: &mut Resolver<'_>, sample: &Sample, row: &TypedAccess) -> Option<bool> {
    let (object, _) = resolver.object(sample.pid, sample.address);
    if object.kind != ObjectKind::Static || object.type_name.is_empty() {
        return None;
    }
    let fields = resolver.fields_in(&object, sample.address, row.size.max(1));
    let names: Vec<&str> = row.path.split(" | ").map(last_name).collect();
    (!fields.is_empty()).then(|| {
        fields.iter().any(|field| {
            names.contains(&last_name(&field.path))
                && (row.field_type.is_empty()
                    || element(&row.field_type) == element(&field.type_name))
        })
    })
}

/// The claim of most accesses that instructions other than `ip` made; `None` if too many of those that
/// claim the same type claim another place.
fn of_others<'a>(
    claims: &BTreeMap<Claim<'a>, BTreeMap<Address, u64>>,
    ip: Address,
) -> Option<Claim<'a>> {
    let votes = |by: &BTreeMap<Address, u64>| -> u64 {
        by.iter().filter(|it| *it.0 != ip).map(|it| *it.1).sum()
    };
    let (claim, most) = claims
        .iter()
        .map(|(claim, by)| (*claim, votes(by)))
        .filter(|(_, votes)| *votes > 0)
        .max_by_key(|(_, votes)| *votes)?;
    let same_type = claims
        .iter()
        .filter(|(other, _)| (other.0, other.1) == (claim.0, claim.1));
    let all: u64 = same_type.map(|(_, by)| votes(by)).sum();
    (most as f64 >= AGREED * all as f64).then_some(claim)
}

/// Whether an access agrees with what others say of the blocks of its site; `None` if nothing tells.
fn agrees(members: &Members<'_>, access: &InBlock<'_>, others: Claim<'_>) -> Option<bool> {
    let (kind, size, start) = others;
    let base = access.base()?;
    let own = (access.row.type_name.as_str(), access.row.type_size);
    if own == (kind, size) {
        return Some(base % size == start);
    }
    // Where each would begin in the other, if the blocks are arrays of it.
    let in_theirs = (base % size + size - start) % size;
    let in_own = (start + own.1 * size - base % own.1) % own.1;
    match (
        holds(members, (kind, size), in_theirs, own),
        holds(members, own, in_own, (kind, size)),
    ) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        // Blocks of exactly one value cannot hold another.
        (Some(false), Some(false)) if access.size == size && start == 0 => Some(false),
        _ => None,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: typed_agreement NAME.linewise";
    let name = std::env::args().nth(1).ok_or(usage)?;
    let tables = Recording::open(Path::new(&name))?.tables()?;
    let accesses = || {
        tables
            .samples
            .iter()
            .filter(|sample| sample.class == SampleClass::Access)
    };
    let (files, store) = (DiskFiles::default(), Store::default());
    let mut resolver = Resolver::new(&tables.maps, &tables.threads, &files, &store);
    // Anew, by this version's rules, and so in the order of the code.
    let code: std::collections::BTreeSet<_> = accesses().map(|it| (it.pid, it.access_ip)).collect();
    let found = resolver.typed_accesses(code, &Callers::new(&tables));
    let typed: HashMap<(Pid, Address), &TypedAccess> = found
        .accesses
        .iter()
        .filter(|row| row.reason.is_none() && !row.path.is_empty() && row.type_size > 0)
        .map(|row| ((row.pid, row.ip), row))
        .collect();
    let mut members: Members<'_> = HashMap::new();
    for member in &found.members {
        let key = (member.type_name.as_str(), member.type_size);
        members.entry(key).or_default().push(member);
    }
    let stacks: HashMap<StackId, &[Address]> = tables
        .stacks
        .iter()
        .map(|stack| (stack.id, stack.frames.as_slice()))
        .collect();
    let blocks = HeapBlocks::new(&tables.heap_blocks);
    let mut sites: HashMap<StackId, Address> = HashMap::new();
    let (mut fields, mut in_static, mut bounds) = (0_u64, Count::default(), Count::default());
    let mut by_site: BTreeMap<(Pid, Address), Vec<InBlock<'_>>> = BTreeMap::new();
    let mut wrong: BTreeMap<String, u64> = BTreeMap::new();
    for sample in accesses() {
        let Some(row) = typed.get(&(sample.pid, sample.access_ip)).copied() else {
            continue;
        };
        fields += 1;
        let said = format!("{:x} {}.{}", row.ip.0, row.type_name, row.path);
        if let Some(block) = blocks.at(sample.pid, sample.address, sample.time) {
            let access = InBlock {
                row,
                size: block.size,
                offset: sample.address.0 - block.address.0,
            };
            bounds.add(access.fits());
            if !access.fits() {
                let text = format!("{said}: at {} of {} bytes", access.offset, access.size);
                *wrong.entry(text).or_default() += 1;
            }
            let site = *sites.entry(block.stack).or_insert_with(|| {
                let callers = stacks.get(&block.stack).copied().unwrap_or_default();
                let frames: Vec<_> = callers
                    .iter()
                    .flat_map(|&caller| resolver.caller_frames(block.pid, caller))
                    .collect();
                allocation_site(&frames).map_or(Address(0), |frame| frame.address)
            });
            by_site.entry((sample.pid, site)).or_default().push(access);
        } else if row.variable.is_empty()
            && let Some(right) = is_member(&mut resolver, sample, row)
        {
            in_static.add(right);
            if !right {
                let (object, _) = resolver.object(sample.pid, sample.address);
                let offset = sample.address.0 - object.address.0;
                *wrong
                    .entry(format!("{said}: in {}+{offset}", object.name))
                    .or_default() += 1;
            }
        }
    }
    let mut in_heap = Count::default();
    for accesses in by_site.values() {
        let mut claims: BTreeMap<Claim<'_>, BTreeMap<Address, u64>> = BTreeMap::new();
        for access in accesses {
            if let Some(claim) = access.claim() {
                let votes = claims.entry(claim).or_default();
                *votes.entry(access.row.ip).or_default() += 1;
            }
        }
        for access in accesses {
            let Some(others) = of_others(&claims, access.row.ip) else {
                continue;
            };
            let Some(right) = agrees(&members, access, others) else {
                continue;
            };
            in_heap.add(right);
            if !right {
                let row = access.row;
                let text = format!(
                    "{:x} {}.{} at {} of {}: {}+{}",
                    row.ip.0,
                    row.type_name,
                    row.path,
                    access.offset,
                    access.size,
                    others.0,
                    others.2
                );
                *wrong.entry(text).or_default() += 1;
            }
        }
    }
    let mut wrong: Vec<_> = wrong.into_iter().collect();
    wrong.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    wrong.truncate(SHOWN);
    let count = |it: &Count| json!({ "checked": it.checked, "right": it.right });
    println!(
        "{}",
        json!({
            "field": fields, "static": count(&in_static), "bounds": count(&bounds),
            "heap": count(&in_heap), "wrong": wrong,
        })
    );
    Ok(())
}
