//! What to change where threads really share bytes.

use linewise_recording::{ObjectKind, Operation};

use super::locks::{is_lock, without_libc};
use super::managed;
use super::paths::{common_array, each_of, told};
use super::proposal::{Change, Language, touched_fields};
use super::waits;
use crate::model::{AccessRow, Interval, LineRow, ObjectRow};

/// What is known of what threads share.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) language: Language,
    pub(super) object: &'a ObjectRow,
    pub(super) lines: &'a [LineRow],
    pub(super) accesses: &'a [AccessRow],
    /// Accesses to the same object on lines that nobody waits for.
    pub(super) beside: &'a [AccessRow],
    pub(super) false_share: Interval,
}

/// What padding does for what threads really share.
fn padding(false_share: Interval) -> String {
    match false_share.high {
        high if high < 0.2 => "padding alone does not end that".to_owned(),
        high if high < 0.8 => format!(
            "padding helps with at most {:.0} % of the transfers",
            high * 100.0
        ),
        _ => "whether padding helps, samples do not tell".to_owned(),
    }
}

/// Proposes how threads come to share less, and that what is only read does not wait with them.
pub(super) fn share_less(it: Shared<'_>) -> Change {
    let mut change = share_bytes_less(it);
    change.text.push_str(&only_read(it.accesses));
    change
}

fn share_bytes_less(it: Shared<'_>) -> Change {
    let text = |text: String| Change {
        text,
        source: String::new(),
    };
    if let Some(field) = waits::bit_fields(it.accesses) {
        text(bit_fields(it, field))
    } else if waits::is_openmp(it.accesses) {
        text(openmp(it))
    } else if waits::is_barrier(it.object, it.accesses) {
        text(barrier(it))
    } else if waits::is_readers_lock(it.accesses) {
        text(readers_lock(it))
    } else if let Some(words) = waits::written_by_one(it.accesses) {
        let fields = touched_fields(words.values().flatten().copied());
        let mutual = waits::read_each_other(&words);
        text(one_writer(it, &fields, mutual))
    } else if waits::is_counted_pointer(it.accesses) {
        text(counted_pointer(it))
    } else if it.accesses.iter().any(is_lock) {
        text(lock(it))
    } else if let Some(field) = waits::awaited(it.accesses) {
        text(spinning(it, field))
    } else if waits::is_handover(it.accesses) {
        text(handover(it))
    } else {
        text(same_bytes(it))
    }
}

/// What it is called, of an array's elements the array: `` `counters` ``; empty if it has no name.
fn name(object: &ObjectRow, fields: &[&str]) -> String {
    let elements = Some(fields).filter(|fields| fields.len() > 1);
    let array = elements.and_then(common_array);
    match array.or(fields.first().copied()) {
        Some(field) => format!("`{}`", told(field, &object.accessed_type)),
        None if object.kind == ObjectKind::Static && !object.name.is_empty() => {
            format!("`{}`", object.name)
        }
        None => String::new(),
    }
}

/// A name behind what it is: ` (`NAME`)`; nothing if it has none.
fn in_brackets(name: &str) -> String {
    match name {
        "" => String::new(),
        name => format!(" ({name})"),
    }
}

fn bit_fields(it: Shared<'_>, field: &str) -> String {
    let padding = padding(it.false_share);
    format!(
        "The bit fields `{}` lie in one word, and who writes one of them writes the word: {padding}. Where different threads use different ones of them, give those of each thread a word of their own on another line; without a lock one thread undoes what another wrote beside it (to C and C++ they are one memory location). Where threads use the same ones, write them less often.",
        told(field, &it.object.accessed_type)
    )
}

fn openmp(it: Shared<'_>) -> String {
    let padding = padding(it.false_share);
    let barriers = "make parallel regions longer (one `parallel` around several loops, `nowait` where the next loop needs nothing of this one), give threads the same work, and leave small loops to fewer threads (`if`, `num_threads`)";
    match waits::mostly_updates(it.accesses) {
        true => format!(
            "Threads update a word of OpenMP's runtime, from which they take the next iterations of a loop or by which they arrive at a barrier: {padding}. Of loops with `schedule(dynamic)` or `guided` let them take more iterations at a time (a larger chunk, or `schedule(static)` where all take the same time); for barriers, {barriers}."
        ),
        false => format!(
            "Threads wait for each other in OpenMP's runtime, at the barriers with which parallel regions and loops begin and end: {padding}. To wait less often and for less, {barriers}."
        ),
    }
}

