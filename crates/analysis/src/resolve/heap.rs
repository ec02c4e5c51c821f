//! Which heap block an address was in at a time, and where the program asked for it.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{Address, Allocator, Frame, HeapBlock, Object, ObjectKind, Pid, Time};

use crate::runtime::Runtime;

/// The recorded heap blocks, to be asked what was where, when.
#[derive(Debug, Default)]
pub struct HeapBlocks<'a> {
    processes: HashMap<Pid, Process<'a>>,
}

/// Blocks by the power of two that bounds their size, so that one of 16 bytes is not looked for a page before the
/// address; then by first byte; those that lay there one after the other by time.
type Process<'a> = BTreeMap<u32, BTreeMap<u64, Vec<&'a HeapBlock>>>;

impl<'a> HeapBlocks<'a> {
    /// The blocks of the table `heap_blocks`, in any order.
    #[must_use]
    pub fn new(blocks: &'a [HeapBlock]) -> Self {
        let mut processes: HashMap<Pid, Process<'a>> = HashMap::new();
        for block in blocks {
            let process = processes.entry(block.pid).or_default();
            let of_size = process.entry(bound(block)).or_default();
            of_size.entry(block.address.0).or_default().push(block);
        }
        let sizes = processes.values_mut().flat_map(BTreeMap::values_mut);
        for lives in sizes.flat_map(BTreeMap::values_mut) {
            lives.sort_by_key(|block| block.allocated);
        }
        Self { processes }
    }

    /// The recorded block of process `pid` that holds `address` at `time`: of blocks in one another
    /// the one allocated last. `None` also where the block was not recorded.
    #[must_use]
    pub fn at(&self, pid: Pid, address: Address, time: Time) -> Option<&'a HeapBlock> {
        let sizes = self.processes.get(&pid)?.iter();
        // Of blocks of one size the nearest that holds the address is the innermost: pools cut objects from blocks,
        // which begin no earlier.
        let innermost = |(&bound, blocks): (&u32, &BTreeMap<u64, Vec<&'a HeapBlock>>)| {
            let farthest = 1_u64.checked_shl(bound).map_or(u64::MAX, |size| size - 1);
            let near = address.0.saturating_sub(farthest)..=address.0;
            let mut nearest = blocks.range(near).rev();
            nearest.find_map(|(_, lives)| holding(lives, address, time))
        };
        sizes
            .filter_map(innermost)
            .max_by_key(|block| block.allocated)
    }
}

/// The exponent of the least power of two that is no less than the block's size.
fn bound(block: &HeapBlock) -> u32 {
    let size = block.size.max(1);
    u64::BITS - (size - 1).leading_zeros()
}

/// Of blocks with one first byte, in the order of time, the one that holds `address` at `time`.
fn holding<'a>(lives: &[&'a HeapBlock], address: Address, time: Time) -> Option<&'a HeapBlock> {
    let began = lives.partition_point(|block| block.allocated <= time);
    // A pool's object can begin where the pool's block does.
    lives
        .get(began.saturating_sub(2)..began)?
        .iter()
        .rev()
        .copied()
        .find(|block| {
            address.0 - block.address.0 < block.size.max(1)
                && block.freed.is_none_or(|freed| time < freed)
        })
}

/// The object that a heap block is, where `site` is the frame that allocated it.
pub(super) fn object(block: &HeapBlock, site: Option<&Frame>) -> Object {
    let function = site.map_or("", |frame| frame.function.as_str());
    // What the program maps itself no allocator cuts into blocks.
    let (kind, what) = match block.allocator {
        Allocator::Mmap => (ObjectKind::Mapping, "memory mapped"),
        _ => (ObjectKind::Heap, "block allocated"),
    };
    // That a runtime mapped it says nothing: it is where the program's objects are.
    let runtime = site.filter(|_| block.allocator == Allocator::Mmap);
    let runtime = runtime.and_then(Runtime::that_maps);
    let name = match (block.label.as_str(), runtime.map_or(function, |it| it.heap)) {
        ("", heap) if runtime.is_some() => heap.to_owned(),
        ("", "") => format!("{what} at an unknown place"),
        ("", function) => format!("{what} by {function}"),
        (label, _) => label.to_owned(),
    };
    Object {
        pid: block.pid,
        address: block.address,
        size: block.size,
        kind,
        name,
        type_name: String::new(),
        declared_at: site
            .filter(|frame| frame.line > 0 && runtime.is_none())
            .map(|frame| format!("{}:{}", frame.file, frame.line))
            .unwrap_or_default(),
    }
}

