//! What is printed to be pasted is given to its compiler.

use std::path::Path;
use std::process::{Command, Stdio};

use super::tests::line;
use super::*;

/// Whether the compiler takes a file; `None` without the compiler.
fn compiles(name: &str, text: &str, words: &[&str]) -> Option<bool> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), text).unwrap();
    let (compiler, options) = words.split_first().unwrap();
    let output = Command::new(compiler)
        .args(options)
        .arg(name)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .ok()?;
    if !output.status.success() {
        eprintln!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Some(output.status.success())
}

fn accepted(language: Language, text: &str) -> bool {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../delegate-c/include");
    let include = format!("-I{}", header.display());
    let taken = match language {
        Language::C => compiles("it.c", text, &["cc", "-std=c11", "-fsyntax-only", &include]),
        Language::Cpp => compiles(
            "it.cpp",
            text,
            &["c++", "-std=c++17", "-fsyntax-only", &include],
        ),
        Language::Rust => {
            let words = [
                "rustc",
                "--edition=2024",
                "--crate-type=lib",
                "--emit=metadata",
            ];
            compiles("it.rs", text, &words)
        }
        Language::Go => compiles("it.go", text, &["gofmt", "-e", "-l"]),
        _ => None,
    };
    taken.unwrap_or_else(|| {
        println!("skipped: no compiler for {language:?}");
        true
    })
}

const LANGUAGES: [Language; 4] = [Language::C, Language::Cpp, Language::Rust, Language::Go];

#[test]
fn a_type_with_lines_of_its_own_compiles() {
    for language in LANGUAGES {
        let source = aligned_type(language, 64);
        let text = match language {
            Language::C => source,
            Language::Cpp => format!("{source}\nstatic_assert(sizeof(padded<long>) == 64);"),
            Language::Rust => {
                format!("#![allow(dead_code)]\n{source}\nstruct It {{ p: Padded<u64> }}")
            }
            _ => format!("package p\n{source}\nvar it padded[uint64]\n"),
        };
        assert!(accepted(language, &text), "{language:?}");
    }
}

#[test]
fn a_field_with_a_line_of_its_own_compiles() {
    let kinds = [
        (
            Language::C,
            [
                "long",
                "struct s *",
                "_Atomic(int)",
                "double[4]",
                "unsigned char[2][3]",
            ],
        ),
        (
            Language::Cpp,
            [
                "long",
                "std::atomic<unsigned long>",
                "s*",
                "double[4]",
                "std::string",
            ],
        ),
        (
            Language::Rust,
            [
                "u64",
                "core::sync::atomic::AtomicU64",
                "[u8; 4]",
                "&'static str",
                "usize",
            ],
        ),
        (
            Language::Go,
            ["uint64", "[4]int", "*int", "string", "sync.Mutex"],
        ),
    ];
    for (language, kinds) in kinds {
        for kind in kinds {
            let line = line(&[("it.tail", kind)]);
            let source = aligned_field(language, "it.tail", &[line]);
            assert!(!source.is_empty(), "{language:?} {kind}");
            let text = match language {
                Language::C => format!("struct s {{ long a; {source}\n}};"),
                Language::Cpp => {
                    format!(
                        "#include <atomic>\n#include <string>\nstruct s {{ long a; {source}\n}};"
                    )
                }
                Language::Rust => format!(
                    "#![allow(dead_code)]\nmod crossbeam_utils {{ pub struct CachePadded<T>(pub T); }}\nstruct It {{ a: u64,\n{source}\n}}"
                ),
                Language::Go => {
                    format!("package p\ntype s struct {{\n\ta int\n\t{source}\n\ttail {kind}\n}}\n")
                }
                _ => String::new(),
            };
            assert!(accepted(language, &text), "{language:?} {kind}");
        }
    }
    // What has no name to write down is not written.
    for kind in ["(anonymous struct)", "function*", "", "unsigned int : 4"] {
        let line = line(&[("tail", kind)]);
        assert_eq!(aligned_field(Language::Cpp, "tail", &[line]), "");
    }
}
