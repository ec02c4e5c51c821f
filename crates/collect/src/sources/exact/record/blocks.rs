//! What the heap recorder tells in an exact run, in words that the measurements understand.
//!
//! Records stand in the trace, so nothing has to be sorted. Stacks and names are told once; slices of stacks
//! are walked here, and the rules on the way are given to the tracer.

use std::collections::HashMap;

use linewise_heap::{Record, Region};
use linewise_recording::StackId;
use linewise_trace::live::Block;
use linewise_trace::{GUEST_BITS, HeapEvent, HeapNames, HeapReader, HeapRecord};

use super::super::loss;
use crate::options::Wanted;
use crate::target::follow::Stacks;
use crate::target::function::Function;
use crate::target::heap::Unwinder;

/// Stacks that were told, and those that wait for the block that they belong to: more make no sense.
const MOST_STACKS: usize = 200_000;
const MOST_SLICES: usize = 10_000;
/// Names that are told apart.
const MOST_LABELS: usize = u16::MAX as usize;

/// Understands records.
pub(super) struct Teller {
    region: Region,
    unwinder: Unwinder,
    stacks: Stacks,
    known: HashMap<u64, StackId>,
    slices: HashMap<u64, StackId>,
    labels: Vec<String>,
    label_numbers: HashMap<u64, u16>,
    /// Whose objects are followed, if any.
    flow: Option<Flow>,
    malformed: u64,
}

/// Whose objects are followed.
struct Flow {
    wanted: Wanted,
    function: Option<Function>,
    decided: HashMap<(u32, StackId), bool>,
}

impl Teller {
    /// Gives rules to `region`; follows what is wanted of `flow`.
    pub(super) fn new(region: Region, flow: Option<Wanted>) -> Self {
        let mut stacks = Stacks::default();
        if flow.is_some() {
            stacks.keep_chains();
        }
        Self {
            region,
            unwinder: Unwinder::default(),
            stacks,
            known: HashMap::new(),
            slices: HashMap::new(),
            labels: vec![String::new()],
            label_numbers: HashMap::new(),
            flow: flow.map(|wanted| Flow {
                function: match &wanted {
                    Wanted::Most => None,
                    Wanted::Named(name) => Some(Function::named(name)),
                },
                wanted,
                decided: HashMap::new(),
            }),
            malformed: 0,
        }
    }

    /// Numbers the name that a program gave to blocks, if there is room for it.
    fn keep_label(&mut self, key: u64, words: &[u64], bytes: usize) {
        if self.labels.len() >= MOST_LABELS {
            return;
        }
        let text: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let text = String::from_utf8_lossy(&text[..bytes.min(text.len())]);
        self.label_numbers.insert(key, self.labels.len() as u16);
        self.labels.push(text.into_owned());
    }

    /// Whether objects of this call chain and name are followed.
    fn follows(&mut self, told: &HeapRecord<'_>, stack: StackId, label: u16) -> bool {
        let Some(flow) = &mut self.flow else {
            return false;
        };
        let Wanted::Named(name) = &flow.wanted else {
            return true;
        };
        if label != 0 && self.labels.get(usize::from(label)) == Some(name) {
            return true;
        }
        let place = (told.pid.0, stack);
        if let Some(&decided) = flow.decided.get(&place) {
            return decided;
        }
        let frames = self.stacks.frames(stack);
        let function = flow.function.as_mut();
        let decided =
            function.is_some_and(|function| function.is_on_in(told.pid, &frames, told.maps));
        flow.decided.insert(place, decided);
        decided
    }
}

impl HeapReader for Teller {
    fn event(&mut self, told: &HeapRecord<'_>) -> Option<HeapEvent> {
        let Some(record) = Record::parse(told.words) else {
            self.malformed += 1;
            return None;
        };
        let guest = |address: u64| address & ((1 << GUEST_BITS) - 1);
        let (space, thread, time) = (told.spaces.0, told.thread, told.time_ns);
        match record {
            Record::Alloc {
                address,
                size,
                stack,
                allocator,
                label,
                ..
            } => {
                let stack = match self.slices.remove(&stack) {
                    Some(id) => id,
                    None => self.known.get(&stack).copied().unwrap_or(StackId(0)),
                };
                let number = |label| self.label_numbers.get(&label).copied();
                let label = label.and_then(number).unwrap_or(0);
                let block = Block {
                    address: guest(address),
                    size,
                    allocated: time,
                    stack: stack.0,
                    thread,
                    label,
                    interval: 0,
                    allocator: allocator as u8,
                    touched: false,
                    halved: 0,
                };
                Some(HeapEvent::Alloc {
                    spaces: told.spaces,
                    pid: told.pid.0,
                    block,
                    follow: self.follows(told, stack, label),
                })
            }
            Record::Free { address, named, .. } => Some(HeapEvent::Free {
                space,
                address: guest(address),
                named,
                time,
                thread,
            }),
            Record::Unmap {
                address, length, ..
            } => {
                let end = guest(address).saturating_add(length);
                let end = end.checked_next_multiple_of(4096).unwrap_or(u64::MAX);
                Some(HeapEvent::Unmap {
                    space,
                    range: (guest(address), end),
                    time,
                    thread,
                })
            }
            Record::Stack { key, frames } => {
                let id = self.stacks.id(frames);
                // Of a chain that is not kept nothing has to be known.
                if id != StackId(0) && self.known.len() < MOST_STACKS {
                    self.known.insert(key, id);
                } else {
                    self.stacks.dropped += u64::from(id != StackId(0));
                }
                None
            }
            Record::Slice {
                key,
                layout,
                prefix,
                at,
                words,
            } => {
                let mut frames = prefix.to_vec();
                let place = (told.pid.0, layout);
                let region = &self.region;
                let tell = |ip, rule| {
                    // A table that is full is walked by slices.
                    region.set_rule(layout, ip, rule);
                };
                let rest = self
                    .unwinder
                    .unwind(tell, place, at, words, Some(told.maps));
                frames.extend(rest);
                frames.truncate(linewise_heap::MOST_FRAMES);
                if self.slices.len() >= MOST_SLICES {
                    self.malformed += self.slices.len() as u64;
                    self.slices.clear();
                }
                self.slices.insert(key, self.stacks.id(&frames));
                None
            }
            Record::Label { key, words, bytes } => {
                self.keep_label(key, words, bytes);
                None
            }
            // Nobody tells the tracer of marks.
            Record::Mark { .. } => None,
        }
    }

