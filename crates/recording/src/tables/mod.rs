//! The tables: one file each, every column described once, where it is defined.
//!
//! A new table is one file with a [`table!`] and one line in [`all_tables!`].

mod block_uses;
mod cache_contents;
mod caches;
mod call_paths;
mod fields;
mod frames;
mod heap_blocks;
mod heap_sites;
mod histories;
mod history_accesses;
mod latencies;
mod losses;
mod maps;
mod objects;
mod path_traces;
mod reuse;
mod reuse_pairs;
mod reuse_traps;
mod reuse_watches;
mod samples;
mod stacks;
mod switches;
mod threads;
mod transfers;
mod traps;
mod type_members;
mod typed_accesses;
mod watches;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use crate::column::Column;
use crate::damage::Damage;
use crate::error::Error;
use crate::rows::{
    Field, Frame, Latency, Loss, Map, Object, Sample, Stack, Switch, Thread, Time, Trap, Watch,
};
use crate::rows_exact::{
    BlockUse, CacheContent, CacheCounts, CallPath, ReuseBin, ReusePairBin, TransferCount,
};
use crate::rows_flow::{History, HistoryAccess, PathStep};
use crate::rows_heap::{HeapBlock, HeapSite};
use crate::rows_reuse::{ReuseTrap, ReuseWatch};
use crate::rows_types::{TypeMember, TypedAccess};

/// A row of one of the tables. The set of tables belongs to the format version: the trait is
/// sealed.
pub trait Row: sealed::Buffered + Clone + Sized + Send + 'static {
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

    /// The rows of an Arrow batch. Columns are found by name, others than the known are ignored.
    ///
    /// # Errors
    /// [`Error::Damaged`] when a column is missing, of another type, null where that means
    /// nothing, or holds an unknown word.
    fn from_batch(batch: &RecordBatch) -> Result<Vec<Self>, Error>;

    /// The moment that the row tells about last, if it tells about any.
    fn latest(&self) -> Option<Time>;
}

pub(crate) mod sealed {
    use super::Tables;

    /// Where rows of this type wait in a [`Tables`].
    pub trait Buffered {
        fn rows(tables: &Tables) -> &Vec<Self>
        where
            Self: Sized;

        fn rows_mut(tables: &mut Tables) -> &mut Vec<Self>
        where
            Self: Sized;
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

/// Implements [`Row`] for a struct: names each of its fields once, with its description.
macro_rules! table {
    (
        $row:ident in $table:ident: $description:literal;
        latest: $latest:expr;
        $($field:ident: $cell:ty = $text:literal,)+
    ) => {
        impl $crate::tables::Row for $row {
            const TABLE: &'static str = stringify!($table);
            const DESCRIPTION: &'static str = $description;

            fn columns() -> &'static [$crate::column::Column] {
                const COLUMNS: &[$crate::column::Column] = &[$($crate::column::Column {
                    name: stringify!($field),
                    kind: <$cell as $crate::column::Cell>::KIND,
                    nullable: <$cell as $crate::column::Cell>::NULLABLE,
                    description: $text,
                },)+];
                COLUMNS
            }

            fn to_batch(rows: &[Self]) -> Result<arrow_array::RecordBatch, $crate::error::Error> {
                let columns = vec![$(
                    <$cell as $crate::column::Cell>::encode(rows.iter().map(|row| &row.$field)),
                )+];
                arrow_array::RecordBatch::try_new($crate::tables::schema::<Self>(), columns).map_err(
                    |error| $crate::error::Error::Encode {
                        table: Self::TABLE,
                        reason: error.to_string(),
                    },
                )
            }

            fn from_batch(
                batch: &arrow_array::RecordBatch,
            ) -> Result<Vec<Self>, $crate::error::Error> {
                let damaged = |reason| {
                    $crate::error::Error::damaged(std::path::Path::new(Self::TABLE), reason)
                };
                $(
                    let mut $field = $crate::column::decode_column::<$cell>(
                        batch,
                        stringify!($field),
                    )
                    .map_err(damaged)?
                    .into_iter();
                )+
                (0..batch.num_rows())
                    .map(|_| {
                        Some(Self { $($field: $field.next()?,)+ })
                    })
                    .collect::<Option<Vec<_>>>()
                    .ok_or_else(|| damaged("columns of unequal length".to_owned()))
            }

            fn latest(&self) -> Option<$crate::rows::Time> {
                let latest: fn(&Self) -> Option<$crate::rows::Time> = $latest;
                latest(self)
            }
        }

        impl $crate::tables::sealed::Buffered for $row {
            fn rows(tables: &$crate::tables::Tables) -> &Vec<Self> {
                &tables.$table
            }

            fn rows_mut(tables: &mut $crate::tables::Tables) -> &mut Vec<Self> {
                &mut tables.$table
            }
        }
    };
}
use table;

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
        }
    };
}
pub(crate) use all_tables;

macro_rules! declare_tables {
    ($($table:ident: $row:ident,)+) => {
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

        /// Every table with its columns: what documentation of the format derives from.
        #[must_use]
        pub fn table_columns() -> Vec<TableColumns> {
            vec![$(
                TableColumns {
                    table: $row::TABLE,
                    description: $row::DESCRIPTION,
                    columns: $row::columns(),
                },
            )+]
        }
    };
}
all_tables!(declare_tables);
