//! Values of known types that lie in a frame at a place of the code.

use std::collections::BTreeMap;

use super::super::dwarf::EntryId;
use super::layout::{Layouts, Shape, TypeId};

/// Objects of one frame that are known at a time, at most.
const MOST_PRESENT: usize = 64;

/// The objects that lie in the frame at a point of the code because a called function made or was lent them there, by
/// their distance from the canonical frame address. Compilers use memory of the frame for one temporary after the
/// other: what is written there otherwise is none of them any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Present(BTreeMap<i64, TypeId>);

impl Present {
    /// An object of type `kind` begins at `start`.
    pub(super) fn put(&mut self, start: i64, kind: TypeId, layouts: &Layouts<'_, '_>) {
        let layout = layouts.layout(kind.0);
        if !matches!(layout.shape, Shape::Aggregate(_)) || layout.size == 0 {
            return;
        }
        if let Some((outer, offset)) = self.at(start, layout.size, layouts)
            && layouts.holds(outer, offset, 0, kind)
        {
            return;
        }
        self.written(start, layout.size, layouts);
        if self.0.len() < MOST_PRESENT {
            self.0.insert(start, kind);
        }
    }

    /// The `size` bytes from `start` on were written.
    pub(super) fn written(&mut self, start: i64, size: u64, layouts: &Layouts<'_, '_>) {
        let end = start.saturating_add_unsigned(size);
        self.0.retain(|object, kind| {
            let bytes = layouts.layout(kind.0).size;
            *object >= end || object.saturating_add_unsigned(bytes) <= start
        });
    }

    /// The type of the object that has the `size` bytes from `distance` on, and how far that is from its start.
    pub(super) fn at(
        &self,
        distance: i64,
        size: u64,
        layouts: &Layouts<'_, '_>,
    ) -> Option<(EntryId, u64)> {
        let (start, kind) = self.0.range(..=distance).next_back()?;
        let bytes = layouts.layout(kind.0).size;
        let offset = within(*start, bytes, distance)?;
        (offset.saturating_add(size) <= bytes).then_some((kind.0, offset))
    }

    /// Keeps what is there on both of two paths that meet; says whether that is less.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let before = self.0.len();
        self.0
            .retain(|start, kind| other.0.get(start) == Some(kind));
        self.0.len() < before
    }
}

/// The distance of `distance` from `start`, if it is less than `size`.
pub(super) fn within(start: i64, size: u64, distance: i64) -> Option<u64> {
    let offset = u64::try_from(distance.checked_sub(start)?).ok()?;
    (offset < size).then_some(offset)
}
