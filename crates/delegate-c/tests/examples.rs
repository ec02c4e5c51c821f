//! The examples in C and C++, and programs that try the header's promises, built as a user builds them, with the static and with the shared
//! library, and run; under valgrind too where it is installed. They check their own results.

use linewise_edge::programs::{Face, aborts, command, run, under_valgrind};

const FACE: Face = Face {
    folder: env!("CARGO_MANIFEST_DIR"),
    library: "linewise_delegate_c",
    soname: "liblinewise_delegate.so.0",
};

#[test]
fn increments_from_c_are_all_there_and_answered() {
    FACE.build(
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
    let said = "2000 transfers, 100000 in all\n";
    FACE.says(("cc", "-std=c11"), "examples/fibres.c", said);
}

#[test]
fn what_the_header_promises_holds() {
    FACE.build("cc", "-std=c11", "tests/face.c", |program, libraries| {
        let output = run(&mut command(program, libraries));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, "all as promised\n");
        under_valgrind(program, libraries);
    });
}

#[test]
fn values_of_cpp_stay_where_they_were_begun() {
    for arguments in [&["-std=c++17"][..], &["-std=c++17", "-fsanitize=address"]] {
        FACE.build_with("c++", arguments, "tests/stays.cpp", |program, libraries| {
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
    FACE.build(
        "c++",
        "-std=c++17",
        "tests/throws.cpp",
        |program, libraries| {
            for place in ["operation", "callback", "body"] {
                let output = aborts(command(program, libraries).arg(place));
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
    FACE.build(
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
    FACE.build(
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
