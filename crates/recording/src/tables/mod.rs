//! The tables: one file each, every column described once, where it is defined.
//!
//! A new table is one file with a [`table!`] and one line in [`all_tables!`].

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use crate::column::{Cell, Column, decode_column};
use crate::damage::Damage;
use crate::error::Error;
use crate::run::RunInfo;
use crate::values::*;

/// A row of one of the tables. The set of tables belongs to the format version: the trait is
/// sealed.
pub trait Row: sealed::Sealed + Clone + Sized + Send + 'static {
    /// The table's name; its file is `TABLE.parquet`.
    const TABLE: &'static str;

    /// What one row stands for.
    const DESCRIPTION: &'static str;

    /// Its columns, in the order of the file.
    fn columns() -> &'static [Column];

    /// The rows as an Arrow batch.
    ///
    /// # Errors
    /// [`Error::Encode`] if Arrow refuses the batch (over 2 GiB of text in one column).
    fn to_batch(rows: &[Self]) -> Result<RecordBatch, Error>;

    /// The rows of an Arrow batch of the format `version`. Columns are found by name, others than the known are ignored.
    ///
    /// # Errors
    /// [`Error::Damaged`] when a column is missing, of another type, null where that means
    /// nothing, or holds an unknown word.
    fn from_batch(batch: &RecordBatch, version: u32) -> Result<Vec<Self>, Error>;

    /// The moment that the row tells about last, if it tells about any.
    fn latest(&self) -> Option<Time> {
        None
    }

    /// Whether a recording of such a run that ended properly has this table. Tables are younger than recordings, and of
    /// old ones only those with a certain source or option have them.
    fn expected(_run: &RunInfo) -> bool {
        true
    }
}

pub(crate) mod sealed {
    use super::Tables;

    /// What no other crate can be.
    pub trait Sealed {}

    /// Where rows of this type wait in a [`Tables`].
    pub trait Buffered: Sized {
        fn rows(tables: &Tables) -> &Vec<Self>;

        fn rows_mut(tables: &mut Tables) -> &mut Vec<Self>;
    }
}

/// The Arrow schema of a table, with the description of each column in its metadata.
pub fn schema<R: Row>() -> SchemaRef {
    Arc::new(Schema::new(
        R::columns()
            .iter()
            .map(Column::arrow_field)
            .collect::<Vec<_>>(),
    ))
}

/// A table and its columns, for documentation and schema checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableColumns {
    /// The table's name.
    pub table: &'static str,
    /// What one row stands for.
    pub description: &'static str,
    /// Its columns, in the order of the file.
    pub columns: &'static [Column],
}

impl TableColumns {
    fn of<R: Row>() -> Self {
        Self {
            table: R::TABLE,
            description: R::DESCRIPTION,
            columns: R::columns(),
        }
    }
}

/// The name that a column has in the format `version`, by what it was called before which format.
fn name_in<'a>(version: u32, name: &'a str, former: &[(u32, &'a str)]) -> &'a str {
    let older = former.iter().find(|(before, _)| version < *before);
    older.map_or(name, |(_, former)| former)
}

/// The name of a column: that of the field, unless it has one of its own.
macro_rules! column_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $column:ident) => {
        stringify!($column)
    };
}