    fn finish(mut self) -> HeapNames {
        let mut losses = Vec::new();
        let mut lose = |what: &str, count: u64, detail: &str| {
            if count > 0 {
                losses.push(loss(what, count, detail.to_owned()));
            }
        };
        lose(
            "heap-events-malformed",
            self.malformed,
            "records of the heap that made no sense: the target wrote over the shared memory",
        );
        lose(
            "own-malloc",
            u64::from(self.region.noted(linewise_heap::Note::OwnMalloc)),
            "programs with a malloc of their own, whose blocks are not recorded; name its objects with \
             `linewise.h`",
        );
        lose(
            "heap-not-recorded",
            u64::from(self.region.images() == 0),
            "the heap recorder was not loaded into any process",
        );
        lose(
            "stacks-dropped",
            self.stacks.dropped,
            "allocations whose call chain had no room beside 100,000 others",
        );
        HeapNames {
            recorded: true,
            processes: u64::from(self.region.images()),
            stacks: self.stacks.fresh(),
            labels: self.labels,
            losses,
        }
    }
}

#[cfg(test)]
mod tests {
    use linewise_heap::{AllocatorCode, RecordKind, header};
    use linewise_recording::Pid;

    use super::*;

    fn told<'a>(words: &'a [u64]) -> HeapRecord<'a> {
        HeapRecord {
            thread: 3,
            time_ns: 77,
            spaces: (2, 1),
            pid: Pid(9),
            words,
            maps: &[],
        }
    }

    #[test]
    fn memory_that_is_unmapped_ends_at_the_last_address_at_most() {
        let mut teller = Teller::new(Region::create().unwrap(), None);
        let head = header(RecordKind::Unmap, 4, AllocatorCode::Malloc, 0);
        for (length, end) in [(4096, 0x3000), (1, 0x3000), (u64::MAX - 7, u64::MAX)] {
            let Some(HeapEvent::Unmap { range, .. }) =
                teller.event(&told(&[head, 0, 0x2000, length]))
            else {
                panic!("an end");
            };
            assert_eq!(range, (0x2000, end));
        }
    }

    #[test]
    fn a_block_has_the_stack_and_the_name_that_were_told_before_it() {
        let mut teller = Teller::new(Region::create().unwrap(), Some(Wanted::Named("job".into())));
        let head = |kind, words, upper| header(kind, words, AllocatorCode::Pool, upper);
        let stack = [head(RecordKind::Stack, 4, 0), 5, 0x10, 0x20];
        let name = u64::from_le_bytes(*b"job\0\0\0\0\0");
        let label = [head(RecordKind::Label, 3, 3), 6, name];
        assert_eq!(teller.event(&told(&stack)), None);
        assert_eq!(teller.event(&told(&label)), None);
        let named = [head(RecordKind::Named, 6, 0), 0, 0x1000, 48, 5, 6];
        let Some(HeapEvent::Alloc { block, follow, .. }) = teller.event(&told(&named)) else {
            panic!("a block");
        };
        assert_eq!((block.stack, block.label, block.allocated), (1, 1, 77));
        assert!(follow, "by its name");
        let plain = [head(RecordKind::Alloc, 5, 0), 0, 0x1000, 48, 5];
        assert!(matches!(
            teller.event(&told(&plain)),
            Some(HeapEvent::Alloc { follow: false, .. })
        ));
        assert_eq!(teller.event(&told(&[1, 2])), None);
        let names = teller.finish();
        assert_eq!(names.labels, ["", "job"]);
        assert_eq!(names.stacks.len(), 1);
        let lost: Vec<&str> = names.losses.iter().map(|loss| loss.what.as_str()).collect();
        assert_eq!(lost, ["heap-events-malformed", "heap-not-recorded"]);
    }
}
