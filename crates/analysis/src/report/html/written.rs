//! Texts as they are written into the page: nothing in them can be taken for markup. Whatever is not a constant or a plain
//! number goes through one of these.

use std::fmt::{self, Write as _};

use super::super::model::Interval;
use super::super::text;

/// Columns of a name.
const NAME: usize = 100;

/// Text that is shown as it is, whatever it holds: the only way in which anything from the
/// measured program gets into the document, as content or as an attribute's value.
pub(super) struct Text<'a>(pub(super) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in text::sanitise(self.0).chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Prose, in which names in backticks are set as code.
pub(super) struct Prose<'a>(pub(super) &'a str);

impl fmt::Display for Prose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<&str> = self.0.split('`').collect();
        for (i, part) in parts.iter().enumerate() {
            // A last backtick without a partner is only a backtick.
            match (i % 2 == 1, i + 1 == parts.len()) {
                (false, _) => write!(f, "{}", Text(part))?,
                (true, false) => write!(f, "<code>{}</code>", Text(part))?,
                (true, true) => write!(f, "`{}", Text(part))?,
            }
        }
        Ok(())
    }
}

/// A name that may be endless (C++ has such): shortened, and in full where it is pointed at.
pub(super) struct Name<'a>(pub(super) &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let safe = text::sanitise(self.0);
        match text::shorten(&safe, NAME) {
            short if short == safe => write!(f, "{}", Text(&safe)),
            short => write!(f, "<span title=\"{}\">{}</span>", Text(&safe), Text(&short)),
        }
    }
}

/// A share for the document: the smallest begin with a character that is markup.
pub(super) fn percent(share: f64) -> String {
    Text(&text::percent(share)).to_string()
}

/// An expected gain likewise.
pub(super) fn gain(gain: Interval) -> String {
    Text(&text::gain(gain)).to_string()
}

/// Says what a table leaves out: `60 more places, 1.2 M in all, in the JSON report.`
pub(super) fn left_out(out: &mut String, rows: usize, noun: &str, sum: &str) {
    if rows > 0 {
        let more = text::plural(rows as u64, &format!("more {noun}"));
        let _ = write!(
            out,
            "<p class=\"quiet\">{}, {} in all, in the JSON report.</p>",
            Text(&more),
            Text(sum)
        );
    }
}

/// `text` with a capital at its start.
pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

pub(super) fn fact(out: &mut String, term: &str, value: &str, class: &str) {
    let _ = writeln!(
        out,
        "<div class=\"{class}\"><dt>{}</dt><dd>{}</dd></div>",
        Text(term),
        Text(value)
    );
}
