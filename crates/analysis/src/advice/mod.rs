//! Advice: lines that moved become findings, each with its object, its evidence and a change.

mod change;
mod findings;
mod names;
mod votes;

pub use findings::{Advice, advise};
