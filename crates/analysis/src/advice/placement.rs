//! What to do with groups of threads, in words.

use crate::quantity::{percent, percent_range};
use crate::views::groups::{Distance, PlacementVerdict, ThreadGroup, ThreadGroups};

/// The answer of [`ThreadGroups::advice`] in whole sentences.
#[must_use]
pub(crate) fn placement_words(groups: &ThreadGroups) -> String {
    use PlacementVerdict as It;
    match groups.advice.verdict {
        It::Move => moves(groups),
        It::TooLittleSeen => {
            "Leave the threads where they are: too little was seen to say who shares with whom. Record for longer, or with more overhead.".to_owned()
        }
        It::NothingShared if groups.threads.len() == 1 => {
            "Leave it where it is: it has one thread, which shares with nobody.".to_owned()
        }
        It::NothingShared => {
            "Leave the threads where they are: no two of them were seen to work on common lines, so no place is better for them than another.".to_owned()
        }
        It::OneLlc => format!(
            "Leave the threads where they are: all {} CPUs are below one last-level cache, so there is no other placement that would bring sharing threads nearer. What transfers cost here is saved in the program alone: `linewise report` says where.",
            groups.shape.cpus
        ),
        It::MachineUnknown => {
            "Where the groups should run cannot be said: the recording is of another machine, or this one hides its caches. With `--place-on DIR`, a copy of that machine's /sys, it can.".to_owned()
        }
        It::AllWithAll => {
            "Leave the threads where they are: all share with all, and they do not fit below one last-level cache, so whichever are brought together are parted from others.".to_owned()
        }
        It::NoRoom => {
            "Leave the threads where they are: no group fits as a whole below one last-level cache, nor on one socket of several. `linewise place` brings together those of a group who share most and fit.".to_owned()
        }
        It::AlreadyThere => {
            "Leave the threads where they are: each group that fits below a last-level cache, or on a socket, ran there.".to_owned()
        }
        It::TooCheap => {
            "Leave the threads where they are: to bring the groups together would save next to nothing, less than 0.5 % of their time, or nothing for certain.".to_owned()
        }
    }
}

fn moves(groups: &ThreadGroups) -> String {
    let mut words = String::from("Bring together those who share:");
    let is_moved = |group: &&ThreadGroup| group.verdict == PlacementVerdict::Move;
    for group in groups.groups.iter().filter(is_moved) {
        let Some(place) = &group.place else { continue };
        let there = group
            .elsewhere
            .iter()
            .find(|it| it.distance == place.distance);
        let after = percent(there.map_or(0.0, |it| it.cost));
        let below = match place.distance {
            Distance::Llc => "below one last-level cache",
            Distance::Socket | Distance::Apart => "on one socket",
        };
        let instead = match group.takes_turns() {
            true => format!(
                ", and apart up to {}, if its threads ran at once",
                percent(group.worst().high)
            ),
            false => format!(
                " instead of {} (it saves {})",
                percent(group.cost),
                percent_range(group.gain_interval)
            ),
        };
        words += &format!(
            " group {} on CPUs {} ({below}), where its transfers cost about {after} of its time{instead};",
            group.id, place.cpus,
        );
    }
    words.pop();
    words
        + ". `--write taskset` and the like print what does that. Measure before and after: what threads also contend for, such as memory, is not looked at here."
}
