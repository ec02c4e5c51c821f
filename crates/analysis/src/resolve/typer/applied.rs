//! What the debug information says of places, brought into what the code makes known.

use super::flow::Flow;
use super::holder::{Holder, Through};
use super::layout::{POINTER, Shape};
use super::registers::{RSP, from_dwarf};
use super::scope::{Location, Variable};
use super::state::{MOST_SLOTS, State, learn};
use super::value::{Base, Value};

impl Flow<'_, '_, '_> {
    /// Brings in what the debug info says from instruction `number` on.
    pub(super) fn settle(&self, state: &mut State, number: usize) {
        let Some(said) = self.said.get(number) else {
            return;
        };
        if let Some((register, offset)) = said.frame {
            state.registers[register] = Value::at(Base::Frame, offset.wrapping_neg());
        }
        let variables = self.scope.variables.get(said.variables.clone());
        for variable in variables.unwrap_or_default() {
            self.apply_one(state, variable);
        }
    }

    /// Brings in these variables.
    pub(super) fn apply(&self, state: &mut State, variables: &[&Variable]) {
        for variable in variables {
            self.apply_one(state, variable);
        }
    }

    /// Brings in one.
    fn apply_one(&self, state: &mut State, variable: &Variable) {
        match variable.place {
            Location::Value { register, minus } => {
                let Some(register) = from_dwarf(register) else {
                    return;
                };
                let size = variable.size.unwrap_or(8);
                let pointee = self
                    .layouts
                    .pointee(variable.kind, variable.within, size.min(8), 0);
                if let Some(pointee) = pointee {
                    let said = Value::at(Base::Typed(pointee), minus);
                    let old = state.registers[register];
                    let local = self.holders.number(Holder::Local(variable.entry));
                    let known = self.better(old, said, local);
                    state.registers[register] = known;
                    // What was copied from there before the debug info had a name for it.
                    learn(state, old, known);
                }
            }
            Location::Memory { register, offset } => {
                let Some(register) = from_dwarf(register) else {
                    return;
                };
                // The frame's own registers are known as such.
                if register == RSP || state.registers[register].base == Base::Frame {
                    return;
                }
                let within = i64::try_from(variable.within).unwrap_or(0);
                let layout = self.layouts.layout(variable.kind);
                let said = Value::at(Base::Typed(layout.id), within.wrapping_sub(offset));
                let old = &mut state.registers[register];
                // A number that was copied from there and is looked at where it was: what leads there knows better.
                let copied = matches!(layout.shape, Shape::Scalar);
                if !(copied && matches!(old.base, Base::Typed(_))) {
                    *old = self.better(*old, said, Through::UNKNOWN);
                }
                let address = old.add(Value::constant(offset), 0);
                self.loaded_before(state, address, variable);
            }
            Location::Behind { slot, plus } => {
                let within = i64::try_from(variable.within).unwrap_or(0);
                let layout = self.layouts.layout(variable.kind);
                let said = Value::at(Base::Typed(layout.id), within.wrapping_sub(plus));
                let old = state.slots.get(slot);
                let known = old.map_or(said, |old| self.better(old, said, Through::UNKNOWN));
                state.slots.put(slot, known, MOST_SLOTS);
            }
            Location::Frame(_) | Location::BehindRegister { .. } => {}
        }
    }

    /// Gives a pointer whose type was not known when it was loaded the type of the variable that is now said to be at
    /// `address`, where it came from: a member that is `void *` or a union.
    fn loaded_before(&self, state: &mut State, address: Value, variable: &Variable) {
        let (Base::Typed(kind), 0) = (address.base, address.times) else {
            return;
        };
        let pointee = self
            .layouts
            .pointee(variable.kind, variable.within, POINTER, 0);
        let place = self.layouts.locate(kind, address.plus, 0, POINTER);
        let holder = place.and_then(|(offset, _)| self.layouts.holder(kind.0, offset, 0));
        let (Some(pointee), Some(holder)) = (pointee, holder) else {
            return;
        };
        let through = self.holders.number(holder);
        let values = state.registers.iter_mut().chain(state.slots.values_mut());
        for value in values {
            if value.is_number() && value.through == through {
                value.base = Base::Typed(pointee);
                (value.plus, value.times, value.symbol) = (0, 0, 0);
            }
        }
    }

    /// What lies where `value` was stored, `distance` bytes from the canonical frame address, when the instruction at
    /// `at` loads it: without optimisation nothing but the slot of a variable says what it leads to.
    pub(super) fn kept(&self, value: Value, at: u64, distance: i64) -> Value {
        let Some((variable, offset)) = self.declared(at, distance, POINTER) else {
            return value;
        };
        let Some(pointee) = self.layouts.pointee(variable.kind, offset, POINTER, 0) else {
            return value;
        };
        let member = self.layouts.holder(variable.kind, offset, 0);
        let holder = member.unwrap_or(Holder::Local(variable.entry));
        let said = Value::at(Base::Typed(pointee), 0);
        self.better(value, said, self.holders.number(holder))
    }

    /// What the code and the debug info know together of one register, which is the variable `local`.
    fn better(&self, followed: Value, said: Value, local: Through) -> Value {
        // Whatever type it is given on the way, it comes from there.
        let through = followed.through.kept_in(local);
        let said = Value { through, ..said };
        let (Base::Typed(outer), Base::Typed(inner)) = (followed.base, said.base) else {
            return match followed.base {
                Base::Frame => followed,
                _ => said,
            };
        };
        if self.layouts.same(outer, inner) {
            return said;
        }
        let number = matches!(self.layouts.layout(outer.0).shape, Shape::Scalar);
        let byte = self.layouts.is_byte(inner) && !number;
        // Where the inner one begins in the outer one.
        let offset = followed.plus.wrapping_sub(said.plus);
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        let within = self
            .layouts
            .holds(outer.0, offset, followed.times.unsigned_abs(), inner);
        if byte || within || self.layouts.is_empty(inner) {
            followed
        } else {
            said
        }
    }
}
