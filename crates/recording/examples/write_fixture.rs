//! Writes the recording that stands for the current format version in `fixtures/recordings`:
//!
//! ```text
//! cargo run -p linewise-recording --example write_fixture -- fixtures/recordings
//! ```
//!
//! Run it once, when the format version grows; those of older versions are never written again.

use std::path::PathBuf;

use linewise_recording::{CreateMode, Error, FORMAT_VERSION, Writer};

#[path = "../tests/recording/fixture_rows.rs"]
mod fixture_rows;

fn main() -> Result<(), Error> {
    let place = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    let dir = place.join(format!("v{FORMAT_VERSION}.linewise"));
    let mut writer = Writer::create(&dir, &fixture_rows::info(), CreateMode::New)?;
    fixture_rows::push_all(&mut writer, &fixture_rows::tables())?;
    writer.finish(&fixture_rows::info())
}
