//! Names as people wrote them: Rust and C++ symbols demangled, without hashes and parameters.

use std::fmt;

/// Longer symbols are shown as they are: demangling is not worth the time a hostile one can take.
const LONGEST_SYMBOL: usize = 4096;
/// C++ substitutions can unfold a short symbol into gigabytes.
const LONGEST_NAME: usize = 8192;

/// The readable form of the symbol or name `raw`, which is returned unchanged if it has none.
pub(super) fn demangle(raw: &str) -> String {
    if raw.len() > LONGEST_SYMBOL {
        return cut(raw.as_bytes());
    }
    // Version and clone suffixes (`@@GLIBC_2.2.5`, `.constprop.0`, `.llvm.123`) are linker business.
    let symbol = raw.split_once('@').map_or(raw, |(name, _)| name);
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return bounded(format_args!("{name:#}")).unwrap_or_else(|| symbol.to_owned());
    }
    if symbol.starts_with("_Z") {
        return demangle_cpp(symbol).unwrap_or_else(|| symbol.to_owned());
    }
    symbol.to_owned()
}

/// What is kept of a name: all of it unless it is far too long. Every row has a copy, and a name can have a gigabyte.
pub(super) fn cut(name: &[u8]) -> String {
    match name.get(..LONGEST_NAME) {
        Some(start) if name.len() > LONGEST_NAME => {
            String::from_utf8_lossy(start).into_owned() + "…"
        }
        _ => String::from_utf8_lossy(name).into_owned(),
    }
}

fn demangle_cpp(symbol: &str) -> Option<String> {
    let plain = match symbol.find('.') {
        Some(suffix) => &symbol[..suffix],
        None => symbol,
    };
    let parsed = cpp_demangle::Symbol::new(plain).ok()?;
    let options = cpp_demangle::DemangleOptions::new()
        .no_params()
        .no_return_type();
    let mut name = Bounded(String::new());
    parsed.structured_demangle(&mut name, &options).ok()?;
    Some(name.0)
}

fn bounded(text: fmt::Arguments<'_>) -> Option<String> {
    let mut name = Bounded(String::new());
    fmt::Write::write_fmt(&mut name, text).ok()?;
    Some(name.0)
}

struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > LONGEST_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_NAME, cut, demangle};

    #[test]
    fn rust_symbols_lose_their_hash() {
        assert_eq!(
            demangle("_ZN4core3fmt5write17h0123456789abcdefE"),
            "core::fmt::write"
        );
        assert_eq!(demangle("_RNvC6_123foo3bar"), "123foo::bar");
    }

    #[test]
    fn cpp_symbols_lose_their_parameters() {
        assert_eq!(demangle("_ZN2ns5Table6insertEi"), "ns::Table::insert");
        assert_eq!(demangle("_ZN2ns7counterE"), "ns::counter");
        assert_eq!(
            demangle("_ZN2ns5Table6insertEi.constprop.0"),
            "ns::Table::insert"
        );
    }

    #[test]
    fn a_name_without_end_is_cut() {
        let long = "a".repeat(1 << 20);
        for shown in [cut(long.as_bytes()), demangle(&long)] {
            assert!(shown.ends_with("a…") && shown.len() == LONGEST_NAME + 3);
        }
        assert_eq!(cut(b"main"), "main");
        assert_eq!(cut(&[b'a'; LONGEST_NAME]).len(), LONGEST_NAME);
    }

    #[test]
    fn plain_names_stay() {
        assert_eq!(demangle("main"), "main");
        assert_eq!(demangle("memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(demangle("main.(*Worker).run"), "main.(*Worker).run");
    }
}
