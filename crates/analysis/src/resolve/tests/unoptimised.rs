//! Without optimisation every variable has its place in the frame, and only that says what it leads to; with it loops
//! run through arrays of the frame and static ones by pointers.

use linewise_recording::UntypedReason;

use super::accesses::{has, touched};
use super::build;

const C: &str = r"
struct inner { int kind; long weight; };
struct leaf { struct inner *in; long hits; };
struct node { struct node *next; long key; struct leaf *leaf; };
struct table { struct node **chains; unsigned size; };
struct point { double x, y; };
long grid[64][64];
long lookup(struct table *t, long key) {
    for (struct node *n = t->chains[key % t->size]; n; n = n->next)
        if (n->key == key) { n->leaf->hits++; return n->leaf->in->weight; }
    return 0;
}
void swap(struct node **a, struct node **b) { struct node *t = *a; *a = *b; *b = t; }
long slots(struct node *nodes, int n) {
    long sum = 0;
    for (int i = 0; i < n; i++) { struct node *p = &nodes[i]; sum += p->key; }
    { struct point q = { sum, n }; struct point *p = &q; sum += p->x + p->y; }
    return sum;
}
__attribute__((noinline)) long walk(void) {
    long sum = 0;
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 64; j++) sum += grid[j][i];
    return sum;
}
int main(int c, char **v) {
    struct node n = { &n, 1, 0 }, *p = &n;
    struct table t = { &p, 1 };
    swap(&p, &p);
    return lookup(&t, 2) + slots(&n, 1) + walk();
}
";

#[test]
fn what_a_variable_in_the_frame_leads_to_has_its_declared_type() {
    let Some(program) = build("gcc", &["-g", "-O0"], ("program.c", C)) else {
        return;
    };
    let typed = |name: &str, length: u64, wanted: &[&str]| {
        let (found, reasons) = touched(&program, name, length);
        has(&found, wanted);
        assert!(
            !reasons.contains(&UntypedReason::UnknownPointer),
            "{name}: {reasons:?}"
        );
    };
    typed(
        "lookup",
        0x90,
        &[
            "struct table+0 chains",
            "struct table+8 size",
            "struct node+0 next",
            "struct node+8 key",
            "struct node+16 leaf",
            "struct leaf+8 hits",
            "struct leaf+0 in",
            "struct inner+8 weight",
        ],
    );
    typed("swap", 0x30, &["struct node*+0 "]);
    // Two variables `p`, one after the other.
    typed(
        "slots",
        0x90,
        &["struct node+8 key", "struct point+0 x", "struct point+8 y"],
    );
}

#[test]
fn a_pointer_that_runs_through_a_static_array_leads_to_it() {
    let Some(program) = build("gcc", &["-g", "-O2"], ("program.c", C)) else {
        return;
    };
    let (found, reasons) = touched(&program, "walk", 0x4e);
    has(&found, &["long int+0 "]);
    assert!(
        !reasons.contains(&UntypedReason::UnknownPointer),
        "{reasons:?}"
    );
}

#[test]
fn what_a_string_leads_to_is_its_own_buffer_no_more_when_others_could_change_that() {
    let source = r"
#include <string>
__attribute__((noinline)) void fill(std::string &text) { text.assign(200, 'a'); }
long words(int rounds) {
    std::string text;
    fill(text);
    long n = 0;
    while (rounds--)
        for (char c : text) n += c == ' ';
    return n;
}
int main(int count, char **) { return (int)words(count); }
";
    for flags in [&["-g", "-O0"][..], &["-g", "-O2"]] {
        let Some(program) = build("g++", flags, ("program.cc", source)) else {
            return;
        };
        let (found, _) = touched(&program, "_Z5wordsi", 0xc0);
        let own = |it: &&String| it.contains("_M_local_buf[]");
        assert_eq!(found.iter().find(own), None, "{flags:?}");
    }
}
