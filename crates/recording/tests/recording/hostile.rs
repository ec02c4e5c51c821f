//! Whatever bytes the files of a recording hold, reading gives rows or an error.

use std::fs;
use std::path::Path;

use linewise_recording::*;
use proptest::prelude::*;

use crate::fixture_rows;

/// What happens to the bytes of a file.
#[derive(Clone, Debug)]
enum Harm {
    Flip {
        at: prop::sample::Index,
        mask: u8,
    },
    Truncate {
        at: prop::sample::Index,
    },
    Overwrite {
        at: prop::sample::Index,
        with: Vec<u8>,
    },
    Replace {
        with: Vec<u8>,
    },
}

impl Harm {
    fn any() -> impl Strategy<Value = Self> {
        let index = any::<prop::sample::Index>;
        prop_oneof![
            4 => (index(), 1..=u8::MAX).prop_map(|(at, mask)| Self::Flip { at, mask }),
            1 => index().prop_map(|at| Self::Truncate { at }),
            2 => (index(), prop::collection::vec(any::<u8>(), 1..16))
                .prop_map(|(at, with)| Self::Overwrite { at, with }),
            1 => prop::collection::vec(any::<u8>(), 0..64).prop_map(|with| Self::Replace { with }),
        ]
    }

    fn strike(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        match self {
            Self::Flip { at, mask } => {
                let at = at.index(bytes.len());
                bytes[at] ^= mask;
            }
            Self::Truncate { at } => bytes.truncate(at.index(bytes.len())),
            Self::Overwrite { at, with } => {
                let at = at.index(bytes.len());
                for (byte, with) in bytes[at..].iter_mut().zip(with) {
                    *byte = *with;
                }
            }
            Self::Replace { with } => bytes.clone_from(with),
        }
    }
}

fn write(dir: &Path, finish: bool) -> Vec<String> {
    let mut writer = Writer::create(dir, &fixture_rows::info(), CreateMode::New).unwrap();
    fixture_rows::push_all(&mut writer, &fixture_rows::tables()).unwrap();
    writer.flush().unwrap();
    if finish {
        writer.finish(&fixture_rows::info()).unwrap();
    }
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        // The writer's own, which goes with it.
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

/// Harms one file, reads everything, and puts the file back.
fn read_harmed(dir: &Path, name: &str, harms: &[Harm]) -> Result<Tables, Error> {
    let path = dir.join(name);
    let sound = fs::read(&path).unwrap();
    let mut bytes = sound.clone();
    harms.iter().for_each(|harm| harm.strike(&mut bytes));
    fs::write(&path, bytes).unwrap();
    let read = Recording::open(dir).and_then(|recording| recording.tables());
    fs::write(&path, sound).unwrap();
    read
}

fn harmed_recordings_are_read_or_refused(finish: bool) {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("harmed.linewise");
    let names = write(&dir, finish);
    let mut config = ProptestConfig::with_cases(1500);
    // No file of past failures: the cases are cheap enough to find again.
    config.failure_persistence = None;
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let harms = prop::collection::vec(Harm::any(), 1..4);
    let refusals = std::cell::Cell::new(0);
    runner
        .run(&(prop::sample::select(names), harms), |(name, harms)| {
            if let Err(error) = read_harmed(&dir, &name, &harms) {
                refusals.set(refusals.get() + 1);
                prop_assert!(error.to_string().contains("harmed.linewise"), "{}", error);
            }
            Ok(())
        })
        .unwrap();
    let refused = refusals.get();
    // All rows of an unfinished recording stand in segments, which may be lost one by one.
    assert!(
        refused > if finish { 300 } else { 10 },
        "only {refused} were refused"
    );
    assert_eq!(
        Recording::open(&dir).unwrap().tables().unwrap(),
        fixture_rows::tables()
    );
}

#[test]
fn any_bytes_in_a_finished_recording_give_rows_or_an_error() {
    harmed_recordings_are_read_or_refused(true);
}

#[test]
fn any_bytes_in_a_recording_cut_short_give_rows_or_an_error() {
    harmed_recordings_are_read_or_refused(false);
}

#[test]
fn a_file_cut_anywhere_is_damage_and_never_fewer_rows() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("harmed.linewise");
    write(&dir, true);
    let path = dir.join("traps.parquet");
    let sound = fs::read(&path).unwrap();
    for length in 0..sound.len() {
        fs::write(&path, &sound[..length]).unwrap();
        let error = Recording::open(&dir).unwrap().read::<Trap>().unwrap_err();
        assert!(
            error.to_string().contains("traps.parquet"),
            "{length}: {error}"
        );
    }
}

#[test]
fn a_flipped_bit_never_gives_other_rows() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("harmed.linewise");
    write(&dir, true);
    let path = dir.join("traps.parquet");
    let sound = fs::read(&path).unwrap();
    let rows = fixture_rows::tables().traps;
    let mut refused = 0;
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, bytes).unwrap();
        // Flips in the footer may hit a statistic or a description, which are not rows.
        match Recording::open(&dir).unwrap().read::<Trap>() {
            Ok(read) => assert_eq!(read, rows, "byte {at}"),
            Err(_) => refused += 1,
        }
    }
    assert!(
        refused > 400,
        "only {refused} of {} were noticed",
        sound.len()
    );
}

/// Puts a pipe, which nobody writes to, in place of a file.
fn pipe(path: &Path) {
    fs::remove_file(path).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).unwrap();
}

#[test]
fn a_pipe_or_a_device_in_place_of_a_file_is_named_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("harmed.linewise");
    write(&dir, true);
    pipe(&dir.join("traps.parquet"));
    let recording = Recording::open(&dir).unwrap();
    let error = recording.tables().unwrap_err().to_string();
    assert!(
        error.contains("traps.parquet") && error.contains("it is a pipe"),
        "{error}"
    );
    fs::remove_file(dir.join("traps.parquet")).unwrap();
    std::os::unix::fs::symlink("/dev/ptmx", dir.join("traps.parquet")).unwrap();
    let error = recording.tables().unwrap_err().to_string();
    assert!(error.contains("it is a device"), "{error}");
    pipe(&dir.join("run.json"));
    let error = Recording::open(&dir).unwrap_err().to_string();
    assert!(
        error.contains("run.json") && error.contains("it is a pipe"),
        "{error}"
    );
}

#[test]
fn a_pipe_in_place_of_a_segment_costs_its_rows() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("harmed.linewise");
    let names = write(&dir, false);
    let segment = names.iter().find(|name| name.starts_with("traps."));
    pipe(&dir.join(segment.unwrap()));
    let tables = Recording::open(&dir).unwrap().tables().unwrap();
    assert!(tables.traps.is_empty());
    assert_eq!(tables.damage.len(), 1);
    assert!(
        tables.damage[0].reason.contains("it is a pipe"),
        "{:?}",
        tables.damage
    );
}

#[test]
fn a_footer_that_claims_to_be_huge_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("harmed.linewise");
    write(&dir, true);
    let path = dir.join("traps.parquet");
    // A sparse file whose last eight bytes say that its footer has a gigabyte.
    let file = fs::File::create(&path).unwrap();
    let end = [&(1_u32 << 30).to_le_bytes()[..], b"PAR1"].concat();
    std::os::unix::fs::FileExt::write_all_at(&file, &end, 3 << 30).unwrap();
    let error = Recording::open(&dir).unwrap().read::<Trap>().unwrap_err();
    assert!(error.to_string().contains("footer"), "{error}");
}
