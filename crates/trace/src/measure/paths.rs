//! The calls that led to an access: a shadow of each thread's stack, and the tree of all paths.
//!
//! A call stores its return address and a return loads it, so both are in the stream, with the place
//! on the stack where the address lies. A frame is live while that place lies above the stack's end;
//! a call or a return at an address ends all frames at it or below, which so also come to an end
//! where a program leaves several at once (longjmp, exceptions). A tail call is a jump: its frame is
//! that of the function which it took over. Where a program changes to another stack above its own,
//! what called it is forgotten.
//!
//! A path is a node in the tree of call instructions. A call that is on the path already leads back to
//! its node, so recursion makes no path longer.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use linewise_cache::Access;
use linewise_recording::{CallPath, Pid};

use super::moves::MoveHasher;
use super::names::Names;
use crate::calls::CallKind;

/// Paths that are told apart; further calls stay on the path of their caller.
const PATHS: usize = 1 << 18;
/// Instructions, by path, that are told apart; the paths of others are not known.
const PLACES: usize = 1 << 20;
/// The path of a function of which no call is known.
const ROOT: u32 = 0;

type Map = HashMap<u64, u32, BuildHasherDefault<MoveHasher>>;

/// A call that has not returned.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Where its return address lies.
    address: u64,
    path: u32,
}

/// See the module.
#[derive(Clone, Debug)]
struct Node {
    caller: u32,
    /// The instruction that calls.
    call_site: u32,
    /// The call that was made from here last, and its path.
    last: (u32, u32),
}

/// Follows calls, and numbers the instructions that accesses are made by together with their paths.
#[derive(Clone, Debug)]
pub(crate) struct CallPaths {
    /// By instruction.
    kinds: Vec<CallKind>,
    /// By thread, the innermost call last.
    stacks: Vec<Vec<Frame>>,
    nodes: Vec<Node>,
    /// The paths by caller and call.
    children: Map,
    /// Path and instruction, by number, and the other way round.
    places: Vec<(u32, u32)>,
    numbers: Map,
    /// The paths of the accesses taken last.
    current: Vec<u32>,
}

impl CallPaths {
    pub(crate) fn new() -> Self {
        Self {
            kinds: Vec::new(),
            stacks: Vec::new(),
            nodes: vec![Node {
                caller: ROOT,
                call_site: u32::MAX,
                last: (u32::MAX, ROOT),
            }],
            children: Map::default(),
            places: Vec::new(),
            numbers: Map::default(),
            current: Vec::new(),
        }
    }

    /// Takes what the next instructions, by their numbers, do to the stack.
    pub(crate) fn learn(&mut self, kinds: &[CallKind]) {
        self.kinds.extend_from_slice(kinds);
    }

    /// Takes the next accesses.
    pub(crate) fn follow(&mut self, accesses: &[Access]) {
        self.current.clear();
        for access in accesses {
            let thread = usize::from(access.thread);
            if thread >= self.stacks.len() {
                self.stacks.resize_with(thread + 1, Vec::new);
            }
            match self.kinds.get(access.site as usize) {
                Some(CallKind::Calls) if access.kind.writes() => self.call(access),
                Some(CallKind::Returns) if !access.kind.writes() => {
                    unwind(&mut self.stacks[thread], access.address);
                }
                _ => {}
            }
            let frame = self.stacks[thread].last();
            self.current.push(frame.map_or(ROOT, |frame| frame.path));
        }
    }

    fn call(&mut self, access: &Access) {
        let thread = usize::from(access.thread);
        unwind(&mut self.stacks[thread], access.address);
        let caller = self.stacks[thread].last().map_or(ROOT, |frame| frame.path);
        let path = self.child(caller, access.site);
        self.stacks[thread].push(Frame {
            address: access.address,
            path,
        });
    }

    fn child(&mut self, caller: u32, site: u32) -> u32 {
        let (last_site, last_path) = self.nodes[caller as usize].last;
        if last_site == site {
            return last_path;
        }
        let key = u64::from(caller) << 32 | u64::from(site);
        let path = match self.children.get(&key) {
            Some(&path) => path,
            None => {
                let path = self.new_child(caller, site);
                self.children.insert(key, path);
                path
            }
        };
        self.nodes[caller as usize].last = (site, path);
        path
    }

    #[cold]
    fn new_child(&mut self, caller: u32, site: u32) -> u32 {
        let on_path = self.path(caller).find(|&(_, call)| call == site);
        match on_path {
            Some((path, _)) => path,
            None if self.nodes.len() >= PATHS => caller,
            None => {
                self.nodes.push(Node {
                    caller,
                    call_site: site,
                    last: (u32::MAX, ROOT),
                });
                self.nodes.len() as u32 - 1
            }
        }
    }

    /// The nodes of a path and their calls, the innermost first.
    fn path(&self, path: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let caller = |path: &u32| Some(self.nodes[*path as usize].caller);
        std::iter::successors(Some(path), caller)
            .take_while(|&path| path != ROOT)
            .map(|path| (path, self.nodes[path as usize].call_site))
    }

