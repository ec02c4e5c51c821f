//! Programs of the project, compiled, recorded and reported by the real binary.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::de::DeserializeOwned;

/// Compiles `source` to `binary`; `compiler` is the tool and its options.
pub(crate) fn compile(binary: &Path, source: &Path, compiler: &[&str]) -> anyhow::Result<()> {
    let (tool, flags) = compiler.split_first().context("a compiler")?;
    let status = Command::new(tool)
        .args(flags)
        .arg("-o")
        .arg(binary)
        .arg(source)
        .status()
        .with_context(|| format!("running {tool}"))?;
    ensure!(status.success(), "{} does not compile", source.display());
    Ok(())
}

/// Records `program` with the arguments `words`; what it prints goes to `output`.
pub(crate) fn record(
    linewise: &Path,
    recording: &Path,
    options: &[&str],
    program: &Path,
    words: &[&str],
    output: Stdio,
) -> anyhow::Result<()> {
    let status = Command::new(linewise)
        .args(["record", "--quiet", "--force"])
        .args(options)
        .arg("-o")
        .arg(recording)
        .arg("--")
        .arg(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(output)
        .status()
        .context("running linewise")?;
    ensure!(status.success(), "linewise record: {status}");
    Ok(())
}

/// What is read of the report of a recording (docs/report-json.md).
pub(crate) fn report<T: DeserializeOwned>(linewise: &Path, recording: &Path) -> anyhow::Result<T> {
    let output = Command::new(linewise)
        .args(["report", "--json"])
        .arg(recording)
        .output()
        .context("running linewise")?;
    ensure!(
        output.status.success(),
        "linewise report: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    serde_json::from_slice(&output.stdout).context("what linewise reported")
}
