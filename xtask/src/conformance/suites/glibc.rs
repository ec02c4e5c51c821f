//! The tests of the C library's allocator and threads, from the distribution's own source package.
//!
//! They are built without the library's build: its headers for tests alone come after the system's, and what they have
//! in common (`support/`) is an archive. What wants more of the library's inside than that does not build and is
//! left out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::super::workers::each;

/// One test of a suite.
pub(super) struct Test {
    pub(super) name: String,
    pub(super) command: Vec<String>,
}

/// Where the tests are; the last part of the name tells the first of two that are called the same.
const FOLDERS: &[&str] = &["malloc", "nptl", "sysdeps/pthread"];
/// Files of the library's own, looked for where the system has none of that name.
const BEHIND: &[&str] = &[
    "",
    "include",
    "sysdeps/x86_64",
    "sysdeps/unix/sysv/linux",
    "sysdeps/nptl",
    "sysdeps/generic",
];
/// What the build says of the place where it installs, which no test may look at here.
const PLACES: &[&str] = &[
    "SRCDIR",
    "OBJDIR",
    "SLIBDIR",
    "INSTDIR",
    "LIBDIR",
    "BINDIR",
    "SBINDIR",
    "ROOTSBINDIR",
    "COMPLOCALEDIR",
    "SYSCONFDIR",
    "ROOT",
];
/// What tests are compiled with besides; an allocation that nobody uses must stay.
const FLAGS: &[&str] = &[
    "-w",
    "-O1",
    "-g",
    "-std=gnu11",
    "-fno-builtin",
    "-pthread",
    "-D_GNU_SOURCE",
    "-DTIMEOUTFACTOR=1",
    "-Dattribute_hidden=",
    "-Dlibc_hidden_proto(...)=",
    "-Dlibc_hidden_def(...)=",
    "-Drtld_hidden_proto(...)=",
    "-include",
    "limits.h",
    "-include",
    "errno.h",
    "-include",
    "stddef.h",
];

/// All tests that can be built, in `place` and once, and how many there are in the sources; or why there are no sources.
///
/// # Errors
/// If the sources are not what is expected.
pub(super) fn tests(
    place: &Path,
    jobs: usize,
) -> anyhow::Result<Result<(Vec<Test>, usize), String>> {
    let sources = match sources(place)? {
        Ok(sources) => sources,
        Err(reason) => return Ok(Err(reason)),
    };
    let own = place.join("own");
    fs::create_dir_all(&own)?;
    fs::write(own.join("config.h"), "")?;
    let flags = flags(&sources, &own);
    let support = support(&sources, place, &flags, jobs)?;
    let built = place.join("glibc");
    fs::create_dir_all(&built)?;
    let mut wanted = Vec::new();
    for folder in FOLDERS {
        let kind = Path::new(folder).file_name().unwrap_or_default();
        for source in files(&sources.join(folder), "tst-")? {
            let stem = source.file_stem().unwrap_or_default().to_string_lossy();
            let name = format!("{}-{stem}", kind.to_string_lossy());
            wanted.push((source, built.join(&name), name));
        }
    }
    each(&wanted, jobs, |(source, binary, _)| {
        if binary.exists() {
            return;
        }
        let mut command = compiler(&flags);
        command.arg("-o").arg(binary).arg(source).arg(&support);
        // What does not build is not there.
        succeeds(command);
    });
    let all = wanted.len();
    let tests = wanted.into_iter().filter(|(_, binary, _)| binary.exists());
    let tests = tests.map(|(_, command, name)| Test {
        name,
        command: vec![command.display().to_string()],
    });
    Ok(Ok((tests.collect(), all)))
}

/// The package's sources, fetched once; or why not.
fn sources(place: &Path) -> anyhow::Result<Result<PathBuf, String>> {
    if let Some(there) = unpacked(place)? {
        return Ok(Ok(there));
    }
    // As it is, without the distribution's patches: those change no test of ours.
    let fetched = Command::new("apt-get")
        .args(["source", "--download-only", "-qq", "glibc"])
        .current_dir(place)
        .stdin(Stdio::null())
        .output();
    if !fetched.is_ok_and(|fetched| fetched.status.success()) {
        let reason = "`apt-get source glibc` gives nothing (are there deb-src lines?)";
        return Ok(Err(reason.to_owned()));
    }
    let archive = files(place, "glibc_")?
        .into_iter()
        .find(|path| path.to_string_lossy().contains(".orig.tar"))
        .context("apt-get left no archive")?;
    let mut command = Command::new("tar");
    command.arg("-xf").arg(&archive).arg("-C").arg(place);
    ensure!(succeeds(command), "{} is not unpacked", archive.display());
    let there = unpacked(place)?;
    Ok(Ok(there.context("the archive holds something else")?))
}

fn unpacked(place: &Path) -> anyhow::Result<Option<PathBuf>> {
    let found = files(place, "glibc-")?;
    Ok(found
        .into_iter()
        .find(|path| path.join("support/check.h").exists()))
}

/// Files and folders of a folder whose names begin so, sorted.
fn files(folder: &Path, beginning: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_source = path.is_dir() || !beginning.starts_with("tst") || name.ends_with(".c");
        if name.starts_with(beginning) && is_source {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn flags(sources: &Path, own: &Path) -> Vec<String> {
    let mut flags: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
    let mut add = |option: &str, folder: &Path| {
        flags.extend([option.to_owned(), folder.display().to_string()]);
    };
    add("-I", own);
    for folder in ["support", "sysdeps/pthread", "nptl", "malloc"] {
        add("-I", &sources.join(folder));
    }
    for folder in BEHIND {
        add("-idirafter", &sources.join(folder));
    }
    flags.extend(
        PLACES
            .iter()
            .map(|name| format!("-D{name}_PATH=\"/nowhere\"")),
    );
    flags.push("-DOBJDIR_ELF_LDSO_PATH=\"/nowhere\"".to_owned());
    flags
}

/// What all tests have in common, as an archive.
fn support(sources: &Path, place: &Path, flags: &[String], jobs: usize) -> anyhow::Result<PathBuf> {
    let objects = place.join("support");
    let archive = objects.join("libsupport.a");
    if archive.exists() {
        return Ok(archive);
    }
    let _ = fs::remove_dir_all(&objects);
    fs::create_dir_all(&objects)?;
    let mut wanted = Vec::new();
    for source in files(&sources.join("support"), "")? {
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let is_program = ["tst-", "test-driver", "links-dso", "test-container"]
            .iter()
            .any(|beginning| name.starts_with(beginning))
            || name.ends_with("-container.c");
        if name.ends_with(".c") && !is_program {
            let object = objects.join(format!("{name}.o"));
            wanted.push((source, object));
        }
    }
    each(&wanted, jobs, |(source, object)| {
        let mut command = compiler(flags);
        command.arg("-c").arg("-o").arg(object).arg(source);
        succeeds(command);
    });
    let mut command = Command::new("ar");
    command.arg("crs").arg(&archive);
    command.args(files(&objects, "")?);
    ensure!(succeeds(command), "{} is not made", archive.display());
    Ok(archive)
}

fn compiler(flags: &[String]) -> Command {
    let mut command = Command::new("gcc");
    command.args(flags);
    command
}

fn succeeds(mut command: Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