    /// The number of the instruction that made an access, together with its path: `index` among those
    /// taken last.
    pub(crate) fn place(&mut self, index: usize, site: u32) -> u32 {
        let path = self.current[index];
        let key = u64::from(path) << 32 | u64::from(site);
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        let path = if self.places.len() < PLACES {
            path
        } else {
            ROOT
        };
        let key = u64::from(path) << 32 | u64::from(site);
        *self.numbers.entry(key).or_insert_with(|| {
            self.places.push((path, site));
            self.places.len() as u32 - 1
        })
    }

    /// The instruction of a number.
    pub(crate) fn site(&self, place: u32) -> u32 {
        self.places
            .get(place as usize)
            .map_or(u32::MAX, |&(_, site)| site)
    }
}

/// Ends the frames at an address and below.
fn unwind(stack: &mut Vec<Frame>, address: u64) {
    while stack.last().is_some_and(|frame| frame.address <= address) {
        stack.pop();
    }
}

/// The rows of `call_paths`: paths that other rows name, and those that lead to them. Like paths of
/// private and shared reuse are one.
#[derive(Debug, Default)]
pub(crate) struct PathRows {
    pub(crate) rows: Vec<CallPath>,
    known: HashMap<(Option<u32>, u32), u32>,
}

impl PathRows {
    /// The row of the path of a place; `None` if no call led there.
    pub(crate) fn of(&mut self, paths: &CallPaths, place: u32, names: &Names<'_>) -> Option<u32> {
        let (path, _) = *paths.places.get(place as usize)?;
        let mut calls: Vec<u32> = paths.path(path).map(|(_, call)| call).collect();
        calls.reverse();
        let mut caller = None;
        for call in calls {
            let Self { rows, known } = self;
            let id = *known.entry((caller, call)).or_insert_with(|| {
                rows.push(CallPath {
                    id: rows.len() as u32,
                    pid: names.pid(call).unwrap_or(Pid(0)),
                    caller,
                    call_ip: names.ip(call).unwrap_or_default(),
                });
                rows.len() as u32 - 1
            });
            caller = Some(id);
        }
        caller
    }
}

#[cfg(test)]
mod tests {
    use linewise_cache::Kind;

    use super::*;

    /// Instructions: 0 accesses, 1 and 2 call, 3 returns.
    fn paths() -> CallPaths {
        let mut paths = CallPaths::new();
        paths.learn(&[
            CallKind::Neither,
            CallKind::Calls,
            CallKind::Calls,
            CallKind::Returns,
        ]);
        paths
    }

    fn access(site: u32, address: u64) -> Access {
        Access {
            address,
            size: 8,
            kind: if site == 1 || site == 2 {
                Kind::Store
            } else {
                Kind::Load
            },
            thread: 0,
            site,
        }
    }

    /// The calls that led to the last of these accesses, the innermost first.
    fn calls(paths: &mut CallPaths, accesses: &[Access]) -> Vec<u32> {
        paths.follow(accesses);
        let place = paths.place(accesses.len() - 1, 0);
        let path = paths.places[place as usize].0;
        paths.path(path).map(|(_, call)| call).collect()
    }

    #[test]
    fn a_call_lasts_until_its_return_or_until_the_stack_is_left() {
        let mut paths = paths();
        let inner = [access(1, 0x7000), access(2, 0x6000), access(0, 0x10)];
        assert_eq!(calls(&mut paths, &inner), [2, 1]);
        let back = [access(3, 0x6000), access(0, 0x10)];
        assert_eq!(calls(&mut paths, &back), [1]);
        let again = [access(2, 0x6000), access(2, 0x5000), access(0, 0x10)];
        assert_eq!(calls(&mut paths, &again), [2, 1], "a call from itself");
        let left = [access(2, 0x7000), access(0, 0x10)];
        assert_eq!(calls(&mut paths, &left), [2], "longjmp, then a call");
        assert!(calls(&mut paths, &[access(3, 0x8000)]).is_empty());
    }

    #[test]
    fn recursion_makes_no_path_longer() {
        let mut paths = paths();
        let mut accesses = Vec::new();
        for depth in 0..1000 {
            accesses.push(access(1 + depth % 2, 0x10_0000 - 16 * u64::from(depth)));
        }
        accesses.push(access(0, 0x10));
        assert_eq!(calls(&mut paths, &accesses).len(), 2);
        assert_eq!(paths.nodes.len(), 3);
    }

    #[test]
    fn threads_have_stacks_of_their_own_and_places_are_numbered_once() {
        let mut paths = paths();
        let other = |access: Access| Access {
            thread: 1,
            ..access
        };
        let accesses = [
            access(1, 0x7000),
            other(access(0, 0x10)),
            access(0, 0x10),
            access(0, 0x10),
        ];
        paths.follow(&accesses);
        let place = |paths: &mut CallPaths, index| paths.place(index, 0);
        let (without, within) = (place(&mut paths, 1), place(&mut paths, 2));
        assert_ne!(without, within);
        assert_eq!(place(&mut paths, 3), within);
        assert_eq!(paths.site(within), 0);
        assert_eq!(paths.places, [(ROOT, 0), (1, 0)]);
    }
}
