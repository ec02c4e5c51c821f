//! What the pages of the benchmarks have in common: the document's head with the style sheet, curves, and
//! how figures are written.

mod bars;
mod curves;
mod document;
mod figures;

pub(crate) use bars::{Bars, Group, draw_bars};
pub(crate) use curves::{Along, Axes, Curve, Mark, Point, count, draw};
pub(crate) use document::head;
pub(crate) use figures::{list, rate, short};
