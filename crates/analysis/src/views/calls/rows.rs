//! What is told of thread time by call chain: nodes, cells, threads.

/// Slices of the run in the rows of threads.
pub const SLICES: usize = 60;

/// Thread time of a run by calls, threads and slices of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallTree {
    /// Length of the run, ns.
    pub length_ns: f64,
    /// Those with the most time first.
    pub threads: Vec<SampledThread>,
    /// The first is all threads, its children threads of one name, theirs functions. Callers come before what they call.
    pub nodes: Vec<CallNode>,
    /// Time in the nodes themselves, sorted.
    pub cells: Vec<CallCell>,
    /// Into how many slices of the run the cells are divided: a divisor of [`SLICES`].
    pub slices: usize,
    /// Nodes that had too little time to be told; their time is that of their callers.
    pub left_out: usize,
    /// The share of all time that was spent in them, 0 to 1.
    pub left_out_share: f64,
}

/// A thread, or all those with the least time, over the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampledThread {
    /// Its id; nothing of several.
    pub tid: Option<u32>,
    /// Its name.
    pub name: String,
    /// What it is called in the tree, with others of its kind: their name, or `pool-*` of threads that are numbered.
    pub group: String,
    /// Thread time sampled in each of [`SLICES`] slices of the run, ns.
    pub sampled_ns: Vec<f64>,
    /// Of it waiting at contended lines, ns.
    pub contended_ns: Vec<f64>,
}

impl SampledThread {
    /// One without any.
    pub(super) fn new(tid: Option<u32>, name: String) -> Self {
        Self {
            tid,
            group: name.clone(),
            name,
            sampled_ns: vec![0.0; SLICES],
            contended_ns: vec![0.0; SLICES],
        }
    }

    /// All its time, ns.
    #[must_use]
    pub fn sum_ns(&self) -> f64 {
        self.sampled_ns.iter().sum()
    }
}

/// Whose code a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// No code: threads.
    #[default]
    Threads,
    /// The program's own.
    Own,
    /// A library's, or a package's.
    Library,
    /// The kernel's.
    Kernel,
    /// Nobody knows.
    Unknown,
}

/// A function called by the functions above it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallNode {
    /// The index of its caller, a lower one; of the first its own.
    pub parent: usize,
    /// The function, or what threads are called.
    pub name: String,
    /// Its program or library; empty if unknown.
    pub module: String,
    /// The source file of its hottest line; empty if unknown.
    pub file: String,
    /// That line; 0 if unknown.
    pub line: u32,
    /// Whose code it is.
    pub owner: Owner,
    /// Its time with what it calls, ns.
    pub sum_ns: u64,
}

/// Time in a function itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallCell {
    /// The index of the node.
    pub node: usize,
    /// The index of the thread.
    pub thread: usize,
    /// The slice of the run.
    pub slice: usize,
    /// The time, ns.
    pub ns: u64,
}
