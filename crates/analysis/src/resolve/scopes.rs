//! The namespaces, types and functions of a unit: one pass over it, to name what lies in them.

use gimli::{DwTag, Dwarf, Reader, UnitHeader};

/// Scopes that are kept of one unit, at most.
const MOST: usize = 1 << 20;

/// The scopes of a unit in order of their start, which is that of a walk from the outside.
#[derive(Debug, Default)]
pub(super) struct Scopes(Vec<Scope>);

#[derive(Debug)]
struct Scope {
    tag: DwTag,
    /// Offsets in the unit: its entry's, and that of the entry behind all that it holds.
    start: usize,
    end: usize,
    parent: Option<usize>,
}

impl Scopes {
    /// Those of a unit, as far as it can be read.
    pub(super) fn read<R: Reader<Offset = usize>>(
        header: &UnitHeader<R>,
        dwarf: &Dwarf<R>,
    ) -> Self {
        let mut scopes = Self::default();
        let _: Option<()> = scopes.walk(header, dwarf);
        scopes
    }

    fn walk<R: Reader<Offset = usize>>(
        &mut self,
        header: &UnitHeader<R>,
        dwarf: &Dwarf<R>,
    ) -> Option<()> {
        let abbreviations = dwarf.abbreviations(header).ok()?;
        let mut raw = header.entries_raw(&abbreviations, None).ok()?;
        let mut around: Vec<(isize, usize)> = Vec::new();
        while !raw.is_empty() && self.0.len() < MOST {
            let depth = raw.next_depth();
            let start = raw.next_offset().0;
            let Some(abbreviation) = raw.read_abbreviation().ok()? else {
                continue;
            };
            while let Some((_, scope)) = around.pop_if(|(outer, _)| *outer >= depth) {
                self.0[scope].end = start;
            }
            raw.skip_attributes(abbreviation.attributes()).ok()?;
            if abbreviation.has_children() && is_scope(abbreviation.tag()) {
                let parent = around.last().map(|(_, scope)| *scope);
                around.push((depth, self.0.len()));
                self.0.push(Scope {
                    tag: abbreviation.tag(),
                    start,
                    end: usize::MAX,
                    parent,
                });
            }
        }
        Some(())
    }

    /// The tags and offsets of those around the entry at `offset`, innermost first.
    pub(super) fn around(&self, offset: usize) -> impl Iterator<Item = (DwTag, usize)> {
        let before = self.0.partition_point(|scope| scope.start < offset);
        let nearest = before.checked_sub(1);
        let outwards = |scope: &usize| self.0[*scope].parent;
        std::iter::successors(nearest, outwards)
            .map(|scope| &self.0[scope])
            .filter(move |scope| offset < scope.end)
            .map(|scope| (scope.tag, scope.start))
    }
}

fn is_scope(tag: DwTag) -> bool {
    is_function(tag)
        || matches!(
            tag,
            gimli::DW_TAG_namespace
                | gimli::DW_TAG_module
                | gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type
        )
}

/// Whether an entry is a function, or a copy of one.
pub(super) fn is_function(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine
    )
}
