//! Recordings that are in the way, damaged, foreign, or do not fit on the disk.

use std::fs;

use linewise_recording::Recording;

use crate::util::{Place, emulator, root, skip};

#[test]
fn a_recording_of_the_same_name_is_kept_without_force() {
    let place = Place::new();
    let record = |more: &[&str]| {
        place.finish(place.linewise(["record", "-o", "one"]).args(more).args([
            "--",
            "sh",
            "-c",
            "echo ran >> ran",
        ]))
    };
    assert_eq!(record(&[]).code, Some(0));
    let first = fs::read(place.path("one.linewise/run.json")).unwrap();
    let output = record(&[]);
    assert_eq!(output.code, Some(125), "{}", output.stderr);
    assert!(
        output.stderr.contains("already holds a recording"),
        "{}",
        output.stderr
    );
    assert!(output.stderr.contains("--force"), "{}", output.stderr);
    assert_eq!(
        fs::read(place.path("one.linewise/run.json")).unwrap(),
        first
    );
    assert_eq!(
        fs::read_to_string(place.path("ran")).unwrap(),
        "ran\n",
        "the target ran unrecorded"
    );
    assert_eq!(record(&["--force"]).code, Some(0));
    assert_ne!(
        fs::read(place.path("one.linewise/run.json")).unwrap(),
        first
    );
}

#[test]
fn a_recording_is_found_under_the_name_that_it_was_given() {
    let place = Place::new();
    let recorded = place.finish(&mut place.linewise(["record", "-o", "one", "--", "true"]));
    assert_eq!(recorded.code, Some(0), "{}", recorded.stderr);
    for name in ["one", "one.linewise"] {
        let report = place.finish(&mut place.linewise(["report", name]));
        assert_eq!(report.code, Some(0), "{}", report.stderr);
    }
    let missing = place.finish(&mut place.linewise(["report", "two"]));
    assert_eq!(missing.code, Some(125));
    assert!(
        missing.stderr.contains("cannot read two: "),
        "{}",
        missing.stderr
    );
}

#[test]
fn every_recording_has_an_id_of_its_own_and_names_the_machine_and_its_start() {
    let place = Place::new();
    let mut ids = Vec::new();
    for source in ["timer", "timer", "exact"] {
        if source == "exact" && !emulator() {
            continue;
        }
        let words = ["record", "--force", "-o", "one", "--source", source, "true"];
        let output = place.finish(&mut place.linewise(words));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let recording = Recording::open(&place.path("one.linewise")).unwrap();
        let info = recording.info();
        assert_eq!(info.id.len(), 32, "{}", info.id);
        assert!(!ids.contains(&info.id), "{ids:?}");
        ids.push(info.id.clone());
        let named = [("hostname", &info.host), ("random/boot_id", &info.boot_id)];
        for (file, told) in named {
            let text = fs::read_to_string(format!("/proc/sys/kernel/{file}")).unwrap();
            assert_eq!(text.trim(), told);
        }
    }
}

#[test]
fn an_older_recording_survives_a_command_that_cannot_run() {
    let place = Place::new();
    let record = |command: &str| {
        place.finish(&mut place.linewise(["record", "--force", "-o", "one", "--", command]))
    };
    assert_eq!(record("true").code, Some(0));
    fs::write(place.path("one.linewise/notes"), "mine").unwrap();
    let all = || {
        let mut files: Vec<_> = fs::read_dir(place.path("one.linewise"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (fs::read(&path).unwrap(), path))
            .collect();
        files.sort();
        files
    };
    let before = all();
    fs::write(place.path("text"), "no program").unwrap();
    assert_eq!(record("./text").code, Some(126));
    assert_eq!(record("./no-such-program").code, Some(127));
    assert!(all() == before, "the older recording was touched");
    // An empty folder that was there before stays as well.
    fs::create_dir(place.path("two.linewise")).unwrap();
    let output = place.finish(&mut place.linewise(["record", "-o", "two", "--", "./text"]));
    assert_eq!(output.code, Some(126), "{}", output.stderr);
    assert_eq!(fs::read_dir(place.path("two.linewise")).unwrap().count(), 0);
}

#[test]
fn a_truncated_recording_is_called_damaged_by_the_name_of_the_file() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let recording = place.recording(&target);
    let mut tables = 0;
    for entry in fs::read_dir(&recording).unwrap() {
        let path = entry.unwrap().path();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let output = place.finish(&mut place.linewise(["report", "made.linewise"]));
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "run.parquet" {
            // It is for others: what linewise reads is run.json.
            assert_eq!(output.code, Some(0), "{name}: {}", output.stderr);
            fs::write(&path, whole).unwrap();
            continue;
        }
        assert_eq!(output.code, Some(125), "{name}: {}", output.stderr);
        assert!(output.stderr.contains(&name), "{name}: {}", output.stderr);
        assert!(
            output.stderr.contains("damaged")
                || output.stderr.contains("is not a linewise recording"),
            "{name}: {}",
            output.stderr
        );
        fs::write(&path, whole).unwrap();
        tables += 1;
    }
    assert!(tables > 10, "{tables}");
    let output = place.finish(&mut place.linewise(["report", "made.linewise"]));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
}

