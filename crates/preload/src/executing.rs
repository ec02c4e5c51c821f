//! How the recorder comes into a program, and into what that executes: by variables that the program does not see
//! ([`linewise_heap::hide`]). Only what the dynamic linker would load the recorder into gets them, so that
//! no other program sees them and no linker complains of a library that it cannot read.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use linewise_heap::{
    Environment, Note, Program, Variables, hide, is_ours, kernel::File, preload_of,
};

use crate::gates;
use crate::readable::Readable;
use crate::real;
use crate::recorder::{attach, is_wanted, simple};
use crate::shared::{say, shared};

type Text = *const c_char;
type Strings = *const Text;

/// The variables' text, our copy: the program may write over its environment.
struct Kept(UnsafeCell<[u8; KEPT]>);
// SAFETY: written once, before the program's own code runs, and only read after.
unsafe impl Sync for Kept {}
/// Room for the variables of a program without libraries of its own.
const KEPT: usize = 3 * 4096;
static KEPT_BYTES: Kept = Kept(UnsafeCell::new([0; KEPT]));
/// Where in it the strings begin that all such programs get, and the values: LD_PRELOAD and its length, the region and
/// its length. 0: nothing is kept.
static PLACES: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
/// The file of the shared memory.
static INODE: AtomicU64 = AtomicU64::new(0);

/// Longest list of a program's own libraries that the recorder is put in front of.
const BUFFER: usize = 4 * 4096;
/// Longest path of a program that is looked for.
const PATH: usize = 1024;
/// Scripts that run scripts, as the kernel follows them.
const SCRIPTS: usize = 5;

fn kept_bytes() -> &'static [u8] {
    // SAFETY: only read after the beginning.
    unsafe { &*KEPT_BYTES.0.get() }
}

/// What the variables say; `None` where there are none.
fn kept() -> Option<Variables<'static>> {
    let [preload, length, region, region_length] =
        [0, 1, 2, 3].map(|place: usize| PLACES[place].load(Ordering::Acquire));
    if length == 0 {
        return None;
    }
    let bytes = kept_bytes();
    Some(Variables {
        libraries: bytes.get(preload..preload + length)?,
        region: bytes.get(region..region + region_length)?,
    })
}

/// Keeps what the variables say, and composes them for programs to come.
fn keep(variables: &Variables<'_>) -> Option<()> {
    // SAFETY: at the beginning: nobody else is there.
    let bytes = unsafe { &mut *KEPT_BYTES.0.get() };
    let Environment {
        preload, region, ..
    } = variables.compose(None, bytes)?;
    let name = preload.len().checked_sub(variables.libraries.len() + 1)?;
    let places = [
        preload.start + name,
        variables.libraries.len(),
        region.start + linewise_heap::VARIABLE.len() + 1,
        variables.region.len(),
    ];
    for (place, found) in PLACES.iter().zip(places) {
        place.store(found, Ordering::Release);
    }
    Some(())
}

