//! The instructions that have the most time, with those that follow them.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, Formatter as _, IntelFormatter};
use linewise_recording::{Address, Pid};

use super::rows::ExcerptRow;
use crate::resolve::Resolver;
use crate::views::hot::HotInstruction;

/// Instructions that are shown from a hot one on.
const FOLLOWING: usize = 4;
/// The longest instruction of x86-64.
const LONGEST: u64 = 15;

/// Those of the process that has the hottest one; nothing where the file of the program is another one by now.
pub(super) fn instructions(hot: &[HotInstruction], resolver: &mut Resolver<'_>) -> Vec<ExcerptRow> {
    let pid = hot.first().map(|it| it.pid);
    let hot = hot.iter().filter(|it| Some(it.pid) == pid);
    let shares: BTreeMap<u64, f64> = hot.map(|it| (it.address, it.share)).collect();
    let mut formatter = formatter();
    let mut rows: Vec<ExcerptRow> = Vec::new();
    let mut end = 0;
    for (&address, &share) in &shares {
        let pid = Pid(pid.unwrap_or_default());
        let next = shares.range(address.saturating_add(1)..).next();
        let room = next.map_or(u64::MAX, |(&next, _)| next - address);
        let length = room.min(LONGEST * FOLLOWING as u64);
        let Some((at, bytes)) = resolver.code(pid, Address(address), length) else {
            continue;
        };
        let mut share = Some(share);
        let mut decoder = Decoder::with_ip(64, &bytes, at, DecoderOptions::NONE);
        for instruction in decoder.iter().take(FOLLOWING) {
            // What is cut off by the next hot one is not where instructions begin.
            if instruction.is_invalid() {
                break;
            }
            let mut text = String::new();
            formatter.format(&instruction, &mut text);
            rows.push(ExcerptRow {
                at: instruction.ip(),
                text,
                share: share.take(),
                gap: !rows.is_empty() && instruction.ip() != end,
            });
            end = instruction.next_ip();
        }
    }
    rows
}

/// Writes numbers as disassemblers of Linux do.
fn formatter() -> IntelFormatter {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_show_branch_size(false);
    options.set_space_after_operand_separator(true);
    formatter
}
