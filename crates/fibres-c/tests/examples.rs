//! The examples in C and C++, and programs that try the header's promises, built as a user builds them, with the
//! static and with the shared library, and run. They check their own results. Not under valgrind, which takes a
//! fibre's stack for a stack pointer that went astray; under the sanitizer of addresses instead.

use linewise_edge::programs::{Face, aborts, command, run};

const FACE: Face = Face {
    folder: env!("CARGO_MANIFEST_DIR"),
    library: "linewise_fibres_c",
    soname: "liblinewise_fibres.so.0",
};
const C: (&str, &str) = ("cc", "-std=gnu11");
const CXX: (&str, &str) = ("c++", "-std=c++17");

#[test]
fn a_server_has_a_fibre_for_each_connection() {
    let said = "100 clients served of 100, and the server was told to end\n";
    FACE.says(C, "examples/echo.c", said);
}

#[test]
fn fibres_of_c_move_to_the_data_and_back() {
    FACE.says(C, "examples/visit.c", "50 fibres came back, 10000 visits\n");
}

#[test]
fn fibres_of_cpp_wait_for_each_other() {
    FACE.says(CXX, "examples/mutex.cpp", "178900 letters\n");
}

#[test]
fn what_the_header_promises_holds() {
    for arguments in [&["-std=gnu11"][..], &["-std=gnu11", "-fsanitize=address"]] {
        FACE.build_with("cc", arguments, "tests/face.c", |program, libraries| {
            let mut program = command(program, libraries);
            // The names of the variables of a fibre's stack are looked for on that of its thread.
            let output = run(program.env("ASAN_OPTIONS", "detect_leaks=0"));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(said, "all as promised\n");
        });
    }
}

#[test]
fn an_exception_that_leaves_a_function_ends_the_process_and_one_that_is_caught_does_not() {
    FACE.build(CXX.0, CXX.1, "tests/throws.cpp", |program, libraries| {
        let places = [
            "fibre",
            "visit",
            "visit of a thread",
            "blocking",
            "blocking of a thread",
        ];
        for place in places {
            let output = aborts(command(program, libraries).arg(place));
            // Nothing is said after the exception.
            let said = String::from_utf8_lossy(&output.stdout);
            assert_eq!(said, "throws\n", "{place}");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(error.contains("an exception left"), "{place}: {error}");
        }
        let output = run(command(program, libraries).arg("nowhere"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "went on\n");
    });
}
