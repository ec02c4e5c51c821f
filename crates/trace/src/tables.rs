//! What the numbers in accesses mean, as it is kept with a trace.

use linewise_recording::{Address, Map, MapKind, Pid, Time};

use crate::instruction::Instruction;
use crate::numbers::{get, put};
use crate::thread::ExactThread;

/// Threads, instructions and mappings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceTables {
    /// By their numbers in the accesses.
    pub threads: Vec<ExactThread>,
    /// By their numbers in the accesses.
    pub instructions: Vec<Instruction>,
    /// What the target mapped from files, and anonymously.
    pub maps: Vec<Map>,
}

pub(crate) fn encode(tables: &TraceTables) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rows = |values: &[u64], text: &[u8]| {
        for &value in values {
            put(&mut bytes, value);
        }
        bytes.extend(text);
    };
    rows(&[tables.threads.len() as u64], &[]);
    for thread in &tables.threads {
        rows(
            &[
                thread.pid.0.into(),
                thread.tid.into(),
                thread.space.into(),
                thread.start_ns,
                thread.end_ns,
                thread.accesses,
                thread.waited_ns,
            ],
            &[],
        );
    }
    rows(&[tables.instructions.len() as u64], &[]);
    for instruction in &tables.instructions {
        rows(
            &[
                instruction.address,
                instruction.pid.0.into(),
                u64::from(instruction.updates) | u64::from(instruction.orders) << 1,
                instruction.length.into(),
            ],
            &instruction.bytes[..usize::from(instruction.length)],
        );
    }
    rows(&[tables.maps.len() as u64], &[]);
    for map in &tables.maps {
        rows(
            &[
                map.pid.0.into(),
                map.time.0,
                map.start.0,
                map.end.0,
                map.offset,
                u64::from(map.executable) | u64::from(map.writable) << 1,
                map.path.len() as u64,
            ],
            map.path.as_bytes(),
        );
    }
    bytes
}

pub(crate) fn decode(mut bytes: &[u8]) -> Option<TraceTables> {
    let bytes = &mut bytes;
    let mut tables = TraceTables::default();
    for _ in 0..get(bytes)? {
        tables.threads.push(ExactThread {
            pid: Pid(get(bytes)?.try_into().ok()?),
            tid: get(bytes)?.try_into().ok()?,
            space: get(bytes)?.try_into().ok()?,
            start_ns: get(bytes)?,
            end_ns: get(bytes)?,
            accesses: get(bytes)?,
            waited_ns: get(bytes)?,
        });
    }
    for _ in 0..get(bytes)? {
        let address = get(bytes)?;
        let pid = Pid(get(bytes)?.try_into().ok()?);
        let flags = get(bytes)?;
        let length = usize::try_from(get(bytes)?).ok()?;
        let mut code = [0; 15];
        let (from, rest) = bytes.split_at_checked(length)?;
        code.get_mut(..length)?.copy_from_slice(from);
        *bytes = rest;
        tables.instructions.push(Instruction {
            address,
            pid,
            bytes: code,
            length: length as u8,
            updates: flags & 1 != 0,
            orders: flags & 2 != 0,
        });
    }
    for _ in 0..get(bytes)? {
        let pid = Pid(get(bytes)?.try_into().ok()?);
        let time = Time(get(bytes)?);
        let (start, end) = (Address(get(bytes)?), Address(get(bytes)?));
        let offset = get(bytes)?;
        let flags = get(bytes)?;
        let length = usize::try_from(get(bytes)?).ok()?;
        let (path, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        tables.maps.push(Map {
            pid,
            time,
            start,
            end,
            offset,
            executable: flags & 1 != 0,
            writable: flags & 2 != 0,
            kind: if path.is_empty() {
                MapKind::Anonymous
            } else {
                MapKind::File
            },
            path: String::from_utf8_lossy(path).into_owned(),
            build_id: String::new(),
            device: None,
            inode: None,
        });
    }
    Some(tables)
}

/// One row of each.
#[cfg(test)]
pub(crate) fn example() -> TraceTables {
    let mut bytes = [0; 15];
    bytes[..3].copy_from_slice(&[0x48, 0x8b, 0x07]);
    TraceTables {
        threads: vec![ExactThread {
            pid: Pid(7),
            tid: 8,
            space: 1,
            start_ns: 5,
            end_ns: 6,
            accesses: 1 << 40,
            waited_ns: 0,
        }],
        instructions: vec![Instruction {
            address: 0x55aa_0000_1234,
            pid: Pid(7),
            bytes,
            length: 3,
            updates: true,
            orders: false,
        }],
        maps: vec![Map {
            pid: Pid(7),
            time: Time(1),
            start: Address(0x1000),
            end: Address(0x2000),
            offset: 0x40,
            executable: true,
            writable: false,
            kind: MapKind::File,
            path: "/lib/a b.so".to_owned(),
            build_id: String::new(),
            device: None,
            inode: None,
        }],
    }
}
