//! The verbs of `cargo xtask`.

/// The verbs, with what each does.
pub(crate) const COMMANDS: &[(&str, &str)] = &[
    (
        "tidy",
        "file sizes, crate arrows, circles of files, unsafe, stray words, commands in the documents",
    ),
    (
        "licences",
        "licences, bans and sources of all dependencies against deny.toml",
    ),
    (
        "header",
        "makes the C headers of crates/delegate-c and crates/fibres-c with cbindgen",
    ),
    (
        "answers",
        "what linewise says of fixtures/programs against answers.json; at least 95 % must be right\n\
         [--runs 20] [--seconds 3] [--source timer|exact] [--only NAME] [--json]\n\
         with --runs 1, two of three",
    ),
    (
        "exact-stability",
        "transfers that exact runs count on one CPU, on two and beside stress-ng, and what turns would cause\n\
         [--runs 7] [--only NAME] [--json]",
    ),
    (
        "cachegrind",
        "references and misses of real programs beside those of valgrind --tool=cachegrind\n\
         [--d1 32768,8] [--ll 4194304,16] [--only NAME] [--json]",
    ),
    (
        "curve",
        "miss-ratio curves of real programs beside the caches that the same runs simulated\n\
         [--reuse all|1/64] [--machine NAME] [--only NAME] [--json]",
    ),
    (
        "slowdown",
        "slowdown of programs under the exact source, beside cachegrind\n\
         [--rounds 3] [--only NAME] [--sides count,lines,shards,exact,caches,all,cachegrind]",
    ),
    (
        "typed",
        "types and fields of sampled accesses against programs that know them; needs\n\
         `cargo build -p linewise-analysis --examples` and qemu-user; with --real how many accesses of\n\
         programs from the registry have a type (fixtures/real), and of the types how many agree with what\n\
         else is known of the memory; that needs these examples with --release\n\
         [--seconds 5] [--json | --real]",
    ),
    (
        "misses",
        "classes of misses from samples against the exact ones, on programs with one known cause each\n\
         [--seconds 4] [--json]",
    ),
    (
        "repairs",
        "the cost of findings beside what a repair brings, on programs with repaired twins\n\
         [--threads 2] [--pairs 3] [--seconds 2.4 of CPU time] [--only PROGRAM] [--json]",
    ),
    (
        "advice",
        "what findings advise: pasted, compiled, run and recorded again where there is something to paste\n\
         [--pairs 5] [--seconds 0.8 of CPU time] [--only PROGRAM] [--quick] [--json]",
    ),
    (
        "structures",
        "the kind of sharing of fourteen concurrent structures, packed on a line and padded\n\
         [--threads 2] [--runs 5] [--seconds 2 of CPU time] [--source timer|exact] [--only PROGRAM]",
    ),
    (
        "heap",
        "what the heap recorder costs, in turns with runs without it, and whether it tells the truth\n\
         [--pairs 5] [--seconds 3] [--only storm|rayon_sort|redis-server|memcached|live|many|stress|probed]\n\
         stress runs for as many seconds as are asked for",
    ),
    (
        "soak",
        "memory, files and threads of linewise over a long time, and what it leaves behind\n\
         [--minutes 60]",
    ),
    (
        "flow",
        "what following objects costs, and how many history sets find how many of their paths\n\
         [--rounds 3] [--seconds 8]",
    ),
    (
        "conformance",
        "programs whose output and exit code must be the same under linewise as without it (tests/conformance)\n\
         [--core] [--only NAME,...] [--mode run|record|pid|exact] [--jobs 2] [--linewise FILE]\n\
         a star in NAME stands for anything; --suites: instead the C library's own tests of its allocator and\n\
         threads, which `apt-get source` fetches",
    ),
    (
        "inject",
        "each system call of linewise fails once, under strace: no panic, the target unharmed, a message\n\
         [--core] [--verb run|record|pid|exact|report] [--only CALL] [--points 8] [--jobs 2] [--linewise FILE]",
    ),
    (
        "overhead",
        "slowdown of programs and servers under `linewise record`, in interleaved pairs\n\
         [--pairs 5] [--seconds 3] [--only NAME]",
    ),
];
