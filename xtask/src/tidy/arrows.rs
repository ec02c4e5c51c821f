//! Rules between crates: which may depend on which, read from the manifests.

use crate::metadata::Metadata;
use crate::problem::Problem;

/// Every crate, and the crates of ours that it may link. Tests may use more (dev-dependencies).
const ARROWS: &[(&str, &[&str])] = &[
    ("linewise-topology", &[]),
    ("linewise-placer", &["linewise-topology"]),
    (
        "linewise-placement-model",
        &["linewise-placer", "linewise-topology"],
    ),
    ("linewise-foreign", &[]),
    ("linewise-machine", &["linewise-topology"]),
    (
        "linewise-recording",
        &["linewise-foreign", "linewise-topology"],
    ),
    ("linewise-cache", &["linewise-topology"]),
    ("linewise-heap", &[]),
    ("linewise-placer", &["linewise-topology"]),
    ("linewise-tracer", &["linewise-cache", "linewise-heap"]),
    ("linewise-preload", &["linewise-heap"]),
    ("linewise-preload-cxx", &[]),
    ("linewise-mark", &[]),
    ("linewise-fibres", &["linewise-topology"]),
    (
        "linewise-delegate",
        &["linewise-fibres", "linewise-topology"],
    ),
    (
        "linewise-delegate-c",
        &["linewise-delegate", "linewise-edge"],
    ),
    ("linewise-edge", &[]),
    ("linewise-fibres-c", &["linewise-edge", "linewise-fibres"]),
    (
        "linewise-trace",
        &[
            "linewise-cache",
            "linewise-foreign",
            "linewise-heap",
            "linewise-recording",
            "linewise-topology",
            "linewise-tracer",
        ],
    ),
    (
        "linewise-collect",
        &[
            "linewise-cache",
            "linewise-foreign",
            "linewise-heap",
            "linewise-machine",
            "linewise-recording",
            "linewise-topology",
            "linewise-trace",
            "linewise-tracer",
        ],
    ),
    (
        "linewise-analysis",
        &[
            "linewise-cache",
            "linewise-foreign",
            "linewise-placer",
            "linewise-recording",
            "linewise-topology",
        ],
    ),
    (
        "linewise-bench",
        &[
            "linewise-cache",
            "linewise-delegate",
            "linewise-fibres",
            "linewise-machine",
            "linewise-placement-model",
            "linewise-placer",
            "linewise-topology",
            "linewise-trace",
        ],
    ),
    (
        "linewise",
        &[
            "linewise-analysis",
            "linewise-bench",
            "linewise-cache",
            "linewise-collect",
            "linewise-foreign",
            "linewise-machine",
            "linewise-placer",
            "linewise-recording",
            "linewise-topology",
            "linewise-trace",
        ],
    ),
    ("xtask", &[]),
];

/// Crates that may link nothing at all.
const ALONE: &[&str] = &["linewise-topology"];

/// Every arrow that points up or sideways, and every crate that the table does not know.
pub(super) fn problems(metadata: &Metadata) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in metadata.members() {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
            problems.push(Problem::new(
                &package.name,
                "is not in the table of arrows (xtask/src/tidy/arrows.rs); say there what it may \
                 use, and in ARCHITECTURE.md why it is a crate",
            ));
            continue;
        };
        let linked = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind.as_deref() != Some("dev"));
        for dependency in linked {
            let ours = dependency.path.is_some();
            if ours && !allowed.contains(&dependency.name.as_str()) {
                problems.push(Problem::new(
                    &package.name,
                    format!("must not know {}: see ARCHITECTURE.md", dependency.name),
                ));
            }
            if !ours && ALONE.contains(&package.name.as_str()) {
                problems.push(Problem::new(
                    &package.name,
                    format!("links {}, and must link nothing", dependency.name),
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Dependency, Package};

    fn depends(name: &str, on: &str, kind: Option<&str>, ours: bool) -> Vec<Problem> {
        problems(&Metadata {
            packages: vec![Package {
                name: name.to_owned(),
                version: "0.1.0".to_owned(),
                license: None,
                source: None,
                manifest_path: String::new(),
                dependencies: vec![Dependency {
                    name: on.to_owned(),
                    req: "*".to_owned(),
                    kind: kind.map(str::to_owned),
                    path: ours.then(|| "crates/x".to_owned()),
                }],
            }],
        })
    }

    #[test]
    fn collecting_must_not_know_the_analysis() {
        assert_eq!(
            depends("linewise-collect", "linewise-analysis", None, true).len(),
            1
        );
        assert_eq!(
            depends("linewise-collect", "linewise-machine", None, true),
            []
        );
    }

    #[test]
    fn the_analysis_must_not_know_the_machine_but_its_tests_may() {
        let machine = "linewise-machine";
        assert_eq!(depends("linewise-analysis", machine, None, true).len(), 1);
        assert_eq!(
            depends("linewise-analysis", machine, Some("build"), true).len(),
            1
        );
        assert_eq!(depends("linewise-analysis", machine, Some("dev"), true), []);
    }

    #[test]
    fn the_topology_links_nothing_at_all() {
        assert_eq!(depends("linewise-topology", "serde", None, false).len(), 1);
        assert_eq!(depends("linewise-machine", "libc", None, false), []);
    }

    #[test]
    fn a_crate_that_the_table_does_not_know_is_a_problem() {
        assert_eq!(depends("linewise-utils", "libc", None, false).len(), 1);
    }
}
