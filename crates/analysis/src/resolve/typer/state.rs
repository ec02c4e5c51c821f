//! What is known before an instruction.

use super::present::Present;
use super::slots::Slots;
use super::value::Value;

/// What registers and the frame hold before an instruction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    pub(super) registers: [Value; 16],
    /// Values on the stack, by distance from the canonical frame address.
    pub(super) slots: Slots,
    /// What lies in the frame.
    pub(super) present: Present,
}

/// Slots of the stack that are remembered, at most.
pub(super) const MOST_SLOTS: usize = 128;

/// Puts `known` in the place of the unknown number `old`, wherever that was copied to.
pub(super) fn learn(state: &mut State, old: Value, known: Value) {
    if old.distance_from(old).is_none() {
        return;
    }
    let copies = state.registers.iter_mut().chain(state.slots.values_mut());
    for value in copies {
        if let Some(distance) = value.distance_from(old) {
            *value = known.add(Value::constant(distance), 0);
        }
    }
}
