//! A Rust program as users write them: rayon sorts words and adds up their lengths, for as many
//! seconds as the argument says. It prints its iterations and seconds, for measurements of what
//! recording it costs.

use rayon::prelude::*;
use std::time::Instant;

const WORDS: usize = 200_000;

fn words(seed: u64) -> Vec<String> {
    (0..WORDS as u64)
        .into_par_iter()
        .map(|i| {
            let mixed = (i ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!("{:x}", mixed ^ (mixed >> 29))
        })
        .collect()
}

fn main() {
    let wanted: f64 = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(2.0);
    let start = Instant::now();
    let (mut iterations, mut checksum) = (0u64, 0usize);
    while start.elapsed().as_secs_f64() < wanted {
        let mut words = words(iterations);
        words.par_sort_unstable();
        checksum ^= words.par_iter().map(String::len).sum::<usize>();
        iterations += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("iterations={iterations} seconds={seconds} checksum={checksum}");
}
