//! What a called function takes and returns, where its debug info says it: the registers of its
//! parameters where it begins, and whether it returns in memory that its caller provides.

use super::super::dwarf::EntryId;
use super::super::types::Types;
use super::layout::{Layouts, Shape, TypeId};
use super::scope::{self, Location};

/// DWARF's numbers of rdi and rsi, which have the first two addresses or integers.
const DWARF_RDI: u16 = 5;
const DWARF_RSI: u16 = 4;

/// A function as its callers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signature {
    /// Where it begins.
    pub(super) start: u64,
    /// The declared type that it returns.
    pub(super) returns: Option<EntryId>,
    /// Whether rdi is where the result goes; `None` if the debug info does not tell.
    pub(super) in_memory: Option<bool>,
    /// What registers (DWARF numbers) lead to when it is called: the register plus so many bytes is
    /// the start of a value of the type.
    pub(super) leads_to: Vec<(u16, i64, TypeId)>,
    /// Registers (DWARF numbers) that have pointers when it is called, and the parameters that these are.
    pub(super) pointers: Vec<(u16, EntryId)>,
}

/// Reads the function `id`, which begins at `start`.
pub(super) fn signature(layouts: &Layouts<'_, '_>, id: EntryId, start: u64) -> Signature {
    let debug = layouts.debug();
    let mut signature = Signature {
        start,
        returns: debug
            .entry(id)
            .and_then(|entry| Types::new(debug).type_of(&entry)),
        ..Signature::default()
    };
    let parameters = scope::parameters(debug, id, start);
    for parameter in &parameters {
        match parameter.place {
            Location::Value { register, minus } if parameter.within == 0 => {
                let size = parameter.size.unwrap_or(8).min(8);
                let target = layouts.pointee(parameter.kind, 0, size, 0);
                if let Some(target) = target {
                    signature.leads_to.push((register, -minus, target));
                }
                let shape = &layouts.layout(parameter.kind).shape;
                if target.is_some() || matches!(shape, Shape::Pointer(_)) {
                    signature.pointers.push((register, parameter.entry));
                }
            }
            Location::Memory { register, offset } if parameter.within == 0 => {
                let kind = layouts.layout(parameter.kind).id;
                signature.leads_to.push((register, offset, kind));
            }
            _ => {}
        }
    }
    signature.in_memory = signature
        .returns
        .map_or(Some(false), |kind| in_memory(layouts, kind))
        .or_else(|| {
            let uses = |register: u16| {
                parameters.iter().any(|parameter| match parameter.place {
                    Location::Value { register: it, .. }
                    | Location::Memory { register: it, .. } => it == register,
                    _ => false,
                })
            };
            match (uses(DWARF_RDI), uses(DWARF_RSI)) {
                (true, _) => Some(false),
                (false, true) => Some(true),
                _ => None,
            }
        });
    signature
}

/// Whether a value of type `kind` is returned in memory; `None` if that is the compiler's choice.
pub(super) fn in_memory(layouts: &Layouts<'_, '_>, kind: EntryId) -> Option<bool> {
    let debug = layouts.debug();
    let layout = layouts.layout(kind);
    if layout.size > 16 {
        return Some(true);
    }
    if !matches!(layout.shape, Shape::Aggregate(_) | Shape::Array { .. }) || layout.size == 0 {
        return Some(false);
    }
    let entry = debug.entry(layout.id.0)?;
    // What has a destructor or copies itself is passed by its address.
    match entry.value(gimli::DW_AT_calling_convention) {
        Some(gimli::AttributeValue::CallingConvention(gimli::DW_CC_pass_by_reference)) => {
            return Some(true);
        }
        Some(gimli::AttributeValue::CallingConvention(gimli::DW_CC_pass_by_value)) => {
            return Some(false);
        }
        _ => {}
    }
    match debug.language(kind.unit) {
        Some(gimli::DW_LANG_Rust) if layout.size > 8 => None,
        _ => Some(false),
    }
}
