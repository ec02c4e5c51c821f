//! Where 10,000 blocks lie in a Rust program: boxes, vectors that grow, strings, maps, and those of threads.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{Read, Write};

thread_local! {
    static LAST: Cell<usize> = const { Cell::new(0) };
}

fn tell<T: ?Sized>(out: &mut impl Write, what: &str, number: usize, block: *const T) {
    let here = block.cast::<u8>() as usize;
    let last = LAST.replace(here);
    let from_last = if last == 0 { 0 } else { here.wrapping_sub(last) as isize };
    if from_last.unsigned_abs() >> 24 == 0 {
        writeln!(out, "{what} {number} {:03x} {from_last:+}", here & 0xfff).unwrap();
    } else {
        // How far heaps are from mappings is random.
        writeln!(out, "{what} {number} {:03x} far", here & 0xfff).unwrap();
    }
}

#[repr(align(256))]
struct Wide([u8; 300]);

fn blocks(out: &mut impl Write, what: &str, count: usize) {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut boxes: Vec<Box<Wide>> = Vec::new();
    let mut map = BTreeMap::new();
    for i in 0..count {
        match i % 4 {
            0 => {
                let mut grows = Vec::new();
                for byte in 0..1 + i * 13 % 500 {
                    grows.push(byte as u8);
                }
                tell(out, what, i, grows.as_ptr());
                kept.push(grows);
            }
            1 => {
                boxes.push(Box::new(Wide([i as u8; 300])));
                tell(out, what, i, boxes.last().unwrap().0.as_ptr());
            }
            2 => {
                let name = format!("number {i} of {count}");
                tell(out, what, i, name.as_ptr());
                map.insert(i * 37 % 1001, name);
            }
            _ => {
                let zeroed = vec![0_u8; 1 + i * 29 % 2000];
                tell(out, what, i, zeroed.as_ptr());
                kept.push(zeroed);
                let at = i * 7 % kept.len();
                kept.swap_remove(at);
            }
        }
    }
    tell(out, what, count, kept.as_ptr());
    assert!(boxes.iter().all(|it| it.0[0] == it.0[299]) && !map.is_empty());
}

fn main() {
    let local = 0_u8;
    let mut byte = [0];
    let _ = std::io::stdin().read(&mut byte);
    // With a large buffer, so that output is no system call for each line.
    let mut out = std::io::BufWriter::with_capacity(1 << 20, std::io::stdout());
    // With an argument stacks are left out, which lie anywhere unless randomization is off.
    let stacks_too = std::env::args().len() == 1;
    if stacks_too {
        writeln!(out, "a local of main at {:03x}", &raw const local as usize & 0xfff).unwrap();
    }
    let buffer = out.buffer().as_ptr();
    tell(&mut out, "buffer", 0, buffer);
    blocks(&mut out, "main", 10_000);
    for number in 0..4 {
        let told = std::thread::Builder::new()
            .name(format!("worker {number}"))
            .spawn(move || {
                let local = 0_u8;
                let mut told = Vec::with_capacity(1 << 20);
                if stacks_too {
                    writeln!(told, "a local of thread {number} at {:03x}", &raw const local as usize & 0xfff).unwrap();
                }
                blocks(&mut told, "thread", 2500);
                told
            })
            .unwrap()
            .join()
            .unwrap();
        out.write_all(&told).unwrap();
    }
    out.flush().unwrap();
    std::process::exit(23);
}
