//! The layout that the use of a type suggests: members that one thread writes while another touches
//! them or their neighbours go to lines of their own.
//!
//! Two members are in conflict if in some object one thread writes the one while another thread
//! touches the other; but two that a thread uses, and others as well, cost that thread one transfer on one line
//! and two on two: they stay together. Members are put, the most used first, into the first group that has none in
//! conflict with them (a greedy colouring of the graph of conflicts). Each group begins on a line of
//! its own; members that nobody was seen to touch go last into the first group. Within a group the
//! larger alignment comes first, which leaves the least padding.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{Tid, TypeMember};
use serde::{Deserialize, Serialize};

use super::declaration::{declaration, go_kind, padded_field};
use crate::users::User;
use crate::views::Clusters;

/// Members of a type that is laid out anew, at most.
const MOST_MEMBERS: usize = 512;

/// A layout, with what it takes and saves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// The groups, each on lines of its own, in their order.
    pub groups: Vec<Group>,
    /// Bytes of the type as it is.
    pub size_before: u64,
    /// Bytes of the type in this layout.
    pub size_after: u64,
    /// Bytes of padding as it is.
    pub padding_before: u64,
    /// Bytes of padding in this layout.
    pub padding_after: u64,
    /// It saves at most this share of the run, 0 to 1: in a report what the findings that name the type say; in the view alone
    /// what the accesses cost that share a line with a member in conflict.
    pub saves_at_most: f64,
    /// And at least this share, by the same findings.
    #[serde(default)]
    pub saves_at_least: f64,
    /// Source to paste; empty if the type cannot be written down (unnamed or base-class members).
    pub source: String,
}

/// Members that may share a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Why they belong together: who writes and who reads them.
    pub why: String,
    /// The members, in their order.
    pub members: Vec<String>,
}

/// How a type is used.
pub(super) struct Usage<'a> {
    pub(super) line_size: u64,
    pub(super) type_name: &'a str,
    pub(super) size: u64,
    pub(super) members: &'a [&'a TypeMember],
    /// Use by object, member and thread.
    pub(super) objects: &'a super::uses::Objects,
    /// Cost by member.
    pub(super) costs: &'a BTreeMap<usize, f64>,
    /// Use by member, all threads.
    pub(super) uses: &'a BTreeMap<usize, super::uses::Use>,
    /// Whether `objects` has each thread that was seen; an exact run tells only those between which lines moved.
    pub(super) has_all_threads: bool,
    /// All cost of the run.
    pub(super) whole: f64,
    pub(super) names: &'a HashMap<Tid, &'a str>,
}

/// One or more members that cannot be parted: bit fields of one storage unit.
struct Unit {
    members: Vec<usize>,
    size: u64,
    alignment: u64,
}

