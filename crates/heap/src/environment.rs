//! The variables that bring the recorder into a program, which then does not see them.
//!
//! ```text
//! as composed   ...  LINEWISE_HEAP=/proc/7/fd/3<blanks>  LD_PRELOAD=<ours>                      4096 bytes more
//! or            ...  LD_PRELOAD=<ours>:<theirs>  ...  LINEWISE_HEAP=...  LINEWISE_THEIRS=LD_PRELOAD=<theirs>
//! as seen       ...                                   or     ...  LD_PRELOAD=<theirs>  ...
//! ```
//!
//! The kernel puts the strings at the top of a new stack and two pointers to them below. Together they take a
//! multiple of a page, filled with blanks, so that the stack lies in its page as it would without us. When the
//! recorder is loaded, before anybody else's code runs, it takes the pointers out again: what copies the environment
//! (setenv, for one) allocates as much as without us. Who looks for the auxiliary vector behind the environment finds it there
//! (Go does), and who knows where it was (the C library) finds it there: it moves by one entry, and the one that is
//! put in front is that of AT_HWCAP, which the C library does not look up.

use core::ops::Range;

use crate::VARIABLE;

const PAGE: usize = 4096;
/// Bytes of the two pointers that the environment has more.
const POINTERS: usize = 16;
/// The variable that keeps what the user has in [`PRELOAD`].
const THEIRS: &[u8] = b"LINEWISE_THEIRS=";
/// The dynamic linker's variable.
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Entries of an auxiliary vector at most; Linux has some twenty.
const ENTRIES: usize = 64;

/// What the variables say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variables<'a> {
    /// The libraries, separated by colons.
    pub libraries: &'a [u8],
    /// Where the shared memory is.
    pub region: &'a [u8],
}

/// Composed variables as places of a buffer, each `name=value` and a NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Takes the place of the user's, or is the last one.
    pub preload: Range<usize>,
    /// A new one.
    pub region: Range<usize>,
    /// A new one, if the user has libraries.
    pub theirs: Option<Range<usize>>,
}

/// Writes behind what was written.
struct Text<'a> {
    bytes: &'a mut [u8],
    used: usize,
}

impl Text<'_> {
    fn add(&mut self, bytes: &[u8]) -> Option<()> {
        let to = self.bytes.get_mut(self.used..self.used + bytes.len())?;
        to.iter_mut().zip(bytes).for_each(|(to, &byte)| *to = byte);
        self.used += bytes.len();
        Some(())
    }

    fn string(&mut self, parts: &[&[u8]]) -> Option<Range<usize>> {
        let start = self.used;
        parts.iter().try_for_each(|part| self.add(part))?;
        self.add(b"\0")?;
        Some(start..self.used)
    }
}

impl Variables<'_> {
    /// Bytes of the user's libraries at most: with more a program is started without the recorder.
    pub const THEIRS: usize = 2048;

    /// Writes the variables, beside `theirs`, what the user has in LD_PRELOAD; `None` if there is no room.
    pub fn compose(&self, theirs: Option<&[u8]>, buffer: &mut [u8]) -> Option<Environment> {
        let mut text = Text {
            bytes: buffer,
            used: 0,
        };
        let colon: &[u8] = if theirs.is_some() { b":" } else { b"" };
        let their = theirs.unwrap_or_default();
        let preload = text.string(&[PRELOAD, self.libraries, colon, their])?;
        let theirs = match theirs {
            Some(theirs) => Some(text.string(&[THEIRS, PRELOAD, theirs])?),
            None => None,
        };
        let start = text.used;
        text.add(VARIABLE.as_bytes())?;
        text.add(b"=")?;
        text.add(self.region)?;
        // Theirs was there before.
        let there = match &theirs {
            Some(_) => PRELOAD.len() + their.len() + 1,
            None => 0,
        };
        let more = text.used + 1 - there + POINTERS;
        for _ in more..more.next_multiple_of(PAGE) {
            text.add(b" ")?;
        }
        text.add(b"\0")?;
        Some(Environment {
            preload,
            region: start..text.used,
            theirs,
        })
    }
}

/// What the environment said before it was put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// See [`Variables`].
    pub variables: Variables<'static>,
    /// Whether the program does not see the variables.
    pub hidden: bool,
}

