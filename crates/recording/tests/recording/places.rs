use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use linewise_recording::*;

use crate::fixture_rows;

/// The user `nobody`.
const SOMEBODY: u32 = 65_534;
const PRECIOUS: &str = "precious";

fn create(dir: &Path, mode: CreateMode) -> Result<Writer, Error> {
    Writer::create(dir, &fixture_rows::info(), mode)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn victim(place: &tempfile::TempDir) -> PathBuf {
    let victim = place.path().join("victim");
    fs::write(&victim, PRECIOUS).unwrap();
    victim
}

fn finished(dir: &Path) {
    let writer = create(dir, CreateMode::New).unwrap();
    writer.finish(&fixture_rows::info()).unwrap();
}

/// Gives a path to somebody else; false, with the reason said, where that cannot be done.
fn given_away(path: &Path) -> bool {
    let given = std::os::unix::fs::lchown(path, Some(SOMEBODY), Some(SOMEBODY));
    if let Err(error) = &given {
        println!("SKIP: only root can give a file away: {error}");
    }
    given.is_ok()
}

#[test]
fn a_link_where_the_folder_should_be_is_refused_and_what_it_leads_to_stays() {
    let place = tempfile::tempdir().unwrap();
    let elsewhere = place.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o755)).unwrap();
    let dir = place.path().join("run.linewise");
    symlink(&elsewhere, &dir).unwrap();
    for way in [CreateMode::New, CreateMode::Replace] {
        for error in [
            create(&dir, way).unwrap_err(),
            check_place(&dir, way).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Link { .. }), "{error}");
            assert!(error.to_string().contains("or remove it"), "{error}");
        }
    }
    assert_eq!(mode(&elsewhere), 0o755);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    // Nor are names written through one.
    finished(&elsewhere.join("whole.linewise"));
    let linked = place.path().join("whole.linewise");
    symlink(elsewhere.join("whole.linewise"), &linked).unwrap();
    let error = write_table::<Object>(&linked, &[]).unwrap_err();
    assert!(matches!(error, Error::Link { .. }), "{error}");
    assert!(Recording::open(&linked).unwrap().info().complete);
}

#[test]
fn a_link_that_dangles_is_no_free_name() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("run.linewise");
    symlink(place.path().join("nothing"), &dir).unwrap();
    let error = create(&dir, CreateMode::New).unwrap_err();
    assert!(matches!(error, Error::Link { .. }), "{error}");
    assert!(!place.path().join("nothing").exists());
}

#[test]
fn a_folder_whose_run_json_is_a_link_or_a_pipe_is_no_recording_to_be_replaced() {
    let place = tempfile::tempdir().unwrap();
    let real = place.path().join("real.linewise");
    finished(&real);
    let dir = place.path().join("run.linewise");
    fs::create_dir(&dir).unwrap();
    symlink(real.join("run.json"), dir.join("run.json")).unwrap();
    fs::write(dir.join("samples.parquet"), PRECIOUS).unwrap();
    let pipe = place.path().join("pipe.linewise");
    fs::create_dir(&pipe).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(pipe.join("run.json"))
        .status();
    assert!(made.unwrap().success());
    for dir in [&dir, &pipe] {
        let error = create(dir, CreateMode::Replace).unwrap_err();
        assert!(matches!(error, Error::NotARecording { .. }), "{error}");
        assert!(error.to_string().contains("no regular file"), "{error}");
    }
    assert_eq!(
        fs::read_to_string(dir.join("samples.parquet")).unwrap(),
        PRECIOUS
    );
    assert!(Recording::open(&real).unwrap().info().complete);
}

#[test]
fn links_with_the_names_of_tables_lead_nowhere() {
    let place = tempfile::tempdir().unwrap();
    let victim = victim(&place);
    let dir = place.path().join("run.linewise");
    let mut writer = create(&dir, CreateMode::New).unwrap();
    // Put there while it is recorded.
    let process = std::process::id();
    for name in [
        "samples.parquet".to_owned(),
        "losses.000001.parquet".to_owned(),
        format!(".run.json.{process}.linewise-tmp"),
        format!(".losses.parquet.{process}.linewise-tmp"),
    ] {
        symlink(&victim, dir.join(name)).unwrap();
    }
    fixture_rows::push_all(&mut writer, &fixture_rows::tables()).unwrap();
    writer.finish(&fixture_rows::info()).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), PRECIOUS);
    let tables = Recording::open(&dir).unwrap().tables().unwrap();
    assert_eq!(tables, fixture_rows::tables());
}

#[test]
fn a_folder_that_is_renamed_while_it_is_recorded_takes_the_rest_along() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("run.linewise");
    let mut writer = create(&dir, CreateMode::New).unwrap();
    let moved = place.path().join("moved.linewise");
    fs::rename(&dir, &moved).unwrap();
    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    symlink(&other, &dir).unwrap();
    fixture_rows::push_all(&mut writer, &fixture_rows::tables()).unwrap();
    writer.finish(&fixture_rows::info()).unwrap();
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    assert!(Recording::open(&moved).unwrap().info().complete);
}