/// The layout that the use suggests; `None` if no two threads are in each other's way.
pub(super) fn suggest(usage: &Usage<'_>) -> Option<Layout> {
    if usage.members.is_empty() || usage.members.len() > MOST_MEMBERS {
        return None;
    }
    let units = units(usage.members);
    let unit_of: HashMap<usize, usize> = units
        .iter()
        .enumerate()
        .flat_map(|(number, unit)| unit.members.iter().map(move |member| (*member, number)))
        .collect();
    if is_packed(usage) {
        return None;
    }
    let together = together(usage, &unit_of, units.len());
    let mut conflicts = conflicts(usage, &unit_of);
    conflicts.retain(|(a, b)| together.of(*a) != together.of(*b));
    let (near, neighbours) = too_near(usage, &conflicts, &units);
    if near.is_empty() && !neighbours {
        return None;
    }
    let cost = |unit: usize| -> f64 {
        units[unit]
            .members
            .iter()
            .filter_map(|member| usage.costs.get(member))
            .sum()
    };
    let used: BTreeSet<usize> = usage
        .objects
        .values()
        .flat_map(BTreeMap::keys)
        .filter_map(|(member, _)| unit_of.get(member).copied())
        .collect();
    let mut order: Vec<usize> = used.iter().copied().collect();
    order.sort_by(|a, b| cost(*b).total_cmp(&cost(*a)).then(a.cmp(b)));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut placed_already = BTreeSet::new();
    for unit in &order {
        if !placed_already.insert(together.of(*unit)) {
            continue;
        }
        let with_it: Vec<usize> = (order.iter().copied())
            .filter(|other| together.of(*other) == together.of(*unit))
            .collect();
        let free = |group: &&mut Vec<usize>| {
            let mut pairs = (group.iter()).flat_map(|a| with_it.iter().map(move |b| pair(*a, *b)));
            !pairs.any(|it| conflicts.contains(&it))
        };
        match groups.iter_mut().find(free) {
            Some(group) => group.extend(with_it),
            None => groups.push(with_it),
        }
    }
    // What is only read comes first, and with it what nobody touches: both are in nobody's way.
    let written = |group: &[usize]| {
        group
            .iter()
            .any(|unit| !who(usage, &units[*unit]).0.is_empty())
    };
    groups.sort_by_key(|group| written(group));
    for group in &mut groups {
        // Bit fields last: they cannot be aligned.
        group.sort_by_key(|unit| {
            let bits = is_bits(usage.members, &units[*unit]);
            (bits, std::cmp::Reverse(units[*unit].alignment), *unit)
        });
    }
    let unused: Vec<usize> = (0..units.len())
        .filter(|unit| !used.contains(unit))
        .collect();
    if let Some(first) = groups.first_mut() {
        first.extend(&unused);
    }
    let taken: u64 = units.iter().map(|unit| unit.size).sum();
    let order = written_order(usage, &units, &groups, &used);
    let size_after = placed(usage, &order, &units);
    let saved: f64 = if neighbours {
        usage.costs.values().sum()
    } else {
        near.iter().map(|unit| cost(*unit)).sum()
    };
    Some(Layout {
        groups: groups
            .iter()
            .map(|group| Group {
                why: why(usage, &units, group),
                members: group
                    .iter()
                    .flat_map(|unit| &units[*unit].members)
                    .map(|member| usage.members[*member].name.clone())
                    .collect(),
            })
            .collect(),
        size_before: usage.size,
        size_after,
        padding_before: usage.size.saturating_sub(taken),
        padding_after: size_after.saturating_sub(taken),
        saves_at_most: super::uses::share(saved, usage.whole),
        saves_at_least: 0.0,
        source: source(usage, &units, &groups, &order),
    })
}

fn units(members: &[&TypeMember]) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut end = 0;
    for (number, member) in members.iter().enumerate() {
        let overlaps = member.offset < end;
        end = end.max(member.offset.saturating_add(member.size));
        match units.last_mut() {
            // Bit fields of one unit, and variants that lie over each other.
            Some(unit) if overlaps || (member.bits > 0 && is_bits(members, unit)) => {
                unit.members.push(number);
                let start = unit
                    .members
                    .first()
                    .map_or(0, |first| members[*first].offset);
                unit.size = end - start;
                unit.alignment = unit.alignment.max(member.alignment);
            }
            _ => units.push(Unit {
                members: vec![number],
                size: member.size,
                alignment: member.alignment.max(1),
            }),
        }
    }
    units
}

/// Whether its members lie closer than their types want: then something depends on where each is, as a file or a message.
fn is_packed(usage: &Usage<'_>) -> bool {
    let mut members = usage.members.iter().filter(|it| it.bits == 0);
    members.any(|it| {
        it.alignment > 0
            && (!it.offset.is_multiple_of(it.alignment) || !usage.size.is_multiple_of(it.alignment))
    })
}

fn is_bits(members: &[&TypeMember], unit: &Unit) -> bool {
    unit.members.iter().all(|member| members[*member].bits > 0)
}

fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

