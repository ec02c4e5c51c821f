//! Names of what debug info has, with the namespaces, types and functions around it.

use super::dwarf::{Debug, Entry, EntryId, MOST_HOPS};
use super::scopes::is_function;

impl<'a> Debug<'a> {
    /// A name of C++ with the namespaces and types around it. What is declared within a function has no other name.
    pub(super) fn qualified(&self, id: EntryId, name: &str) -> String {
        let mut names = vec![name.to_owned()];
        for (tag, scope) in self.scopes_around(id) {
            let entry = self.entry(scope);
            let scope = entry.and_then(|it| self.text(&it, gimli::DW_AT_name));
            match scope {
                _ if is_function(tag) => break,
                Some(scope) => names.push(scope),
                // The members of an unnamed namespace are named as if there were none.
                None => {}
            }
        }
        names.reverse();
        names.join("::")
    }

    /// The name of a C++ function that has none for the linker (an inlined one, one of an unnamed namespace), with its namespaces
    /// and types. Its entry is at `offset` of the section `.debug_info`.
    pub(super) fn local_function_name(&self, offset: usize) -> Option<String> {
        let entry = self.entry_of_info(offset)?;
        if !self.language(entry.id.unit).is_some_and(is_cpp) || self.linkage_name(&entry).is_some()
        {
            return None;
        }
        let name = self.name(&entry)?;
        // What is defined outside of its class is declared in it.
        let original = |entry: &Entry<'a>| self.entry(self.original(entry)?);
        let hops = std::iter::successors(Some(entry), original);
        let declaration = hops.take(MOST_HOPS + 1).last()?;
        Some(self.qualified(declaration.id, &name))
    }
}

/// The names of the namespaces, types and functions around an entry, innermost first.
pub(super) fn names_around(debug: &Debug<'_>, id: EntryId) -> Vec<String> {
    let mut in_function = false;
    // The innermost function owns the variable; those that it was inlined into do not.
    let mut is_shown = |tag| !(is_function(tag) && std::mem::replace(&mut in_function, true));
    let name = |id: EntryId| debug.entry(id).and_then(|entry| debug.name(&entry));
    let scopes = debug.scopes_around(id).into_iter();
    scopes
        .filter(|(tag, _)| is_shown(*tag))
        .map(|(_, scope)| name(scope).unwrap_or_else(|| "(anonymous)".to_owned()))
        .collect()
}

pub(super) fn is_cpp(language: gimli::DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14
            | gimli::DW_LANG_C_plus_plus_17
            | gimli::DW_LANG_C_plus_plus_20
    )
}
