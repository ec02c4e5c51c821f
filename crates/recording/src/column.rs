//! One column of a table: its description, and how a Rust value becomes a cell and back.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, UInt64Builder};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, ListArray, RecordBatch, StringArray, UInt8Array,
    UInt32Array, UInt64Array, new_null_array,
};
use arrow_schema::{DataType, Field as ArrowField};

use crate::values::{Address, CpuId, Pid, StackId, Tid, Time, Word};

/// A column, described once: the Parquet metadata and the documentation derive from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name in Parquet.
    pub name: &'static str,
    /// What its cells hold.
    pub kind: ColumnKind,
    /// Whether a cell may be null.
    pub nullable: bool,
    /// What it means, with its unit.
    pub description: &'static str,
}

/// What the cells of a column hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColumnKind {
    /// CLOCK_MONOTONIC nanoseconds, 64 bits.
    Time,
    /// An address in the target, 64 bits.
    Address,
    /// An unsigned number of 8 bits.
    Unsigned8,
    /// An unsigned number of 32 bits.
    Unsigned32,
    /// An unsigned number of 64 bits.
    Unsigned64,
    /// A floating-point number of 64 bits.
    Float64,
    /// True or false.
    Boolean,
    /// UTF-8 text.
    Text,
    /// One of these words, as text.
    Words(&'static [&'static str]),
    /// A list of addresses.
    Addresses,
}

impl ColumnKind {
    /// The name of the type as documentation shows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Address => "address",
            Self::Unsigned8 => "u8",
            Self::Unsigned32 => "u32",
            Self::Unsigned64 => "u64",
            Self::Float64 => "f64",
            Self::Boolean => "boolean",
            Self::Text => "text",
            Self::Words(_) => "word",
            Self::Addresses => "addresses",
        }
    }

    /// The Arrow type in which it is stored.
    #[must_use]
    pub fn data_type(self) -> DataType {
        match self {
            Self::Time | Self::Address | Self::Unsigned64 => DataType::UInt64,
            Self::Unsigned8 => DataType::UInt8,
            Self::Unsigned32 => DataType::UInt32,
            Self::Float64 => DataType::Float64,
            Self::Boolean => DataType::Boolean,
            Self::Text | Self::Words(_) => DataType::Utf8,
            // Must equal what `ListBuilder` produces.
            Self::Addresses => {
                DataType::List(Arc::new(ArrowField::new_list_field(DataType::UInt64, true)))
            }
        }
    }
}

impl Column {
    pub(crate) fn arrow_field(&self) -> ArrowField {
        let metadata = [
            ("description".to_owned(), self.description.to_owned()),
            ("kind".to_owned(), self.kind.name().to_owned()),
        ];
        ArrowField::new(self.name, self.kind.data_type(), self.nullable)
            .with_metadata(metadata.into_iter().collect::<HashMap<_, _>>())
    }
}

/// A value that can stand in a column.
pub(crate) trait Cell: Sized {
    const KIND: ColumnKind;
    const NULLABLE: bool = false;

    /// The cells as an Arrow array of `KIND`.
    fn encode<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef
    where
        Self: 'a;

    /// The cells of an array, or what is wrong with it.
    fn decode(array: &dyn Array) -> Result<Vec<Self>, String>;
}

/// The cells of the column `name` of a batch, or what is wrong with it. One that may be null need not
/// be there: it is younger than the recording.
pub(crate) fn decode_column<C: Cell>(batch: &RecordBatch, name: &str) -> Result<Vec<C>, String> {
    let Some(array) = batch.column_by_name(name) else {
        return match C::NULLABLE {
            true => C::decode(&new_null_array(&C::KIND.data_type(), batch.num_rows())),
            false => Err(format!("no column {name}")),
        };
    };
    if !C::NULLABLE && array.null_count() > 0 {
        return Err(format!("column {name} holds a null"));
    }
    C::decode(array.as_ref()).map_err(|reason| format!("column {name} {reason}"))
}

fn typed<A: Array + 'static>(array: &dyn Array, kind: ColumnKind) -> Result<&A, String> {
    array.as_any().downcast_ref::<A>().ok_or_else(|| {
        format!(
            "has the type {} where {} belongs",
            array.data_type(),
            kind.data_type()
        )
    })
}

/// Cells that are a number, or a newtype around one.
macro_rules! number_cells {
    ($($cell:ty: $kind:ident, $array:ty, |$value:ident| $encode:expr, $decode:expr;)+) => {$(
        impl Cell for $cell {
            const KIND: ColumnKind = ColumnKind::$kind;

            fn encode<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
                Arc::new(<$array>::from_iter_values(cells.map(|$value| $encode)))
            }

            fn decode(array: &dyn Array) -> Result<Vec<Self>, String> {
                let array: &$array = typed(array, Self::KIND)?;
                Ok(array.values().iter().copied().map($decode).collect())
            }
        }
    )+};
}

number_cells! {
    u8: Unsigned8, UInt8Array, |value| *value, std::convert::identity;
    u32: Unsigned32, UInt32Array, |value| *value, std::convert::identity;
    u64: Unsigned64, UInt64Array, |value| *value, std::convert::identity;
    f64: Float64, Float64Array, |value| *value, std::convert::identity;
    Pid: Unsigned32, UInt32Array, |value| value.0, Pid;
    Tid: Unsigned32, UInt32Array, |value| value.0, Tid;
    CpuId: Unsigned32, UInt32Array, |value| value.0, CpuId;
    StackId: Unsigned32, UInt32Array, |value| value.0, StackId;
    Time: Time, UInt64Array, |value| value.0, Time;
    Address: Address, UInt64Array, |value| value.0, Address;
}

