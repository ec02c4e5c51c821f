//! What a proposed change consists of, and in which language it is written.

use crate::model::AccessRow;

/// The language of a source file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    C,
    Cpp,
    Rust,
    Go,
    Other,
}

pub(super) fn language(accesses: &[AccessRow]) -> Language {
    let extension = accesses
        .iter()
        .find_map(|access| access.file.rsplit_once('.').map(|(_, extension)| extension))
        .unwrap_or_default();
    match extension {
        "c" => Language::C,
        "cc" | "cpp" | "cxx" | "h" | "hh" | "hpp" | "tcc" => Language::Cpp,
        "rs" => Language::Rust,
        "go" => Language::Go,
        _ => Language::Other,
    }
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

/// How the work is delegated with our own runtime, where it has a face for the language.
pub(super) fn delegated(language: Language) -> String {
    match language {
        Language::C | Language::Cpp => {
            "linewise_apply(client, data, index, work, argument); // linewise_delegate.h".to_owned()
        }
        Language::Rust => {
            "client.apply(&owned, |data| { /* the work on it */ })?; // linewise-delegate"
                .to_owned()
        }
        Language::Go | Language::Other => String::new(),
    }
}
