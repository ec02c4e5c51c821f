//! `cargo xtask licences`: the policy of deny.toml, checked with nothing but cargo.
//!
//! deny.toml is the one place for the policy, so that cargo-deny, where it is installed, judges by
//! the same words. This check reads the parts `licenses.allow`, `bans.deny`, `bans.wildcards` and
//! `sources`. It does not read advisories, which need a database from the network.

use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

use crate::metadata::{Metadata, Package};
use crate::problem::Problem;
use crate::spdx;

#[derive(Debug, Deserialize)]
struct Policy {
    licenses: Licences,
    bans: Bans,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
struct Licences {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    #[serde(default)]
    deny: Vec<Ban>,
    #[serde(default)]
    wildcards: String,
}

#[derive(Debug, Deserialize)]
struct Ban {
    name: String,
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

/// Checks all dependencies of the workspace at `root`.
///
/// # Errors
/// If deny.toml or cargo's metadata cannot be read.
pub(crate) fn run(root: &Path) -> anyhow::Result<Vec<Problem>> {
    let policy =
        std::fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    let policy: Policy = toml::from_str(&policy).context("cannot understand deny.toml")?;
    let metadata = Metadata::read(root)?;
    let mut problems: Vec<Problem> = metadata
        .foreign()
        .flat_map(|package| foreign_problems(package, &policy))
        .collect();
    for package in metadata.members() {
        problems.extend(member_problems(package, &policy));
    }
    Ok(problems)
}

fn foreign_problems(package: &Package, policy: &Policy) -> Vec<Problem> {
    let place = format!("{} {}", package.name, package.version);
    let mut problems = Vec::new();
    match &package.license {
        None => problems.push(Problem::new(
            &place,
            "states no licence in its manifest; read its licence file and choose another crate, \
             or a version that states one",
        )),
        Some(expression) => match spdx::allows(expression, &policy.licenses.allow) {
            Ok(true) => {}
            Ok(false) => problems.push(Problem::new(
                &place,
                format!("licence `{expression}` is not in deny.toml's [licenses] allow"),
            )),
            Err(error) => problems.push(Problem::new(
                &place,
                format!("licence `{expression}` is not understood: {error}"),
            )),
        },
    }
    if let Some(ban) = policy.bans.deny.iter().find(|ban| ban.name == package.name) {
        problems.push(Problem::new(
            &place,
            format!("is banned in deny.toml: {}", ban.reason),
        ));
    }
    let source = package.source.as_deref().unwrap_or_default();
    let known = source.strip_prefix("registry+").is_some_and(|registry| {
        let allowed = &policy.sources.allow_registry;
        allowed.iter().any(|known| known == registry)
    });
    if !known {
        problems.push(Problem::new(
            &place,
            format!("comes from `{source}`, which is not in deny.toml's [sources]"),
        ));
    }
    problems
}

fn member_problems(package: &Package, policy: &Policy) -> Vec<Problem> {
    let mut problems = Vec::new();
    if package.license.as_deref() != Some("MIT OR Apache-2.0") {
        problems.push(Problem::new(
            &package.name,
            "is not `MIT OR Apache-2.0`; write `license.workspace = true`",
        ));
    }
    for dependency in &package.dependencies {
        let wildcard = dependency.req == "*" && dependency.path.is_none();
        if wildcard && policy.bans.wildcards == "deny" {
            problems.push(Problem::new(
                &package.name,
                format!("takes any version of {}; state one", dependency.name),
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    fn policy() -> Policy {
        toml::from_str(
            r#"
            [licenses]
            allow = ["MIT"]
            [bans]
            wildcards = "deny"
            deny = [{ name = "banned", reason = "use another" }]
            [sources]
            allow-registry = ["https://registry.example/index"]
            "#,
        )
        .unwrap()
    }

    fn package(name: &str, license: Option<&str>, source: Option<&str>) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: license.map(str::to_owned),
            source: source.map(str::to_owned),
            manifest_path: String::new(),
            dependencies: Vec::new(),
        }
    }

    const REGISTRY: Option<&str> = Some("registry+https://registry.example/index");

    #[test]
    fn an_allowed_crate_of_an_allowed_registry_is_no_problem() {
        let good = package("good", Some("MIT OR GPL-3.0"), REGISTRY);
        assert_eq!(foreign_problems(&good, &policy()), []);
    }

    #[test]
    fn a_foreign_licence_a_ban_and_a_foreign_source_are_each_named() {
        let bad = package("banned", Some("GPL-3.0"), Some("git+https://example.org/x"));
        let problems = foreign_problems(&bad, &policy());
        assert_eq!(problems.len(), 3);
        assert!(problems[0].what.contains("GPL-3.0"));
        assert!(problems[1].what.contains("use another"));
        assert!(problems[2].what.contains("git+"));
    }

    #[test]
    fn a_crate_without_a_licence_is_a_problem() {
        let silent = package("silent", None, REGISTRY);
        assert_eq!(foreign_problems(&silent, &policy()).len(), 1);
    }

    #[test]
    fn a_member_with_a_wildcard_is_a_problem_but_not_with_a_folder() {
        let mut member = package("ours", Some("MIT OR Apache-2.0"), None);
        let dependency = |path: Option<&str>| Dependency {
            name: "other".to_owned(),
            req: "*".to_owned(),
            kind: None,
            path: path.map(str::to_owned),
        };
        member.dependencies.push(dependency(Some("crates/other")));
        assert_eq!(member_problems(&member, &policy()), []);
        member.dependencies.push(dependency(None));
        assert_eq!(member_problems(&member, &policy()).len(), 1);
    }
}
