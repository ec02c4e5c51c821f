//! Loops that poll, and loops that do not, as compilers make them.

use linewise_recording::{Address, Sample, StackId, Tables};

use super::super::{Resolver, Store};
use super::recorded::sample as row;
use super::{PID, Program, build};

const C: &str = r"
#define ONCE __attribute__((noipa))
#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define PAUSE() __builtin_ia32_pause()
struct ring { unsigned long head, tail; int *slots[8]; struct ring *next; long key; } rings[4];
int flag; volatile long stop; long sink;
ONCE void spins(void) { while (!LOAD(flag)) PAUSE(); }
ONCE void spins_bare(void) { while (!LOAD(flag)) ; }
ONCE void spins_for_a_while(int id) { for (int j = 0; j < 1000000; j++) if (LOAD(rings[id].tail) != 0) break; }
ONCE void spins_full(struct ring *r, unsigned long tail) { while (tail - LOAD(r->head) == 256) PAUSE(); }
ONCE void spins_for_a_ticket(struct ring *r, unsigned mine) { while ((unsigned)LOAD(r->head) != mine) PAUSE(); }
ONCE void spins_backing_off(void) { int n = 1; while (!LOAD(flag)) { for (int i = 0; i < n; i++) PAUSE(); n <<= 1; } }
ONCE void spins_at_a_slot(struct ring *r, int i) { while (!LOAD(r->slots[i & 7])) ; }
ONCE void spins_in_turns(long rounds) { for (long i = 1; i <= rounds; i++) while (LOAD(flag) < i) PAUSE(); }
ONCE void spins_until_all_are(int n) { for (;;) { unsigned long s = 0; for (int j = 1; j < n; j++) s += LOAD(rings[j].tail); if (s == 0) break; } }
ONCE void spins_until_one_is(int n) { for (;;) for (int j = 0; j < n; j++) if (LOAD(rings[j].tail) != 0) return; }
ONCE void spins_unless_told(void) { while (!LOAD(flag)) if (stop) break; }
ONCE void begin_of_others(void) {}
ONCE long adds(const long *a, long n) { long s = 0; for (long i = 0; i < n; i++) s += a[i]; return s; }
ONCE long hashes_until_told(long x) { while (!stop) x = x * 1103515245 + 12345; return x; }
ONCE long mixes_until_told(long x) { while (!stop) { x ^= x << 13; x ^= (unsigned long)x >> 7; } return x; }
ONCE long adds_until_told(const long *a) { long s = 0; for (long i = 0; !stop; i++) s += a[i & 7]; return s; }
ONCE void stores_until_told(void) { while (!stop) *(volatile long *)&sink += 1; }
ONCE void calls_until_told(void) { while (!stop) begin_of_others(); }
ONCE long finds(const struct ring *r, long key) { while (r && r->key != key) r = r->next; return r != 0; }
ONCE long length(const char *s) { const char *p = s; while (*p) p++; return p - s; }
ONCE long finds_unless_told(const long *a, long key) { long i = 0; while (!stop && a[i] != key) i++; return i; }
ONCE void copies(char *to, const char *from, long n) { for (long i = 0; i < n; i++) to[i] = from[i]; }
ONCE void takes(int *lock) { while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)) ; }
ONCE double computes(double x, long n) { for (long i = 0; i < n; i++) x = x * 0.5 + 1.0; return x; }
ONCE long adds_again_and_again(const long *a, long n) { long s = 0; while (!stop) { long i = 0; s = 0; do s += a[i]; while (++i < n); } return s; }
ONCE long counts_to_it(void) { long i = 0; while (i < stop) i++; return i; }
ONCE long adds_up_what_it_finds(const long *a, long n) { long all = 0; while (!stop) { long s = 0, i = 0; do s += a[i]; while (++i < n); all += s; } return all; }
ONCE long has_the_most(const long *a, long n) { long most = 0; while (!stop) { long s = 0, i = 0; do s += a[i]; while (++i < n); if (s > most) most = s; } return most; }
ONCE void end(void) {}
int main(void) { return 0; }
";

/// The functions that poll at most one load, by name.
const POLLING: [&str; 10] = [
    "spins",
    "spins_bare",
    "spins_for_a_while",
    "spins_full",
    "spins_for_a_ticket",
    "spins_backing_off",
    "spins_at_a_slot",
    "spins_in_turns",
    "spins_until_all_are",
    "spins_until_one_is",
];
const OTHERS: [&str; 16] = [
    "adds",
    "hashes_until_told",
    "mixes_until_told",
    "adds_until_told",
    "stores_until_told",
    "calls_until_told",
    "finds",
    "length",
    "finds_unless_told",
    "copies",
    "takes",
    "computes",
    "adds_again_and_again",
    "counts_to_it",
    "adds_up_what_it_finds",
    "has_the_most",
];

/// The loads that end the loop of a function, if it is sampled everywhere.
fn loads(program: &Program, name: &str) -> Vec<Address> {
    /// No function is longer, and what follows is another.
    const LONGEST: u64 = 400;

    let store = Store::default();
    let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
    let start = program.address(name);
    let within = |ip: &u64| {
        let function = resolver.frames(PID, Address(*ip));
        function.first().is_some_and(|frame| frame.function == name)
    };
    let ips: Vec<u64> = (start.0..start.0 + LONGEST).filter(within).collect();
    let mut sample = |ip: u64| Sample {
        // Time passes where `flag` is looked at.
        weight: match resolver.typed_access(PID, Address(ip)).variable.as_str() {
            "flag" => 2_000,
            _ => 100,
        },
        ..row(Address(0), Address(ip), StackId(0), 0)
    };
    let samples: Vec<Sample> = ips.into_iter().map(&mut sample).collect();
    let tables = Tables {
        samples,
        ..Tables::default()
    };
    let mut found: Vec<Address> = resolver
        .hot_loops(&tables)
        .polls
        .iter()
        .map(|row| row.load_ip)
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn loops_that_only_look_at_memory_poll_and_others_do_not() {
    for (compiler, flags) in [
        ("gcc", &["-g", "-O2", "-Wl,--build-id"][..]),
        ("gcc", &["-g", "-O3", "-Wl,--build-id"]),
        ("gcc", &["-g", "-Os", "-Wl,--build-id"]),
        (
            "clang",
            &["-g", "-O2", "-Dnoipa=noinline", "-Wl,--build-id"],
        ),
    ] {
        let Some(program) = build(compiler, flags, ("program.c", C)) else {
            continue;
        };
        for name in POLLING {
            assert_eq!(
                loads(&program, name).len(),
                1,
                "{compiler} {flags:?}: {name}"
            );
        }
        let looks = loads(&program, "spins_unless_told");
        assert_eq!(looks.len(), 2, "{compiler} {flags:?}");
        for name in OTHERS {
            assert_eq!(loads(&program, name), [], "{compiler} {flags:?}: {name}");
        }
    }
}

#[test]
fn the_load_is_that_of_what_is_waited_for() {
    let Some(program) = build("gcc", &["-g", "-O2", "-Wl,--build-id"], ("program.c", C)) else {
        return;
    };
    let store = Store::default();
    for (name, member) in [("spins_full", "head"), ("spins_for_a_while", "tail")] {
        let loads = loads(&program, name);
        let mut resolver = Resolver::new(&program.maps, &[], &program.files, &store);
        let touched = resolver.typed_access(PID, loads[0]);
        assert_eq!(touched.path, member, "{name}");
    }
}
