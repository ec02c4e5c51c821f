//! The examples in C and C++, and programs that try the header's promises, built as a user builds them, with the static and with the shared
//! library, and run; under valgrind too where it is installed. They check their own results.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where cargo puts the libraries of the crate under test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    test.parent().expect("in a folder").to_owned()
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skip: {program} is not installed");
    }
    found
}

fn run(command: &mut Command) -> Output {
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

/// Builds an example with each library, and hands both programs to `check`.
fn build(compiler: &str, standard: &str, source: &str, check: impl Fn(&Path, &Path)) {
    build_with(compiler, &[standard], source, check);
}

/// The same with further arguments.
fn build_with(compiler: &str, arguments: &[&str], source: &str, check: impl Fn(&Path, &Path)) {
    if !is_installed(compiler) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let libraries = libraries();
    for library in ["liblinewise_delegate_c.a", "liblinewise_delegate_c.so"] {
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
            .arg(here("include"))
            .arg(here(source))
            .arg(libraries.join(library))
            .args(["-lpthread", "-ldl", "-lm", "-o"])
            .arg(&program));
        // The soname is that of the installed library.
        let soname = folder.path().join("liblinewise_delegate.so.0");
        let _ = std::fs::remove_file(&soname);
        std::os::unix::fs::symlink(libraries.join("liblinewise_delegate_c.so"), &soname)
            .expect("a link");
        check(&program, folder.path());
    }
}

fn command(program: &Path, libraries: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", libraries);
    command
}

fn under_valgrind(program: &Path, libraries: &Path) {
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

#[test]
fn increments_from_c_are_all_there_and_answered() {
    build(
        "cc",
        "-std=c11",
        "examples/fetch_add.c",
        |program, libraries| {
            let output = run(&mut command(program, libraries));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(said, "200000 increments, 200000 answered\n");
            under_valgrind(program, libraries);
        },
    );
}

#[test]
fn fibres_of_c_wait_together() {
    build(
        "cc",
        "-std=c11",
        "examples/fibres.c",
        |program, libraries| {
            let output = run(&mut command(program, libraries));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(said, "2000 transfers, 100000 in all\n");
        },
    );
}

#[test]
fn what_the_header_promises_holds() {
    build("cc", "-std=c11", "tests/face.c", |program, libraries| {
        let output = run(&mut command(program, libraries));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, "all as promised\n");
        under_valgrind(program, libraries);
    });
}

#[test]
fn values_of_cpp_stay_where_they_were_begun() {
    for arguments in [&["-std=c++17"][..], &["-std=c++17", "-fsanitize=address"]] {
        build_with("c++", arguments, "tests/stays.cpp", |program, libraries| {
            let output = run(&mut command(program, libraries));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(said, "all stayed\n");
            if arguments.len() == 1 {
                under_valgrind(program, libraries);
            }
        });
    }
}

#[test]
fn an_exception_that_leaves_a_function_ends_the_process() {
    build(
        "c++",
        "-std=c++17",
        "tests/throws.cpp",
        |program, libraries| {
            for place in ["operation", "callback", "body"] {
                let output = command(program, libraries)
                    .arg(place)
                    .output()
                    .expect("runs");
                let ended = std::os::unix::process::ExitStatusExt::signal(&output.status);
                assert_eq!(ended, Some(6), "{place}: {output:?}");
                // Nothing is said after the exception.
                assert_eq!(
                    String::from_utf8_lossy(&output.stdout),
                    "throws\n",
                    "{place}"
                );
            }
        },
    );
}

#[test]
fn values_of_cpp_live_and_die_on_the_server() {
    build(
        "c++",
        "-std=c++17",
        "examples/accounts.cpp",
        |program, libraries| {
            let output = run(&mut command(program, libraries));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(said, "1501500 in 3000 entries\n");
            under_valgrind(program, libraries);
        },
    );
}

#[test]
fn a_cache_in_c_keeps_every_write_however_it_is_shared() {
    build(
        "cc",
        "-std=c11",
        "examples/key_value.c",
        |program, libraries| {
            let output = run(command(program, libraries).args(["0.05", "3"]));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(said.lines().count(), 6, "{said}");
            assert_eq!(said.matches("delegated").count(), 2, "{said}");
        },
    );
}