/// Which units stay together: those of which a thread uses two that others are in its way at.
fn together(usage: &Usage<'_>, unit_of: &HashMap<usize, usize>, units: usize) -> Clusters {
    let mut together = Clusters::apart(units);
    for object in usage.objects.values() {
        // By unit: who uses it, and whether that writes.
        let mut users: BTreeMap<usize, BTreeMap<User, bool>> = BTreeMap::new();
        for ((member, user), uses) in object {
            if let Some(unit) = unit_of.get(member) {
                let of_unit = users.entry(*unit).or_default();
                *of_unit.entry(*user).or_default() |= uses.stores > 0.0;
            }
        }
        let shared: Vec<(usize, BTreeMap<User, bool>)> = users
            .into_iter()
            .filter(|(_, users)| users.len() > 1 && users.values().any(|writes| *writes))
            .collect();
        for (i, (a, by)) in shared.iter().enumerate() {
            for (b, others) in &shared[..i] {
                if by.keys().any(|user| others.contains_key(user)) {
                    together.join(*a, *b);
                }
            }
        }
    }
    together
}

/// Pairs of units of which in some object one is written by one thread and the other touched by
/// another.
fn conflicts(usage: &Usage<'_>, unit_of: &HashMap<usize, usize>) -> BTreeSet<(usize, usize)> {
    let mut conflicts = BTreeSet::new();
    for object in usage.objects.values() {
        for ((a, writer), uses) in object {
            if uses.stores <= 0.0 {
                continue;
            }
            for (b, other) in object.keys() {
                if let (Some(a), Some(b)) = (unit_of.get(a), unit_of.get(b))
                    && a != b
                    && writer != other
                {
                    conflicts.insert(pair(*a, *b));
                }
            }
        }
    }
    conflicts
}

/// The units in conflict that share a line in some object, and whether different objects on one line
/// are touched by different threads, one of which writes.
fn too_near(
    usage: &Usage<'_>,
    conflicts: &BTreeSet<(usize, usize)>,
    units: &[Unit],
) -> (BTreeSet<usize>, bool) {
    let mut near = BTreeSet::new();
    let span = |unit: usize| {
        let first = units[unit]
            .members
            .first()
            .map_or(0, |&it| usage.members[it].offset);
        (first, first + units[unit].size.max(1) - 1)
    };
    for (a, b) in conflicts {
        let ((a_first, a_last), (b_first, b_last)) = (span(*a), span(*b));
        let shares = usage.objects.keys().any(|(_, base)| {
            let line = |offset: u64| base.saturating_add(offset) / usage.line_size;
            line(a_first) <= line(b_last) && line(b_first) <= line(a_last)
        });
        if shares {
            near.extend([*a, *b]);
        }
    }
    let neighbours =
        usage
            .objects
            .iter()
            .zip(usage.objects.iter().skip(1))
            .any(|((one, a), (other, b))| {
                let last = one.1.saturating_add(usage.size.max(1) - 1) / usage.line_size;
                let same_line = one.0 == other.0 && last == other.1 / usage.line_size;
                let apart = a.keys().any(|(_, a)| b.keys().any(|(_, b)| a != b));
                let writes = a.values().chain(b.values()).any(|uses| uses.stores > 0.0);
                same_line && apart && writes
            });
    (near, neighbours)
}

/// Who writes and who reads a unit, over all objects.
fn who(usage: &Usage<'_>, unit: &Unit) -> (BTreeSet<User>, BTreeSet<User>) {
    let (mut writers, mut readers) = (BTreeSet::new(), BTreeSet::new());
    for ((member, user), uses) in usage.objects.values().flatten() {
        if unit.members.contains(member) {
            if uses.stores > 0.0 {
                writers.insert(*user);
            } else {
                readers.insert(*user);
            }
        }
    }
    (writers, readers)
}

