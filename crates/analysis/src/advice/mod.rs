//! Advice: lines that moved become findings, each with its object, its evidence and a change.

mod accesses;
mod called_from;
mod change;
mod findings;
mod groups;
mod known;
mod language;
mod libraries;
mod locks;
mod managed;
mod names;
mod parts;
mod paths;
mod placement;
mod proposal;
mod share_less;
mod sharers;
mod votes;
mod waits;
mod whole;

pub(crate) use change::{allocate_aligned, beside_a_declaration, is_of_elements};
pub(crate) use findings::{Advice, advise};
pub(crate) use placement::placement_words;
pub(crate) use sharers::Sharers;
