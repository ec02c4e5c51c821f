//! Views: pure functions from the tables of a recording to plain results, one file or folder each.
//!
//! A new one is a folder, whose result is a [`View`], and its line in [`Views`].

pub mod caches;
pub mod calls;
pub(crate) mod chains;
mod clusters;
mod curve;
mod encounter;
#[cfg(test)]
mod exact_rows;
pub mod flow;
pub mod groups;
pub mod heap_sites;
pub mod hot;
mod kind;
mod lines_seen;
pub mod marks;
pub mod migrations;
pub mod miss_ratio;
pub mod misses;
pub mod place;
pub mod polls;
pub mod prefetch;
pub(crate) mod remapped;
pub mod reuse;
pub mod run_coverage;
pub mod sampled_reuse;
#[cfg(test)]
pub(crate) mod sampled_rows;
pub mod sharing;
pub mod threads;
pub mod timeline;
pub mod types;
pub mod working_set;

pub(crate) use clusters::Clusters;
pub use curve::{Curves, TransferCurve};
pub use encounter::{Encounter, Encounters, Stays, Touch};

use linewise_recording::{RunInfo, Tables};
use serde::{Deserialize, Serialize};

use crate::section::{Section, View};

/// Declares the views, in the order in which they are shown.
macro_rules! views {
    (
        $(#[$about:meta])*
        pub struct Views {
            $(#[doc = $words:literal] pub $name:ident: Option<$result:path>,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct Views {
            $(
                #[doc = $words]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $name: Option<$result>,
            )+
        }

        impl Views {
            /// What a recording says to each.
            #[must_use]
            pub fn of(info: &RunInfo, tables: &Tables) -> Self {
                Self { $($name: View::of(info, tables),)+ }
            }

            /// What is shown of them.
            #[must_use]
            pub fn sections(&self) -> Vec<Section> {
                let sections = [$(self.$name.as_ref().and_then(View::section),)+];
                sections.into_iter().flatten().collect()
            }
        }
    };
}

views! {
    /// The answers of the views that show sections.
    pub struct Views {
        /// The program's own functions by thread time; not there without samples.
        pub hot: Option<Vec<hot::HotFunction>>,
        /// Where threads poll, by thread time; not there where no sampled loop does nothing else.
        pub polls: Option<Vec<polls::Poll>>,
        /// Where the time goes by phase and session, as the program marked them; not there where it did not.
        pub marks: Option<marks::Marked>,
        /// What was allocated on the heap, and by whom; not there without the heap recorder, nor of an exact run.
        pub heap: Option<heap_sites::HeapTotals>,
        /// How often threads came to another CPU; not there where none did, nor of an exact run.
        pub migrations: Option<migrations::Migrations>,
    }
}
