//! Through what instructions reach numbers: programs are compiled with optimisation, and every
//! instruction of a function is asked for the member or variable that leads to what it touches.

use std::collections::BTreeSet;

use linewise_recording::{Address, Stack, StackId, Tables};

use super::super::{Callers, Resolver, Store};
use super::accesses::has;
use super::recorded::sample;
use super::{PID, Program, build};

/// `type < holder` of all accesses of the function called `name` to what has no fields.
fn reached(program: &Program, name: &str, length: u64) -> BTreeSet<String> {
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let start = program.address(name);
    (start.0..start.0 + length)
        .map(|address| resolver.typed_access(PID, Address(address)))
        .filter(|row| row.reason.is_none() && row.path.is_empty())
        .map(|row| format!("{} < {}", row.type_name, row.through))
        .collect()
}

const C: &str = r"
#include <string.h>
struct window { unsigned char *base; long size; };
struct state { struct window window; unsigned *hash, *chain; double *rows[4]; short costs[64]; };
long *histogram;
#define FUNCTION(type, name) __attribute__((noipa, aligned(256))) type name
FUNCTION(unsigned, probe)(struct state *s, unsigned key) { return s->chain[s->hash[key & 255] & 255]; }
FUNCTION(double, row)(struct state *s, int level, int i) { return s->rows[level][i]; }
FUNCTION(long, compare)(struct state *s, long a, long b) {
    const unsigned char *p = s->window.base + a, *q = s->window.base + b, *end = s->window.base + s->window.size;
    long first = 0;
    unsigned long x, y;
    memcpy(&x, p, 8); memcpy(&y, q, 8);
    if (x != y) return 0;
    while (p < end && *p == *q) { p++; q++; first++; }
    return first;
}
FUNCTION(void, count)(long value) { histogram[value]++; }
FUNCTION(int, given)(const int *numbers, long at) { return numbers[at]; }
FUNCTION(unsigned, either)(struct state *s, int which, long at) {
    unsigned *table = which ? s->hash : s->chain;
    for (long i = 0; i < at; i++) table[i] += 3;
    return table[at];
}
FUNCTION(long, on_stack)(long n) {
    volatile long last[8];
    for (int i = 0; i < 8; i++) last[i] = n + i;
    return last[n & 7];
}
struct tagged { int tag; void *payload; union { int *counts; double *sums; } rows; };
FUNCTION(int, untyped)(struct tagged *t, long at) {
    if (t->tag == 1) { short *halves = t->payload; return halves[at] + halves[at + 9]; }
    if (t->tag) { int *counts = t->rows.counts; return counts[at] + counts[at + 9]; }
    double *sums = t->rows.sums;
    return (int)(sums[at] + sums[at + 9]);
}
FUNCTION(int, behind)(void) { return 0; }
struct state one;
int main(int n, char **words) {
    (void)words;
    count(n);
    return (int)(probe(&one, n) + row(&one, n, n) + compare(&one, n, n) + given(&n, 0) + either(&one, n, n)
        + on_stack(n) + untyped(&(struct tagged){ n, words, { 0 } }, n) + behind());
}
";

#[test]
fn numbers_are_told_apart_by_the_member_or_variable_that_leads_to_them() {
    let Some(program) = build("gcc", &["-g", "-O2"], ("program.c", C)) else {
        return;
    };
    let reached = |name: &str| reached(&program, name, 200);
    has(
        &reached("probe"),
        &["unsigned int < state.chain", "unsigned int < state.hash"],
    );
    has(&reached("row"), &["double < state.rows[]"]);
    // Of which the members do not say where they lead.
    has(
        &reached("untyped"),
        &[
            "short int < tagged.payload",
            "int < tagged.rows",
            "double < tagged.rows",
        ],
    );
    // Also where what was inlined gives them another type.
    let compare = reached("compare");
    has(&compare, &["unsigned char < state.window.base"]);
    let elsewhere = compare.iter().any(|row| row.ends_with("(local)"));
    assert!(!elsewhere, "{compare:#?}");
    has(&reached("count"), &["long int < histogram"]);
    has(&reached("given"), &["int < numbers (local)"]);
    has(&reached("on_stack"), &["long int < last (local)"]);
}