/// Defines a table: its row, a struct, and each of its columns as `name: type = "description"`. Attributes of the struct
/// and more of its documentation go before its name. A column that had another name in older formats is
/// `name (former before 2): type`; one whose name is a reserved word of SQL has another there, `end as stop: type`.
macro_rules! table {
    (
        $(#[$meta:meta])*
        $row:ident in $table:ident: $description:literal
        $(, latest: $latest:expr)?
        $(, expected: $expected:expr)?;
        $(
            $field:ident $(as $column:ident)? $(($former:ident before $version:literal))?: $cell:ty = $text:literal,
        )+
    ) => {
        use super::*;

        #[doc = concat!($description, " Table `", stringify!($table), "`.")]
        ///
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $row {
            $(
                #[doc = $text]
                pub $field: $cell,
            )+
        }

        impl Row for $row {
            const TABLE: &'static str = stringify!($table);
            const DESCRIPTION: &'static str = $description;

            fn columns() -> &'static [Column] {
                const COLUMNS: &[Column] = &[$(Column {
                    name: column_name!($field $($column)?),
                    kind: <$cell as Cell>::KIND,
                    nullable: <$cell as Cell>::NULLABLE,
                    description: $text,
                },)+];
                COLUMNS
            }

            fn to_batch(rows: &[Self]) -> Result<RecordBatch, Error> {
                let columns = vec![$(
                    <$cell as Cell>::encode(rows.iter().map(|row| &row.$field)),
                )+];
                RecordBatch::try_new(schema::<Self>(), columns).map_err(|error| Error::Encode {
                    table: Self::TABLE,
                    reason: error.to_string(),
                })
            }

            fn from_batch(batch: &RecordBatch, version: u32) -> Result<Vec<Self>, Error> {
                let damaged = |reason| Error::damaged(Path::new(Self::TABLE), reason);
                $(
                    let former = [$(($version, stringify!($former)))?];
                    let name = name_in(version, column_name!($field $($column)?), &former);
                    let mut $field = decode_column::<$cell>(batch, name)
                        .map_err(damaged)?
                        .into_iter();
                )+
                (0..batch.num_rows())
                    .map(|_| Some(Self { $($field: $field.next()?,)+ }))
                    .collect::<Option<Vec<_>>>()
                    .ok_or_else(|| damaged("columns of unequal length".to_owned()))
            }

            $(fn latest(&self) -> Option<Time> {
                let latest: fn(&Self) -> Option<Time> = $latest;
                latest(self)
            })?

            $(fn expected(run: &RunInfo) -> bool {
                let expected: fn(&RunInfo) -> bool = $expected;
                expected(run)
            })?
        }

        impl sealed::Sealed for $row {}
    };
}

/// Calls a macro with every table, in the order of the documentation.
macro_rules! all_tables {
    ($call:ident) => {
        $call! {
            samples: Sample,
            watches: Watch,
            traps: Trap,
            threads: Thread,
            switches: Switch,
            maps: Map,
            stacks: Stack,
            objects: Object,
            fields: Field,
            frames: Frame,
            latencies: Latency,
            losses: Loss,
            reuse: ReuseBin,
            reuse_pairs: ReusePairBin,
            call_paths: CallPath,
            caches: CacheCounts,
            transfers: TransferCount,
            reuse_watches: ReuseWatch,
            reuse_traps: ReuseTrap,
            heap_blocks: HeapBlock,
            typed_accesses: TypedAccess,
            type_members: TypeMember,
            histories: History,
            history_accesses: HistoryAccess,
            path_traces: PathStep,
            block_uses: BlockUse,
            cache_contents: CacheContent,
            heap_sites: HeapSite,
            polls: Polling,
            marks: Mark,
            stack_frames: StackFrame,
            type_allocations: TypeAllocation,
            goroutines: GoroutineSeen,
            blocked_loads: BlockedLoad,
        }
    };
}
pub(crate) use all_tables;

macro_rules! declare_tables {
    ($($table:ident: $row:ident,)+) => {
        $(
            mod $table;
            pub use $table::$row;

            impl sealed::Buffered for $row {
                fn rows(tables: &Tables) -> &Vec<Self> {
                    &tables.$table
                }

                fn rows_mut(tables: &mut Tables) -> &mut Vec<Self> {
                    &mut tables.$table
                }
            }
        )+

        mod run;
        pub use run::RunFacts;

        /// The rows of all tables of a recording, in memory.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Tables {
            $(
                #[doc = concat!("Table `", stringify!($table), "`.")]
                pub $table: Vec<$row>,
            )+
            /// Files that could not be read; each is a row of `losses` too.
            pub damage: Vec<Damage>,
        }

        /// Every table with its columns, `run` among them: what documentation of the format derives from.
        #[must_use]
        pub fn table_columns() -> Vec<TableColumns> {
            vec![$(TableColumns::of::<$row>(),)+ TableColumns::of::<RunFacts>()]
        }
    };
}
all_tables!(declare_tables);