#[test]
fn root_is_refused_the_folder_of_another_user_with_its_links() {
    let place = tempfile::tempdir().unwrap();
    let victim = victim(&place);
    let dir = place.path().join("run.linewise");
    finished(&dir);
    for name in ["samples.parquet", "losses.parquet"] {
        fs::remove_file(dir.join(name)).unwrap();
        symlink(&victim, dir.join(name)).unwrap();
    }
    let trial = format!(".trial.{}.linewise-tmp", std::process::id());
    symlink(&victim, dir.join(trial)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    if !given_away(&dir) {
        return;
    }
    let names = fs::read_dir(&dir).unwrap().count();
    for error in [
        create(&dir, CreateMode::Replace).unwrap_err(),
        create(&dir, CreateMode::New).unwrap_err(),
        check_place(&dir, CreateMode::Replace).unwrap_err(),
        write_table::<Object>(&dir, &[]).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(matches!(error, Error::OtherOwner { .. }), "{text}");
        assert!(text.contains("65534"), "{text}");
        assert!(text.contains("choose another name"), "{text}");
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), PRECIOUS);
    assert_eq!(mode(&dir), 0o777);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), names);
}

#[test]
fn root_is_refused_files_of_another_user_in_a_folder_of_its_own() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("run.linewise");
    finished(&dir);
    if !given_away(&dir.join("samples.parquet")) {
        return;
    }
    let error = create(&dir, CreateMode::Replace).unwrap_err();
    assert!(matches!(error, Error::OtherOwner { .. }), "{error}");
    assert!(Recording::open(&dir).unwrap().info().complete);
    let owner = fs::metadata(dir.join("samples.parquet")).unwrap().uid();
    assert_eq!(owner, SOMEBODY);
    chown(dir.join("samples.parquet"), Some(0), Some(0)).unwrap();
    create(&dir, CreateMode::Replace).unwrap();
}

#[test]
fn a_file_that_the_user_names_is_made_or_replaced_with_its_permissions() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("report.html");
    write_file(&file, b"one").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"one");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    write_file(&file, b"two").unwrap();
    assert_eq!(
        (fs::read(&file).unwrap(), mode(&file)),
        (b"two".to_vec(), 0o640)
    );
    // A link that the user made is followed, and stays one.
    let link = place.path().join("latest.html");
    symlink("report.html", &link).unwrap();
    write_file(&link, b"three").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"three");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    symlink("latest.html", place.path().join("loop.html")).unwrap();
    fs::remove_file(&link).unwrap();
    symlink("loop.html", &link).unwrap();
    assert!(write_file(&link, b"four").is_err());
    assert!(write_file(place.path(), b"a folder").is_err());
    write_file(Path::new("/dev/null"), b"nothing").unwrap();
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 3);
}

#[test]
fn a_file_with_another_name_elsewhere_keeps_its_bytes_there() {
    let place = tempfile::tempdir().unwrap();
    let victim = victim(&place);
    let file = place.path().join("report.html");
    fs::hard_link(&victim, &file).unwrap();
    write_file(&file, b"a report").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), PRECIOUS);
    assert_eq!(fs::read(&file).unwrap(), b"a report");
    // Nor does a file that is written bit by bit.
    fs::remove_file(&file).unwrap();
    fs::hard_link(&victim, &file).unwrap();
    Outlet::find(&file).unwrap().make().unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), PRECIOUS);
}

#[test]
fn what_goes_to_a_descriptor_or_a_pipe_gets_there() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("out");
    let out = fs::File::create(&file).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&out);
    write_file(Path::new(&format!("/dev/fd/{number}")), b"told").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"told");
    let pipe = place.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let path = pipe.clone();
    let reader = std::thread::spawn(move || fs::read(path).unwrap());
    write_file(&pipe, b"told").unwrap();
    assert_eq!(reader.join().unwrap(), b"told");
}

#[test]
fn root_writes_through_no_link_and_over_no_file_of_another_user() {
    let place = tempfile::tempdir().unwrap();
    let victim = victim(&place);
    let link = place.path().join("report.html");
    symlink(&victim, &link).unwrap();
    let theirs = place.path().join("theirs.html");
    fs::write(&theirs, PRECIOUS).unwrap();
    if !given_away(&link) || !given_away(&theirs) {
        return;
    }
    for path in [&link, &theirs] {
        let error = write_file(path, b"a report").unwrap_err();
        assert!(matches!(error, Error::OtherOwner { .. }), "{error}");
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), PRECIOUS);
    assert_eq!(fs::read_to_string(&theirs).unwrap(), PRECIOUS);
}