/// The beginning, before all other libraries' and the program's.
unsafe extern "C" fn begin(count: c_int, arguments: *mut *mut u8, environment: *mut *mut u8) {
    if arguments.is_null() || environment.is_null() {
        return;
    }
    // SAFETY: the linker gives these to the first function of each library.
    let found = unsafe { hide(usize::try_from(count).unwrap_or(0), arguments, environment) };
    let Some(found) = found else { return };
    if keep(&found.variables).is_none() {
        return;
    }
    // The value ends in a blank, which our copy has as NUL.
    let mut path = [0; 64];
    let region = found.variables.region;
    if region.len() >= path.len() {
        return;
    }
    path.iter_mut()
        .zip(region)
        .for_each(|(to, &byte)| *to = byte);
    let Ok(path) = CStr::from_bytes_until_nul(&path) else {
        return;
    };
    crate::operators::look();
    if attach(path).is_some() && shared().is_some() {
        let file = File::open(path, libc::O_RDONLY);
        let inode = file.and_then(|it| it.status()).map_or(0, |it| it.st_ino);
        INODE.store(inode, Ordering::Relaxed);
        if !found.hidden {
            say(Note::Visible);
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: unsafe extern "C" fn(c_int, *mut *mut u8, *mut *mut u8) = begin;

/// Which program is executed.
#[derive(Clone, Copy)]
enum Which {
    /// The one at this path.
    Path(Text),
    /// The one of this name, looked for along PATH.
    Name(Text),
    /// The one that this descriptor is open for.
    Open(c_int),
}

/// Whether the recorder can be loaded into a program, and found from there.
fn can_load(which: Which, variables: &Variables<'_>) -> bool {
    let is_there = || {
        let mut libraries = variables.libraries.split(|&byte| byte == b':');
        libraries
            .all(|library| with_string(&[library], |it| File::open(it, libc::O_RDONLY).is_some()))
            && region_is_there(variables.region)
    };
    let string = |text| {
        // SAFETY: as the exec function was called: a string of the program's, or nothing that can be read.
        unsafe { readable().string(text) }
    };
    let dynamic = match which {
        Which::Path(path) => string(path).is_some_and(|it| is_dynamic(it, SCRIPTS)),
        Which::Name(name) => string(name).is_some_and(is_dynamic_by_name),
        Which::Open(fd) => {
            let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
            let mut rest = fd.max(0);
            let digits = rest.checked_ilog10().map_or(1, |it| it as usize + 1);
            for place in (14..14 + digits).rev() {
                if let Some(byte) = path.get_mut(place) {
                    *byte = b'0' + (rest % 10) as u8;
                }
                rest /= 10;
            }
            CStr::from_bytes_until_nul(&path).is_ok_and(|path| is_dynamic(path, SCRIPTS))
        }
    };
    dynamic && is_there()
}

/// Whether the shared memory can be opened from here, and is ours: in another namespace the path is another's.
fn region_is_there(path: &[u8]) -> bool {
    let inode = INODE.load(Ordering::Relaxed);
    inode == 0
        || with_string(&[path], |path| {
            let file = File::open(path, libc::O_RDWR);
            file.and_then(|it| it.status())
                .is_some_and(|it| it.st_ino == inode)
        })
}

/// Calls `with` with pieces as a string, unless they are too long: then it is false.
fn with_string(pieces: &[&[u8]], with: impl FnOnce(&CStr) -> bool) -> bool {
    let mut bytes = [0; PATH];
    let length: usize = pieces.iter().map(|it| it.len()).sum();
    let pieces = pieces.iter().flat_map(|it| it.iter());
    bytes
        .iter_mut()
        .zip(pieces)
        .for_each(|(to, &byte)| *to = byte);
    length < PATH && CStr::from_bytes_until_nul(&bytes).is_ok_and(with)
}

/// Whether the file at `path` is a program that the recorder can be loaded into, or a script for one.
fn is_dynamic(path: &CStr, scripts: usize) -> bool {
    const OTHER_RIGHTS: u32 = libc::S_ISUID | libc::S_ISGID;
    let Some(file) = File::open(path, libc::O_RDONLY) else {
        return false;
    };
    let is_plain = |it: libc::stat| it.st_mode & OTHER_RIGHTS == 0 && it.st_mode & 0o111 != 0;
    if !file.status().is_some_and(is_plain) || file.has_capabilities() {
        return false;
    }
    match Program::examine(|offset, to| file.read_at(offset, to)) {
        Ok(Program::Dynamic(_)) => true,
        Ok(Program::Script(interpreter)) if scripts > 1 => interpreter
            .as_string()
            .is_some_and(|it| is_dynamic(it, scripts - 1)),
        _ => false,
    }
}

/// The same for a name that is looked for along PATH: of the first file of that name.
fn is_dynamic_by_name(name: &CStr) -> bool {
    let bytes = name.to_bytes();
    if bytes.contains(&b'/') {
        return is_dynamic(name, SCRIPTS);
    }
    // SAFETY: the program's environment, as every exec function reads it.
    let path = unsafe { variables(environ) }.find_map(|it| it.strip_prefix(b"PATH="));
    let folders = path.unwrap_or(b"/bin:/usr/bin").split(|&byte| byte == b':');
    let mut found = false;
    for folder in folders {
        let folder = if folder.is_empty() { b"." } else { folder };
        let is_there = with_string(&[folder, b"/", bytes], |path| {
            let is_there = File::open(path, libc::O_PATH).is_some();
            found = is_there && is_dynamic(path, SCRIPTS);
            is_there
        });
        if is_there {
            return found;
        }
    }
    false
}

unsafe extern "C" {
    static environ: Strings;
}

/// The strings of a list that ends in null.
///
/// # Safety
/// It is null or such a list, which stays meanwhile.
unsafe fn variables(list: Strings) -> impl Iterator<Item = &'static [u8]> {
    let mut next = list;
    core::iter::from_fn(move || {
        // SAFETY: the caller's promise: up to the null.
        let string = (!next.is_null())
            .then(|| unsafe { *next })
            .filter(|it| !it.is_null())?;
        next = next.wrapping_add(1);
        // SAFETY: likewise.
        Some(unsafe { CStr::from_ptr(string) }.to_bytes())
    })
}

fn readable() -> Readable {
    Readable::of(simple(libc::SYS_gettid))
}

/// How many strings an environment has; negative where the recorder is not to look at it, or cannot.
///
/// # Safety
/// The list is the program's, who does not take it away meanwhile.
unsafe extern "C" fn count(list: Strings) -> isize {
    if kept().is_none() || !is_wanted() || gates::is_closed() {
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe { readable().list(list) }.map_or(-1, |count| count as isize)
}

/// Calls `execute` with the environment `list`, or with that and our variables where what is executed is to have them.
/// `scratch` has room for the list and eight pointers more; it is null where [`count`] told of none.
///
/// # Safety
/// The list is one of strings, or null.
unsafe fn with_variables<T>(
    which: Which,
    list: Strings,
    scratch: *mut Text,
    execute: impl FnOnce(Strings) -> T,
) -> T {
    let Some(ours) = kept().filter(|_| is_wanted()) else {
        return execute(list);
    };
    if scratch.is_null() || gates::is_closed() || !can_load(which, &ours) {
        say(Note::StartedWithout);
        return execute(list);
    }
    // SAFETY: the caller's promise; it was read to be counted.
    let names = || unsafe { variables(list) };
    // It has them if they could not be hidden. And of two that the linker reads one would stay.
    if names().any(is_ours) || names().filter_map(preload_of).count() > 1 {
        say(Note::StartedWithout);
        return execute(list);
    }
    // SAFETY: the caller's promise.
    let theirs = unsafe { variables(list) }
        .enumerate()
        .find_map(|(place, variable)| preload_of(variable).map(|libraries| (place, libraries)));
    let Some((place, libraries)) = theirs else {
        let bytes = kept_bytes().as_ptr().cast::<c_char>();
        let name = c"LD_PRELOAD=".count_bytes();
        let preload = PLACES[0].load(Ordering::Acquire) - name;
        let region = PLACES[2].load(Ordering::Acquire) - linewise_heap::VARIABLE.len() - 1;
        // SAFETY: there is room in `scratch` for the list and these.
        unsafe {
            let count = copy(list, scratch);
            *scratch.add(count) = bytes.add(region);
            *scratch.add(count + 1) = bytes.add(preload);
            *scratch.add(count + 2) = core::ptr::null();
        }
        return execute(scratch);
    };
    // SAFETY: as for us.
    unsafe { with_theirs(&ours, (place, libraries), list, scratch, execute) }
}

/// The same beside libraries of the program's own.
///
/// # Safety
/// As for [`with_variables`].
#[inline(never)]
unsafe fn with_theirs<T>(
    ours: &Variables<'_>,
    (place, libraries): (usize, &[u8]),
    list: Strings,
    scratch: *mut Text,
    execute: impl FnOnce(Strings) -> T,
) -> T {
    let mut buffer = [0; BUFFER];
    let made = (libraries.len() <= Variables::THEIRS)
        .then(|| ours.compose(Some(libraries), &mut buffer))
        .flatten();
    let Some(Environment {
        preload,
        region,
        theirs: Some(theirs),
    }) = made
    else {
        say(Note::StartedWithout);
        return execute(list);
    };
    let bytes = buffer.as_ptr().cast::<c_char>();
    // SAFETY: there is room in `scratch` for the list and these, which live through the call.
    unsafe {
        let count = copy(list, scratch);
        *scratch.add(place) = bytes.add(preload.start);
        *scratch.add(count) = bytes.add(region.start);
        *scratch.add(count + 1) = bytes.add(theirs.start);
        *scratch.add(count + 2) = core::ptr::null();
    }
    execute(scratch)
}

/// Copies the pointers of a list without its null; how many.
///
/// # Safety
/// There is room.
unsafe fn copy(list: Strings, to: *mut Text) -> usize {
    let mut count = 0;
    // SAFETY: the caller's promise: up to the null.
    unsafe {
        while !list.is_null() && !(*list.add(count)).is_null() {
            *to.add(count) = *list.add(count);
            count += 1;
        }
    }
    count
}

/// There is no such function in this C library.
fn missing() -> c_int {
    // SAFETY: errno always exists.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

unsafe extern "C" fn hooked_execve(
    path: Text,
    words: Strings,
    list: Strings,
    scratch: *mut Text,
) -> c_int {
    let Some(real) = real::execve() else {
        return missing();
    };
    // SAFETY: as we were called.
    unsafe {
        with_variables(Which::Path(path), list, scratch, |list| {
            real(path, words, list)
        })
    }
}

unsafe extern "C" fn hooked_execvpe(
    name: Text,
    words: Strings,
    list: Strings,
    scratch: *mut Text,
) -> c_int {
    let Some(real) = real::execvpe() else {
        return missing();
    };
    // SAFETY: as we were called.
    unsafe {
        with_variables(Which::Name(name), list, scratch, |list| {
            real(name, words, list)
        })
    }
}

unsafe extern "C" fn hooked_fexecve(
    fd: c_int,
    words: Strings,
    list: Strings,
    scratch: *mut Text,
) -> c_int {
    let Some(real) = real::fexecve() else {
        return missing();
    };
    // SAFETY: as we were called.
    unsafe { with_variables(Which::Open(fd), list, scratch, |list| real(fd, words, list)) }
}

unsafe extern "C" fn hooked_execveat(
    folder: c_int,
    path: Text,
    words: Strings,
    list: Strings,
    flags: c_int,
    scratch: *mut Text,
) -> c_int {
    let Some(real) = real::execveat() else {
        return missing();
    };
    let path_bytes = match scratch.is_null() {
        true => None,
        // SAFETY: as we were called: a string, or nothing that can be read.
        false => unsafe { readable().string(path) }.map(CStr::to_bytes),
    };
    let which = match path_bytes {
        Some([b'/', ..]) => Which::Path(path),
        Some([]) => Which::Open(folder),
        // What it is relative to is not looked for.
        Some(_) if folder == libc::AT_FDCWD => Which::Path(path),
        _ => Which::Open(-1),
    };
    // SAFETY: as we were called.
    unsafe {
        with_variables(which, list, scratch, |list| {
            real(folder, path, words, list, flags)
        })
    }
}

/// A function that starts another process.
macro_rules! spawning {
    ($($function:ident = $name:ident by $which:ident;)+) => {$(
        unsafe extern "C" fn $function(
            pid: *mut c_int,
            path: Text,
            actions: *const c_void,
            attributes: *const c_void,
            words: Strings,
            list: Strings,
            scratch: *mut Text,
        ) -> c_int {
            let Some(real) = real::$name() else { return libc::ENOSYS };
            let spawn = |list| {
                // SAFETY: as we were called.
                unsafe { real(pid, path, actions, attributes, words, list) }
            };
            // SAFETY: as we were called.
            unsafe { with_variables(Which::$which(path), list, scratch, spawn) }
        }
    )+};
}
spawning! {
    hooked_posix_spawn = posix_spawn by Path;
    hooked_posix_spawnp = posix_spawnp by Name;
}

/// Exports `name`, which calls `function` with its arguments and, in the register `scratch`, room on the stack for the
/// pointers of the list in the register `list` and eight more, or null. `before` comes first.
macro_rules! executes {
    ($name:ident, $function:path, $list:literal, $scratch:literal $(, $before:literal)*) => {
        /// Stands in front of the function of the same name.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rbp",
                ".cfi_def_cfa_offset 16",
                ".cfi_offset rbp, -16",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                $($before,)*
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                concat!("mov rdi, ", $list),
                "call {count}",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test rax, rax",
                "js 2f",
                "lea rax, [rax * 8 + 64]",
                "and rax, -16",
                "sub rsp, rax",
                "mov rax, rsp",
                "jmp 3f",
                "2:",
                "xor eax, eax",
                "3:",
                "sub rsp, 16",
                concat!("mov ", $scratch, ", rax"),
                "call {function}",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "ret",
                ".cfi_endproc",
                function = sym $function,
                count = sym count,
            )
        }
    };
}
executes!(execve, hooked_execve, "rdx", "rcx");
executes!(
    execv,
    hooked_execve,
    "rdx",
    "rcx",
    "mov rdx, qword ptr [rip + environ@GOTPCREL]",
    "mov rdx, qword ptr [rdx]"
);
executes!(execvpe, hooked_execvpe, "rdx", "rcx");
executes!(
    execvp,
    hooked_execvpe,
    "rdx",
    "rcx",
    "mov rdx, qword ptr [rip + environ@GOTPCREL]",
    "mov rdx, qword ptr [rdx]"
);
executes!(fexecve, hooked_fexecve, "rdx", "rcx");
executes!(execveat, hooked_execveat, "rcx", "r9");
executes!(posix_spawn, hooked_posix_spawn, "r9", "qword ptr [rsp]");
executes!(posix_spawnp, hooked_posix_spawnp, "r9", "qword ptr [rsp]");

/// Exports `name`, whose arguments after the first are words up to a null: they become a list, and `function` is called
/// with that, and `before` it.
macro_rules! lists {
    ($name:ident, $function:path $(, $before:literal)*) => {
        /// Stands in front of the function of the same name.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                // The words that came on the stack lie above the return address, which goes below the others.
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                $($before,)*
                "call {function}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                function = sym $function,
            )
        }
    };
}
lists!(execl, execv);
lists!(execlp, execvp);
// Behind the null of the words stands the environment.
lists!(
    execle,
    execve,
    "mov rdx, rsi",
    "2:",
    "mov rax, qword ptr [rdx]",
    "add rdx, 8",
    "test rax, rax",
    "jnz 2b",
    "mov rdx, qword ptr [rdx]"
);

/// A function that starts a shell with the environment as the program sees it.
macro_rules! shells {
    ($($name:ident($($argument:ident),*) -> $result:ty, $failed:expr;)+) => {$(
        /// Stands in front of the function of the same name.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: Text),*) -> $result {
            if kept().is_some() && is_wanted() {
                say(Note::StartedWithout);
            }
            match real::$name() {
                // SAFETY: as we were called.
                Some(real) => unsafe { real($($argument),*) },
                None => $failed,
            }
        }
    )+};
}
shells! {
    system(command) -> c_int, missing();
    popen(command, kind) -> *mut c_void, core::ptr::null_mut();
}
