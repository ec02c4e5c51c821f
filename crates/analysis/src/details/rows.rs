//! What is shown of code.

/// The code of a function around where its time goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Excerpt {
    /// The function.
    pub function: String,
    /// Its source file; empty if unknown.
    pub file: String,
    /// Share of all thread time, 0 to 1.
    pub share: f64,
    /// Of its source; none where that is not there.
    pub lines: Vec<ExcerptRow>,
    /// Of its machine code; likewise.
    pub instructions: Vec<ExcerptRow>,
}

/// A source line or an instruction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExcerptRow {
    /// The number of the line, or the address in the file of the program.
    pub at: u64,
    /// The source, or the instruction in Intel's syntax.
    pub text: String,
    /// Share of all thread time, 0 to 1; `None` where no sample fell.
    pub share: Option<f64>,
    /// Whether something is left out before it.
    pub gap: bool,
}
