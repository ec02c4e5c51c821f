//! What views tell apart by type.

use linewise_recording::TypedAccess;

/// A type; and of one without fields, such as a number, the member that leads to it: there the type alone
/// tells little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind<'a> {
    /// The type; empty if it is not known.
    pub(crate) type_name: &'a str,
    /// The member or static variable; empty for a type with fields, and if only a local variable is known.
    pub(crate) through: &'a str,
}

impl<'a> Kind<'a> {
    /// What an instruction touches.
    pub(crate) fn of(row: &'a TypedAccess) -> Self {
        let tells = row.path.is_empty() && !row.through.ends_with("(local)");
        Self {
            type_name: &row.type_name,
            through: if tells { &row.through } else { "" },
        }
    }

    /// The type alone.
    pub(crate) fn whole(self) -> Self {
        Self {
            through: "",
            ..self
        }
    }
}