#[test]
fn of_several_members_the_variable_that_keeps_them_is_told() {
    let Some(program) = build("gcc", &["-g", "-O2"], ("program.c", C)) else {
        return;
    };
    let either = reached(&program, "either", 200);
    assert!(
        either
            .iter()
            .all(|row| row == "unsigned int < table (local)"),
        "{either:#?}"
    );
    assert!(!either.is_empty());
}

const CPP: &str = r#"
#include <array>
#include <memory>
#include <string>
#include <vector>
struct Graph { std::vector<unsigned> first; std::unique_ptr<double[]> weight; std::array<std::vector<long>, 3> levels; };
extern "C" __attribute__((noipa, aligned(256))) double walk(const Graph &graph, unsigned node) {
    double sum = 0;
    for (unsigned edge = graph.first[node]; edge < graph.first[node + 1]; edge++) sum += graph.weight[edge];
    return sum;
}
extern "C" __attribute__((noipa, aligned(256))) long level(const Graph &graph, unsigned at, unsigned node) {
    return graph.levels[at][node];
}
extern "C" __attribute__((noipa, aligned(256))) void behind() {}
int main(int n, char **) { Graph graph; behind(); return (int)(walk(graph, n) + level(graph, n, n)); }
"#;

#[test]
fn of_a_container_what_leads_to_it_is_told() {
    let flags = ["-g", "-O2", "-std=c++17"];
    let Some(program) = build("g++", &flags, ("program.cc", CPP)) else {
        return;
    };
    has(
        &reached(&program, "walk", 200),
        &["unsigned int < Graph.first", "double < Graph.weight"],
    );
    has(
        &reached(&program, "level", 100),
        &["long int < Graph.levels"],
    );
}

const RUST: &str = r"
pub struct Columns { pub price: Vec<f64>, pub customer: Box<[u32]>, pub levels: [Vec<u64>; 3] }
#[inline(never)] #[no_mangle]
pub fn total(columns: &Columns, rows: &[u16]) -> f64 {
    rows.iter().map(|&row| columns.price[columns.customer[row as usize] as usize]).sum()
}
#[inline(never)] #[no_mangle]
pub fn level(columns: &mut Columns, at: usize, row: usize) -> u64 {
    columns.levels[at][row] += 1;
    columns.levels[at][row]
}
fn main() {
    let count = std::env::args().count();
    let mut columns = Columns {
        price: vec![1.0; count], customer: vec![0; count].into(), levels: [vec![0; count], vec![0; count], Vec::new()],
    };
    let sum = total(&columns, &[0]) + level(&mut columns, count - 1, 0) as f64;
    std::process::exit(sum as i32 & 1);
}
";

#[test]
fn of_rusts_vectors_elements_and_what_leads_to_them_are_told() {
    let flags = ["--edition", "2021", "-g", "-C", "opt-level=2"];
    let Some(program) = build("rustc", &flags, ("program.rs", RUST)) else {
        return;
    };
    // A vector's own pointer leads to bytes; what it holds is a parameter of its type.
    has(
        &reached(&program, "total", 200),
        &[
            "f64 < Columns.price",
            "u32 < Columns.customer",
            "u16 < rows (local)",
        ],
    );
    has(
        &reached(&program, "level", 100),
        &["u64 < Columns.levels[]"],
    );
}

