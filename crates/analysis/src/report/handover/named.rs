//! How threads are found: by id while they live, by name in a later run.

use std::collections::BTreeSet;

use linewise_foreign::{is_safe, sanitise};

use super::placed::Placed;
use crate::command;
use crate::report::text;
use crate::views::groups::{GroupedThread, ThreadGroups};

/// Bytes of a name that the kernel keeps.
const COMM: usize = 15;

/// `word` as a shell takes it for one word.
pub(super) fn quoted(word: &str) -> String {
    command::quoted(&sanitise(word))
}

/// Finds the threads of a placement.
pub(super) struct Finder<'a> {
    groups: &'a ThreadGroups,
}

impl<'a> Finder<'a> {
    pub(super) fn new(groups: &'a ThreadGroups) -> Self {
        Self { groups }
    }

    /// The program's name, as the kernel keeps it.
    pub(super) fn program(&self) -> &'a str {
        let first = self.groups.command.first().map_or("", String::as_str);
        let mut end = COMM.min(text::file_name(first).len());
        let name = text::file_name(first);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        &name[..end]
    }

    /// Whether the threads of the run are gone, so that only names can find those of the next.
    pub(super) fn by_name(&self) -> bool {
        self.groups.launched
    }

    /// Whether a name says of which group its thread is.
    pub(super) fn tells(&self, thread: &GroupedThread) -> bool {
        let of = self
            .groups
            .threads
            .iter()
            .filter(|it| it.name == thread.name);
        let groups: BTreeSet<Option<u32>> = of.map(|it| it.group).collect();
        groups.len() == 1 && !thread.name.is_empty() && thread.name.chars().all(is_safe)
    }

    /// The beginning of a script; `act` is what is done with a thread in `$task`, if they are found by name.
    pub(super) fn head(&self, act: &str) -> String {
        let mut head = String::from("#!/bin/sh\n");
        if self.by_name() {
            head +=
                "# by_name WHERE THREAD: all threads of that name in processes of the program.\n";
            head += "by_name() {\n";
            head += "    for task in /proc/[0-9]*/task/[0-9]*; do\n";
            head += &format!(
                "        [ \"$(cat \"${{task%/task/*}}/comm\" 2>/dev/null)\" = {} ] &&\n",
                quoted(self.program())
            );
            head += "            [ \"$(cat \"$task/comm\" 2>/dev/null)\" = \"$2\" ]";
            head += act;
            head += "\n    done\n}\n";
        }
        head
    }

    /// A line for each thread of a group, or for each name; threads that no name tells get none.
    pub(super) fn lines(
        &self,
        placed: &Placed<'_>,
        by_id: impl Fn(u32) -> String,
        place: &str,
    ) -> Vec<String> {
        if !self.by_name() {
            let line =
                |it: &&GroupedThread| format!("{}  # {}\n", by_id(it.tid), sanitise(&it.name));
            return placed.threads.iter().map(line).collect();
        }
        let names = placed.threads.iter().filter(|it| self.tells(it));
        let names: BTreeSet<&str> = names.map(|it| it.name.as_str()).collect();
        let line = |name: &str| format!("by_name {place} {}\n", quoted(name));
        names.into_iter().map(line).collect()
    }

    /// Which threads no name tells.
    pub(super) fn notes(&self, placed: &[Placed<'_>]) -> Vec<String> {
        let all = placed.iter().flat_map(|it| &it.threads);
        let untold = all.filter(|it| self.by_name() && !self.tells(it)).count();
        match untold {
            0 => Vec::new(),
            untold => vec![format!(
                "{} cannot be found by name in another run, since threads of several groups share a name, or it has characters that no shell line can hold: name them apart (`pthread_setname_np`), or record the running program with `--pid`.",
                text::plural(untold as u64, "thread")
            )],
        }
    }
}