/// The bytes of a string, without its NUL.
///
/// # Safety
/// It ends in NUL and stays.
unsafe fn bytes(string: *const u8) -> &'static [u8] {
    // SAFETY: the caller's promise.
    unsafe { core::ffi::CStr::from_ptr(string.cast()) }.to_bytes()
}

/// Whether a variable is the one that says where the memory is; its value up to the blanks.
#[must_use]
pub fn region_of(variable: &[u8]) -> Option<&[u8]> {
    let value = variable.strip_prefix(VARIABLE.as_bytes())?;
    let value = value.strip_prefix(b"=")?;
    value.split(|&byte| byte == b' ').next()
}

/// Whether a variable is one of the recorder's.
#[must_use]
pub fn is_ours(variable: &[u8]) -> bool {
    region_of(variable).is_some() || variable.starts_with(THEIRS)
}

/// The value of the dynamic linker's variable, if this is it.
#[must_use]
pub fn preload_of(variable: &[u8]) -> Option<&[u8]> {
    variable.strip_prefix(PRELOAD)
}

/// Takes the variables out of a new program's environment; `None` if they are not in it.
///
/// # Safety
/// `arguments` are the `count` arguments and `environment` the variables of a program that begins, both lists of strings
/// that end in null and that nobody else uses yet.
#[must_use]
pub unsafe fn hide(
    count: usize,
    arguments: *mut *mut u8,
    environment: *mut *mut u8,
) -> Option<Hidden> {
    let mut variables = 0;
    let (mut region, mut preload, mut theirs) = (None, None, None);
    // SAFETY: the caller's promise: up to the null all are strings.
    unsafe {
        while !(*environment.add(variables)).is_null() {
            let variable = bytes(*environment.add(variables));
            let place = match () {
                () if region_of(variable).is_some() => &mut region,
                () if variable.starts_with(PRELOAD) => &mut preload,
                () if variable.starts_with(THEIRS) => &mut theirs,
                () => &mut None,
            };
            *place = Some((variables, variable));
            variables += 1;
        }
    }
    let ((region, said), (preload, libraries)) = (region?, preload?);
    let mut found = Hidden {
        variables: Variables {
            libraries: libraries.strip_prefix(PRELOAD)?,
            region: region_of(said)?,
        },
        hidden: false,
    };
    let mut removed = preload;
    if let Some((place, kept)) = theirs {
        let kept = kept.strip_prefix(THEIRS)?;
        let theirs = kept.strip_prefix(PRELOAD)?;
        let ours = found.variables.libraries.strip_suffix(theirs)?;
        found.variables.libraries = ours.strip_suffix(b":")?;
        removed = place;
    }
    // SAFETY: the caller's promise: behind the null is the auxiliary vector, if all of it is one list.
    let vector = unsafe { environment.add(variables + 1) }.cast::<[usize; 2]>();
    let together = arguments.wrapping_add(count + 1) == environment;
    // SAFETY: likewise; it is looked at up to its end.
    let Some((first, last)) = together.then(|| unsafe { entries(vector) }).flatten() else {
        return Some(found);
    };
    // SAFETY: the list and the vector are the program's own memory, which nobody uses yet; what is written stays inside
    // both: the list becomes shorter by two pointers, the size of an entry.
    unsafe {
        if let Some((_, kept)) = theirs {
            *environment.add(preload) = kept.as_ptr().add(THEIRS.len()).cast_mut();
        }
        let kept = (0..=variables).filter(|&it| it != region && it != removed);
        for (to, from) in kept.enumerate() {
            *environment.add(to) = *environment.add(from);
        }
        let front = *vector.add(first);
        for place in first..last {
            *vector.add(place) = *vector.add(place + 1);
        }
        *vector.sub(1) = front;
    }
    found.hidden = true;
    Some(found)
}

