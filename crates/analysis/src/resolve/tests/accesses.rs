//! What instructions touch: programs are compiled with optimisation, and every instruction of a
//! function is asked for its type and field.

use std::collections::BTreeSet;

use linewise_recording::{Address, UntypedReason};

use super::super::{Resolver, Store};
use super::{PID, Program, build, build_and, run_tool};

const C: &str = r"
struct inner { long x; int y[4]; };
struct node {
    struct node *next; int key; union { int whole; short half; } u; unsigned a : 3, b : 9;
    struct inner in; struct inner many[3]; long tail[];
};
struct list { struct node *head; long n; struct node **table; } lists[4];
int total;
long sum(struct list *l) {
    long s = 0;
    for (struct node *p = l->head; p; p = p->next) {
        s += p->key + p->in.y[s & 3] + p->many[s % 3].x + p->b;
        p->u.whole++;
    }
    return s;
}
long at(struct list *l, int i) {
    struct node *n = l->table[i];
    n->tail[i] += n->many[1].y[2];
    return n->tail[i];
}
void by_index(struct node *nodes, int i) { nodes[i].key = total++; lists[i].n++; }
struct box { int kind; union { struct list *list; void *raw; int (*apply)(long); } u; };
long boxed(struct box *boxes, int i) { return boxes[i].u.list->n; }
int main(void) { return (int)sum(lists) + (int)at(lists, total); }
";

/// `type+offset path` of all accesses of the function called `name`, and the reasons for none.
pub(super) fn touched(
    program: &Program,
    name: &str,
    length: u64,
) -> (BTreeSet<String>, Vec<UntypedReason>) {
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let start = program.address(name);
    let mut touched = BTreeSet::new();
    let mut reasons = Vec::new();
    for address in start.0..start.0 + length {
        let row = resolver.typed_access(PID, Address(address));
        match row.reason {
            None => {
                touched.insert(format!("{}+{} {}", row.type_name, row.offset, row.path));
            }
            // Not the first byte of an instruction, or no access.
            Some(UntypedReason::NoInstruction | UntypedReason::NoFunction) => {}
            Some(reason) => reasons.push(reason),
        }
    }
    (touched, reasons)
}

pub(super) fn has(touched: &BTreeSet<String>, wanted: &[&str]) {
    for wanted in wanted {
        assert!(touched.contains(*wanted), "no {wanted} in {touched:#?}");
    }
}

#[test]
fn accesses_of_c_name_member_array_union_and_bit_field() {
    for flags in [
        &["-g", "-O2"][..],
        &["-gdwarf-4", "-O2", "-no-pie"],
        &["-g", "-O1", "-fno-omit-frame-pointer"],
        &["-g", "-Os", "-gz"],
    ] {
        let Some(program) = build("gcc", flags, ("program.c", C)) else {
            return;
        };
        let (sum, reasons) = touched(
            &program,
            "sum",
            program.address("at").0 - program.address("sum").0,
        );
        has(
            &sum,
            &[
                "struct list+0 head",
                "struct node+0 next",
                "struct node+8 key",
                "struct node+12 u.whole",
                "struct node+16 a | b",
                "struct node+32 in.y[]",
            ],
        );
        // What is saved on the stack has no type.
        assert!(
            reasons.iter().all(|it| *it == UntypedReason::Stack),
            "{flags:?}: {reasons:?}"
        );
        let (at, _) = touched(&program, "at", 30);
        has(
            &at,
            &["struct list+16 table", "struct node+88 many[1].y[2]"],
        );
        assert!(
            at.iter().any(|row| row.ends_with("tail[]")),
            "{flags:?} {at:#?}"
        );
        // Of a union of pointers the one through which data can be read.
        let (boxed, _) = touched(&program, "boxed", 20);
        has(
            &boxed,
            &["struct box+8 u.list | u.raw | u.apply", "struct list+8 n"],
        );
        let (by_index, _) = touched(&program, "by_index", 64);
        has(
            &by_index,
            &["struct node+8 key", "int+0 ", "struct list+8 n"],
        );
    }
}

