//! How many elements arrays have, and what the program calls each.

use super::dwarf::{Debug, Entry};

/// One dimension of an array.
#[derive(Clone, Copy, Debug)]
struct Dimension {
    /// The index of its first element.
    lowest: i64,
    /// How many it has.
    count: u64,
}

/// The dimensions of an array.
#[derive(Clone, Debug)]
pub(super) struct Dimensions {
    /// In memory: of the first one step is the widest.
    all: Vec<Dimension>,
    /// Whether the program writes the one of the shortest step first.
    first_is_innermost: bool,
}

impl Dimensions {
    /// Those of the array `entry`.
    pub(super) fn of(debug: &Debug<'_>, entry: &Entry<'_>) -> Self {
        let language = debug.language(entry.id.unit);
        let default = i64::from(language.is_some_and(counts_from_one));
        let bound = |entry: &Entry<'_>, name| entry.value(name).map(|it| it.sdata_value());
        let mut all = Vec::new();
        for child in debug.children(entry.id) {
            if child.tag == gimli::DW_TAG_subrange_type {
                let lowest = bound(&child, gimli::DW_AT_lower_bound).unwrap_or(Some(default));
                let highest = || bound(&child, gimli::DW_AT_upper_bound)?;
                let counted = || highest()?.checked_sub(lowest?)?.checked_add(1);
                let count = child.number(gimli::DW_AT_count);
                all.push(Dimension {
                    lowest: lowest.unwrap_or(default),
                    // Without a bound it is a flexible array: how long, nobody says.
                    count: count.or_else(|| counted()?.try_into().ok()).unwrap_or(0),
                });
            }
        }
        let first_is_innermost = language.is_some_and(is_fortran);
        if first_is_innermost {
            all.reverse();
        }
        Self {
            all,
            first_is_innermost,
        }
    }

    /// How many elements each has, outermost first; 0 for one of a flexible array.
    pub(super) fn counts(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.all.iter().map(|it| it.count)
    }

    /// Gives the outermost one of a flexible array so many elements.
    pub(super) fn fill(&mut self, count: u64) {
        if let Some(outermost) = self.all.first_mut().filter(|it| it.count == 0) {
            outermost.count = count;
        }
    }

    /// The same in the order in which the program writes them.
    pub(super) fn written(&self) -> Vec<u64> {
        match self.first_is_innermost {
            true => self.counts().rev().collect(),
            false => self.counts().collect(),
        }
    }

    /// `[1][2]` for element `index`.
    pub(super) fn subscripts(&self, index: u64) -> String {
        let mut rest = index;
        let mut parts = Vec::new();
        for (number, it) in self.all.iter().enumerate().rev() {
            let of_it = match number {
                0 => rest,
                _ => rest.checked_rem(it.count).unwrap_or(0),
            };
            parts.push(it.lowest.wrapping_add(of_it.cast_signed()));
            rest = rest.checked_div(it.count).unwrap_or(0);
        }
        if !self.first_is_innermost {
            parts.reverse();
        }
        parts.iter().map(|part| format!("[{part}]")).collect()
    }
}

/// Whether arrays of a language begin with element 1 where they do not say (DWARF 5, table 7.17).
fn counts_from_one(language: gimli::DwLang) -> bool {
    is_fortran(language)
        || matches!(
            language,
            gimli::DW_LANG_Ada83
                | gimli::DW_LANG_Ada95
                | gimli::DW_LANG_Cobol74
                | gimli::DW_LANG_Cobol85
                | gimli::DW_LANG_Pascal83
                | gimli::DW_LANG_Modula2
                | gimli::DW_LANG_PLI
                | gimli::DW_LANG_Julia
        )
}

fn is_fortran(language: gimli::DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_Fortran77
            | gimli::DW_LANG_Fortran90
            | gimli::DW_LANG_Fortran95
            | gimli::DW_LANG_Fortran03
            | gimli::DW_LANG_Fortran08
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscripts_count_the_last_dimension_fastest_but_in_fortran_the_first() {
        let array = |counts: &[u64], lowest, first_is_innermost| Dimensions {
            all: (counts.iter().map(|&count| Dimension { lowest, count })).collect(),
            first_is_innermost,
        };
        let of_c = |counts: &[u64], index| array(counts, 0, false).subscripts(index);
        assert_eq!(of_c(&[8], 3), "[3]");
        assert_eq!(of_c(&[4, 3], 7), "[2][1]");
        assert_eq!(of_c(&[2, 3, 4], 23), "[1][2][3]");
        assert_eq!(of_c(&[0, 0], 5), "[0][0]");
        // `bins(2, 4)`, of which the second element is `bins(2, 1)`.
        let bins = array(&[4, 2], 1, true);
        assert_eq!(
            (bins.subscripts(1), bins.subscripts(2)),
            ("[2][1]".to_owned(), "[1][2]".to_owned())
        );
        assert_eq!(bins.written(), [2, 4]);
        assert_eq!(array(&[7], -3, false).subscripts(2), "[-1]");
    }
}
