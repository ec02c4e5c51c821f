//! How a program is run under QEMU: what the kernel would do with it, and the command line.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The ELF file.
    pub path: PathBuf,
    /// Its arguments, the first of which it sees as its name.
    pub arguments: Vec<Vec<u8>>,
    /// ELF machine: 62 for x86-64, 183 for aarch64. 0 for a file of 32 bits or of the other byte
    /// order.
    pub machine: u16,
}

/// Why a program cannot be run under QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel could not run it either: it is missing, not executable, or no program.
    Impossible,
    /// It runs with other rights than its caller's (set-user-id, capabilities), which QEMU would
    /// take away, or it cannot be read.
    Rights,
}

/// Finds what the kernel would run for `path` with `arguments`: follows `#!` to an ELF file.
///
/// # Errors
/// See [`Refusal`].
pub fn resolve(path: PathBuf, arguments: Vec<Vec<u8>>) -> Result<Program, Refusal> {
    let mut program = Program {
        path,
        arguments,
        machine: 0,
    };
    // The kernel follows four scripts that run scripts.
    for _ in 0..5 {
        let metadata = fs::metadata(&program.path).map_err(|_| Refusal::Impossible)?;
        if !metadata.is_file() || !may(&program.path, libc::X_OK) {
            return Err(Refusal::Impossible);
        }
        if metadata.mode() & 0o6000 != 0 || has_capabilities(&program.path) {
            return Err(Refusal::Rights);
        }
        let mut head = Vec::new();
        fs::File::open(&program.path)
            .and_then(|file| file.take(256).read_to_end(&mut head))
            .map_err(|_| Refusal::Rights)?;
        if let Some(line) = head.strip_prefix(b"#!") {
            program = interpreted(program, line).ok_or(Refusal::Impossible)?;
            continue;
        }
        if head.len() < 20 || !head.starts_with(b"\x7fELF") {
            return Err(Refusal::Impossible);
        }
        // ELF header: class 64, least byte first, machine.
        if head[4] == 2 && head[5] == 1 {
            program.machine = u16::from_le_bytes([head[18], head[19]]);
        }
        return Ok(program);
    }
    Err(Refusal::Impossible)
}

/// Whether this process may do this to a file, by its effective user and as the file system is mounted.
pub(crate) fn may(path: &Path, what: i32) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a string that ends in NUL.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), what, libc::AT_EACCESS) == 0 }
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: two strings that end in NUL; with length 0 nothing is written.
    unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        ) > 0
    }
}

/// The interpreter of a script whose first line, after `#!`, begins with `line`.
fn interpreted(script: Program, line: &[u8]) -> Option<Program> {
    let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let end = line
        .iter()
        .position(|&byte| byte == b' ' || byte == b'\t')
        .unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    if interpreter.is_empty() {
        return None;
    }
    let mut arguments = vec![interpreter.to_vec()];
    let argument = argument.trim_ascii();
    if !argument.is_empty() {
        arguments.push(argument.to_vec());
    }
    arguments.push(script.path.as_os_str().as_bytes().to_vec());
    arguments.extend(script.arguments.into_iter().skip(1));
    Some(Program {
        path: PathBuf::from(OsStr::from_bytes(interpreter)),
        arguments,
        machine: 0,
    })
}

/// How QEMU is run.
#[derive(Clone, Debug, Default)]
pub struct Qemu {
    /// Its path.
    pub path: Vec<u8>,
    /// Options, one word each.
    pub options: Vec<Vec<u8>>,
    /// The plugin's path, with commas doubled as QEMU wants them.
    pub plugin: Vec<u8>,
    /// See [`crate::Region::path`].
    pub region: Vec<u8>,
    /// Whether a traced program is replaced: it has begun, so the next one runs in any case.
    pub again: bool,
    /// Whether addresses are the same in every run only for us: the program is not to see the mark of that.
    pub fixed: bool,
}