const CALLS: &str = r"
struct state { long size; unsigned *hash, *chain; unsigned counts[64]; };
unsigned seeds[64];
#define FUNCTION(type, name) __attribute__((noipa, aligned(256))) type name
FUNCTION(unsigned, lookup)(const unsigned *table, long at) { return table[at]; }
FUNCTION(unsigned, by_member)(struct state *s, long at) { return lookup(s->hash, at) + 1; }
FUNCTION(unsigned, by_array)(struct state *s, long at) { return lookup(s->counts, at) + 1; }
FUNCTION(unsigned, by_static)(long at) { return lookup(seeds, at) + 1; }
FUNCTION(unsigned, passed_on)(struct state *s, const unsigned *table, long at) { return lookup(table, at + s->size); }
FUNCTION(unsigned, by_jump)(struct state *s, long at) { return passed_on(s, s->chain, at) + 1; }
FUNCTION(unsigned, given)(const unsigned *table, long at) { return lookup(table, at) + 1; }
FUNCTION(unsigned, by_two)(struct state *s, long at) { return given(s->chain, at) + 1; }
FUNCTION(unsigned *, chain_of)(struct state *s, long at) { return s->chain + at; }
FUNCTION(unsigned, by_accessor)(struct state *s, long at) { return *chain_of(s, at) + 1; }
FUNCTION(unsigned *, behind)(unsigned *table, long at) { return table + at; }
FUNCTION(unsigned, by_argument)(struct state *s, long at) { return *behind(s->hash, at) + 1; }
FUNCTION(int, after)(void) { return 0; }
struct state one;
int main(int n, char **words) {
    (void)words;
    return (int)(by_member(&one, n) + by_array(&one, n) + by_static(n) + by_jump(&one, n) + by_two(&one, n)
        + by_accessor(&one, n) + by_argument(&one, n) + after());
}
";

#[test]
fn of_an_argument_the_callers_tell_what_held_it() {
    let Some(program) = build(
        "gcc",
        &["-g", "-O2", "-fcf-protection=none"],
        ("program.c", CALLS),
    ) else {
        return;
    };
    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let lookup = program.address("lookup");
    let ip = (lookup.0..lookup.0 + 16)
        .map(Address)
        .find(|ip| resolver.typed_access(PID, *ip).reason.is_none());
    let ip = ip.expect("it reads the table");
    // Which addresses are those behind calls only the code tells: others say nothing.
    let mut told_by = |callers: &[&str]| -> BTreeSet<String> {
        let mut stacks = vec![vec![ip]];
        for name in callers {
            let start = program.address(name).0;
            let backs = (start..start + 64).map(Address);
            stacks = backs
                .flat_map(|back| {
                    stacks
                        .iter()
                        .map(move |stack| [stack.as_slice(), &[back]].concat())
                })
                .collect();
        }
        stacks
            .into_iter()
            .map(|frames| {
                let tables = Tables {
                    samples: vec![sample(Address(0x1000), ip, StackId(1), 1)],
                    stacks: vec![Stack {
                        id: StackId(1),
                        frames,
                    }],
                    ..Tables::default()
                };
                let callers = Callers::new(&tables);
                let typed = resolver.typed_accesses([(PID, ip)], &callers);
                typed.accesses[0].through.clone()
            })
            .filter(|through| through != "table (local)")
            .collect()
    };
    for (callers, holder) in [
        (&["by_member"][..], "state.hash"),
        (&["by_array"], "state.counts[]"),
        (&["by_static"], "seeds"),
        (&["by_jump"], "state.chain"),
        (&["given", "by_two"], "state.chain"),
    ] {
        let told: Vec<String> = told_by(callers).into_iter().collect();
        assert_eq!(told, [holder], "{callers:?}");
    }
    // It does not call it.
    assert!(told_by(&["by_accessor"]).is_empty());
}

#[test]
fn what_a_small_function_returns_is_looked_up_in_it() {
    let Some(program) = build("gcc", &["-g", "-O2"], ("program.c", CALLS)) else {
        return;
    };
    has(
        &reached(&program, "by_accessor", 100),
        &["unsigned int < state.chain"],
    );
    has(
        &reached(&program, "by_argument", 100),
        &["unsigned int < state.hash"],
    );
}