fn barrier(it: Shared<'_>) -> String {
    let name = in_brackets(&name(it.object, &touched_fields(it.accesses)));
    let padding = padding(it.false_share);
    format!(
        "Threads wait for each other at a barrier{name}: {padding}. They wait for the slowest: give all the same work, or more of it between two barriers, and leave out barriers that no data needs. Where the work is even it is the barrier itself: a tree of them, or one that reverses a sense of which each thread has a copy on a line of its own, moves fewer lines."
    )
}

fn spinning(it: Shared<'_>, field: &str) -> String {
    let what = match field {
        "" => "a word".to_owned(),
        field => format!("`{}`", told(field, &it.object.accessed_type)),
    };
    let padding = padding(it.false_share);
    format!(
        "Threads look at {what} until another writes it, as at a barrier or at a lock that gives turns: {padding}. At a barrier they wait for the slowest: give all the same work, wait less often, or use a tree of barriers. At a lock hold it for less, or let each waiter spin on a line of its own (a queue lock)."
    )
}

fn readers_lock(it: Shared<'_>) -> String {
    let locks = it.accesses.iter().filter(|access| is_lock(access));
    let name = in_brackets(&name(it.object, &touched_fields(locks)));
    let padding = padding(it.false_share);
    let [swap, shards] = match it.language {
        Language::Rust => [" (`arc-swap`)", " (`crossbeam_utils::sync::ShardedLock`)"],
        Language::Cpp => [" (`std::atomic<std::shared_ptr>`, RCU)", ""],
        Language::Go => [" (`atomic.Pointer`)", ""],
        Language::Java => [
            " (a `volatile` field, `AtomicReference`)",
            " (`StampedLock`, whose optimistic reads write nothing)",
        ],
        Language::C => [" (RCU)", ""],
        _ => ["", ""],
    };
    format!(
        "Readers of a lock write its word themselves{name}, since it counts them: {padding}, and that they do not exclude each other is no help either. Let them read without it: who changes the data publishes a new version by the swap of a pointer{swap}. Or count readers by thread or CPU, and let the seldom writer look at all counts{shards}; or read less often and for shorter, several times under one lock."
    )
}

fn one_writer(it: Shared<'_>, fields: &[&str], mutual: bool) -> String {
    let padding = padding(it.false_share);
    let fields: Vec<String> = (fields.iter())
        .map(|field| told(field, &it.object.accessed_type))
        .collect();
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let name = match fields.as_slice() {
        [] => "What they share".to_owned(),
        fields => each_of(fields),
    };
    let begin = format!("{name} is written by one thread and read by others: {padding}.");
    let copies = waits::copies(it.accesses, it.beside);
    if !copies.is_empty() {
        let copies: Vec<String> = copies.iter().take(2).map(|it| format!("`{it}`")).collect();
        return format!(
            "{begin} Copies of what was read are kept already ({}), so what is left is to move it less often: let the writer publish several changes at once, as a batch of a ring's entries, and let readers take all that is there before they look again.",
            copies.join(", ")
        );
    }
    if mutual {
        return format!(
            "{begin} Let each side keep a copy of the other's word, and read that one itself only when the copy does not do any more, as when by it a ring is full or empty. Lines of their own help then; without such copies, where each side reads both words every time and waits for two lines instead of one, they made some rings three times faster and others three times slower: measure it. Several entries that are published at once cost one transfer."
        );
    }
    format!(
        "{begin} Let them look less often (keep what was read, and look again only when that does not do any more), let the writer publish several changes at once, or give each reader a copy of its own that the writer fills."
    )
}

fn handover(it: Shared<'_>) -> String {
    let padding = padding(it.false_share);
    let fields: Vec<String> = (fields_in_conflict(it.accesses).iter())
        .map(|field| told(field, &it.object.accessed_type))
        .collect();
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let through = match fields.as_slice() {
        [] => String::new(),
        fields => format!(" through {}", each_of(fields).replacen("Each of ", "", 1)),
    };
    format!(
        "Two threads hand something over{through}: {padding}, since what one writes for the other has to move, once. Let it move no more often: what one side alone writes (its index, its counts) on lines of its own, beside it a copy of the other's index, which is read itself only when by the copy nothing is there or nothing fits; and several entries published, and taken, at once."
    )
}

fn counted_pointer(it: Shared<'_>) -> String {
    let name = in_brackets(&name(it.object, &fields_in_conflict(it.accesses)));
    let padding = padding(it.false_share);
    format!(
        "Threads count the owners of one object, each time that they copy a pointer to it or give one back{name}: {padding}. Copy it less often: pass a reference to the pointer, or to what it points to, and let each thread keep a copy for as long as it works; or give each thread or CPU an object of its own."
    )
}

