//! What is kept of a module between questions about its types.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::super::dwarf::EntryId;
use super::calls::Signature;
use super::code::Code;
use super::frames::{Range, Row};
use super::holder::{Holder, Holders};
use super::layout::{Known, TypeId};
use super::moved::Moved;
use super::quick::Quick;
use super::said::Said;
use super::scope::Scope;
use super::state::State;

/// The functions of one unit, by address.
pub(super) type Functions = Rc<Vec<(Range, EntryId)>>;

/// What is kept of one module between questions.
#[derive(Default)]
pub(in crate::resolve) struct Cache {
    pub(super) types: Known,
    pub(super) holders: Holders,
    /// Where types are declared.
    pub(super) declared: RefCell<HashMap<EntryId, String>>,
    /// The code of each unit, by address.
    pub(super) units: OnceCell<Vec<(Range, u32)>>,
    pub(super) functions: RefCell<HashMap<u32, Functions>>,
    /// What functions take and return, by where they begin.
    pub(super) signatures: RefCell<HashMap<u64, Option<Rc<Signature>>>>,
    /// Where calls lead, by their addresses.
    pub(super) targets: RefCell<HashMap<u64, Option<u64>, Quick>>,
    /// What holds the pointers that functions return, by where they begin.
    pub(super) returned: RefCell<HashMap<u64, Option<Holder>>>,
    /// Functions that are looked into from others at the moment.
    pub(super) inside: Cell<u32>,
    /// The functions that were asked about last: questions come by address, and then about callers.
    pub(super) recent: RefCell<VecDeque<Rc<Analysed>>>,
}

/// One function, analysed.
pub(super) struct Analysed {
    pub(super) id: EntryId,
    /// `None` if it is too large.
    pub(super) code: Option<Code>,
    pub(super) scope: Scope,
    pub(super) rows: Vec<Row>,
    /// What the debug info says at each instruction.
    pub(super) said: Vec<Said>,
    pub(super) states: Vec<State>,
    /// What called functions say is in its frame.
    pub(super) lent: Vec<(i64, TypeId)>,
    /// Parts of values in memory of its frame that has no name.
    pub(super) moved: Moved,
    pub(super) signature: Rc<Signature>,
}
