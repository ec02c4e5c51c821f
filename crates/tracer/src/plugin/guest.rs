//! What the guest has mapped, and which of its code is wanted.

use super::code::Classifier;
use super::lock::Lock;
use super::writer;
use crate::clock;
use crate::words;
use std::sync::OnceLock;

/// The files of the heap recorder.
const RECORDERS: [&[u8]; 2] = [b"/liblinewise_preload.so", b"/liblinewise_preload_cxx.so"];

/// A mapping of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Map {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
    pub(super) executable: bool,
    pub(super) writable: bool,
    /// Device (major number times 2^20 plus minor) and inode of what is behind it, if that is for all to see.
    pub(super) backing: Option<(u32, u64)>,
    pub(super) path: Vec<u8>,
}

impl Map {
    /// Whether anybody is likely to write to it, which is shared: a file that is mapped to be read only is none of those, but a piece of
    /// memory is.
    pub(super) fn may_change(&self) -> bool {
        const MEMORY: [&[u8]; 4] = [b"/dev/shm/", b"/dev/zero", b"/memfd:", b"/SYSV"];
        self.writable || MEMORY.iter().any(|place| self.path.starts_with(place))
    }
}

/// Code that is wanted: file offsets of a module, all of it if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) module: Vec<u8>,
    pub(super) ranges: Vec<(u64, u64)>,
}

impl Wanted {
    /// Whether `path` is the module: the same path, or a file of that name, for a name without
    /// directory; `libc` also names `libc.so.6`, and `libz.so.1` the file `libz.so.1.2.13` that it is a link to.
    fn is(&self, path: &[u8]) -> bool {
        if self.module.contains(&b'/') {
            return self.module == path;
        }
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let versioned = self.module.windows(4).any(|part| part == b".so.");
        let more: &[u8] = if versioned { b"." } else { b".so" };
        name.strip_prefix(self.module.as_slice())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(more))
    }
}

/// The guest's code and mappings.
pub(super) struct Guest {
    pub(super) classifier: Classifier,
    /// What QEMU itself had mapped when the plugin was installed.
    before: Vec<Map>,
    /// What the guest mapped since, in order.
    maps: Vec<Map>,
    looked: bool,
    /// Empty: everything.
    wanted: Vec<Wanted>,
    /// Where the libraries of the heap recorder lie, whose accesses are not the program's: first byte and one past
    /// the last.
    recorders: [(u64, u64); RECORDERS.len()],
    /// For the words of definitions.
    pub(super) record: Vec<u64>,
}

/// One line of `/proc/PID/maps`.
fn parse(line: &[u8]) -> Option<Map> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    // The path is the rest of the line, spaces included; five fields come first.
    let mut rest = line;
    let mut fields = [&line[..0]; 5];
    for field in &mut fields {
        rest = rest.trim_ascii_start();
        let length = rest
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(rest.len());
        (*field, rest) = rest.split_at(length);
    }
    let (start, end) = text(fields[0])?.split_once('-')?;
    let backing = || {
        let (major, minor) = text(fields[3])?.split_once(':')?;
        let hexadecimal = |text| u32::from_str_radix(text, 16).ok();
        let device = (hexadecimal(major)? << 20) | hexadecimal(minor)?;
        Some((device, text(fields[4])?.parse().ok()?))
    };
    Some(Map {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(text(fields[2])?, 16).ok()?,
        executable: fields[1].contains(&b'x'),
        writable: fields[1].contains(&b'w'),
        backing: fields[1].contains(&b's').then(backing).flatten(),
        path: rest.trim_ascii_start().to_vec(),
    })
}

/// What this process has mapped.
pub(super) fn own_maps() -> Vec<Map> {
    std::fs::read("/proc/self/maps")
        .unwrap_or_default()
        .split(|&byte| byte == b'\n')
        .filter_map(parse)
        .collect()
}

/// What is known of the guest, once the plugin is installed.
static GUEST: OnceLock<Lock<Guest>> = OnceLock::new();

/// The guest's code and mappings; who holds their lock may write definitions.
pub(super) fn current() -> Option<&'static Lock<Guest>> {
    GUEST.get()
}

/// Makes it known for good.
pub(super) fn set(guest: Guest) {
    // There is one plugin in a process, which is installed once.
    let _ = GUEST.set(Lock::new(guest));
}

impl Guest {
    /// Call it before the guest's program is loaded.
    pub(super) fn new(classifier: Classifier, wanted: Vec<Wanted>) -> Self {
        Self {
            classifier,
            before: own_maps(),
            maps: Vec::new(),
            looked: false,
            wanted,
            recorders: [(0, 0); RECORDERS.len()],
            record: Vec::new(),
        }
    }

