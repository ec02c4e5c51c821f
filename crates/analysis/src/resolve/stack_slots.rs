//! What lies on a stack, by the frame that holds it: the variable that debug info declares there, else the frame itself.

use linewise_recording::{Address, Object, ObjectKind, Pid, StackFrame};

use super::Resolver;
use super::names::names_around;
use super::objects::Found;
use super::typer::Typer;
use super::types::Types;

impl Resolver<'_> {
    /// What holds `address` on a stack whose frames there are known; `None` if frames of several functions held it.
    pub(super) fn in_frame(&mut self, pid: Pid, address: Address) -> Option<Object> {
        if let Some(slot) = self.slot_at(pid, address) {
            return Some(slot.object(pid, ObjectKind::Stack));
        }
        let frame = self.frame_at(pid, address)?;
        let calls = self.frames(pid, frame.ip);
        let function = &calls.last().filter(|it| !it.function.is_empty())?.function;
        let thread = self.threads.iter().find(|it| it.tid == frame.tid);
        let thread = thread.map_or("", |it| it.name.as_str());
        Some(Object {
            pid,
            address: frame.low,
            size: frame.high.0 - frame.low.0,
            kind: ObjectKind::Stack,
            name: format!("{function}'s frame, stack of {thread} ({})", frame.tid),
            type_name: String::new(),
            declared_at: String::new(),
        })
    }

    /// The variable that holds it.
    pub(super) fn slot_at(&mut self, pid: Pid, address: Address) -> Option<Found> {
        let frame = self.frame_at(pid, address)?;
        let (number, bias) = self.module_at(pid, frame.ip)?;
        let module = self.module(number)?;
        let ip = frame.ip.0.wrapping_sub(bias);
        let bounds = (frame.low.0, frame.high.0);
        let (id, kind, start) = Typer::new(module)?.slot(ip, address.0, bounds)?;
        let debug = &module.debug()?.debug;
        let entry = debug.entry(id)?;
        let mut types = Types::new(debug);
        let bare_name = debug.name(&entry)?;
        let function = match names_around(debug, id).as_slice() {
            [closure, function, ..] if closure.starts_with('{') => format!("{function}::{closure}"),
            [function, ..] => function.clone(),
            [] => return None,
        };
        Some(Found {
            module: number,
            entry: Some(id),
            piece_offset: 0,
            address: start,
            size: types.size(kind)?,
            name: format!("{bare_name} in {function}'s frame"),
            bare_name,
            type_name: types.name(kind),
            declared_at: debug.declared_at(&entry).unwrap_or_default(),
        })
    }

    /// The frame that held an address, if all that did are of one call.
    fn frame_at(&self, pid: Pid, address: Address) -> Option<StackFrame> {
        let holds = |it: &&StackFrame| it.pid == pid && it.low <= address && address < it.high;
        let mut frames = self.stack_frames.iter().filter(holds);
        let first = frames.next()?;
        let call = |it: &StackFrame| (it.tid, it.ip, it.high);
        frames
            .all(|it| call(it) == call(first))
            .then(|| first.clone())
    }
}