#[test]
fn a_pointer_that_was_copied_before_it_had_a_type_is_followed() {
    let source = include_str!("../../../../../fixtures/programs/typed/both.c");
    for flags in [["-g", "-O2", "-pthread"], ["-g", "-O1", "-pthread"]] {
        let Some(program) = build("gcc", &flags, ("both.c", source)) else {
            return;
        };
        for (function, field) in [
            ("count_a", "struct both+0 a"),
            ("count_b", "struct both+8 b"),
        ] {
            let (touched, reasons) = touched(&program, function, 36);
            has(&touched, &[field, "struct both+16 c"]);
            assert!(
                reasons.iter().all(|it| *it == UntypedReason::Stack),
                "{flags:?} {function}: {reasons:?}"
            );
        }
    }
}

const CPP: &str = r"
#include <memory>
#include <vector>
struct Base { virtual ~Base() = default; long id; int visits; };
template <typename T> struct Pair { T first; T second; };
struct Derived final : Base { Pair<double> size; Pair<float> *other; };
__attribute__((noinline)) double through_reference(Derived &d) {
    d.visits++;
    return d.size.second + d.other->second;
}
__attribute__((noinline)) double through_vector(const std::vector<std::unique_ptr<Derived>> &all, int i) {
    return all[i]->size.first;
}
struct Counter { long hits; void hit() { hits++; } };
__attribute__((noinline)) void inlined(Counter *counters, int i) { counters[i].hit(); }
int main() {
    std::vector<std::unique_ptr<Derived>> all;
    all.emplace_back(new Derived);
    static Counter counters[3];
    inlined(counters, 1);
    return (int)(through_reference(*all[0]) + through_vector(all, 0));
}
";

#[test]
fn accesses_of_cpp_see_through_references_inheritance_templates_and_smart_pointers() {
    let flags = ["-g", "-O2", "-std=c++17"];
    let Some(program) = build("g++", &flags, ("program.cc", CPP)) else {
        return;
    };
    let (touched_here, _) = touched(&program, "_Z17through_referenceR7Derived", 30);
    has(
        &touched_here,
        &[
            "Derived+16 visits",
            "Derived+32 size.second",
            "Derived+40 other",
            "Pair<float>+4 second",
        ],
    );
    let vector = touched(
        &program,
        "_Z14through_vectorRKSt6vectorISt10unique_ptrI7DerivedSt14default_deleteIS1_EESaIS4_EEi",
        20,
    );
    has(&vector.0, &["Derived+24 size.first"]);
    let inlined = touched(&program, "_Z7inlinedP7Counteri", 16);
    has(&inlined.0, &["Counter+0 hits"]);
}

const RUST: &str = r"
use std::rc::Rc;
use std::cell::Cell;
pub enum Shape { Dot(u64), Line { from: u64, to: u64 } }
pub struct Item<T> { pub key: u64, pub value: T, pub next: Option<Box<Item<T>>> }
#[inline(never)] #[no_mangle]
pub fn walk(mut item: Option<&Item<u32>>) -> u64 {
    let mut sum = 0;
    while let Some(one) = item { sum += one.key + u64::from(one.value); item = one.next.as_deref(); }
    sum
}
#[inline(never)] #[no_mangle]
pub fn slice(items: &mut [Item<u32>], at: usize) -> u64 { items[at].value += 1; items[at].key }
#[inline(never)] #[no_mangle]
pub fn shared(count: &Rc<Cell<u64>>) { count.set(count.get() + 1); }
#[inline(never)] #[no_mangle]
pub fn shape(shape: &mut Shape) -> u64 {
    match shape { Shape::Dot(at) => *at, Shape::Line { from, to } => { *to += 1; *from } }
}
fn main() {
    let mut items: Vec<Item<u32>> = (0..3).map(|key| Item { key, value: 1, next: None }).collect();
    let count = Rc::new(Cell::new(0));
    shared(&count);
    let sum = walk(items.first()) + slice(&mut items, 1) + shape(&mut Shape::Dot(1))
        + shape(&mut Shape::Line { from: 1, to: 2 });
    std::process::exit((sum + count.get()) as i32 & 1);
}
";

