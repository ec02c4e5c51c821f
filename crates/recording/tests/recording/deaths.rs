//! A collector that is killed, or runs out of disk, leaves what it flushed.
//!
//! Both need another process: the test starts itself again for the ignored one named in
//! [`again`], with the place of the recording in the environment.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linewise_recording::*;

use crate::fixture_rows;

const PLACE: &str = "LINEWISE_TEST_RECORDING";

/// The command line that runs one ignored test of this file.
fn again(test: &str) -> Vec<std::ffi::OsString> {
    let mut command = vec![std::env::current_exe().unwrap().into_os_string()];
    command.extend(["--exact", test, "--ignored", "--nocapture"].map(Into::into));
    command
}

fn place() -> Option<PathBuf> {
    std::env::var_os(PLACE).map(PathBuf::from)
}

#[test]
#[ignore = "run by a_killed_collector_leaves_a_recording_that_opens"]
fn record_until_killed() {
    let Some(dir) = place() else { return };
    let rows = fixture_rows::tables();
    let mut writer = Writer::create(&dir, &fixture_rows::info(), CreateMode::New).unwrap();
    // Ends by itself should nobody kill it.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        fixture_rows::push_all(&mut writer, &rows).unwrap();
        writer.flush().unwrap();
    }
}

#[test]
fn a_killed_collector_leaves_a_recording_that_opens() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("killed.linewise");
    let command = again("deaths::record_until_killed");
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .env(PLACE, &dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !dir.join("losses.000005.parquet").exists() {
        assert!(
            start.elapsed() < Duration::from_secs(50),
            "it never flushed"
        );
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();

    let recording = Recording::open(&dir).unwrap();
    assert!(!recording.info().complete);
    let tables = recording.tables().unwrap();
    assert_eq!(tables.damage, []);
    let rows = fixture_rows::tables();
    assert!(tables.samples.len() >= 5 * rows.samples.len());
    assert_eq!(
        tables.samples.len() % rows.samples.len(),
        0,
        "segments are whole or absent"
    );
    assert_eq!(tables.losses[..2], rows.losses);
    // And its place can be used again.
    Writer::create(&dir, &fixture_rows::info(), CreateMode::Replace).unwrap();
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
}

#[test]
#[ignore = "run by a_full_disk_is_named_and_what_was_flushed_stays, on a small disk"]
fn record_until_the_disk_is_full() {
    let Some(dir) = place() else { return };
    let rows = fixture_rows::tables();
    let mut writer = Writer::create(&dir, &fixture_rows::info(), CreateMode::New).unwrap();
    let mut flushed = 0;
    let error = loop {
        let flush = fixture_rows::push_all(&mut writer, &rows).and_then(|()| writer.flush());
        match flush {
            Ok(()) => flushed += rows.samples.len(),
            Err(error) => break error,
        }
        assert!(flushed < 10_000_000, "the disk never fills");
    };
    assert!(matches!(error, Error::Write { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("the disk is full") && text.contains("small.linewise"),
        "{text}"
    );
    // What waits may fit in the room that the refused file was too large for.
    let mut ballast = std::fs::File::create(dir.with_extension("ballast")).unwrap();
    while std::io::Write::write_all(&mut ballast, &[0; 64]).is_ok() {}
    assert!(writer.finish(&fixture_rows::info()).is_err());

    let recording = Recording::open(&dir).unwrap();
    assert!(!recording.info().complete);
    assert_eq!(recording.info().ended_by, "disk-full");
    let tables = recording.tables().unwrap();
    assert_eq!(tables.damage, []);
    assert!(flushed > 0 && tables.samples.len() >= flushed);
    println!("FULL after {flushed} samples");
}

#[test]
fn a_full_disk_is_named_and_what_was_flushed_stays() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path();
    // A user namespace gives an ordinary user a disk of his own.
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
        .arg("mount -t tmpfs -o size=400k tmpfs \"$0\" && exec \"$@\"")
        .arg(disk)
        .args(again("deaths::record_until_the_disk_is_full"))
        .env(PLACE, disk.join("small.linewise"))
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return println!("SKIP: unshare cannot be run: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !said.contains("running") {
        return println!("SKIP: no small disk can be mounted here: {complained}");
    }
    assert!(output.status.success(), "{said}{complained}");
    assert!(said.contains("FULL after"), "{said}");
}
