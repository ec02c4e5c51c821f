//! Times in words.

use std::time::Duration;

/// How long something takes, in seconds or minutes.
pub(super) fn minutes(time: Duration) -> String {
    match time.as_secs() {
        short @ 0..120 => format!("{short} s"),
        long => format!("{} min", long / 60),
    }
}
