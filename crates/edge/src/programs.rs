//! For the tests of a face: programs in C and C++, built as a user builds them, with the static and with the
//! shared library, and run; under valgrind too where it is installed. They check their own results.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A face whose programs are built.
#[derive(Clone, Copy, Debug)]
pub struct Face {
    /// Its crate's folder.
    pub folder: &'static str,
    /// What cargo calls its library, with neither `lib` nor an ending.
    pub library: &'static str,
    /// What the installed one is called by programs.
    pub soname: &'static str,
}

/// Where cargo puts the libraries of the crate under test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    test.parent().expect("in a folder").to_owned()
}

fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skip: {program} is not installed");
    }
    found
}

/// Runs a command that must succeed.
///
/// # Panics
/// If it does not.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program can be started");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

impl Face {
    fn here(&self, name: &str) -> PathBuf {
        Path::new(self.folder).join(name)
    }

    /// Builds a program with each library, and hands both to `check`.
    pub fn build(
        &self,
        compiler: &str,
        standard: &str,
        source: &str,
        check: impl Fn(&Path, &Path),
    ) {
        self.build_with(compiler, &[standard], source, check);
    }

    /// The same with further arguments.
    ///
    /// # Panics
    /// If it cannot be built.
    pub fn build_with(
        &self,
        compiler: &str,
        arguments: &[&str],
        source: &str,
        check: impl Fn(&Path, &Path),
    ) {
        if !is_installed(compiler) {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let libraries = libraries();
        for ending in ["a", "so"] {
            let program = folder.path().join("program");
            run(Command::new(compiler)
                .args(arguments)
                .args([
                    "-O1",
                    "-g",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    "-pedantic",
                    "-I",
                ])
                .arg(self.here("include"))
                .arg(self.here(source))
                .arg(libraries.join(format!("lib{}.{ending}", self.library)))
                .args(["-lpthread", "-ldl", "-lm", "-o"])
                .arg(&program));
            // The soname is that of the installed library.
            let soname = folder.path().join(self.soname);
            let _ = std::fs::remove_file(&soname);
            let shared = libraries.join(format!("lib{}.so", self.library));
            std::os::unix::fs::symlink(shared, &soname).expect("a link");
            check(&program, folder.path());
        }
    }

    /// Builds an example, runs it, and compares what it says.
    ///
    /// # Panics
    /// If it fails, or says something else.
    pub fn says(&self, (compiler, standard): (&str, &str), source: &str, expected: &str) {
        self.build(compiler, standard, source, |program, libraries| {
            let output = run(&mut command(program, libraries));
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        });
    }
}

/// A program, as it finds the shared library.
pub fn command(program: &Path, libraries: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", libraries);
    command
}

/// Runs a program under valgrind, if that is installed.
pub fn under_valgrind(program: &Path, libraries: &Path) {
    if !is_installed("valgrind") {
        return;
    }
    let mut valgrind = command(Path::new("valgrind"), libraries);
    run(valgrind
        .args([
            "--quiet",
            "--error-exitcode=9",
            "--leak-check=full",
            // Rust's own handle of the main thread is pointed to from its middle only.
            "--errors-for-leak-kinds=definite",
            "--fair-sched=yes",
        ])
        .arg(program));
}

/// What a program did that an exception ended: it aborted.
///
/// # Panics
/// If it ended in another way.
pub fn aborts(command: &mut Command) -> Output {
    let output = command.output().expect("runs");
    let ended = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(ended, Some(6), "{command:?}: {output:?}");
    output
}