fn lock(it: Shared<'_>) -> String {
    let locks = it.accesses.iter().filter(|access| is_lock(access));
    let fields = touched_fields(locks).into_iter().map(without_libc);
    let fields: Vec<&str> = fields.filter(|it| !it.is_empty()).collect();
    let name = in_brackets(&name(it.object, &fields));
    let padding = padding(it.false_share);
    format!(
        "Threads fight over a lock{name}: {padding}. Hold it for less, split what it protects so that threads take different locks, or, if all it protects is a number, use an atomic instruction. Only where what it protects takes longer than the line to come, and a CPU can be spared, one thread that owns the data and does the others' work (linewise-delegate) may be faster: measure it."
    )
}

/// What is said of fields that nobody writes, if a good part of the waiting is there.
fn only_read(accesses: &[AccessRow]) -> String {
    const GOOD_PART: f64 = 0.2;
    let written: Vec<&AccessRow> = (accesses.iter())
        .filter(|it| it.op != Operation::Load)
        .collect();
    let bytes = |it: &AccessRow| {
        let first = it.line_address + u64::from(it.offset);
        first..first + u64::from(it.size.max(1))
    };
    let are_one = |a: &AccessRow, b: &AccessRow| {
        let (one, other) = (bytes(a), bytes(b));
        a.field == b.field || one.start < other.end && other.start < one.end
    };
    let is_only_read = |it: &&AccessRow| {
        it.op == Operation::Load
            && !is_lock(it)
            && !it.field.is_empty()
            && !written.iter().any(|other| are_one(it, other))
    };
    let read: Vec<&AccessRow> = accesses.iter().filter(is_only_read).collect();
    let share: f64 = read.iter().map(|it| it.share).sum();
    if share < GOOD_PART {
        return String::new();
    }
    let fields = touched_fields(read).join("`, `");
    format!(
        " {:.0} % of the waiting is where `{fields}` is read, which nobody was seen to write: move it to another line.",
        100.0 * share
    )
}

/// The fields in conflict, dearest first: those that a thread writes which takes part, or, if none of them is seen to
/// write, those that any thread writes; what is only read waits for what lies beside it.
fn fields_in_conflict(accesses: &[AccessRow]) -> Vec<&str> {
    let part = waits::taking_part(accesses);
    let written = |which: &dyn Fn(&AccessRow) -> bool| {
        let writes = |it: &&AccessRow| it.op != Operation::Load && which(it);
        let written = touched_fields(accesses.iter().filter(writes));
        let mut fields = touched_fields(accesses);
        fields.retain(|field| written.contains(field));
        fields
    };
    let mut found = [written(&|it| part.contains(&it.user())), written(&|_| true)]
        .into_iter()
        .filter(|fields| !fields.is_empty());
    found.next().unwrap_or_else(|| touched_fields(accesses))
}

fn same_bytes(it: Shared<'_>) -> String {
    let fields = fields_in_conflict(it.accesses);
    let name = name(it.object, &fields);
    let padding = padding(it.false_share);
    let what = match name.as_str() {
        "" => "the same bytes",
        name => name,
    };
    if is_exchanged(it, fields.first().copied()) {
        return format!(
            "Threads really share {what}, which they exchange by compare and swap: {padding}. Let each thread have one of its own and go to the others' only when that is empty or full, or move several entries with one exchange."
        );
    }
    let counting = managed::counting(it.language);
    format!(
        "Threads really share {what}: {padding}. Write it less often (if it counts, count in a variable of the thread and add it up now and then{counting}), or give each thread or CPU a copy of its own."
    )
}

/// Whether what is shared is no number that could be added up: a pointer, or what is exchanged by compare and swap.
fn is_exchanged(it: Shared<'_>, field: Option<&str>) -> bool {
    let is_pointer = |kind: &str| {
        kind.contains('*') || kind.contains("AtomicPtr") || kind.contains("atomic.Pointer")
    };
    let fields = it.lines.iter().flat_map(|line| &line.fields);
    let mut of_field = fields.filter(|row| Some(row.path.as_str()) == field);
    let swaps = |name: &String| {
        let name = name.to_ascii_lowercase();
        ["compare_exchange", "compareandswap", "compare_and_swap"]
            .iter()
            .any(|it| name.contains(it))
    };
    of_field.any(|row| is_pointer(&row.type_name))
        || it.accesses.iter().any(|access| {
            std::iter::once(&access.function)
                .chain(&access.inlined_into)
                .any(swaps)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_an_array_are_named_by_it() {
        let slots = ["slots[1]", "slots[7]", "tail", "head", "count"];
        let said = "Each of `slots[]`, `tail`, `head` and others";
        assert_eq!(each_of(&slots), said);
    }
}