/// The places of AT_HWCAP and AT_NULL in an auxiliary vector; `None` if it does not look like one.
///
/// # Safety
/// There are [`ENTRIES`] entries, or one of AT_NULL.
unsafe fn entries(vector: *const [usize; 2]) -> Option<(usize, usize)> {
    const NULL: usize = 0;
    const PAGE_SIZE: usize = 6;
    const CAPABILITIES: usize = 16;
    let (mut first, mut plausible) = (None, false);
    for place in 0..ENTRIES {
        // SAFETY: the caller's promise.
        let [kind, value] = unsafe { *vector.add(place) };
        match kind {
            NULL => return first.filter(|_| plausible).map(|first| (first, place)),
            PAGE_SIZE => plausible = value == PAGE,
            CAPABILITIES => first = Some(place),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Variables<'static> = Variables {
        libraries: b"/lib/cxx.so:/lib/ours.so",
        region: b"/proc/7/fd/3",
    };

    fn composed(theirs: Option<&str>) -> (Vec<u8>, Environment) {
        let mut buffer = vec![0; 3 * PAGE];
        let made = OURS
            .compose(theirs.map(str::as_bytes), &mut buffer)
            .unwrap();
        (buffer, made)
    }

    /// What a new program finds: argc words of arguments, the environment, the vector.
    fn image(variables: &[Vec<u8>]) -> Vec<usize> {
        let mut words = vec![c"program".as_ptr() as usize, 0];
        words.extend(variables.iter().map(|it| it.as_ptr() as usize));
        words.extend([0, 33, 1, 16, 2, 6, 4096, 3, 4, 0, 0]);
        words
    }

    fn hidden(words: &mut [usize]) -> Option<Hidden> {
        let start: *mut *mut u8 = words.as_mut_ptr().cast();
        // SAFETY: an image as `image` makes it.
        unsafe { hide(1, start, start.add(2)) }
    }

    fn strings(words: &[usize]) -> Vec<&'static [u8]> {
        let variables = words[2..].iter().take_while(|&&it| it != 0);
        // SAFETY: strings that the test keeps.
        variables
            .map(|&it| unsafe { bytes(it as *const u8) })
            .collect()
    }

    #[test]
    fn what_is_added_to_a_stack_is_whole_pages() {
        for theirs in [None, Some("/lib/a.so"), Some(&*"x".repeat(1000))] {
            let (_, made) = composed(theirs);
            let before = theirs.map_or(0, |it| PRELOAD.len() + it.len() + 1);
            let lengths = [Some(made.preload), Some(made.region), made.theirs];
            let after: usize = lengths.iter().flatten().map(|it| it.len()).sum();
            assert_eq!((after - before + POINTERS) % PAGE, 0);
        }
        let mut small = [0; 100];
        assert_eq!(OURS.compose(None, &mut small), None);
    }

    #[test]
    fn the_program_sees_its_own_environment_and_everybody_finds_the_vector() {
        let (buffer, made) = composed(None);
        let part = |it: &Range<usize>| buffer[it.clone()].to_vec();
        let variables = [
            b"A=1\0".to_vec(),
            part(&made.region),
            b"B\0".to_vec(),
            part(&made.preload),
        ];
        let mut words = image(&variables);
        let found = hidden(&mut words).unwrap();
        assert_eq!(
            found,
            Hidden {
                variables: OURS,
                hidden: true
            }
        );
        assert_eq!(strings(&words), [&b"A=1"[..], b"B"]);
        // Behind the environment, and where it was.
        assert_eq!(words[5..], [16, 2, 33, 1, 6, 4096, 3, 4, 0, 0, 0, 0]);
        assert_eq!(hidden(&mut words), None);
    }

    #[test]
    fn the_users_own_libraries_stay_where_they_were() {
        let theirs = "/lib/theirs.so:/lib/more.so";
        let (buffer, made) = composed(Some(theirs));
        let part = |it: &Range<usize>| buffer[it.clone()].to_vec();
        let variables = [
            part(&made.preload),
            b"A=1\0".to_vec(),
            part(&made.region),
            part(&made.theirs.unwrap()),
        ];
        let mut words = image(&variables);
        let found = hidden(&mut words).unwrap();
        assert_eq!(
            found,
            Hidden {
                variables: OURS,
                hidden: true
            }
        );
        assert_eq!(
            strings(&words),
            [format!("LD_PRELOAD={theirs}").as_bytes(), b"A=1"]
        );
        assert_eq!(words[5..9], [16, 2, 33, 1]);
    }

    #[test]
    fn what_is_no_auxiliary_vector_is_left_alone() {
        let (buffer, made) = composed(None);
        let part = |it: &Range<usize>| buffer[it.clone()].to_vec();
        let variables = [part(&made.region), part(&made.preload)];
        let mut words = image(&variables);
        let place = words.len() - 5;
        words[place] = 17;
        let before = words.clone();
        assert!(!hidden(&mut words).unwrap().hidden);
        assert_eq!(words, before);
    }
}
