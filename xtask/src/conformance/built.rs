//! Building the programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use super::manifest::Program;

/// A compiler leaves out an allocation whose block is only freed, unless it knows nothing about malloc.
const HEAP_KEPT: &str = "-fno-builtin";

/// Builds `program` from `sources` into `place`; the path of what is run, the source itself where nothing is built.
///
/// # Errors
/// If its compiler does not run or refuses it.
pub(super) fn build(program: &Program, sources: &Path, place: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(place).with_context(|| place.display().to_string())?;
    for other in &program.with {
        build_file(other, sources, place)?;
    }
    let Some(source) = &program.source else {
        return Ok(PathBuf::new());
    };
    let built = Built {
        name: &program.name,
        compiler: program.compiler.as_deref(),
        flags: &program.flags,
    };
    built.from(&sources.join(source), place)
}

/// Builds a file that programs want beside them: a library, `libNAME.so` of `NAME_library.c`, or a program.
///
/// # Errors
/// If its compiler does not run or refuses it.
pub(super) fn build_file(source: &str, sources: &Path, place: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(place).with_context(|| place.display().to_string())?;
    let path = sources.join(source);
    let stem = path.file_stem().context("a file")?.to_string_lossy();
    let library = stem.strip_suffix("_library");
    let flags = match library {
        Some(_) => ["-shared", "-fPIC"].map(str::to_owned).to_vec(),
        None => Vec::new(),
    };
    let name = library.map_or_else(|| stem.to_string(), |name| format!("lib{name}.so"));
    let built = Built {
        name: &name,
        compiler: None,
        flags: &flags,
    };
    built.from(&path, place)
}

/// How something is built.
struct Built<'a> {
    name: &'a str,
    compiler: Option<&'a str>,
    flags: &'a [String],
}

impl Built<'_> {
    fn from(&self, source: &Path, place: &Path) -> anyhow::Result<PathBuf> {
        // Built under a name of this thread and moved: another program may want the same file at the same time.
        let binary = place.join(self.name);
        let kind = source.extension().and_then(|kind| kind.to_str());
        let Some(kind) = kind else {
            return self.crate_in(source, place);
        };
        let fresh = place.join(format!("{}.{:?}", self.name, std::thread::current().id()));
        let mut command = match kind {
            "c" => self.compiler_or("gcc", &["-O2", "-g", "-pthread", HEAP_KEPT]),
            "cpp" => self.compiler_or("g++", &["-O2", "-g", "-pthread", "-std=c++17", HEAP_KEPT]),
            "rs" => self.compiler_or("rustc", &["--edition", "2024", "-O", "-g"]),
            "go" => {
                let mut command = Command::new("go");
                command.arg("build").env("GOFLAGS", "-mod=mod");
                command
            }
            "java" => {
                let mut command = Command::new("javac");
                command.arg("-d").arg(place).arg(source);
                run(command, source)?;
                return Ok(place.to_owned());
            }
            "py" | "sh" | "mk" => return Ok(source.to_owned()),
            other => bail!("{}: how are .{other} files built?", source.display()),
        };
        if kind == "go" {
            command.args(self.flags).arg("-o").arg(&fresh).arg(source);
        } else {
            // Libraries come after what needs them.
            command.arg("-o").arg(&fresh).arg(source).args(self.flags);
        }
        run(command, source)?;
        fs::rename(&fresh, &binary).with_context(|| binary.display().to_string())?;
        Ok(binary)
    }

    /// A crate with a lock file of its own, no member of the workspace.
    fn crate_in(&self, folder: &Path, place: &Path) -> anyhow::Result<PathBuf> {
        let target = place.join(format!("{}.target", self.name));
        let mut command = Command::new("cargo");
        command
            .args(["build", "--release", "--locked", "--quiet"])
            .args(self.flags)
            .arg("--manifest-path")
            .arg(folder.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target);
        run(command, folder)?;
        let name = folder.file_name().context("a folder")?;
        Ok(target.join("release").join(name))
    }

    fn compiler_or(&self, usual: &str, flags: &[&str]) -> Command {
        let mut command = Command::new(self.compiler.unwrap_or(usual));
        command.args(flags);
        command
    }
}

fn run(mut command: Command, source: &Path) -> anyhow::Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("running {}", command.get_program().to_string_lossy()))?;
    ensure!(
        output.status.success(),
        "{} does not build: {}",
        source.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
