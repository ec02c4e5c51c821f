//! The document around what is written: its policy, its style, its script.

use base64::Engine as _;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::Digest as _;

use super::super::text;

// All that stands in a document without being escaped.
pub(super) const STYLE: PreEscaped<&str> = PreEscaped(include_str!("report.css"));
pub(super) const SCRIPT: PreEscaped<&str> =
    PreEscaped(concat!(include_str!("report.js"), include_str!("calls.js")));
/// The end of a line of source. A plain one would be shown as one in a name is.
pub(super) const NEW_LINE: PreEscaped<&str> = PreEscaped("&#10;");

/// A document. What strangers named is in `title` and `body`, where characters that nobody can see, or that turn text
/// around, are shown as escapes.
pub(super) fn document(title: &str, mut body: Markup) -> String {
    let title = text::sanitise(title);
    body.0 = text::sanitise(&body.0).into_owned();
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
        policy_hash(STYLE.0),
        policy_hash(SCRIPT.0)
    );
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { "linewise: " (text::shorten(&title, 80)) }
                style { (STYLE) }
            }
            body {
                (body)
                script { (SCRIPT) }
            }
        }
    };
    document.into_string()
}

/// The hash by which a content policy allows an inline element.
pub(super) fn policy_hash(content: &str) -> String {
    let hash = sha2::Sha256::digest(content.as_bytes());
    let hash = base64::engine::general_purpose::STANDARD.encode(hash);
    format!("'sha256-{hash}'")
}
