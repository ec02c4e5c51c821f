//! The target's code, by pages, and what waited at each sampled address.

use std::collections::HashMap;
use std::rc::Rc;

use linewise_machine::probe::SkidRule;
use linewise_recording::UnknownReason;

use crate::kernel::Processes;
use crate::sources::timer::decode::{self, Code64, WINDOW, Waiting};

/// Addresses remembered; a program that runs more distinct code than that starts over.
const REMEMBERED: usize = 65_536;
/// Pages of code whose branches are remembered, some 15 kB each: finding them takes as long as a hundred
/// samples, and nearly all samples of a program are in few pages.
const PAGES: usize = 512;
const PAGE: u64 = 4096;

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
    pages: HashMap<(u32, u64), Code64>,
    files: HashMap<u32, Vec<FileCode>>,
}

impl CodeCache {
    pub(crate) fn new(rule: SkidRule) -> Self {
        Self {
            rule,
            samples: HashMap::new(),
            traps: HashMap::new(),
            pages: HashMap::new(),
            files: HashMap::new(),
        }
    }

    /// What waited when the timer interrupted `pid` at `ip`.
    pub(crate) fn waiting(&mut self, kernel: &impl Processes, pid: u32, ip: u64) -> Rc<Waiting> {
        if let Some(known) = self.samples.get(&(pid, ip)) {
            return Rc::clone(known);
        }
        let rule = self.rule;
        let found = Rc::new(self.read(kernel, pid, ip, |code| decode::waiting(code, ip, rule)));
        remember(&mut self.samples, (pid, ip), &found);
        found
    }

    /// What ran just before a watchpoint stopped `pid` at `ip`.
    pub(crate) fn trapped(&mut self, kernel: &impl Processes, pid: u32, ip: u64) -> Rc<Waiting> {
        if let Some(known) = self.traps.get(&(pid, ip)) {
            return Rc::clone(known);
        }
        let found = Rc::new(self.read(kernel, pid, ip, |code| decode::executed_before(code, ip)));
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
        self.pages.retain(|&(owner, _), _| owner != pid);
        self.files.remove(&pid);
    }

    /// Forgets where the files of processes lay for which `lives` says no.
    pub(crate) fn keep(&mut self, lives: impl Fn(u32) -> bool) {
        self.files.retain(|&pid, _| lives(pid));
    }

    /// Looks at the page of `ip`, with what stands before and behind it.
    fn read(
        &mut self,
        kernel: &impl Processes,
        pid: u32,
        ip: u64,
        look: impl FnOnce(&Code64) -> Waiting,
    ) -> Waiting {
        let page = ip & !(PAGE - 1);
        let mut bytes = vec![0; (PAGE + 2 * WINDOW) as usize];
        // What comes before may not be mapped.
        let found = [page.saturating_sub(WINDOW), page]
            .into_iter()
            .find_map(|start| {
                let got = kernel.read_memory(pid, start, &mut bytes).ok()?;
                (start + got as u64 > ip).then_some((start, got))
            })
            .or_else(|| self.read_file(kernel, pid, ip, &mut bytes));
        let Some((start, got)) = found else {
            return Waiting::Unknown(UnknownReason::CodeUnreadable);
        };
        bytes.truncate(got);
        // It is read each time: a compiler may have added to the page since.
        match self.pages.get(&(pid, page)) {
            Some(code) if code.is(start, &bytes) => look(code),
            _ => {
                if self.pages.len() >= PAGES {
                    self.pages.clear();
                }
                let code = Code64::new(start, bytes);
                let waiting = look(&code);
                self.pages.insert((pid, page), code);
                waiting
            }
        }
    }

    fn read_file(
        &self,
        kernel: &impl Processes,
        pid: u32,
        ip: u64,
        bytes: &mut [u8],
    ) -> Option<(u64, usize)> {
        let file = self
            .files
            .get(&pid)?
            .iter()
            .find(|file| (file.start..file.end).contains(&ip))?;
        let start = (ip & !(PAGE - 1)).saturating_sub(WINDOW).max(file.start);
        let offset = file.offset + (start - file.start);
        let got = kernel.read_file(pid, &file.path, offset, bytes).ok()?;
        (start + got as u64 > ip).then_some((start, got))
    }
}

fn remember(known: &mut HashMap<(u32, u64), Rc<Waiting>>, key: (u32, u64), found: &Rc<Waiting>) {
    if known.len() >= REMEMBERED {
        known.clear();
    }
    known.insert(key, Rc::clone(found));
}
