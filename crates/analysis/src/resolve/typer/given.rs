//! What a call gives, both ways: of a pointer that came as an argument, what holds it is known where the function is
//! called; of one that a function returned, inside of that.
//!
//! ```text
//! lookup:  mov eax,[rdi+rsi*4]    an `unsigned`, reached through the parameter `table`
//! caller:  mov rdi,[rbx+0x70]     rbx leads to a `State`, at 0x70 of which `hash_table` is
//!          call lookup            so that `lookup`, called from here, reads `State.hash_table`
//! ```

use iced_x86::{FlowControl, Instruction, OpKind};

use super::super::dwarf::EntryId;
use super::Typer;
use super::cache::Analysed;
use super::code::Code;
use super::flow::Flow;
use super::holder::{Argument, Holder, Through};
use super::layout::POINTER;
use super::registers::{RAX, from_dwarf, full};
use super::scope::DWARF_RSP;
use super::state::State;
use super::value::{Base, Value};

/// Bytes of the largest function that is looked into for what it returns.
const LARGEST: u64 = 1 << 10;
/// How many functions are looked into one inside of the other.
const DEEPEST: u32 = 3;
/// Functions that lead to one another by jumps.
const MOST_JUMPS: u32 = 4;

/// What a caller gives for a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::resolve) enum Given {
    /// What this member or static variable holds, or it itself.
    Held(String),
    /// What the caller was given.
    Argument(Argument),
}

impl Typer<'_, '_> {
    /// What the call that returns to `back` gives for `argument`; `None` if the code there does not tell, or does not lead
    /// to that function.
    pub(in crate::resolve) fn given(&self, back: u64, argument: &Argument) -> Option<Given> {
        let function = self.function(back.checked_sub(1)?)?;
        let code = function.code.as_ref()?;
        let number = code.before(back)?;
        let call = code.instructions.get(number)?;
        if !matches!(
            call.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        ) {
            return None;
        }
        let flow = self.flow(&function, code);
        let state = flow.before(&function.states, number)?;
        let mut argument = *argument;
        // Who ended in a jump is not on the stack.
        if let Some(called) = flow.target(&state, call)
            && called != argument.function
        {
            argument = match self.passed_on(called, argument, MOST_JUMPS)? {
                Given::Argument(argument) => argument,
                held @ Given::Held(_) => return Some(held),
            };
        }
        self.given_in(&state, &argument)
    }

    /// What `state`, before a call or a jump to its function, has for `argument`.
    fn given_in(&self, state: &State, argument: &Argument) -> Option<Given> {
        let value = *state.registers.get(from_dwarf(argument.register)?)?;
        self.named(value, argument.parameter).or_else(|| {
            match self.cache.holders.get(value.through)? {
                Holder::Argument(argument) => Some(Given::Argument(argument)),
                holder @ (Holder::Member { .. } | Holder::Static(_)) => {
                    let name = self.holder_name(Some(holder));
                    (!name.is_empty()).then_some(Given::Held(name))
                }
                Holder::Local(_) => None,
            }
        })
    }

    /// What the function at `called`, which jumps to that of `argument` where it ends, gives for it; `None` if several
    /// jumps do not give the same.
    fn passed_on(&self, called: u64, argument: Argument, most: u32) -> Option<Given> {
        let function = self.function(called)?;
        let code = function.code.as_ref()?;
        let flow = self.flow(&function, code);
        let mut all = code
            .instructions
            .iter()
            .enumerate()
            .filter_map(|(number, jump)| {
                let next = match jump.flow_control() {
                    FlowControl::UnconditionalBranch => jump.near_branch_target(),
                    FlowControl::IndirectBranch if flow.ends(number, jump) => argument.function,
                    _ => return None,
                };
                let argument = match next {
                    _ if next == argument.function => argument,
                    _ if code.at(next).is_some() => return None,
                    _ => match self.passed_on(next, argument, most.checked_sub(1)?)? {
                        Given::Argument(argument) => argument,
                        held @ Given::Held(_) => return Some(held),
                    },
                };
                self.given_in(&flow.before(&function.states, number)?, &argument)
            });
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }

    /// What holds the pointer that the small function at `start` returns.
    pub(super) fn returned_by(&self, start: u64) -> Option<Holder> {
        if let Some(known) = self.cache.returned.borrow().get(&start) {
            return *known;
        }
        let inside = self.cache.inside.get();
        if inside >= DEEPEST {
            return None;
        }
        self.cache.inside.set(inside + 1);
        let holder = self.look_inside(start);
        self.cache.inside.set(inside);
        // What was found further in may have ended too soon.
        if inside == 0 {
            self.cache.returned.borrow_mut().insert(start, holder);
        }
        holder
    }

    fn look_inside(&self, start: u64) -> Option<Holder> {
        let id = self.function_at(start)?;
        let entry = self.debug.entry(id)?;
        let ranges = self.debug.ranges(&entry, 2);
        if ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum::<u64>()
            > LARGEST
        {
            return None;
        }
        let function = self.analyse(id)?;
        let code = function.code.as_ref()?;
        let through = self.at_returns(&function, code);
        match self.cache.holders.get(through)? {
            Holder::Local(_) => None,
            holder => Some(holder),
        }
    }

    fn at_returns(&self, function: &Analysed, code: &Code) -> Through {
        let flow = self.flow(function, code);
        let mut returns = Through::UNKNOWN;
        for (number, instruction) in code.instructions.iter().enumerate() {
            if instruction.flow_control() == FlowControl::Return
                && let Some(state) = flow.before(&function.states, number)
            {
                returns = returns.join(state.registers[RAX].through);
            }
        }
        returns
    }

    /// The member or static variable whose address `value` is, for a parameter that points to the same.
    fn named(&self, value: Value, parameter: EntryId) -> Option<Given> {
        let name = match value.base {
            Base::Typed(kind) => {
                let declared = self.layouts.type_of(&self.debug.entry(parameter)?)?;
                let wanted = self.layouts.pointee(declared, 0, POINTER, 0)?;
                let size = self.layouts.layout(wanted.0).size;
                let times = value.times.unsigned_abs();
                let (offset, times) = self.layouts.locate(kind, value.plus, times, size)?;
                let Holder::Member { kind, offset } = self.layouts.holder(kind.0, offset, times)?
                else {
                    return None;
                };
                let leaves = self.layouts.leaves(kind.0, offset, size, 0);
                let [leaf] = leaves.as_slice() else {
                    return None;
                };
                let same = self.layouts.same(self.layouts.layout(leaf.kind).id, wanted);
                same.then(|| self.layouts.member_path(kind, offset, size))?
            }
            Base::Number if value.times == 0 => self.static_name(u64::try_from(value.plus).ok()?),
            _ => None,
        };
        name.map(Given::Held)
    }
}

impl Flow<'_, '_, '_> {
    /// Whether the function's stack is as its caller left it before instruction `number`.
    fn stack_is_gone(&self, number: usize) -> bool {
        let Some(jump) = self.code.instructions.get(number) else {
            return false;
        };
        let address = jump.ip();
        let after = self.rows.partition_point(|row| row.range.start <= address);
        let row = after.checked_sub(1).and_then(|row| self.rows.get(row));
        row.is_some_and(|row| row.register == DWARF_RSP && row.offset == 8)
    }

    /// Where `call` leads: what is called often is kept in a register.
    pub(super) fn target(&self, state: &State, call: &Instruction) -> Option<u64> {
        self.program.target(call).or_else(|| {
            let register = (call.op0_kind() == OpKind::Register).then(|| call.op0_register());
            let value = state.registers.get(full(register?)?)?;
            u64::try_from(value.as_constant()?).ok()
        })
    }

    /// What holds the pointer that the function at `start` returns when it is called with `registers`.
    pub(super) fn returned(&self, registers: &[Value; 16], start: u64) -> Through {
        match self.program.returned(start) {
            Some(Holder::Argument(argument)) => {
                let given = from_dwarf(argument.register).and_then(|it| registers.get(it));
                given.map_or(Through::UNKNOWN, |value| value.through)
            }
            Some(holder) => self.holders.number(holder),
            None => Through::UNKNOWN,
        }
    }

    /// Whether the jump through memory or a register, instruction `number`, ends the function.
    fn ends(&self, number: usize, jump: &Instruction) -> bool {
        let indexed =
            jump.op0_kind() == OpKind::Memory && jump.memory_index() != iced_x86::Register::None;
        !indexed && self.stack_is_gone(number)
    }
}
