//! What a view shows, as plain data: the renderers draw sections and know no view by name.

use std::collections::BTreeMap;

use linewise_recording::{RunInfo, Tables};

/// A question to a recording: its answer stands in the report's JSON, its section in the other forms.
pub trait View: Sized {
    /// The answer; `None` where the recording tells nothing of it.
    fn of(info: &RunInfo, tables: &Tables) -> Option<Self>;

    /// What of it is shown; `None` where it says nothing that is worth a reader's time.
    fn section(&self) -> Option<Section>;
}

/// What a view shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// By which it is found on the page.
    pub id: &'static str,
    /// What it is about, with a capital.
    pub title: &'static str,
    /// Where it is shown.
    pub shown: Shown,
    /// Terms, and what is to be said of each.
    pub terms: Vec<Term>,
    /// Sentences without a full stop.
    pub facts: Vec<Words>,
    /// The rows.
    pub table: Option<Table>,
    /// What is drawn.
    pub drawing: Option<Drawing>,
    /// What a reader must know of it, whole sentences; names in backticks.
    pub notes: Vec<String>,
}

impl Section {
    /// One that says nothing yet, of what is shown everywhere.
    #[must_use]
    pub fn new(id: &'static str, title: &'static str) -> Self {
        Self {
            id,
            title,
            shown: Shown::Everywhere,
            terms: Vec::new(),
            facts: Vec::new(),
            table: None,
            drawing: None,
            notes: Vec::new(),
        }
    }
}

/// A term and what is to be said of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// In lower case.
    pub term: &'static str,
    /// A sentence without a full stop, which may have names in it.
    pub words: String,
    /// What it is.
    pub kind: TermKind,
    /// Where it is shown.
    pub shown: Shown,
}

impl Term {
    /// A term that is shown everywhere.
    #[must_use]
    pub fn new(kind: TermKind, term: &'static str, words: impl Into<String>) -> Self {
        Self {
            term,
            words: words.into(),
            kind,
            shown: Shown::Everywhere,
        }
    }

    /// The same where it is `shown`.
    #[must_use]
    pub fn only(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }
}

/// What a term is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermKind {
    /// A few words.
    Short,
    /// As long as it may be.
    Long,
    /// Something to be typed.
    Code,
    /// What was lost and the like.
    Warning,
    /// What must be known before the rest is believed: whole sentences, names in backticks.
    Note,
}

/// Where something is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// On the terminal and on the page.
    Everywhere,
    /// On the page, with what takes more room than a terminal has.
    OnPage,
    /// On the page, and on a terminal where all is asked for.
    InFull,
    /// On the terminal; the page has it elsewhere.
    OnTerminal,
}

/// Words and values, one behind the other.
pub type Words = Vec<Cell>;

/// A value of a table or a fact. How it is written is the renderers' business.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing.
    Empty,
    /// Words, or a name, which may hold anything.
    Text(String),
    /// An estimated number.
    Count(f64),
    /// A number that is no amount: an id.
    Id(u64),
    /// A size.
    Bytes(f64),
    /// A time, ns.
    Time(f64),
    /// A share, 0 to 1.
    Share(f64),
}

impl Cell {
    /// Words.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// The sum of two amounts of a kind; of what is no amount there is none.
    pub(crate) fn plus(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Count(a), Self::Count(b)) => Self::Count(a + b),
            (Self::Bytes(a), Self::Bytes(b)) => Self::Bytes(a + b),
            (Self::Time(a), Self::Time(b)) => Self::Time(a + b),
            _ => Self::Empty,
        }
    }
}

/// A column of rows of the type `R`: described once, for every renderer.
#[derive(Debug)]
pub struct Column<R> {
    /// What stands above it on the terminal, in lower case.
    pub head: &'static str,
    /// Columns of a terminal that it takes.
    pub width: usize,
    /// Whether the sum of its cells means anything.
    pub sums: bool,
    /// Its cell in a row.
    pub cell: fn(&R) -> Cell,
}

/// What stands above a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// In lower case.
    pub words: &'static str,
    /// Columns of a terminal.
    pub width: usize,
    sums: bool,
}

/// Rows, the heaviest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What a row is: `thread`.
    pub noun: &'static str,
    /// The first is that of names.
    pub heads: Vec<Head>,
    /// All of them.
    pub rows: Vec<Row>,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// As many as the table has heads.
    pub cells: Vec<Cell>,
    /// Its part of what the table sums.
    pub weight: f64,
}

