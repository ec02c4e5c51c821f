//! The real binary with bad input and bad luck: each test runs it in a fresh folder.

mod attaching;
mod callers;
mod crowds;
mod diff;
mod ending;
mod exact;
mod exact_alone;
mod exact_faults;
mod exact_programs;
mod fetching;
mod flow;
mod guarding;
mod heap;
mod hostile;
mod launching;
mod measuring;
mod objects_exact;
mod operators;
mod probing;
mod processes;
mod rebuilt;
mod recordings;
mod sampled_reuse;
mod sharing_exact;
mod surroundings;
mod util;
