//! Debug info by build id: what a debuginfod client keeps on this machine, and what it fetches.
//!
//! Servers are asked only where `DEBUGINFOD_URLS` names some, and only by `debuginfod-find` of elfutils. What it fetches it puts
//! into its cache, which is all that is looked at: its output could keep us waiting.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The client.
const TOOL: &str = "debuginfod-find";
/// How long is waited while nothing comes, over all files, and how long while something does.
const SILENCE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked at whether something came.
const STEP: Duration = Duration::from_millis(20);
/// Files of a build id that are looked at, at most: one comes at a time.
const MOST_FILES: usize = 64;
/// Digits of a build id: linkers write 32 or 40.
const DIGITS: std::ops::RangeInclusive<usize> = 8..=128;

/// Why there is no debug info for a build id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDebugInfo {
    /// It is not on this machine, and no server is to be asked.
    NotAsked,
    /// There is no client to ask with.
    NoClient,
    /// No server has it.
    NotThere,
    /// Servers did not answer in time.
    Silent,
}

/// The cache of a debuginfod client, and the client.
#[derive(Debug)]
pub struct Debuginfod {
    cache: Option<PathBuf>,
    /// The client, where servers are to be asked.
    client: Option<OsString>,
    asking: Mutex<Asking>,
}

/// What came of asking so far.
#[derive(Debug)]
struct Asking {
    refused: HashMap<String, NoDebugInfo>,
    /// How long it may still be waited while nothing comes, and in all.
    silence: Duration,
    patience: Duration,
}

impl Debuginfod {
    /// As these variables of the environment say, by the client's own rules.
    #[must_use]
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let path = |name: &str| variable(name).map(PathBuf::from);
        let older = path("HOME").map(|home| home.join(".debuginfod_client_cache"));
        let cache = path("DEBUGINFOD_CACHE_PATH")
            .or_else(|| older.filter(|it| it.is_dir()))
            .or_else(|| path("XDG_CACHE_HOME").map(|it| it.join("debuginfod_client")))
            .or_else(|| path("HOME").map(|home| home.join(".cache/debuginfod_client")));
        let client = variable("DEBUGINFOD_URLS").map(|_| OsString::from(TOOL));
        Self::new(cache, client, SILENCE)
    }

    fn new(cache: Option<PathBuf>, client: Option<OsString>, silence: Duration) -> Self {
        Self {
            cache,
            client,
            asking: Mutex::new(Asking {
                refused: HashMap::new(),
                silence,
                patience: PATIENCE,
            }),
        }
    }

    /// The file for a build id, in hexadecimal digits.
    pub(super) fn find(&self, build_id: &str) -> Result<PathBuf, NoDebugInfo> {
        let is_id = DIGITS.contains(&build_id.len())
            && build_id.bytes().all(|digit| digit.is_ascii_hexdigit());
        let cache = self.cache.as_ref().filter(|_| is_id);
        let cache = cache.ok_or(NoDebugInfo::NotThere)?;
        let file = cache.join(build_id).join("debuginfo");
        if is_there(&file) {
            return Ok(file);
        }
        let client = self.client.as_ref().ok_or(NoDebugInfo::NotAsked)?;
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(refused) = asking.refused.get(build_id) {
            return Err(*refused);
        }
        // Another thread may have asked meanwhile.
        if !is_there(&file)
            && let Err(refused) = asking.ask(client, cache, build_id, &file)
        {
            asking.refused.insert(build_id.to_owned(), refused);
            return Err(refused);
        }
        Ok(file)
    }
}

impl Asking {
    fn ask(
        &mut self,
        client: &OsStr,
        cache: &Path,
        build_id: &str,
        file: &Path,
    ) -> Result<(), NoDebugInfo> {
        if self.silence.is_zero() || self.patience.is_zero() {
            return Err(NoDebugInfo::Silent);
        }
        let mut child = Command::new(client)
            .args(["debuginfo", build_id])
            .env("DEBUGINFOD_CACHE_PATH", cache)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|_| NoDebugInfo::NoClient)?;
        let begin = Instant::now();
        let (ended, silent) = self.wait(&mut child, &cache.join(build_id));
        self.patience = self.patience.saturating_sub(begin.elapsed());
        if is_there(file) {
            return Ok(());
        }
        self.silence = self.silence.saturating_sub(silent);
        Err(match ended {
            true => NoDebugInfo::NotThere,
            false => NoDebugInfo::Silent,
        })
    }

    /// Waits until the client has ended, or ends it; says whether it had, and for how long nothing had come.
    fn wait(&self, child: &mut Child, folder: &Path) -> (bool, Duration) {
        let begin = Instant::now();
        let (mut heard, mut bytes) = (begin, bytes_in(folder));
        while let Ok(None) = child.try_wait() {
            let now = bytes_in(folder);
            if now != bytes {
                (heard, bytes) = (Instant::now(), now);
            }
            if heard.elapsed() >= self.silence || begin.elapsed() >= self.patience {
                // What has ended by itself meanwhile cannot be killed.
                let _ = child.kill();
                let _ = child.wait();
                return (false, heard.elapsed());
            }
            thread::sleep(STEP);
        }
        (true, heard.elapsed())
    }
}

/// Clients remember what no server has by an empty file.
fn is_there(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|it| it.is_file() && it.len() > 0)
}