impl Table {
    /// `rows`, each with its `weight`.
    #[must_use]
    pub fn of<R>(
        noun: &'static str,
        columns: &[Column<R>],
        rows: &[R],
        weight: fn(&R) -> f64,
    ) -> Self {
        let head = |column: &Column<R>| Head {
            words: column.head,
            width: column.width,
            sums: column.sums,
        };
        let row = |row: &R| Row {
            cells: columns.iter().map(|column| (column.cell)(row)).collect(),
            weight: weight(row),
        };
        Self {
            noun,
            heads: columns.iter().map(head).collect(),
            rows: rows.iter().map(row).collect(),
        }
    }

    /// The rows that are shown where there is room for `most`, and the others as one.
    #[must_use]
    pub fn bounded(&self, most: usize) -> (Vec<&Row>, Option<Row>) {
        let (shown, rest) = bounded(&self.rows, |row| row.weight, most);
        (shown, self.sum(&rest))
    }

    /// Rows as one: `and 60 more`, with the sums of the columns that have one.
    fn sum(&self, rows: &[&Row]) -> Option<Row> {
        let (first, others) = rows.split_first()?;
        let mut cells = first.cells.clone();
        for row in others {
            let pairs = cells.iter_mut().zip(&row.cells);
            pairs.for_each(|(sum, cell)| *sum = std::mem::replace(sum, Cell::Empty).plus(cell));
        }
        for (cell, _) in cells.iter_mut().zip(&self.heads).filter(|it| !it.1.sums) {
            *cell = Cell::Empty;
        }
        if let Some(name) = cells.first_mut() {
            *name = Cell::Text(more(rows.len()));
        }
        Some(Row {
            cells,
            weight: rows.iter().map(|row| row.weight).sum(),
        })
    }
}

/// What stands for rows that are not shown: `and 60 more`.
#[must_use]
pub fn more(rows: usize) -> String {
    format!("and {rows} more")
}

/// Of what a list sums, the part below which a row of a long one is not shown by itself.
const SLIGHT: f64 = 1e-3;
/// A list of so many rows is not long.
pub const FEW: usize = 12;

/// The rows that are shown of a list where there is room for `most`, and the others, in the order of the list. Of a
/// long list rows that are next to nothing are among the others.
#[must_use]
pub fn bounded<T>(rows: &[T], weight: impl Fn(&T) -> f64, most: usize) -> (Vec<&T>, Vec<&T>) {
    let amount = |row: &T| Some(weight(row)).filter(|it| it.is_finite()).unwrap_or(0.0);
    let least = match rows.len() {
        0..=FEW => 0.0,
        _ => SLIGHT * rows.iter().map(amount).sum::<f64>(),
    };
    let (mut shown, mut rest) = (Vec::new(), Vec::new());
    for row in rows {
        match amount(row) >= least && shown.len() < most {
            true => shown.push(row),
            false => rest.push(row),
        }
    }
    // One row takes no more room than the words for it.
    if rest.len() == 1 && shown.len() < most {
        return (rows.iter().collect(), Vec::new());
    }
    (shown, rest)
}

/// What is drawn of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Drawing {
    /// Over time, on the page alone.
    Charts(Charts),
    /// Of pairs.
    Grids(Grids),
}

/// Who has how much to do with whom, in several ways to take parties together: one grid is looked at at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Grids {
    /// What is counted, one of it.
    pub noun: &'static str,
    /// What the amounts are: `transfers a second`.
    pub quantity: &'static str,
    /// What follows an amount: ` a second`.
    pub unit: &'static str,
    /// What an amount is divided by.
    pub kind: &'static str,
    /// The two kinds, with a capital.
    pub kinds: [&'static str; 2],
    /// The terminal has the first.
    pub grids: Vec<Grid>,
}

/// Rows and columns of the same parties.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// By which it is found on the page.
    pub id: &'static str,
    /// What the parties are, with a capital.
    pub title: &'static str,
    /// The rows and columns.
    pub parties: Vec<Party>,
    /// What is not zero, the most first.
    pub pairs: Vec<Pair>,
}

/// A row and column of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Party {
    /// What it is called.
    pub name: String,
    /// What tells it from others of its name.
    pub id: Option<u32>,
}

