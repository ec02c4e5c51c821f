//! What a load from memory takes, at this moment, and one from a cache.
//!
//! A chain of loads, each of which needs the one before for its address, through lines in random
//! order that were all taken out of every cache just before. Flushing, and not a buffer larger than
//! the last level: that of a large server is hundreds of megabytes, and a virtual machine cannot know
//! how much of it is its own.

use std::time::{Duration, Instant};

/// Lines of the chain: few enough for one pass to be short, and for its pages to stay in the TLB.
const LINES: usize = 4096;
/// Passes at least, whatever the time.
const FEWEST_PASSES: usize = 5;

/// A line, or two: the next of the chain, by index.
#[repr(align(128))]
#[derive(Clone, Copy)]
struct Link {
    next: usize,
}

/// Time of a load that no cache serves, ns: the median of as many passes of 4096 loads as fit into
/// `budget`, at least five. `None` where a program cannot take lines out of the caches.
#[must_use]
pub fn memory_latency(budget: Duration) -> Option<f64> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return None;
    }
    let chain = chain(LINES);
    let away = || {
        chain.iter().for_each(flush);
        fence();
    };
    timed(&chain, budget, away)
}

/// Time of a load of which a cache serves most, ns, with what translating the address takes: the median of as many
/// passes through `bytes` in random order as fit into `budget`, at least five. Of a set that is larger than the cache
/// before and smaller than this one the cache before still serves its part.
#[must_use]
pub fn cache_latency(bytes: u64, budget: Duration) -> Option<f64> {
    let chain = chain((bytes as usize / size_of::<Link>()).max(2));
    // Once without a clock, so that all is where it belongs.
    timed(&chain, Duration::ZERO, || ());
    timed(&chain, budget, || ())
}

/// Time of a load along the chain, ns; `before` is called before each pass and takes no time of it.
fn timed(chain: &[Link], budget: Duration, before: impl Fn()) -> Option<f64> {
    let start = Instant::now();
    let mut passes = Vec::new();
    let mut at = 0;
    while passes.len() < FEWEST_PASSES || start.elapsed() < budget {
        before();
        let pass = Instant::now();
        for _ in 0..chain.len() {
            at = chain[at].next;
        }
        // The end of the chain is used, so no load of it can be left out.
        at = std::hint::black_box(at);
        passes.push(pass.elapsed().as_nanos() as f64 / chain.len() as f64);
    }
    crate::probe::median(&mut passes)
}

/// One cycle through so many links in an order that no prefetcher follows (Sattolo's shuffle).
fn chain(links: usize) -> Vec<Link> {
    let mut order: Vec<usize> = (0..links).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for i in (1..links).rev() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (random >> 33) as usize % i);
    }
    order.into_iter().map(|next| Link { next }).collect()
}

#[cfg(target_arch = "x86_64")]
fn flush(link: &Link) {
    // SAFETY: the instruction changes no value, and the reference is to mapped memory. Every x86-64
    // processor has it.
    unsafe { std::arch::x86_64::_mm_clflush(std::ptr::from_ref(link).cast()) };
}

#[cfg(target_arch = "x86_64")]
fn fence() {
    // SAFETY: it only waits. Every x86-64 processor has it.
    unsafe { std::arch::x86_64::_mm_mfence() };
}

#[cfg(target_arch = "aarch64")]
fn flush(link: &Link) {
    // SAFETY: cleaning and invalidating a line changes no value, the reference is to mapped memory,
    // and Linux lets programs do it (SCTLR_EL1.UCI).
    unsafe { std::arch::asm!("dc civac, {}", in(reg) link, options(nostack)) };
}

#[cfg(target_arch = "aarch64")]
fn fence() {
    // SAFETY: it only waits.
    unsafe { std::arch::asm!("dsb ish", "isb", options(nostack)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn flush(_: &Link) {}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn fence() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_one_cycle_through_all_lines() {
        let chain = chain(LINES);
        let mut at = 0;
        let mut steps = 0;
        loop {
            at = chain[at].next;
            steps += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, LINES);
    }

    #[test]
    fn a_load_from_a_cache_takes_some_time() {
        for bytes in [0, 16 << 10, 1 << 20] {
            let ns = cache_latency(bytes, Duration::ZERO);
            assert!(ns.is_some_and(|ns| ns.is_finite() && ns > 0.0), "{ns:?}");
        }
    }

    #[test]
    fn a_load_from_memory_takes_some_time_where_it_can_be_measured() {
        let Some(ns) = memory_latency(Duration::ZERO) else {
            eprintln!("skipped: no way to flush a line on this processor");
            return;
        };
        assert!(ns.is_finite() && ns > 0.0, "{ns}");
    }
}