#[test]
fn accesses_of_rust_see_boxes_slices_counts_and_enumerations() {
    let flags = ["--edition", "2021", "-g", "-C", "opt-level=2"];
    let Some(program) = build("rustc", &flags, ("program.rs", RUST)) else {
        return;
    };
    let item = |rows: &BTreeSet<String>, field: &str| {
        assert!(
            rows.iter()
                .any(|row| row.starts_with("Item<u32>+") && row.ends_with(field)),
            "no {field} in {rows:#?}"
        );
    };
    let (walk, _) = touched(&program, "walk", 40);
    for field in ["key", "value"] {
        item(&walk, field);
    }
    let (slice, _) = touched(&program, "slice", 40);
    for field in ["key", "value"] {
        item(&slice, field);
    }
    let (shared, _) = touched(&program, "shared", 10);
    // A cell is what is in it, and lies behind the counts of its owners.
    assert!(
        shared
            .iter()
            .any(|row| row.starts_with("Rc") && row.ends_with("<core::cell::Cell<u64>>+16 value")),
        "{shared:#?}"
    );
    let (shape, _) = touched(&program, "shape", 40);
    assert!(shape.iter().any(|row| row.contains("to")), "{shape:#?}");
}

const C_RUNS: &str = r"
struct bucket { long used; int items[6]; };
struct table { long size; struct bucket buckets[8]; long limit; };
struct owner { long before[20]; struct table table; long behind; };
__attribute__((noipa)) void clear(struct owner *owner) {
    for (struct bucket *b = owner->table.buckets; b < owner->table.buckets + 8; b++) b->used = 0;
    owner->behind++;
}
__attribute__((noipa)) int first(const void *key) { return *(const unsigned char *)key; }
__attribute__((noipa)) long last(const long *end) { return end[-1]; }
__attribute__((noipa)) int choose(int what) {
    switch (what) {
    case 0: return first(0); case 1: return 7; case 2: return 12; case 3: return 1;
    case 4: return 99; case 5: return 3; case 6: return 55; default: return -1;
    }
}
struct pair { long from, to; };
__attribute__((noipa)) void fill(struct pair *pair) { pair->from = 1; pair->to = 2; }
struct pair *all;
__attribute__((noipa)) struct pair *find(long i) { return &all[i]; }
__attribute__((noipa)) long use(long i) { return find(i)->to; }
struct owner owners[2];
int main(int count, char **words) {
    (void)words;
    clear(owners);
    struct pair pair;
    fill(&pair);
    return (int)(choose(count) + use(0) + last(&pair.to));
}
";

#[test]
fn a_pointer_that_runs_through_a_member_and_one_that_is_returned_keep_their_types() {
    for flags in [["-g", "-O2"], ["-g", "-O1"]] {
        let Some(program) = build("gcc", &flags, ("program.c", C_RUNS)) else {
            return;
        };
        let length = |name: &str, next: &str| program.address(next).0 - program.address(name).0;
        let (clear, reasons) = touched(&program, "clear", length("clear", "first"));
        has(&clear, &["struct owner+432 behind"]);
        assert!(
            clear.iter().any(|row| row.ends_with("used"))
                && reasons.iter().all(|it| *it == UntypedReason::Stack),
            "{flags:?} {clear:#?} {reasons:?}"
        );
        let (first, reasons) = touched(&program, "first", length("first", "last"));
        assert!(first.is_empty(), "{first:#?}");
        assert!(
            reasons.contains(&UntypedReason::UnknownPointer),
            "{reasons:?}"
        );
        has(&touched(&program, "last", 5).0, &["long int+0 "]);
        let (used, _) = touched(&program, "use", 24);
        has(&used, &["struct pair+8 to"]);
    }
}