fn why(usage: &Usage<'_>, units: &[Unit], group: &[usize]) -> String {
    let (mut writers, mut readers) = (BTreeSet::new(), BTreeSet::new());
    for unit in group {
        let (w, r) = who(usage, &units[*unit]);
        writers.extend(w);
        readers.extend(r);
    }
    let list = |users: &BTreeSet<User>| -> String {
        let threads: Vec<&Tid> = (users.iter()).filter_map(User::thread).collect();
        // Nothing names a goroutine.
        match users.len() - threads.len() {
            0 => {}
            1 => return "one goroutine".to_owned(),
            goroutines => return format!("{goroutines} goroutines"),
        }
        if threads.len() > 3 {
            return format!("{} threads", threads.len());
        }
        let names: Vec<String> = threads
            .into_iter()
            .map(|tid| {
                let name = usage.names.get(tid).copied().unwrap_or_default();
                let shown = in_a_comment(name);
                // The number says nothing in the next run, so it is there for threads of one name alone.
                match usage.names.values().filter(|it| **it == name).count() {
                    1 if !name.is_empty() => shown,
                    _ => format!("{shown} {tid}").trim().to_owned(),
                }
            })
            .collect();
        names.join(", ")
    };
    let members = || group.iter().flat_map(|unit| &units[*unit].members);
    let uses = || members().filter_map(|member| usage.uses.get(member));
    let is_written = uses().any(|it| it.stores > 0.0);
    let said = match (writers.is_empty(), readers.is_empty()) {
        (true, true) if is_written => return "written".to_owned(),
        (true, true) if uses().any(|it| it.loads > 0.0) => return "only read".to_owned(),
        (true, true) => return "not seen in use".to_owned(),
        (true, false) if is_written => format!("written, read by {}", list(&readers)),
        (true, false) => format!("only read, by {}", list(&readers)),
        (false, true) => format!("written by {}", list(&writers)),
        (false, false) if readers.is_subset(&writers) => {
            format!("read and written by {}", list(&writers))
        }
        (false, false) => format!("written by {}, read by {}", list(&writers), list(&readers)),
    };
    match usage.has_all_threads {
        true => said,
        false => format!("{said}, and maybe others"),
    }
}

/// A thread's name as it may stand in a comment of any language: nothing in it ends one, or goes on with it.
fn in_a_comment(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || " -_.:#@[](),+=".contains(c);
    let shown = |c: char| if is_plain(c) { c } else { '?' };
    name.chars().map(shown).collect()
}

/// The language of the program that has the type.
fn language<'a>(usage: &Usage<'a>) -> &'a str {
    usage.members.first().map_or("", |it| it.language.as_str())
}

/// The units as they will be declared, in runs of which each begins a line. C++ types have functions, initial values
/// and base classes, Rust's have attributes, and fields that are written by name: there members stay in their order and
/// get what aligns them. So do those of a C struct that has no name, or ends in an array of no length.
fn written_order(
    usage: &Usage<'_>,
    units: &[Unit],
    groups: &[Vec<usize>],
    used: &BTreeSet<usize>,
) -> Vec<Vec<usize>> {
    if !stays_in_place(usage) {
        return groups.to_vec();
    }
    let group_of = |unit: usize| groups.iter().position(|group| group.contains(&unit));
    let in_use = |group: &[usize]| group.iter().filter(|it| used.contains(it)).count();
    if language(usage) == "rust" {
        // Its compiler places the fields: only those stay together that are not padded.
        // Of equal ones what lies before the others stays, as what is said of them has it.
        let first = |group: &Vec<usize>| Reverse(group.iter().min().copied());
        let largest = groups
            .iter()
            .max_by_key(|group| (in_use(group), first(group)));
        let is_moved =
            |it: &usize| used.contains(it) && largest.is_some_and(|group| !group.contains(it));
        let (moved, stay): (Vec<usize>, Vec<usize>) = (0..units.len()).partition(is_moved);
        let alone = moved.into_iter().map(|unit| vec![unit]);
        return std::iter::once(stay).chain(alone).collect();
    }
    let mut runs: Vec<Vec<usize>> = vec![Vec::new()];
    let mut current = None;
    for unit in 0..units.len() {
        // What nobody touches may lie anywhere.
        if used.contains(&unit) && group_of(unit) != current {
            if current.is_some() {
                runs.push(Vec::new());
            }
            current = group_of(unit);
        }
        if let Some(run) = runs.last_mut() {
            run.push(unit);
        }
    }
    runs
}

