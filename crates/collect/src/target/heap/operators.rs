//! Whether a program would be loaded with an allocator that has C++ operators of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::read::elf::ElfFile64;
use object::{Endianness, elf};

use super::symbols;
use crate::target::binary::Binary;

/// `operator new(unsigned long)`.
const NEW: &str = "_Znwm";

/// The library whose `operator new` a program would call, if that library has a malloc, too, which the operator then does
/// not call through the dynamic linker: jemalloc, tcmalloc and mimalloc are such. `interpreter` is the program's dynamic
/// linker, which is asked what it would load, in our environment; nothing of the program runs.
///
/// `None` where the program has the operator itself, since nobody can stand in front of that.
pub(super) fn of_an_allocator(interpreter: &Path, program: &Path) -> Option<PathBuf> {
    if defines(program).new {
        return None;
    }
    let output = Command::new(interpreter)
        .arg("--list")
        .arg(program)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let listed = String::from_utf8_lossy(&output.stdout);
    // In the order in which symbols are looked for.
    let mut found = paths(&listed)
        .map(|path| (path, defines(path)))
        .filter(|(_, symbols)| symbols.new);
    let (path, symbols) = found.next()?;
    symbols.malloc.then(|| path.to_owned())
}

/// The files in what the dynamic linker lists: `name => path (address)`, or `path (address)`.
fn paths(listed: &str) -> impl Iterator<Item = &Path> {
    listed.lines().filter_map(|line| {
        let (file, _) = line.rsplit_once(" (0x")?;
        let file = file.rsplit_once(" => ").map_or(file, |(_, path)| path);
        let file = file.trim_start();
        file.starts_with('/').then(|| Path::new(file))
    })
}

#[derive(Default)]
struct Defines {
    new: bool,
    malloc: bool,
}

/// What a file has for others; nothing if it cannot be read.
fn defines(path: &Path) -> Defines {
    let mut defines = Defines::default();
    let Ok(binary) = Binary::open(path) else {
        return defines;
    };
    let Ok(file) = ElfFile64::<Endianness, _>::parse(&binary) else {
        return defines;
    };
    symbols::defined(&file, elf::SHT_DYNSYM, |name, _, _| match name {
        NEW => defines.new = true,
        "malloc" => defines.malloc = true,
        _ => {}
    });
    defines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_linker_lists_is_read() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffd)\n\t/opt/a (b)/liba.so (0x00007f01)\n\
                      \tlibc.so.6 => /lib/libc.so.6 (0x00007f02)\n\tlibgone.so => not found\n\
                      \tstatically linked\n";
        let read: Vec<_> = paths(listed).collect();
        assert_eq!(
            read,
            [Path::new("/opt/a (b)/liba.so"), Path::new("/lib/libc.so.6")]
        );
    }

    #[test]
    fn what_files_define_is_found() {
        let own = std::env::current_exe().unwrap();
        assert!(!defines(&own).new);
        let library = std::fs::read_to_string("/proc/self/maps").unwrap();
        let library = library.lines().find_map(|line| {
            line.split_once('/')
                .filter(|(_, path)| path.ends_with("libc.so.6"))
        });
        let Some((_, path)) = library else {
            return println!("SKIP: this test is not linked with libc.so.6");
        };
        let found = defines(&Path::new("/").join(path));
        assert!(found.malloc && !found.new);
    }
}