const RUST_FRAME: &str = r#"
use std::hint::black_box;
pub struct Order { pub id: u64, pub price: u64, pub parts: [u32; 6] }
#[inline(never)] #[no_mangle]
pub fn make(id: u64) -> Order { Order { id, price: black_box(3), parts: [1; 6] } }
#[inline(never)] #[no_mangle]
pub fn look(order: &mut Order) { order.price += black_box(1); }
#[inline(never)] #[no_mangle]
pub fn total(id: u64) -> u64 {
    let mut order = make(id);
    look(&mut order);
    order.price + order.id + u64::from(order.parts[3])
}
#[inline(never)] #[no_mangle]
pub fn unnamed(id: u64) -> u64 { make(id).price + make(id + 1).id }
pub struct Weight { pub grams: [f32; 9], pub tare: u32 }
#[inline(never)] #[no_mangle]
pub fn weigh(id: u64) -> Weight { Weight { grams: [black_box(id as f32); 9], tare: 7 } }
#[inline(never)] #[no_mangle]
pub fn in_turns(id: u64) -> u64 {
    let price = make(id).price;
    let tare = weigh(price).tare;
    price + u64::from(tare)
}
fn main() { std::process::exit((total(1) + unnamed(2) + in_turns(3)) as i32 & 1); }
"#;

#[test]
fn objects_in_a_frame_are_variables_or_what_called_functions_make_there() {
    let flags = ["--edition", "2021", "-g", "-C", "opt-level=2"];
    let Some(program) = build("rustc", &flags, ("program.rs", RUST_FRAME)) else {
        return;
    };
    let field = |rows: &BTreeSet<String>, field: &str| {
        assert!(
            rows.iter()
                .any(|row| row.starts_with("Order+") && row.ends_with(field)),
            "no {field} in {rows:#?}"
        );
    };
    let (make, _) = touched(&program, "make", 60);
    field(&make, "price");
    let (total, _) = touched(&program, "total", 60);
    for name in ["id", "price", "parts[3]"] {
        field(&total, name);
    }
    let (unnamed, _) = touched(&program, "unnamed", 60);
    for name in ["id", "price"] {
        field(&unnamed, name);
    }
    // In the same memory.
    let (in_turns, _) = touched(&program, "in_turns", 70);
    field(&in_turns, "price");
    has(&in_turns, &["Weight+36 tare"]);
}

const C_SKIP_LIST: &str = r"
#include <stdlib.h>
struct node { char *element; double score; struct node *backward; struct level { struct node *forward; long span; } level[]; };
struct list { struct node *header, *tail; long length; int levels; };
long insert(struct list *list, double score, long *rank, struct node **update) {
    struct node *x = list->header;
    long passed = 0;
    for (int i = list->levels - 1; i >= 0; i--) {
        rank[i] = i == list->levels - 1 ? 0 : rank[i + 1];
        while (x->level[i].forward && (x->level[i].forward->score < score
            || (x->level[i].forward->score == score && x->level[i].forward->element < (char *)list))) {
            rank[i] += x->level[i].span;
            x = x->level[i].forward;
        }
        update[i] = x;
    }
    return passed;
}
int main(int count, char **words) {
    (void)words;
    struct node *node = calloc(1, sizeof *node + 4 * sizeof node->level[0]);
    struct list list = { node, node, 1, count };
    long rank[4] = { 0 };
    struct node *update[4];
    return (int)insert(&list, 1, rank, update);
}
";

#[test]
fn arrays_at_the_end_of_objects_are_reached_by_indices_that_begin_before_it() {
    for flags in [
        // Padding before the inner loop.
        &["-g", "-O2", "-falign-loops=64"][..],
        &["-g", "-O1"],
        &["-g", "-Os"],
    ] {
        let Some(program) = build("gcc", flags, ("program.c", C_SKIP_LIST)) else {
            return;
        };
        let (insert, reasons) = touched(&program, "insert", 240);
        has(
            &insert,
            &[
                "struct node+0 element",
                "struct node+8 score",
                "struct node+24 level[].forward",
                "struct node+32 level[].span",
            ],
        );
        assert!(
            reasons.iter().all(|it| *it == UntypedReason::Stack),
            "{flags:?}: {reasons:?} {insert:#?}"
        );
    }
}