    /// Finds what QEMU loaded for the guest: the program and its interpreter. Does so once, at the
    /// first translation.
    pub(super) fn look(&mut self) {
        if std::mem::replace(&mut self.looked, true) {
            return;
        }
        let found: Vec<Map> = own_maps()
            .into_iter()
            .filter(|map| map.path.starts_with(b"/") && !map.path.starts_with(b"/memfd:"))
            .filter(|map| {
                !self
                    .before
                    .iter()
                    .any(|old| old.path == map.path && old.start < map.end && map.start < old.end)
            })
            .collect();
        for map in found {
            self.map(map);
        }
    }

    /// The guest mapped something.
    pub(super) fn map(&mut self, map: Map) {
        // QEMU maps guest code for reading, since it is only translated: what a file maps without
        // the right to write may be code.
        self.announce(&map, 0);
        for (place, name) in self.recorders.iter_mut().zip(RECORDERS) {
            if map.path.ends_with(name) {
                *place = match *place {
                    (_, 0) => (map.start, map.end),
                    (start, end) => (start.min(map.start), end.max(map.end)),
                };
            }
        }
        self.maps.retain(|old| {
            old.end <= map.start
                || map.end <= old.start
                || old.path != map.path
                || old.start != map.start
        });
        self.maps.push(map);
    }

    /// `more`: further flags of the definition.
    fn announce(&mut self, map: &Map, more: u64) {
        let mut rest = vec![
            clock::stamp(),
            map.start,
            map.end,
            map.offset,
            u64::from(map.executable)
                | (u64::from(map.writable) << 1)
                | map.backing.map_or(0, |_| words::SHARED_MAP)
                | more,
            map.backing.map_or(0, |it| it.0.into()),
            map.backing.map_or(0, |it| it.1),
        ];
        words::push_text(&mut rest, &map.path[..map.path.len().min(4096)]);
        self.record.clear();
        self.record
            .push(words::definition(words::DEFINES_MAP, rest.len() as u16));
        self.record.append(&mut rest);
        // SAFETY: whoever has `&mut Guest` holds its lock.
        unsafe { writer::define(&self.record) };
    }

    /// The guest has nothing there any more, where others might have had it too.
    pub(super) fn unmap(&mut self, start: u64, end: u64) {
        self.maps.retain(|old| old.start < start || end < old.end);
        let gone = Map {
            start,
            end,
            ..Map::default()
        };
        self.announce(&gone, words::UNMAPPED);
    }

    /// Tells of all mappings again, in a child process.
    pub(super) fn announce_all(&mut self) {
        for map in self.maps.clone() {
            self.announce(&map, 0);
        }
    }

    /// Whether `address` is code of the heap recorder.
    pub(super) fn is_recorder(&self, address: u64) -> bool {
        let mut recorders = self.recorders.iter();
        recorders.any(|&(start, end)| start <= address && address < end)
    }

    /// Whether the instruction at `address` is to be recorded.
    pub(super) fn wants(&self, address: u64) -> bool {
        if self.wanted.is_empty() {
            return true;
        }
        let Some(map) = self
            .maps
            .iter()
            .rev()
            .find(|map| map.start <= address && address < map.end)
        else {
            return false;
        };
        let offset = address - map.start + map.offset;
        self.wanted.iter().any(|wanted| {
            wanted.is(&map.path)
                && (wanted.ranges.is_empty()
                    || wanted
                        .ranges
                        .iter()
                        .any(|&(low, high)| low <= offset && offset < high))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_named_by_its_path_or_its_name() {
        let wanted = |module: &str| Wanted {
            module: module.into(),
            ranges: Vec::new(),
        };
        assert!(wanted("libc").is(b"/lib/libc.so.6"));
        assert!(wanted("libc.so.6").is(b"/lib/libc.so.6"));
        assert!(wanted("/lib/libc.so.6").is(b"/lib/libc.so.6"));
        assert!(!wanted("libc").is(b"/lib/libcrypt.so.1"));
        assert!(wanted("libz.so.1").is(b"/lib/libz.so.1.2.13"));
        assert!(!wanted("libz.so.1").is(b"/lib/libz.so.12"));
        assert!(!wanted("app").is(b"/srv/app.old"));
        assert!(!wanted("/usr/lib/libc.so.6").is(b"/lib/libc.so.6"));
    }

    #[test]
    fn a_line_of_maps_is_read_with_spaces_in_its_path() {
        let map = parse(b"7f00-8f00 r-xp 00001000 08:01 1234     /opt/a b/c.so").unwrap();
        assert_eq!((map.start, map.end, map.offset), (0x7f00, 0x8f00, 0x1000));
        assert!(map.executable && !map.writable);
        assert_eq!((map.path, map.backing), (b"/opt/a b/c.so".to_vec(), None));
        let map = parse(b"7f00-8f00 rw-s 00000000 00:1f 77    /dev/zero (deleted)").unwrap();
        assert_eq!(map.backing, Some((0x1f, 77)));
        assert_eq!(parse(b"1-2 rw-p 0 0 0").unwrap().path, b"");
        assert_eq!(parse(b""), None);
    }
}
