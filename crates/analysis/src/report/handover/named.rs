//! How threads are found: by id while they live, by name in a later run.

use std::collections::BTreeSet;

use linewise_foreign::{is_safe, sanitise};

use super::placed::Placed;
use crate::command;
use crate::report::{groups as words, text};
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

    /// Does `act` with each thread of the groups: by its id, or, in one pass over all processes, by its name.
    pub(super) fn script(
        &self,
        placed: &[Placed<'_>],
        act: impl Fn(&Placed<'_>, &str) -> String,
    ) -> String {
        let comment = |it: &Placed<'_>| {
            let members = words::members(self.groups, it.group, 8);
            format!("# Group {}: {}\n", it.group.id, sanitise(&members))
        };
        if !self.by_name() {
            let line = |it: &Placed<'_>, thread: &GroupedThread| {
                let act = act(it, &thread.tid.to_string());
                format!("{act}  # {}\n", sanitise(&thread.name))
            };
            let lines = |it: &Placed<'_>| -> String {
                it.threads.iter().map(|thread| line(it, thread)).collect()
            };
            return placed.iter().map(|it| comment(it) + &lines(it)).collect();
        }
        let case = |it: &Placed<'_>| {
            let names = it.threads.iter().filter(|it| self.tells(it));
            let names: BTreeSet<String> = names.map(|it| quoted(&it.name)).collect();
            let names: Vec<String> = names.into_iter().collect();
            match names.is_empty() {
                true => comment(it),
                false => format!(
                    "{}    {}) {} ;;\n",
                    comment(it),
                    names.join(" | "),
                    act(it, "\"${task##*/}\"")
                ),
            }
        };
        let cases: String = placed.iter().map(case).collect();
        format!(
            "# All threads of the program, wherever their names say.\n\
             name_of() {{ IFS= read -r name <\"$1/comm\"; }} 2>/dev/null\n\
             for process in /proc/[0-9]*; do\n    \
                 name_of \"$process\" && [ \"$name\" = {} ] || continue\n    \
                 for task in \"$process\"/task/[0-9]*; do\n    \
                     name_of \"$task\" || continue\n    \
                     case $name in\n{cases}    \
                     esac\n    \
                 done\n\
             done\n",
            quoted(self.program())
        )
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
