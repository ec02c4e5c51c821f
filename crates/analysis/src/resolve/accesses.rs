//! What the instructions of a recording touch, as rows, and the members of those types.

use std::collections::BTreeMap;

use linewise_recording::{Address, Pid, TypeAllocation, TypeMember, TypedAccess, UntypedReason};

use super::Resolver;
use super::callers::Callers;
use super::dwarf::EntryId;
use super::go_allocations::allocations;
use super::modules::Module;
use super::typer::{Argument, Typer};

/// Types whose members are written, at most.
const MOST_TYPES: usize = 10_000;

/// What a type is known by: its name, its size, and where it is declared.
type TypeKey = (String, u64, String);

/// Of types that are known by the same, the one that the first of the instructions touches: that, and its module's number.
type First = ((Pid, Address), usize, EntryId);

/// What is known of the types that instructions touch.
#[derive(Debug, Default)]
pub struct Typed {
    /// A row for each instruction.
    pub accesses: Vec<TypedAccess>,
    /// The members of these types.
    pub members: Vec<TypeMember>,
    /// Where values of these types are allocated.
    pub allocations: Vec<TypeAllocation>,
}

impl Resolver<'_> {
    /// Which type and field the instruction at `ip` of process `pid` touches, or why that is not
    /// known.
    pub fn typed_access(&mut self, pid: Pid, ip: Address) -> TypedAccess {
        self.typed(pid, ip).0
    }

    /// What each of the instructions `code` touches, and the members of all types that they touch. Of pointers that
    /// a function is given, `callers` tell what held them.
    /// Instructions of one function should come one after the other.
    pub fn typed_accesses(
        &mut self,
        code: impl IntoIterator<Item = (Pid, Address)>,
        callers: &Callers<'_>,
    ) -> Typed {
        let mut rows = Vec::new();
        let mut types: BTreeMap<TypeKey, First> = BTreeMap::new();
        let mut given = Vec::new();
        for (pid, ip) in code {
            let (row, kind, argument) = self.typed(pid, ip);
            if let Some(argument) = argument {
                given.push((rows.len(), argument));
            }
            if let Some((module, kind)) = kind
                && types.len() < MOST_TYPES
            {
                let key = (
                    row.type_name.clone(),
                    row.type_size,
                    row.declared_at.clone(),
                );
                let this = ((pid, ip), module, kind);
                let first = types.entry(key).or_insert(this);
                *first = this.min(*first);
            }
            rows.push(row);
        }
        self.ask_callers(&mut rows, given, callers);
        let allocations = self.type_allocations(&types);
        let mut members = Vec::new();
        for ((type_name, type_size, declared_at), (_, module, kind)) in types {
            let Some(typer) = self.module(module).and_then(Typer::new) else {
                continue;
            };
            members.extend(typer.members(kind).into_iter().map(|member| TypeMember {
                type_name: type_name.clone(),
                type_size,
                declared_at: declared_at.clone(),
                ..member
            }));
        }
        Typed {
            accesses: rows,
            members,
            allocations,
        }
    }

    /// Where the programs allocate values of these types, as far as their code says.
    fn type_allocations(&mut self, types: &BTreeMap<TypeKey, First>) -> Vec<TypeAllocation> {
        let mut of_modules: BTreeMap<usize, Vec<(&TypeKey, &First)>> = BTreeMap::new();
        for (key, first) in types {
            of_modules.entry(first.1).or_default().push((key, first));
        }
        let mut rows = Vec::new();
        for (module, types) in of_modules {
            let kinds: Vec<EntryId> = types.iter().map(|(_, first)| first.2).collect();
            let found = (self.module(module)).map(|module| allocations(module, &kinds));
            for (number, call) in found.unwrap_or_default() {
                let Some(((type_name, type_size, declared_at), ((pid, ip), ..))) =
                    types.get(number)
                else {
                    continue;
                };
                // Where the module lies in the process that touches the type.
                let Some((_, bias)) = self.module_at(*pid, *ip) else {
                    continue;
                };
                rows.push(TypeAllocation {
                    pid: *pid,
                    ip: Address(call.wrapping_add(bias)),
                    type_name: type_name.clone(),
                    type_size: *type_size,
                    declared_at: declared_at.clone(),
                });
            }
        }
        rows
    }

    /// Bytes of the debug info of all files that processes have mapped of which `code` is; `None` if not all of it was
    /// found without reading.
    pub(super) fn debug_size(&mut self, code: &[(Pid, Address)]) -> Option<u64> {
        for of_one in code.chunk_by(|(one, _), (other, _)| one == other) {
            if let Some(&(pid, ip)) = of_one.first() {
                self.module_at(pid, ip);
            }
        }
        self.modules.iter().map(Module::debug_size).sum()
    }

    /// The row of an instruction, where the type is that it touches, and the argument through which it does.
    fn typed(
        &mut self,
        pid: Pid,
        ip: Address,
    ) -> (TypedAccess, Option<(usize, EntryId)>, Option<Argument>) {
        let mut row = TypedAccess {
            pid,
            ip,
            type_name: String::new(),
            type_size: 0,
            declared_at: String::new(),
            offset: 0,
            size: 0,
            path: String::new(),
            field_type: String::new(),
            variable: String::new(),
            through: String::new(),
            reason: None,
        };
        let Some((number, bias)) = self.module_at(pid, ip) else {
            row.reason = Some(UntypedReason::NoDebugInfo);
            return (row, None, None);
        };
        let Some(module) = self.module(number) else {
            return (row, None, None);
        };
        match touched(module, ip.0.wrapping_sub(bias)) {
            Ok((touched, declared_at)) => {
                row.type_name = touched.type_name;
                row.type_size = touched.type_size;
                row.declared_at = declared_at;
                row.offset = touched.offset;
                row.size = touched.size;
                row.path = touched.path;
                row.field_type = touched.field_type;
                row.variable = touched.variable;
                row.through = touched.through;
                (row, Some((number, touched.kind)), touched.argument)
            }
            Err(reason) => {
                row.reason = Some(reason);
                (row, None, None)
            }
        }
    }
}

/// What the instruction at `address` of `module` touches, and where that type is declared.
fn touched(
    module: &Module<'_>,
    address: u64,
) -> Result<(super::typer::Touched, String), UntypedReason> {
    let typer = Typer::new(module).ok_or(UntypedReason::NoDebugInfo)?;
    let touched = typer.access(address)?;
    let declared_at = typer.declared_at(touched.kind);
    Ok((touched, declared_at))
}
