//! What recording the heap cost, and what it lost.

/// What was lost of the heap's history: its name, how much, and a sentence.
pub(crate) type HeapLoss = (&'static str, u64, String);

/// What a round cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeapCost {
    /// Time that the recorder took from the target's threads, ns.
    pub(crate) target_ns: f64,
    /// Time of ours that was taken from the target for what it told, ns.
    pub(crate) own_ns: f64,
    /// What the budget has to pay now, ns.
    pub(crate) due_ns: f64,
}
