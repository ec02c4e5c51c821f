//! Where the code of a Go program allocates a type.

use std::collections::{BTreeMap, BTreeSet};

use linewise_recording::{Address, MapKind, StackId, Tables};

use super::data::{build_go_with, map, thread};
use super::recorded::sample;
use super::{PID, Program};
use crate::resolve::{Resolver, Store, resolve_recording};

const GO: &str = r#"
package main

import "os"

type Pair struct{ a, b int64 }
type Slot struct{ hits, misses int64 }
type Wide struct{ words [12]int64 }
type Grown struct{ count, sum int64 }
type Local struct{ x, y int64 }
type Inner struct{ p, q int64 }
type Outer struct {
	name string
	all  [2]struct{ Inner }
}

var kept *[4]Wide
var boxed any

//go:noinline
func newPair() *Pair { return &Pair{} }

//go:noinline
func otherPair(a int64) *Pair { return &Pair{a: a} }

//go:noinline
func newSlots(n int) []Slot { return make([]Slot, n) }

//go:noinline
func newWide() *[4]Wide { return new([4]Wide) }

//go:noinline
func grow(all []Grown, n int64) []Grown { return append(all, Grown{n, n}) }

//go:noinline
func newOuter() *Outer { return &Outer{name: "o"} }

//go:noinline
func touch(p *Pair, s *Slot, w *Wide, g *Grown, l *Local, i *Inner) {
	i.q++
	p.b++
	s.misses++
	w.words[3]++
	g.sum++
	l.y++
}

func main() {
	n := len(os.Args)
	kept = newWide()
	boxed = "a type descriptor that is not allocated"
	pair, other, slots := newPair(), otherPair(int64(n)), newSlots(n)
	grown := grow(nil, int64(n))
	var local Local
	inner := &newOuter().all[n-1].Inner
	touch(pair, &slots[0], &kept[n], &grown[0], &local, inner)
	touch(other, &slots[0], &kept[n], &grown[0], &local, inner)
	println(pair.b, slots[0].misses, grown[0].sum, local.y)
}
"#;

/// The calls that allocate each type that `touch` touches: their functions with the line.
fn allocating(program: &Program) -> BTreeMap<String, BTreeSet<(String, u32)>> {
    let touch = program.address("main.touch");
    let tables = Tables {
        maps: program.maps.clone(),
        samples: (0..96)
            .map(|at| sample(Address(0x1000), Address(touch.0 + at), StackId(1), 1))
            .collect(),
        ..Tables::default()
    };
    let resolved = resolve_recording(&tables, 64, &program.files);
    let touched = |name: &str| {
        resolved
            .typed_accesses
            .iter()
            .any(|it| it.type_name == name)
    };
    for kind in ["Pair", "Slot", "Wide", "Grown", "Local", "Inner"] {
        assert!(touched(&format!("main.{kind}")), "{kind}");
    }
    let mut found: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for row in &resolved.type_allocations {
        let frames = resolved.frames.iter();
        let frame = frames.filter(|it| it.address == row.ip && it.depth == 0);
        let place = frame.map(|it| (it.function.clone(), it.line));
        found
            .entry(row.type_name.clone())
            .or_default()
            .extend(place);
    }
    found
}

#[test]
fn the_code_says_where_types_are_allocated() {
    for flags in [&["build"][..], &["build", "-buildmode=pie"]] {
        let Some(program) = build_go_with(flags, GO) else {
            return;
        };
        let found = allocating(&program);
        let places = |kind: &str| -> Vec<(&str, u32)> {
            let places = found.get(kind).into_iter().flatten();
            places
                .map(|(function, line)| (&**function, *line))
                .collect()
        };
        let pairs = [("main.newPair", 21), ("main.otherPair", 24)];
        assert_eq!(places("main.Pair"), pairs, "{flags:?}");
        assert_eq!(places("main.Slot"), [("main.newSlots", 27)]);
        assert_eq!(places("main.Wide"), [("main.newWide", 30)]);
        assert_eq!(places("main.Grown"), [("main.grow", 33)]);
        // In an array of structs in what is allocated.
        assert_eq!(places("main.Inner"), [("main.newOuter", 36)]);
        assert_eq!(places("main.Local"), []);
    }
}

#[test]
fn the_heap_of_go_is_known_beside_the_c_library_too() {
    let Some(program) = build_go_with(&["build", "-buildmode=pie"], GO) else {
        return;
    };
    let (heap, stack) = (0x3158_c2c0_0000, 0x7f40_0010_0000);
    for with_c in [false, true] {
        let mut maps = program.maps.clone();
        let parts = [
            map(heap, heap + (4 << 20), MapKind::Anonymous, ""),
            map(stack, stack + (8 << 20), MapKind::Anonymous, ""),
        ];
        maps.extend(parts);
        if with_c {
            let mut libc = map(
                0x7f50_0000_0000,
                0x7f50_0010_0000,
                MapKind::File,
                "/lib/libc.so.6",
            );
            libc.executable = true;
            maps.push(libc);
        }
        // Whose pointer was on stacks of goroutines, which lie in the heap.
        let threads = [
            thread(101, "go", heap + 0x1000, heap + 0x10_0000),
            thread(102, "c", stack + 0x7f_0000, stack + 0x7f_f000),
        ];
        let store = Store::default();
        let mut resolver = Resolver::new(&maps, &threads, &program.files, &store);
        let mut named = |address| resolver.object(PID, Address(address)).0.name;
        assert_eq!(named(heap + 0x2040), "heap (Go)", "{with_c}");
        let of_stack = match with_c {
            true => "stack of c (102)",
            false => "heap (Go)",
        };
        assert_eq!(named(stack + 0x7f_8000), of_stack);
    }
}