#[test]
fn what_is_no_recording_is_named_as_such() {
    let place = Place::new();
    fs::write(place.path("perf.data"), b"PERFILE2\0\0\0\0").unwrap();
    fs::create_dir(place.path("photos")).unwrap();
    fs::write(place.path("photos/run.json"), "{\"steps\": 12000}").unwrap();
    for (name, complaint) in [
        ("perf.data", "is not a linewise recording"),
        ("photos", "is not a linewise recording"),
        ("tmp", "is not a linewise recording"),
        ("missing.linewise", "missing.linewise"),
    ] {
        let output = place.finish(&mut place.linewise(["report", name]));
        assert_eq!(output.code, Some(125), "{name}: {}", output.stderr);
        assert!(
            output.stderr.contains(complaint),
            "{name}: {}",
            output.stderr
        );
        assert_eq!(output.stdout, "");
    }
}

#[test]
fn a_recording_where_it_cannot_be_written_fails_before_the_target_runs() {
    let place = Place::new();
    let output = place.finish(&mut place.linewise([
        "record",
        "-o",
        "no/such/folder/x",
        "--",
        "sh",
        "-c",
        "echo ran > ran",
    ]));
    assert_eq!(output.code, Some(125), "{}", output.stderr);
    assert!(
        output.stderr.contains("does not exist; create it first"),
        "{}",
        output.stderr
    );
    assert!(!place.path("ran").exists());
}

#[test]
fn a_full_disk_ends_the_recording_at_once_but_not_the_target() {
    let place = Place::new();
    let Some(_) = place.target() else { return };
    fs::create_dir(place.path("small")).unwrap();
    let flags = if root() { "-m" } else { "-rm" };
    // The target fills the disk as soon as the recording is begun, and outlasts its failure.
    let script = "mount -t tmpfs -o size=64k none small 2> mount.err || exit 77
        \"$LINEWISE\" record -o small/x -- sh -c 'dd if=/dev/zero of=small/filler bs=4k 2> dd.err; ./target take-after enough; echo $? > code'
        code=$?; \"$LINEWISE\" report --json small/x.linewise > report.json; exit $code";
    let mut command = place.command("unshare");
    command
        .args([flags, "sh", "-c", script])
        .env("LINEWISE", crate::util::BINARY);
    if place
        .command("unshare")
        .args([flags, "true"])
        .output()
        .map_or(true, |o| !o.status.success())
    {
        return skip("unshare cannot make a mount namespace");
    }
    let mut running = place.start(&mut command);
    let told = crate::util::until("the failure to be told", || {
        let ended = running.child.try_wait().unwrap().is_some();
        let complaints = running.complaints();
        (ended || complaints.contains("the disk is full; free some space")).then_some(complaints)
    });
    let target_ran_on = !place.path("code").exists();
    fs::write(place.path("enough"), "").unwrap();
    let output = running.finish();
    if output.code == Some(77) {
        return skip(&fs::read_to_string(place.path("mount.err")).unwrap());
    }
    assert!(target_ran_on, "{told}");
    assert!(told.contains("the program runs on, unrecorded"), "{told}");
    // The code of the target, whatever failed of ours.
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(
        output.stderr.matches("the disk is full").count(),
        1,
        "{}",
        output.stderr
    );
    // linewise waited for the target, which nothing disturbed: it got its four debug registers twice.
    assert_eq!(fs::read_to_string(place.path("code")).unwrap(), "8\n");
    let report = fs::read_to_string(place.path("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["run"]["complete"], false);
    let notes = report["notes"].to_string();
    assert!(notes.contains("the disk was full"), "{notes}");
    assert!(!notes.contains("killed"), "{notes}");
}