/// The frame that stands for an allocation: the innermost that is no allocator, nor a wrapper or a
/// container of the language's library around one. `frames` are those of the stack, innermost first.
#[must_use]
pub fn allocation_site<'f>(frames: impl IntoIterator<Item = &'f Frame>) -> Option<&'f Frame> {
    let mut first = None;
    for frame in frames {
        first = first.or(Some(frame));
        if !frame.function.is_empty() && !allocates(&frame.function) && !of_library(&frame.file) {
            return Some(frame);
        }
    }
    first
}

/// Whether a source file is one of a language's library.
fn of_library(file: &str) -> bool {
    let of_rust = |library: &str| {
        let inside = file.split_once(library).map(|(before, _)| before);
        inside.is_some_and(|before| before.starts_with("/rustc/") || before.ends_with("/rust"))
    };
    file.contains("/include/c++/")
        || ["/library/alloc/", "/library/core/", "/library/std/"]
            .into_iter()
            .any(of_rust)
}

/// Whether a function is part of how memory is asked for, by its name.
fn allocates(function: &str) -> bool {
    const LIBRARIES: &[&str] = &[
        "operator new",
        "std::",
        "__gnu_cxx::",
        "alloc::",
        "core::",
        "hashbrown::",
        "<alloc::",
        "<core::",
        "<std::",
        "<hashbrown::",
        "__rust_",
        "__rustc::",
        "__rdl_",
        // Names that no demangler understands.
        "_ZSt",
        "_ZNSt",
        "_ZNKSt",
        "_Znwm",
        "_Znam",
    ];
    const WRAPPERS: &[&str] = &[
        "malloc",
        "calloc",
        "realloc",
        "zalloc",
        "memalign",
        "aligned_alloc",
        "reallocarray",
        "strdup",
        "strndup",
        "valloc",
        "malloc0",
        "malloc_n",
        "malloc0_n",
        "realloc_n",
        "slice_alloc",
        "slice_alloc0",
        "mallocarray",
    ];
    // `void std::vector<int>::push_back(...)`: a template's result comes first.
    let name = function.split_once('(').map_or(function, |(name, _)| name);
    let name = match name.split_once(' ') {
        Some((result, rest)) if !result.contains('<') && result != "operator" => rest,
        _ => name,
    };
    // What a crate makes Rust's global allocator.
    let global = ["GlobalAlloc>::", "::Allocator>::"];
    let of_rust = name.starts_with('<') && global.iter().any(|it| name.contains(it));
    of_rust
        || LIBRARIES.iter().any(|library| name.starts_with(library))
        || WRAPPERS.iter().any(|wrapper| name.ends_with(wrapper))
}

#[cfg(test)]
mod tests {
    use linewise_recording::{StackId, Tid};

    use super::*;

    fn block(id: u64, address: u64, size: u64, life: (u64, Option<u64>)) -> HeapBlock {
        HeapBlock {
            id,
            pid: Pid(1),
            address: Address(address),
            size,
            allocator: Allocator::Malloc,
            label: String::new(),
            allocated: Time(life.0),
            allocated_by: Tid(1),
            stack: StackId(1),
            freed: life.1.map(Time),
            freed_by: None,
            weight: 1.0,
        }
    }

