//! What a proposed change consists of, and in which language it is written.

use std::collections::BTreeMap;

use crate::model::AccessRow;

/// The language that a change is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    C,
    Cpp,
    Rust,
    Go,
    Java,
    JavaScript,
    Python,
    Other,
}

impl Language {
    fn of_word(word: &str) -> Self {
        match word {
            "c" => Self::C,
            "c++" => Self::Cpp,
            "rust" => Self::Rust,
            "go" => Self::Go,
            "java" => Self::Java,
            "javascript" => Self::JavaScript,
            "python" => Self::Python,
            _ => Self::Other,
        }
    }
}

/// The language of a source file by its name; empty of one that several have (`.h`), and of one that nobody knows.
pub(super) fn language_of_file(file: &str) -> &'static str {
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension {
        "c" => "c",
        "cc" | "cpp" | "cxx" | "C" | "hh" | "hpp" | "hxx" | "tcc" | "ipp" => "c++",
        "rs" => "rust",
        "go" => "go",
        "java" | "kt" | "scala" => "java",
        "js" | "mjs" | "cjs" | "ts" => "javascript",
        "py" => "python",
        _ => "",
    }
}

/// The language that most of the time of `accesses` passes in.
pub(super) fn language(accesses: &[AccessRow]) -> Language {
    let mut shares: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    for access in accesses {
        let word = match access.language.as_str() {
            "" => language_of_file(&access.file),
            word => word,
        };
        if !word.is_empty() {
            let share = shares.entry(word).or_default();
            *share = (share.0 + access.share, share.1 + 1);
        }
    }
    let most = shares
        .into_iter()
        .max_by(|(_, a), (_, b)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    most.map_or(Language::Other, |(word, _)| Language::of_word(word))
}

/// Whether a type is one of the language's own numbers or a pointer, as debug info names it.
pub(super) fn is_builtin(kind: &str) -> bool {
    const WORDS: &str = " char short int long float double signed unsigned bool _Bool void const volatile wchar_t size_t ";
    let is_word = |word: &str| WORDS.contains(&format!(" {word} "));
    // `uint64_t`, `u64`, `float64`.
    let is_sized = |word: &str| {
        let name = word.trim_end_matches("_t").trim_end_matches("ptr");
        let name = name.trim_end_matches("size");
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
        matches!(kind, "uint" | "int" | "float" | "u" | "i" | "f") && (word != kind)
    };
    kind.ends_with('*')
        || kind.starts_with("*")
        || (!kind.is_empty() && kind.split(' ').all(|word| is_word(word) || is_sized(word)))
}

/// A proposed change.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Change {
    pub(crate) text: String,
    pub(crate) source: String,
}

/// The distinct fields that different threads touch, dearest first.
pub(super) fn touched_fields<'a>(
    accesses: impl IntoIterator<Item = &'a AccessRow>,
) -> Vec<&'a str> {
    let mut fields: Vec<&str> = Vec::new();
    for access in accesses {
        if !access.field.is_empty() && !fields.contains(&access.field.as_str()) {
            fields.push(&access.field);
        }
    }
    fields
}
