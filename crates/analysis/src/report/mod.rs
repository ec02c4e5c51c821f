//! The report: what one recording says, as plain data ([`model`]), and its renderers, which only
//! print.

mod cells;
mod contention;
mod difference;
mod distances;
mod drawing;
mod exact;
mod groups;
pub mod handover;
pub mod html;
pub mod json;
pub use crate::model;
mod pairs;
mod places;
#[cfg(test)]
pub(crate) mod sample;
mod sections;
pub mod terminal;
mod terms;
mod text;