#[test]
fn what_cannot_be_typed_has_a_reason() {
    let Some(program) = build("gcc", &["-O2"], ("program.c", C)) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let row = resolver.typed_access(PID, program.address("sum"));
    assert!(row.reason.is_some() && row.type_name.is_empty(), "{row:?}");
    let row = resolver.typed_access(PID, Address(16));
    assert_eq!(row.reason, Some(UntypedReason::NoDebugInfo));
}

#[test]
fn separate_debug_info_types_accesses_too() {
    let split = |folder: &std::path::Path| {
        run_tool(
            "objcopy",
            &["--only-keep-debug", "program", "program.debug"],
            folder,
        )?;
        run_tool("strip", &["program"], folder)?;
        run_tool(
            "objcopy",
            &["--add-gnu-debuglink=program.debug", "program"],
            folder,
        )?;
        Some(())
    };
    let Some(program) = build_and("gcc", &["-g", "-O2"], ("program.c", C), split) else {
        return;
    };
    has(
        &touched(
            &program,
            "sum",
            program.address("at").0 - program.address("sum").0,
        )
        .0,
        &["struct node+8 key"],
    );
}

const MOVED: &str = r#"
struct pair { char tag; char rest[7]; long payload; };
void carry(struct pair *to, struct pair *from) {
    __asm__ volatile("movl 1(%1), %%eax; movl %%eax, -0x40(%%rsp); nop; movl -0x40(%%rsp), %%ecx; movl %%ecx, 1(%0)"
        : : "r"(to), "r"(from) : "eax", "ecx", "memory");
}
void beside(struct pair *from) {
    __asm__ volatile("movq 1(%0), %%rax; movq %%rax, -0x3f(%%rsp); movq 8(%0), %%rax; movq %%rax, -0x38(%%rsp)"
        : : "r"(from) : "rax", "memory");
}
void spill(struct pair *from) {
    __asm__ volatile("movq 8(%0), %%rax; movq %%rax, -0x50(%%rsp)" : : "r"(from) : "rax", "memory");
}
void twice(struct pair *to, struct pair *from) {
    __asm__ volatile("movl 1(%1), %%eax; movl %%eax, -0x40(%%rsp)\njmp 1f\n1: movl %%esp, -0x40(%%rsp)\njmp 2f\n"
        "2: movl -0x40(%%rsp), %%ecx" : : "r"(to), "r"(from) : "eax", "ecx", "memory");
}
void keep(struct pair *to) {
    __asm__ volatile("movq %0, -0x48(%%rsp)" : : "r"(to) : "memory");
}
int main(void) {
    struct pair a = {0}, b = {0};
    carry(&a, &b); beside(&a); spill(&a); twice(&a, &b); keep(&a);
    return 0;
}
"#;

#[test]
fn unnamed_memory_of_the_frame_is_what_copies_say_and_a_spilled_member_is_none() {
    // Apart, so that none of the next function is looked at.
    let flags = ["-g", "-O2", "-fomit-frame-pointer", "-falign-functions=64"];
    let Some(program) = build("gcc", &flags, ("program.c", MOVED)) else {
        return;
    };
    // What returns reads the stack.
    let untyped = |name: &str| {
        let (rows, reasons) = touched(&program, name, 48);
        let returns = reasons.iter().filter(|it| **it == UntypedReason::Stack);
        (rows, returns.count() - 1)
    };
    let (carry, rest) = untyped("carry");
    assert_eq!((carry.len(), rest), (1, 0), "{carry:#?}");
    has(
        &carry,
        &["struct pair+1 rest[0] | rest[1] | rest[2] | rest[3]"],
    );
    // One member by itself could be spilled; beside the others it is a part of the value.
    let (beside, rest) = untyped("beside");
    assert_eq!(rest, 0, "{beside:#?}");
    has(&beside, &["struct pair+8 payload"]);
    assert_eq!(untyped("spill").1, 1);
    // Filled by two, so nobody can tell what the last one reads.
    assert_eq!(untyped("twice").1, 2);
    let (keep, rest) = untyped("keep");
    assert_eq!(rest, 0);
    has(&keep, &["struct pair*+0 "]);
}