/// Cells that may be null: a number, or a newtype around one.
macro_rules! optional_cells {
    ($($cell:ty: $array:ty, |$value:ident| $encode:expr, $decode:expr;)+) => {$(
        impl Cell for Option<$cell> {
            const KIND: ColumnKind = <$cell>::KIND;
            const NULLABLE: bool = true;

            fn encode<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
                Arc::new(cells.map(|cell| cell.map(|$value| $encode)).collect::<$array>())
            }

            fn decode(array: &dyn Array) -> Result<Vec<Self>, String> {
                let array: &$array = typed(array, Self::KIND)?;
                Ok(array.iter().map(|cell| cell.map($decode)).collect())
            }
        }
    )+};
}

optional_cells! {
    u32: UInt32Array, |value| value, std::convert::identity;
    u64: UInt64Array, |value| value, std::convert::identity;
    f64: Float64Array, |value| value, std::convert::identity;
    Pid: UInt32Array, |value| value.0, Pid;
    Tid: UInt32Array, |value| value.0, Tid;
    StackId: UInt32Array, |value| value.0, StackId;
    Address: UInt64Array, |value| value.0, Address;
    Time: UInt64Array, |value| value.0, Time;
}

impl Cell for bool {
    const KIND: ColumnKind = ColumnKind::Boolean;

    fn encode<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(cells.map(|cell| Some(*cell)).collect::<BooleanArray>())
    }

    fn decode(array: &dyn Array) -> Result<Vec<Self>, String> {
        let array: &BooleanArray = typed(array, Self::KIND)?;
        Ok(array.values().iter().collect())
    }
}

impl Cell for String {
    const KIND: ColumnKind = ColumnKind::Text;

    fn encode<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(cells))
    }

    fn decode(array: &dyn Array) -> Result<Vec<Self>, String> {
        let array: &StringArray = typed(array, Self::KIND)?;
        Ok(array
            .iter()
            .map(|text| bounded(text.unwrap_or_default()))
            .collect())
    }
}

/// Bytes of a text: names are cut to less before they are written, so a longer one was not written by us, and would be
/// repeated wherever it is told.
const LONGEST_TEXT: usize = 1 << 14;

fn bounded(text: &str) -> String {
    let ends = (text.char_indices()).find(|(at, c)| at + c.len_utf8() > LONGEST_TEXT);
    match ends {
        Some((end, _)) => text[..end].to_owned() + "…",
        None => text.to_owned(),
    }
}

impl<W: Word> Cell for W {
    const KIND: ColumnKind = ColumnKind::Words(W::WORDS);

    fn encode<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef
    where
        Self: 'a,
    {
        Arc::new(StringArray::from_iter_values(cells.map(|cell| cell.word())))
    }

    fn decode(array: &dyn Array) -> Result<Vec<Self>, String> {
        let array: &StringArray = typed(array, Self::KIND)?;
        array
            .iter()
            .map(|word| parse(word.unwrap_or_default()))
            .collect()
    }
}

impl<W: Word> Cell for Option<W> {
    const KIND: ColumnKind = W::KIND;
    const NULLABLE: bool = true;

    fn encode<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef
    where
        Self: 'a,
    {
        Arc::new(cells.map(|cell| cell.map(W::word)).collect::<StringArray>())
    }

    fn decode(array: &dyn Array) -> Result<Vec<Self>, String> {
        let array: &StringArray = typed(array, Self::KIND)?;
        array
            .iter()
            .map(|word| word.map(parse).transpose())
            .collect()
    }
}

fn parse<W: Word>(word: &str) -> Result<W, String> {
    W::from_word(word).ok_or_else(|| format!("holds the unknown word {word:?}"))
}

impl Cell for Vec<Address> {
    const KIND: ColumnKind = ColumnKind::Addresses;

    fn encode<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        let mut lists = ListBuilder::new(UInt64Builder::new());
        for cell in cells {
            lists.append_value(cell.iter().map(|address| Some(address.0)));
        }
        Arc::new(lists.finish())
    }

    fn decode(array: &dyn Array) -> Result<Vec<Self>, String> {
        let lists: &ListArray = typed(array, Self::KIND)?;
        lists
            .iter()
            .map(|list| {
                let list = list.ok_or("holds a null")?;
                let addresses: &UInt64Array = typed(list.as_ref(), ColumnKind::Address)?;
                if addresses.null_count() > 0 {
                    return Err("holds a null address".to_owned());
                }
                Ok(addresses.values().iter().copied().map(Address).collect())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_nobody_of_us_wrote_is_cut() {
        let fits = "x".repeat(LONGEST_TEXT);
        assert_eq!(bounded(&fits), fits);
        let long = "ä".repeat(LONGEST_TEXT);
        let cut = bounded(&long);
        assert!(
            cut.ends_with("ä…") && cut.len() <= LONGEST_TEXT + "…".len(),
            "{}",
            cut.len()
        );
    }
}
