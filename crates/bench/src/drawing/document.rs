//! The head of a self-contained page: nothing is loaded and nothing runs. The content policy forbids all but
//! the one style sheet, which it names by its hash.

use base64::Engine as _;
use sha2::Digest as _;
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");

/// Writes the head of a page up to the beginning of its body. The title is ours, so it needs no escaping.
pub(crate) fn head(out: &mut String, title: &str) {
    let hash = sha2::Sha256::digest(STYLE.as_bytes());
    let hash = base64::engine::general_purpose::STANDARD.encode(hash);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
    );
}
