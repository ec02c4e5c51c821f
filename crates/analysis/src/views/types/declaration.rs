//! Members as their languages declare them.

/// A field of a struct in Rust that has lines of its own.
pub(crate) fn padded_field(name: &str, kind: &str) -> String {
    format!(
        "{name}: crossbeam_utils::CachePadded<{kind}>, // of the crate crossbeam-utils; made with CachePadded::new"
    )
}

/// A member in Rust, with its types where programs name them; `None` where it has a lifetime, which debug info does not tell.
fn rust_declaration(name: &str, kind: &str) -> Option<String> {
    let has_lifetime = |it: &str| it.starts_with("'static");
    if !kind.split('&').skip(1).all(has_lifetime) || kind.contains("dyn ") {
        return None;
    }
    let raw = match matches!(
        name,
        "type" | "match" | "move" | "loop" | "use" | "ref" | "box" | "in" | "where"
    ) {
        true => "r#",
        false => "",
    };
    Some(format!("{raw}{name}: {}", rust_kind(kind)))
}

/// The public paths of types of Rust's library: debug info names the private modules that they are declared in.
const PUBLIC: [(&str, &[&str]); 8] = [
    (
        "std::sync",
        &[
            "Mutex", "RwLock", "Condvar", "Once", "OnceLock", "Barrier", "Arc",
        ],
    ),
    (
        "std::collections",
        &[
            "HashMap",
            "HashSet",
            "BTreeMap",
            "BTreeSet",
            "VecDeque",
            "BinaryHeap",
        ],
    ),
    ("std::vec", &["Vec"]),
    ("std::string", &["String"]),
    ("std::boxed", &["Box"]),
    ("std::rc", &["Rc"]),
    ("std::hash", &["RandomState"]),
    ("std::borrow", &["Cow"]),
];

/// The name of a type in Rust: public paths of the library, and the last part of those of the program, which depend on
/// where they are written.
fn rust_kind(kind: &str) -> String {
    let kind = kind.replace(", alloc::alloc::Global>", ">");
    let words = by_path(&kind, "_:", |path| {
        let name = path.rsplit("::").next().unwrap_or(path);
        match path.split("::").next() {
            Some("core" | "std" | "alloc") => {
                let public = PUBLIC.iter().find(|(_, names)| names.contains(&name));
                match public {
                    Some((module, _)) => format!("{module}::{name}"),
                    None => path.to_owned(),
                }
            }
            // `T: Trait` is no path.
            _ if path.contains("::") => name.to_owned(),
            _ => path.to_owned(),
        }
    });
    // The generic atomic is not stable, its names are.
    let atomics = [
        "u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize", "bool",
    ];
    atomics.iter().fold(words, |words, of| {
        let (first, rest) = of.split_at(1);
        let name = format!("::Atomic{}{rest}", first.to_uppercase());
        words.replace(&format!("::Atomic<{of}>"), &name)
    })
}

/// A type with every path in it, of letters, digits and these marks, as `name` has it.
fn by_path(kind: &str, marks: &str, name: impl Fn(&str) -> String) -> String {
    let is_path = |c: char| c.is_alphanumeric() || marks.contains(c);
    let mut rest = kind;
    let mut words = String::new();
    while !rest.is_empty() {
        let end = rest.find(|c| !is_path(c)).unwrap_or(rest.len());
        let (path, more) = rest.split_at(end);
        words.push_str(&name(path));
        let mark = more.chars().next().map_or(0, char::len_utf8);
        words.push_str(&more[..mark]);
        rest = &more[mark..];
    }
    words
}

/// The name of a type in Go: that of its package is the last part of its path.
pub(super) fn go_kind(kind: &str) -> String {
    by_path(kind, "./_-", |path| {
        path.rsplit('/').next().unwrap_or(path).to_owned()
    })
}

/// A member as its language declares it: its name, its type and its bits, 0 if it is no bit field; `None` if its
/// type has no name to write down.
pub(crate) fn declaration(name: &str, kind: &str, bits: u64, language: &str) -> Option<String> {
    if name.is_empty()
        || kind.is_empty()
        || kind.contains("(anonymous ")
        || name.starts_with("_vptr")
    {
        return None;
    }
    if language == "rust" {
        return rust_declaration(name, kind);
    }
    if kind.contains("function") {
        return None;
    }
    let (base, dimensions) = match kind.find('[') {
        Some(at) => kind.split_at(at),
        None => (kind, ""),
    };
    let bits = match bits {
        0 => String::new(),
        bits => format!(" : {bits}"),
    };
    Some(format!("{base} {name}{dimensions}{bits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_declared_as_programs_name_them() {
        let rust = |name, kind| declaration(name, kind, 0, "rust");
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            rust("type", "alloc::vec::Vec<u32, alloc::alloc::Global>"),
            some("r#type: std::vec::Vec<u32>")
        );
        assert_eq!(rust("name", "&'static str"), some("name: &'static str"));
        for (kind, public) in [
            (
                "core::sync::atomic::Atomic<u64>",
                "core::sync::atomic::AtomicU64",
            ),
            (
                "std::sync::poison::mutex::Mutex<u64>",
                "std::sync::Mutex<u64>",
            ),
            ("[shop::orders::Order; 4]", "[Order; 4]"),
        ] {
            assert_eq!(rust("it", kind), Some(format!("it: {public}")));
        }
        // Whose lifetime nobody tells.
        assert_eq!(rust("name", "core::option::Option<&str>"), None);
        assert_eq!(go_kind("sync/atomic.Uint64"), "atomic.Uint64");
        assert_eq!(
            go_kind("map[string]*example.com/a-b/c.T"),
            "map[string]*c.T"
        );
    }
}
