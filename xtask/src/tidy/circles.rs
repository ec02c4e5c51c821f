//! No circles: files of a crate that take names from each other in a loop, a folder's `mod.rs` and
//! the files below it included.

use std::collections::{BTreeMap, BTreeSet};

use super::files::File;
use super::modules::{self, Uses};
use crate::problem::Problem;

/// Circles that are one idea in several files, each with its reason.
const ALLOWED: &[(&[&str], &str)] = &[];

/// Where our crates are.
const OURS: &[&str] = &["crates/", "xtask/"];

/// Every circle that the table does not know, and every entry that is no circle.
///
/// # Errors
/// If a source cannot be read as Rust.
pub(super) fn problems(files: &[File]) -> anyhow::Result<Vec<Problem>> {
    let sources: BTreeMap<&str, &File> = files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .filter(|file| OURS.iter().any(|folder| file.path.starts_with(folder)))
        .map(|file| (file.path.as_str(), file))
        .collect();
    problems_but(ALLOWED, &sources)
}

fn problems_but(
    allowed: &[(&[&str], &str)],
    sources: &BTreeMap<&str, &File>,
) -> anyhow::Result<Vec<Problem>> {
    let mut problems = Vec::new();
    let mut left: Vec<BTreeSet<&str>> = allowed
        .iter()
        .map(|(files, _)| files.iter().copied().collect())
        .collect();
    let roots = sources
        .keys()
        .filter(|path| path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs"));
    for root in roots {
        let uses = modules::uses(root, sources)?;
        for circle in circles(&uses) {
            match left.iter().position(|known| *known == circle) {
                Some(known) => drop(left.remove(known)),
                None => problems.push(found(&circle, &uses)),
            }
        }
    }
    problems.extend(left.iter().map(|files| {
        Problem::new(
            files.iter().copied().collect::<Vec<_>>().join(", "),
            "is no circle any more; strike it from the table (xtask/src/tidy/circles.rs)",
        )
    }));
    Ok(problems)
}

/// Sets of files each of which reaches all others of its set.
fn circles(uses: &Uses) -> Vec<BTreeSet<&str>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (by, from) in uses.keys() {
        next.entry(by).or_default().push(from);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next
        .keys()
        .map(|file| (*file, reached_from(file, &next)))
        .collect();
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for (file, others) in &reached {
        let back = |other: &&&str| {
            reached
                .get(**other)
                .is_some_and(|those| those.contains(file))
        };
        let circle: BTreeSet<&str> = others.iter().filter(back).copied().collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn reached_from<'a>(file: &'a str, next: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        for other in next.get(file).into_iter().flatten() {
            if reached.insert(*other) {
                open.push(other);
            }
        }
    }
    reached
}

fn found(circle: &BTreeSet<&str>, uses: &Uses) -> Problem {
    let mut ties = String::new();
    for ((by, from), names) in uses {
        if circle.contains(by.as_str()) && circle.contains(from.as_str()) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            ties.push_str(&format!("\n    {by} -> {from}: {}", names.join(", ")));
        }
    }
    let files: Vec<&str> = circle.iter().copied().collect();
    Problem::new(
        files.join(", "),
        format!("is a circle; move what ties it to a module that both may use:{ties}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of these files below `crates/x/src`, and what is wrong with it.
    fn of(allowed: &[(&[&str], &str)], files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = files
            .iter()
            .map(|(name, text)| File {
                path: format!("crates/x/src/{name}"),
                text: (*text).to_owned(),
            })
            .collect();
        let sources = files.iter().map(|file| (file.path.as_str(), file));
        let found = problems_but(allowed, &sources.collect()).expect("it is Rust");
        found
            .into_iter()
            .map(|problem| problem.place.replace("crates/x/src/", ""))
            .collect()
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        of(&[], files)
    }

    #[test]
    fn two_files_that_use_each_other_are_a_circle_and_one_way_is_none() {
        let root = ("lib.rs", "mod a; mod b;");
        let a = ("a.rs", "use crate::b::B; pub struct A(B);");
        let back = ("b.rs", "pub struct B; fn f(_: super::a::A) {}");
        assert_eq!(found(&[root, a, back]), ["a.rs, b.rs"]);
        assert!(found(&[root, a, ("b.rs", "pub struct B;")]).is_empty());
    }

    #[test]
    fn three_files_in_a_ring_are_one_circle() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
            (
                "a.rs",
                "use crate::{b::{self, X}, c as _}; pub struct A; fn f() { b::g() }",
            ),
            ("b.rs", "pub struct X; pub fn g() { super::c::h() }"),
            ("c.rs", "use super::a; pub fn h() { let _ = a::A; }"),
        ];
        assert_eq!(found(&files), ["a.rs, b.rs, c.rs"]);
    }

    #[test]
    fn a_name_that_a_folder_hands_on_comes_from_the_file_that_defines_it() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod deep; pub use deep::Deep;"),
            ("a/deep.rs", "use crate::b::B; pub struct Deep(B);"),
            ("b.rs", "use crate::a::Deep; pub struct B; fn f(_: Deep) {}"),
        ];
        assert_eq!(found(&files), ["a/deep.rs, b.rs"]);
    }

    #[test]
    fn a_folder_that_defines_what_its_file_uses_is_a_circle_unless_it_only_hands_on() {
        let child = ("a/child.rs", "use super::A; pub struct Child(A);");
        let root = ("lib.rs", "mod a;");
        let user = (
            "a/mod.rs",
            "mod child; use child::Child; pub struct A; fn f(_: Child) {}",
        );
        assert_eq!(found(&[root, user, child]), ["a/child.rs, a/mod.rs"]);
        let shower = ("a/mod.rs", "mod child; pub use child::Child; pub struct A;");
        assert!(found(&[root, shower, child]).is_empty());
        let function = ("a/child.rs", "use super::A; pub fn child(_: A) {}");
        let namesakes =
            "mod child; pub use child::child; pub struct A { child: u8 } fn f(a: A) { a.child; }";
        assert!(found(&[root, ("a/mod.rs", namesakes), function]).is_empty());
        let caller = "mod child; pub use child::child; pub struct A; fn f() { child(A) }";
        assert_eq!(
            found(&[root, ("a/mod.rs", caller), function]),
            ["a/child.rs, a/mod.rs"]
        );
    }

    #[test]
    fn names_that_come_by_a_star_count() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use super::b::*; pub struct A(B);"),
            ("b.rs", "pub struct B; fn f(_: crate::a::A) {}"),
        ];
        assert_eq!(found(&files), ["a.rs, b.rs"]);
        let unused = ("a.rs", "use super::b::*; pub struct A;");
        assert!(found(&[files[0], unused, files[2]]).is_empty());
    }

    #[test]
    fn comments_strings_and_tests_tie_nothing() {
        let root = ("lib.rs", "mod a; mod b;");
        let a = ("a.rs", "use crate::b::B; pub struct A(B);");
        let silent = r##"
            //! Of [`crate::a::A`], see `use crate::a::A;`.
            /* crate::a::A /* crate::a::A */ */
            pub struct B;
            const S: &str = "crate::a::A";
            const R: &str = r#"crate::a::A " crate::a::A"#;
            #[cfg(test)]
            use crate::a::A;
            #[cfg(test)]
            mod tests { use crate::a::A; }
            #[cfg(all(test, loom))]
            mod models;
        "##;
        let models = ("b/models.rs", "use crate::a::A;");
        assert!(found(&[root, a, ("b.rs", silent), models]).is_empty());
        let spoken = format!("{silent} fn f(_: crate::a::A) {{}}");
        let spoken = found(&[root, a, ("b.rs", &spoken), models]);
        assert_eq!(spoken, ["a.rs, b.rs"]);
    }

    #[test]
    fn code_behind_a_test_is_read_again() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            (
                "b.rs",
                "#[cfg(test)] pub(crate) use crate::x::{X, Y}; pub struct B { #[cfg(test)] c: u8, a: crate::a::A }",
            ),
        ];
        assert_eq!(found(&files), ["a.rs, b.rs"]);
    }

    #[test]
    fn what_belongs_to_another_crate_is_no_tie() {
        let files = [
            ("lib.rs", "mod a; mod error;"),
            ("a.rs", "use crate::error::Error; pub struct A(Error);"),
            (
                "error.rs",
                "use a_crate::a::A; use std::error::Error as E; pub struct Error(A); fn f(_: ::a::A) {}",
            ),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn a_circle_in_the_table_passes_and_fails_once_it_is_none_or_grows() {
        let root = ("lib.rs", "mod a; mod b; mod c;");
        let a = ("a.rs", "use crate::b::B; pub struct A(B);");
        let b = ("b.rs", "pub struct B; fn f(_: super::a::A) {}");
        let c = ("c.rs", "pub struct C;");
        let pair: &[&str] = &["crates/x/src/a.rs", "crates/x/src/b.rs"];
        let allowed = [(pair, "one idea")];
        assert!(of(&allowed, &[root, a, b, c]).is_empty());
        let broken = ("b.rs", "pub struct B;");
        assert_eq!(of(&allowed, &[root, a, broken, c]), ["a.rs, b.rs"]);
        let more = "pub struct B; fn f(_: super::a::A, _: super::c::C) {}";
        let grown = [
            root,
            a,
            ("b.rs", more),
            ("c.rs", "use crate::a::A; pub struct C(A);"),
        ];
        assert_eq!(of(&allowed, &grown), ["a.rs, b.rs, c.rs", "a.rs, b.rs"]);
    }
}