fn stays_in_place(usage: &Usage<'_>) -> bool {
    let has_no_length = |it: &&TypeMember| it.member_type.ends_with("[]");
    match language(usage) {
        "c++" | "rust" => true,
        "c" => {
            usage.type_name.contains("(anonymous ")
                || usage.members.last().is_some_and(has_no_length)
        }
        _ => false,
    }
}

/// Bytes of a struct of these groups, each at the start of a line.
fn placed(usage: &Usage<'_>, groups: &[Vec<usize>], units: &[Unit]) -> u64 {
    let mut end: u64 = 0;
    for group in groups {
        let start = end;
        for unit in group {
            let unit = &units[*unit];
            end = end
                .next_multiple_of(unit.alignment.max(1))
                .saturating_add(unit.size);
        }
        end = match language(usage) {
            "go" => end.saturating_add(go_padding(end - start, usage.line_size)),
            _ => end.next_multiple_of(usage.line_size),
        };
    }
    end
}

/// Bytes of padding behind a group of members in Go, which aligns nothing to a line: one value of a word lies
/// on one line wherever the struct begins, so it needs the rest of a line, and any other group a whole one.
fn go_padding(group: u64, line_size: u64) -> u64 {
    match group {
        0..=8 => line_size.saturating_sub(group),
        _ => line_size,
    }
}

/// The struct as its language writes it, or what aligns its members; empty if it has members that cannot be written down.
fn source(
    usage: &Usage<'_>,
    units: &[Unit],
    groups: &[Vec<usize>],
    order: &[Vec<usize>],
) -> String {
    // All members of a union lie over each other.
    if usage.type_name.starts_with("union ") || usage.type_name.contains("(anonymous union") {
        return String::new();
    }
    if language(usage) == "go" {
        return go(usage, units, groups);
    }
    if stays_in_place(usage) {
        return in_place(usage, units, order).unwrap_or_default();
    }
    let written: Option<Vec<(String, Vec<String>)>> = groups
        .iter()
        .map(|group| {
            let lines: Option<Vec<String>> = group
                .iter()
                .flat_map(|unit| &units[*unit].members)
                .map(|member| {
                    let TypeMember {
                        name,
                        member_type,
                        bits,
                        language,
                        ..
                    } = usage.members[*member];
                    declaration(name, member_type, *bits, language)
                })
                .collect();
            Some((why(usage, units, group), lines?))
        })
        .collect();
    match (written, language(usage)) {
        (Some(text), "c") => {
            let is_ordered = groups.iter().flatten().is_sorted();
            c(usage, &text, is_ordered)
        }
        _ => String::new(),
    }
}