    #[test]
    fn an_address_belongs_to_the_block_that_was_there_at_the_time() {
        let rows = [
            block(1, 0x1000, 48, (10, Some(20))),
            block(2, 0x1000, 32, (30, None)),
            block(3, 0x1030, 16, (5, None)),
            block(4, 0x8000, 1 << 20, (1, None)),
            // An object of a pool in the large block, and one at its very beginning.
            block(5, 0x9000, 64, (40, Some(50))),
            block(6, 0x8000, 64, (40, None)),
            // Its end was not told, and another one lies there now.
            block(7, 0x200_010, 16, (1, None)),
            block(8, 0x200_000, 96, (60, None)),
        ];
        let blocks = HeapBlocks::new(&rows);
        let at = |address, time| {
            blocks
                .at(Pid(1), Address(address), Time(time))
                .map(|block| block.id)
        };
        assert_eq!(at(0x1008, 15), Some(1));
        assert_eq!(at(0x1008, 25), None);
        assert_eq!(at(0x1008, 30), Some(2));
        // Between the end of the second block and the third.
        assert_eq!(at(0x1028, 15), Some(1));
        assert_eq!(at(0x1028, 35), None);
        assert_eq!(at(0x103f, 35), Some(3));
        assert_eq!(at(0x1040, 35), None);
        assert_eq!(at(0x9010, 45), Some(5));
        assert_eq!(at(0x9010, 55), Some(4));
        assert_eq!(at(0x8000, 45), Some(6));
        assert_eq!(at(0x8040, 45), Some(4));
        assert_eq!(at(0x200_018, 59), Some(7));
        assert_eq!(at(0x200_018, 60), Some(8));
        assert_eq!(blocks.at(Pid(2), Address(0x1008), Time(15)), None);
    }

    #[test]
    fn the_site_of_an_allocation_is_behind_the_wrappers() {
        let frame = |function: &str| Frame {
            pid: Pid(1),
            address: Address(1),
            depth: 0,
            function: function.to_owned(),
            file: String::new(),
            line: 0,
            module: String::new(),
            reason: String::new(),
        };
        let site = |functions: &[&str]| {
            let frames: Vec<Frame> = functions.iter().map(|name| frame(name)).collect();
            allocation_site(&frames).map(|frame| frame.function.clone())
        };
        let found = |name: &str| Some(name.to_owned());
        assert_eq!(
            site(&["zmalloc", "createObject", "main"]),
            found("createObject")
        );
        assert_eq!(
            site(&[
                "operator new(unsigned long)",
                "std::__new_allocator<int>::allocate(unsigned long, void const*)",
                "void std::vector<int, std::allocator<int> >::push_back(int const&)",
                "Table::grow(int)"
            ]),
            found("Table::grow(int)")
        );
        assert_eq!(
            site(&[
                "__rdl_alloc",
                "alloc::alloc::alloc",
                "<alloc::vec::Vec<T>>::push",
                "app::run"
            ]),
            found("app::run")
        );
        assert_eq!(
            site(&[
                "<tikv_jemallocator::Jemalloc as core::alloc::global::GlobalAlloc>::alloc",
                "__rustc::__rust_alloc",
                "app::run"
            ]),
            found("app::run")
        );
        assert_eq!(
            site(&["g_malloc0_n", "_ZSt11make_sharedI4NodeJEE", "make_node"]),
            found("make_node")
        );
        // Known by where their source is.
        let of = |function: &str, file: &str| Frame {
            file: file.to_owned(),
            ..frame(function)
        };
        for library in [
            "/rustc/0123abc/library/alloc/src/str.rs",
            "/home/u/.rustup/toolchains/stable/lib/rustlib/src/rust/library/core/src/ops/function.rs",
            "/usr/include/c++/12/bits/stl_vector.h",
        ] {
            let frames = [
                of("<str>::repeat", library),
                of("make_text", "/home/u/library/core/src/a.rs"),
            ];
            let site = allocation_site(&frames).map(|frame| frame.function.as_str());
            assert_eq!(site, Some("make_text"), "{library}");
        }
        assert_eq!(site(&["allocate_table"]), found("allocate_table"));
        assert_eq!(site(&["xmalloc"]), found("xmalloc"));
        assert_eq!(site(&[]), None);
    }
}
