//! The target's code: read once for each sampled address, and what waited there.

use std::collections::HashMap;
use std::rc::Rc;

use linewise_machine::memory;
use linewise_machine::probe::SkidRule;
use linewise_recording::UnknownReason;

use crate::decode::{self, Code64, WINDOW_AFTER, WINDOW_BEFORE, Waiting};

/// Addresses remembered; a program that runs more distinct code than that starts over.
const REMEMBERED: usize = 65_536;

/// Where the bytes of a file mapping come from when the process may not be read.
#[derive(Clone, Debug)]
struct FileCode {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
}

/// Remembers what waited at each address.
pub(crate) struct CodeCache {
    rule: SkidRule,
    samples: HashMap<(u32, u64), Rc<Waiting>>,
    traps: HashMap<(u32, u64), Rc<Waiting>>,
    files: HashMap<u32, Vec<FileCode>>,
}

impl CodeCache {
    pub(crate) fn new(rule: SkidRule) -> Self {
        Self {
            rule,
            samples: HashMap::new(),
            traps: HashMap::new(),
            files: HashMap::new(),
        }
    }

    /// What waited when the timer interrupted `pid` at `ip`.
    pub(crate) fn waiting(&mut self, pid: u32, ip: u64) -> Rc<Waiting> {
        if let Some(known) = self.samples.get(&(pid, ip)) {
            return Rc::clone(known);
        }
        let rule = self.rule;
        let found = Rc::new(self.read(pid, ip, |code| decode::waiting(code, ip, rule)));
        remember(&mut self.samples, (pid, ip), &found);
        found
    }

    /// What ran just before a watchpoint stopped `pid` at `ip`.
    pub(crate) fn trapped(&mut self, pid: u32, ip: u64) -> Rc<Waiting> {
        if let Some(known) = self.traps.get(&(pid, ip)) {
            return Rc::clone(known);
        }
        let found = Rc::new(self.read(pid, ip, |code| decode::executed_before(code, ip)));
        remember(&mut self.traps, (pid, ip), &found);
        found
    }

    /// The process mapped a file executable: other code may stand at these addresses now.
    pub(crate) fn mapped(&mut self, pid: u32, start: u64, length: u64, offset: u64, path: &str) {
        let end = start.saturating_add(length);
        let outside = |&(owner, ip): &(u32, u64)| owner != pid || ip < start || ip >= end;
        self.samples.retain(|key, _| outside(key));
        self.traps.retain(|key, _| outside(key));
        let files = self.files.entry(pid).or_default();
        files.retain(|file| file.end <= start || file.start >= end);
        if path.starts_with('/') {
            files.push(FileCode {
                start,
                end,
                offset,
                path: path.to_owned(),
            });
        }
    }

    /// The process runs another program: forget it.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.samples.retain(|&(owner, _), _| owner != pid);
        self.traps.retain(|&(owner, _), _| owner != pid);
        self.files.remove(&pid);
    }

    fn read(&self, pid: u32, ip: u64, look: impl Fn(Code64<'_>) -> Waiting) -> Waiting {
        let mut bytes = [0u8; (WINDOW_BEFORE + WINDOW_AFTER) as usize];
        // The window may begin before the mapping does: then it begins with the page of `ip`.
        for start in [ip.saturating_sub(WINDOW_BEFORE), ip & !4095] {
            if let Ok(got) = memory::read(pid, start, &mut bytes)
                && start + got as u64 > ip
            {
                return look(Code64 {
                    start,
                    bytes: &bytes[..got],
                });
            }
        }
        match self.read_file(pid, ip, &mut bytes) {
            Some((start, got)) => look(Code64 {
                start,
                bytes: &bytes[..got],
            }),
            None => Waiting::Unknown(UnknownReason::CodeUnreadable),
        }
    }

    fn read_file(&self, pid: u32, ip: u64, bytes: &mut [u8]) -> Option<(u64, usize)> {
        use std::os::unix::fs::FileExt;
        let file = self
            .files
            .get(&pid)?
            .iter()
            .find(|file| (file.start..file.end).contains(&ip))?;
        let start = ip.saturating_sub(WINDOW_BEFORE).max(file.start);
        let handle = std::fs::File::open(&file.path).ok()?;
        let got = handle
            .read_at(bytes, file.offset + (start - file.start))
            .ok()?;
        (start + got as u64 > ip).then_some((start, got))
    }
}

fn remember(known: &mut HashMap<(u32, u64), Rc<Waiting>>, key: (u32, u64), found: &Rc<Waiting>) {
    if known.len() >= REMEMBERED {
        known.clear();
    }
    known.insert(key, Rc::clone(found));
}