/// The members that begin the runs, aligned, to be put where they are declared; of a single run, its first. `None` if one
/// of them cannot be written down.
fn in_place(usage: &Usage<'_>, units: &[Unit], order: &[Vec<usize>]) -> Option<String> {
    let line = usage.line_size;
    let is_rust = language(usage) == "rust";
    // Parameters and what was put in their place cannot be told apart in the types of members.
    let is_generic = usage.type_name.contains('<');
    if let [_] = order
        && is_rust
    {
        let name = usage.type_name.split('<').next().unwrap_or_default();
        let name = name.rsplit("::").next().unwrap_or(name);
        return Some(format!(
            "#[repr(align({line}))] // in front of `struct {name}`\n"
        ));
    }
    let declared = |unit: usize| -> Option<String> {
        let [member] = units[unit].members[..] else {
            return None;
        };
        let member = usage.members[member];
        let known = member.bits == 0 && !is_generic && !member.member_type.contains("(anonymous ");
        let text = declaration(&member.name, &member.member_type, 0, language(usage));
        let text = text.filter(|_| known);
        match language(usage) {
            "rust" => {
                // The fields of a tuple have no names.
                let text = text.filter(|it| !it.starts_with("__"))?;
                let (name, kind) = text.split_once(": ")?;
                Some(padded_field(name, kind))
            }
            "c" => text.map(|it| format!("_Alignas({line}) {it};")),
            _ => text.map(|it| format!("alignas({line}) {it};")),
        }
    };
    let mut text = String::new();
    match order {
        [run] => text.push_str(&format!("{}\n", run.iter().find_map(|it| declared(*it))?)),
        // With what follows it aligned, the struct is, and so what it begins with.
        [_, runs @ ..] => {
            for run in runs {
                let comment = format!("/* {} */", why(usage, units, run));
                let comment = match is_rust {
                    true => format!("// {}", why(usage, units, run)),
                    false => comment,
                };
                text.push_str(&format!("{comment}\n{}\n", declared(*run.first()?)?));
            }
        }
        [] => return None,
    }
    Some(text)
}

/// The struct in C; `is_ordered` if its members are in the order in which they were declared.
fn c(usage: &Usage<'_>, groups: &[(String, Vec<String>)], is_ordered: bool) -> String {
    let line = usage.line_size;
    // A struct without a tag has its name from a typedef.
    let (mut text, end) = match usage.type_name.strip_prefix("struct ") {
        Some(name) => (format!("struct {name} {{\n"), "};\n".to_owned()),
        None => (
            "typedef struct {\n".to_owned(),
            format!("}} {};\n", usage.type_name),
        ),
    };
    if !is_ordered {
        text.push_str("    /* Members lie in another order: initialise them by name. */\n");
    }
    for (why, lines) in groups {
        text.push_str(&format!("    /* {why} */\n"));
        let Some((first, rest)) = lines.split_first() else {
            continue;
        };
        // A bit field has no alignment of its own.
        if first.contains(" : ") {
            let bits: String = lines.iter().map(|line| format!(" {line};")).collect();
            text.push_str(&format!("    _Alignas({line}) struct {{{bits} }};\n"));
            continue;
        }
        text.push_str(&format!("    _Alignas({line}) {first};\n"));
        for declaration in rest {
            text.push_str(&format!("    {declaration};\n"));
        }
    }
    text.push_str(&end);
    text
}

/// The struct in Go; empty if it has a member without a name.
fn go(usage: &Usage<'_>, units: &[Unit], groups: &[Vec<usize>]) -> String {
    let (package, name) = usage
        .type_name
        .rsplit_once('.')
        .unwrap_or(("", usage.type_name));
    let own = format!("{package}.");
    let mut text = format!("type {name} struct {{\n");
    for group in groups {
        text.push_str(&format!("\t// {}\n", why(usage, units, group)));
        let mut size: u64 = 0;
        for unit in group {
            size = size
                .next_multiple_of(units[*unit].alignment.max(1))
                .saturating_add(units[*unit].size);
            for member in &units[*unit].members {
                let member = usage.members[*member];
                if member.name.is_empty() || member.member_type.is_empty() {
                    return String::new();
                }
                let kind = go_kind(&member.member_type.replace(&own, ""));
                let embedded = kind.rsplit('.').next() == Some(member.name.as_str());
                let name = if embedded { "" } else { &member.name };
                text.push_str(&format!("\t{}\n", format!("{name} {kind}").trim_start()));
            }
        }
        let padding = go_padding(size, usage.line_size);
        text.push_str(&format!("\t_ [{padding}]byte\n"));
    }
    text.push_str("}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_name_ends_no_comment() {
        let shown = ["*/ int evil; /*", "a\nb", "x\\", "worker-1 [io]"].map(in_a_comment);
        assert_eq!(
            shown,
            ["?? int evil? ??", "a?b", "x?", "worker-1 [io]"].map(str::to_owned)
        );
    }
}