impl Qemu {
    /// The words and the environment that run `program`. Variables of the dynamic linker are for
    /// the guest alone: QEMU is a program of the host and must not load the guest's libraries.
    ///
    /// QEMU gives its guest the last variable first, those among the words before all others, and of equal names the one
    /// that comes last here: turned round, the guest sees them in their order and `getenv` finds what it would find.
    #[must_use]
    pub fn command(
        &self,
        program: Program,
        environment: Vec<Vec<u8>>,
    ) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let mut words = vec![self.path.clone()];
        words.extend(self.options.iter().cloned());
        let mut plugin = self.plugin.clone();
        plugin.extend(b",region=");
        plugin.extend(&self.region);
        if self.again {
            plugin.extend(b",again=on");
        }
        if self.fixed {
            plugin.extend(b",fixed=on");
        }
        words.extend([b"-plugin".to_vec(), plugin]);
        let mut kept = Vec::new();
        for variable in environment.into_iter().rev() {
            // QEMU splits at commas and refuses what has no value; such a one stays where it is.
            let goes = !variable.contains(&b',') && variable.contains(&b'=');
            if variable.starts_with(b"LD_") && goes {
                words.extend([b"-E".to_vec(), variable]);
            } else {
                kept.push(variable);
            }
        }
        let mut arguments = program.arguments.into_iter();
        words.extend([b"-0".to_vec(), arguments.next().unwrap_or_default()]);
        words.push(program.path.as_os_str().as_bytes().to_vec());
        words.extend(arguments);
        (words, kept)
    }
}

/// The path of the program among the words of [`Qemu::command`].
#[must_use]
pub fn among(words: &[Vec<u8>]) -> Option<&[u8]> {
    let options = words.iter().position(|word| word == b"-plugin")? + 2;
    let mut rest = words.get(options..)?;
    while let [option, _, later @ ..] = rest
        && option == b"-E"
    {
        rest = later;
    }
    match rest {
        [option, _, program, ..] if option == b"-0" => Some(program),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<Vec<u8>> {
        list.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn the_first_line_of_a_script_names_its_interpreter() {
        let script = Program {
            path: "/a/script".into(),
            arguments: words(&["name", "x", "y"]),
            machine: 0,
        };
        let program = interpreted(script, b" /bin/sh -e -u\nrest").unwrap();
        assert_eq!(program.path, Path::new("/bin/sh"));
        assert_eq!(
            program.arguments,
            words(&["/bin/sh", "-e -u", "/a/script", "x", "y"])
        );
    }

    #[test]
    fn programs_are_found_and_what_is_none_is_refused() {
        let own = std::env::current_exe().unwrap();
        let program = resolve(own, words(&["x"])).unwrap();
        let machine = if cfg!(target_arch = "x86_64") {
            62
        } else {
            183
        };
        assert_eq!(program.machine, machine);
        assert_eq!(
            resolve("/nowhere".into(), Vec::new()),
            Err(Refusal::Impossible)
        );
        assert_eq!(resolve("/".into(), Vec::new()), Err(Refusal::Impossible));
    }

    #[test]
    fn a_program_is_found_among_the_words_that_run_it() {
        let qemu = Qemu {
            path: b"qemu".to_vec(),
            options: words(&["-B", "0"]),
            plugin: b"p.so".to_vec(),
            region: b"/r".to_vec(),
            again: false,
            fixed: false,
        };
        let program = Program {
            path: "./a".into(),
            arguments: words(&["-0", "-plugin", "b"]),
            machine: 0,
        };
        let (all, _) = qemu.command(program, words(&["LD_X=-0", "LD_Y=1", "Z=2"]));
        assert_eq!(among(&all), Some(&b"./a"[..]));
        assert_eq!(among(&words(&["qemu", "-plugin", "x", "-0"])), None);
    }

    #[test]
    fn variables_of_the_linker_go_to_the_guest_alone() {
        let qemu = Qemu {
            path: b"qemu".to_vec(),
            options: words(&["-B", "0"]),
            plugin: b"p.so".to_vec(),
            region: b"/r".to_vec(),
            again: false,
            fixed: false,
        };
        let program = Program {
            path: "/bin/x".into(),
            arguments: words(&["zero", "one"]),
            machine: 62,
        };
        let variables = [
            "A=1",
            "LD_PRELOAD=/l.so",
            "LD_A=x,y",
            "LD_B",
            "LD_C=1",
            "B=",
        ];
        let (line, environment) = qemu.command(program, words(&variables));
        assert_eq!(
            line,
            words(&[
                "qemu",
                "-B",
                "0",
                "-plugin",
                "p.so,region=/r",
                "-E",
                "LD_C=1",
                "-E",
                "LD_PRELOAD=/l.so",
                "-0",
                "zero",
                "/bin/x",
                "one"
            ])
        );
        assert_eq!(environment, words(&["B=", "LD_B", "LD_A=x,y", "A=1"]));
    }
}
