//! Made-up sections for the tests of the renderers.

use super::super::model::{
    AllocationSite, HeapTotals, HotCallee, HotFunction, Marked, MarkedTime, Migrations, Poll,
    SourcePlace, ThreadMigrations, Views,
};
use super::HOSTILE;

/// What is shown as sections, with hostile and endless names.
pub(super) fn hostile(endless: &str) -> Views {
    let sites = [HOSTILE, endless].map(|name| AllocationSite {
        name: name.to_owned(),
        place: name.to_owned(),
        bytes: 48e6,
        ..AllocationSite::default()
    });
    let threads = [HOSTILE, endless].map(|name| ThreadMigrations {
        name: name.to_owned(),
        moves: 500,
        per_second: 500.0,
        ..ThreadMigrations::default()
    });
    let functions = [HOSTILE, endless].map(|name| HotFunction {
        function: name.to_owned(),
        file: name.to_owned(),
        line: 7,
        share: 0.4,
        inside: vec![HotCallee {
            function: name.to_owned(),
            share: 0.4,
            ..HotCallee::default()
        }],
        ..HotFunction::default()
    });
    let polls = [HOSTILE, endless].map(|name| Poll {
        word: name.to_owned(),
        function: name.to_owned(),
        file: name.to_owned(),
        line: 7,
        share: 0.3,
        threads: 2,
        changed: Some(SourcePlace {
            function: name.to_owned(),
            file: name.to_owned(),
            line: 7,
        }),
    });
    let phases = [HOSTILE, endless].map(|name| MarkedTime {
        name: name.to_owned(),
        times: 7,
        share: 0.3,
        ..MarkedTime::default()
    });
    Views {
        hot: Some(functions.into()),
        polls: Some(polls.into()),
        marks: Some(Marked {
            phases: phases.into(),
            ..Marked::default()
        }),
        heap: Some(HeapTotals {
            exact: true,
            blocks: 2e6,
            bytes: 96e6,
            sites: sites.into(),
            ..HeapTotals::default()
        }),
        migrations: Some(Migrations {
            moves: 1_000,
            threads: threads.into(),
            ..Migrations::default()
        }),
    }
}
