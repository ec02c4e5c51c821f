//! Where calls lead.

use iced_x86::{Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::super::modules::Module;

/// Where `call`, which calls a function, leads: through the tables that linkers fill, too.
pub(super) fn target(module: &Module<'_>, call: &Instruction) -> Option<u64> {
    if call.flow_control() == FlowControl::Call {
        let target = call.near_branch_target();
        return Some(through_stub(module, target).unwrap_or(target));
    }
    if call.op0_kind() == OpKind::Memory && call.is_ip_rel_memory_operand() {
        return module.linked(call.memory_displacement64());
    }
    None
}

/// Where the jump at `address` leads, if it is one through a table of addresses.
fn through_stub(module: &Module<'_>, address: u64) -> Option<u64> {
    let bytes = module.code(address, STUB)?;
    let mut decoder = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE);
    let mut jump = decoder.decode();
    if matches!(jump.code(), Opcode::Endbr64) {
        jump = decoder.decode();
    }
    if jump.flow_control() != FlowControl::IndirectBranch || !jump.is_ip_rel_memory_operand() {
        return None;
    }
    module.linked(jump.memory_displacement64())
}

/// Bytes of a jump through a table of addresses, as linkers make them.
const STUB: u64 = 16;