/// What a client has fetched so far lies in the folder of the build id, under a name of its own.
fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.take(MOST_FILES).filter_map(|it| it.metadata().ok());
    sizes.fold(0, |sum, it| sum.saturating_add(it.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";
    const OTHER: &str = "ffff456789abcdef0123456789abcdef01234567";

    /// A cache, and a client that is this script of a shell; it counts how often it runs.
    fn with_client(script: &str, silence: Duration) -> (tempfile::TempDir, Debuginfod) {
        let folder = tempfile::tempdir().unwrap();
        let (text, client) = (folder.path().join("text"), folder.path().join("client"));
        let count = folder.path().join("runs");
        let lines = format!("#!/bin/sh\necho >>{}\n{script}\n", count.display());
        fs::write(&text, lines).unwrap();
        // What this process has open to write, a child of another test has, too, and then it cannot be run.
        let copied = Command::new("install")
            .args(["-m", "755"])
            .args([&text, &client])
            .status();
        assert!(copied.unwrap().success());
        let cache = folder.path().join("cache");
        let found = Debuginfod::new(Some(cache), Some(client.into()), silence);
        (folder, found)
    }

    fn runs(folder: &tempfile::TempDir) -> usize {
        let text = fs::read_to_string(folder.path().join("runs")).unwrap_or_default();
        text.lines().count()
    }

    #[test]
    fn the_cache_is_where_the_client_has_it() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let cache = |set: &[(&str, &str)]| {
            let value = |name: &str| match name {
                "HOME" => Some(home.into()),
                name => set.iter().find(|it| it.0 == name).map(|it| it.1.into()),
            };
            Debuginfod::of(value).cache.unwrap()
        };
        assert_eq!(cache(&[]), home.join(".cache/debuginfod_client"));
        let both = [("XDG_CACHE_HOME", "/x"), ("DEBUGINFOD_CACHE_PATH", "/d")];
        assert_eq!(cache(&both[..1]), Path::new("/x/debuginfod_client"));
        assert_eq!(cache(&both), Path::new("/d"));
        fs::create_dir(home.join(".debuginfod_client_cache")).unwrap();
        assert_eq!(cache(&both[..1]), home.join(".debuginfod_client_cache"));
    }

    #[test]
    fn nobody_is_asked_where_no_server_is_named() {
        let of =
            |urls: &str| Debuginfod::of(|name| (name == "DEBUGINFOD_URLS").then(|| urls.into()));
        assert_eq!(of("").client, None);
        assert_eq!(of("https://debuginfod.example").client, Some(TOOL.into()));
        let cache = tempfile::tempdir().unwrap();
        let found = Debuginfod::new(Some(cache.path().to_owned()), None, SILENCE);
        assert_eq!(found.find(ID), Err(NoDebugInfo::NotAsked));
        let file = cache.path().join(ID).join("debuginfo");
        fs::create_dir(cache.path().join(ID)).unwrap();
        fs::write(&file, "").unwrap();
        assert_eq!(found.find(ID), Err(NoDebugInfo::NotAsked), "none has it");
        fs::write(&file, "debug info").unwrap();
        assert_eq!(found.find(ID), Ok(file));
        for no_id in ["", "../../etc", "0123", &"0".repeat(200)] {
            assert_eq!(found.find(no_id), Err(NoDebugInfo::NotThere), "{no_id}");
        }
    }

    #[test]
    fn what_the_client_fetches_is_found_and_it_is_asked_once_for_each_file() {
        let (folder, found) = with_client(
            &format!(
                "[ $1 = debuginfo ] && [ $2 = {ID} ] || exit 1
                 mkdir -p $DEBUGINFOD_CACHE_PATH/$2; echo x >$DEBUGINFOD_CACHE_PATH/$2/debuginfo"
            ),
            SILENCE,
        );
        let file = folder.path().join("cache").join(ID).join("debuginfo");
        for _ in 0..2 {
            assert_eq!(found.find(ID), Ok(file.clone()));
            assert_eq!(found.find(OTHER), Err(NoDebugInfo::NotThere));
        }
        assert_eq!(runs(&folder), 2);
    }

    #[test]
    fn a_client_that_hangs_is_ended_and_not_asked_again() {
        let (folder, found) = with_client("exec sleep 1000", Duration::from_millis(200));
        let begin = Instant::now();
        assert_eq!(found.find(ID), Err(NoDebugInfo::Silent));
        assert_eq!(found.find(OTHER), Err(NoDebugInfo::Silent));
        assert_eq!(runs(&folder), 1, "the time is used up");
        assert!(begin.elapsed() < Duration::from_secs(100));
    }

    #[test]
    fn a_client_to_which_bytes_come_has_more_time() {
        let (_folder, found) = with_client(
            "cd $DEBUGINFOD_CACHE_PATH; mkdir $2; cd $2
             for i in 1 2 3 4 5 6; do echo x >>debuginfo.part; sleep 0.5; done; mv debuginfo.part debuginfo",
            Duration::from_secs(2),
        );
        fs::create_dir(found.cache.as_ref().unwrap()).unwrap();
        assert!(found.find(ID).is_ok());
    }

    #[test]
    fn where_there_is_no_client_that_is_the_reason() {
        let cache = tempfile::tempdir().unwrap();
        let client = cache.path().join("none").into();
        let found = Debuginfod::new(Some(cache.path().to_owned()), Some(client), SILENCE);
        assert_eq!(found.find(ID), Err(NoDebugInfo::NoClient));
    }
}
