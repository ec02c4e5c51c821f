//! Ctrl-C after the recording: while the report is made, it ends linewise at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linewise_machine::process;
use linewise_machine::signals::{self, StopSignals};
use linewise_recording::Error;

use crate::scratch::ScratchFolder;

/// Whether a signal is ending this process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// From now on the first of `signals` removes the folder `scratch` and ends this process, as that
/// signal does by default. What came before belonged to the recording.
pub(crate) fn end_at_once(signals: StopSignals, scratch: Option<Arc<ScratchFolder>>) {
    while signals.next().is_some() {}
    let signals = Arc::new(signals);
    let heard = Arc::clone(&signals);
    let listener = std::thread::Builder::new().spawn(move || {
        loop {
            process::wait_readable(&[heard.raw_fd()], Duration::from_secs(3600));
            if let Some(came) = heard.next() {
                ENDING.store(true, Ordering::SeqCst);
                if let Some(scratch) = &scratch {
                    remove(scratch);
                }
                signals::end_by_signal(came.signal);
            }
        }
    });
    if listener.is_err() {
        // Where no thread can be had they end this process without a word; the next recording removes its folder.
        signals.unblock();
    }
}

/// Removes `folder`, into which another thread may be writing names: a file that is made while its
/// folder is emptied lets the removal fail. Best effort: the next recording removes what is left.
fn remove(folder: &ScratchFolder) {
    for _ in 0..100 {
        match folder.remove() {
            Err(Error::Write { source, .. })
                if source.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            _ => break,
        }
    }
}

/// Lets a signal have the last word: what fails because the folder goes away is no failure.
pub(crate) fn wait_if_ending() {
    while ENDING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}