/// What two parties of a grid have to do with each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The one, an index.
    pub a: usize,
    /// The other, a higher index; the same for what several parties that are one row have among themselves.
    pub b: usize,
    /// By kind.
    pub parts: [f64; 2],
}

impl Pair {
    /// Of both kinds.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.parts.iter().sum()
    }
}

impl Grid {
    /// A grid of the parties that are in any of `pairs`.
    #[must_use]
    pub fn of(
        id: &'static str,
        title: &'static str,
        parties: Vec<Party>,
        mut pairs: Vec<Pair>,
    ) -> Self {
        let mut in_any = vec![false; parties.len()];
        for at in pairs.iter().flat_map(|pair| [pair.a, pair.b]) {
            in_any[at] = true;
        }
        let mut place = vec![0; parties.len()];
        let mut used = Vec::new();
        for (i, party) in parties.into_iter().enumerate() {
            place[i] = used.len();
            if in_any[i] {
                used.push(party);
            }
        }
        for pair in &mut pairs {
            (pair.a, pair.b) = (place[pair.a], place[pair.b]);
        }
        pairs.sort_by(|x, y| y.sum().total_cmp(&x.sum()));
        Self {
            id,
            title,
            parties: used,
            pairs,
        }
    }

    /// The grid of the `most` busiest parties and one of all others, and how many those are.
    #[must_use]
    pub fn bounded(&self, most: usize) -> (Self, usize) {
        let size = self.parties.len();
        if size <= most {
            return (self.clone(), 0);
        }
        let mut weight = vec![0.0; size];
        for pair in &self.pairs {
            weight[pair.a] += pair.sum();
            weight[pair.b] += pair.sum();
        }
        let mut order: Vec<usize> = (0..size).collect();
        order.sort_by(|&a, &b| f64::total_cmp(&weight[b], &weight[a]));
        order.truncate(most);
        order.sort_unstable();
        let mut place = vec![most; size];
        for (new, &old) in order.iter().enumerate() {
            place[old] = new;
        }
        let mut cells = BTreeMap::<(usize, usize), [f64; 2]>::new();
        for pair in &self.pairs {
            let (a, b) = (place[pair.a], place[pair.b]);
            let cell = cells.entry((a.min(b), a.max(b))).or_default();
            cell.iter_mut()
                .zip(pair.parts)
                .for_each(|(sum, it)| *sum += it);
        }
        let others = size - most;
        let busiest = order.iter().map(|&i| self.parties[i].clone());
        let rest = Party {
            name: format!("{others} other{}", if others == 1 { "" } else { "s" }),
            id: None,
        };
        let grid = Self {
            parties: busiest.chain([rest]).collect(),
            pairs: (cells.into_iter())
                .map(|((a, b), parts)| Pair { a, b, parts })
                .collect(),
            ..*self
        };
        (grid, others)
    }
}

/// Charts one above the other, on one axis of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Charts {
    /// Length of the run, ns.
    pub length_ns: f64,
    /// From top to bottom.
    pub charts: Vec<Chart>,
}

/// Something over the length of the run.
#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    /// What there is none of, in a sentence.
    Missing(&'static str),
    /// A bar for each slice of the run.
    Bars(Legend, Vec<Bar>),
    /// A line through the slices.
    Steps(Legend, Vec<Step>),
    /// A lane for each of many, the busiest first.
    Lanes(Legend, Vec<Lane>),
}

/// One of many over the length of the run, in slices of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// What it is called.
    pub name: String,
    /// What tells it from others of its name.
    pub id: Option<u32>,
    /// What is to be said of it.
    pub words: Words,
    /// Of each slice, as a share of the scale.
    pub heights: Vec<f64>,
    /// The part of each that is marked.
    pub marked: Vec<f64>,
}

/// What stands beside a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Legend {
    /// What is drawn.
    pub title: &'static str,
    /// What the scale is.
    pub scale: Words,
    /// For who cannot see it.
    pub described: Words,
}

/// A bar of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Where it begins, as a share of the run.
    pub from: f64,
    /// How long it is, as a share of the run.
    pub length: f64,
    /// As a share of the scale.
    pub height: f64,
    /// What it says.
    pub words: Words,
}

/// A step of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Where it begins, as a share of the run.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// As a share of the scale; nothing breaks the line.
    pub height: Option<f64>,
}
