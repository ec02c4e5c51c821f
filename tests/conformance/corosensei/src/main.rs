//! Coroutines that allocate between switches, some of which panic, and are dropped half-way.

use corosensei::{Coroutine, CoroutineResult, stack::DefaultStack};
use std::io::Read;

fn work(number: usize, rounds: usize) -> usize {
    let mut sum = 0;
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for round in 0..rounds {
        kept.push(vec![round as u8; 1 + number * 37 % 900 + round * 16]);
        if round % 3 == 2 {
            sum += kept.swap_remove(round / 3).len();
        }
    }
    sum + kept.iter().map(Vec::len).sum::<usize>()
}

fn main() {
    let mut byte = [0];
    let _ = std::io::stdin().read(&mut byte);
    std::panic::set_hook(Box::new(|_| {}));
    let mut sum = 0;
    let mut tasks: Vec<_> = (0..64)
        .map(|number| {
            let stack = DefaultStack::new(64 << 10).unwrap();
            Coroutine::<(), usize, usize, _>::with_stack(stack, move |yielder, ()| {
                let name = format!("task {number}");
                for round in 0..20 {
                    yielder.suspend(work(number, round));
                    let caught = std::panic::catch_unwind(|| assert!(round % 7 != number % 7, "no"));
                    yielder.suspend(usize::from(caught.is_err()));
                }
                name.len()
            })
        })
        .collect();
    // Half of them are dropped while they wait: their stacks are unwound.
    for round in 0..41 {
        for task in &mut tasks {
            if !task.done() {
                match task.resume(()) {
                    CoroutineResult::Yield(some) | CoroutineResult::Return(some) => sum += some,
                }
            }
        }
        if round == 20 {
            tasks.truncate(32);
        }
    }
    let done = tasks.iter().filter(|task| task.done()).count();
    println!("{done} tasks are done, sum {sum}");
    std::process::exit(23);
}
