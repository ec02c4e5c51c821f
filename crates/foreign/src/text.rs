//! Showing names.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

/// `text` with nothing in it that a terminal would obey, that would turn the text around it, or that cannot be seen:
/// such characters are written as Rust writes them (`\n`, `\u{1b}`).
#[must_use]
pub fn sanitise(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_safe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' | '\t' | '\r' => out.extend(c.escape_default()),
            c if is_safe(c) => out.push(c),
            c => out.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(out)
}

/// JSON with nothing in it that a terminal would obey. The same JSON to who reads it: such characters stand in strings
/// alone, where they can be written as `\u001b`. Line breaks and tabs between values stay.
#[must_use]
pub fn json(text: String) -> String {
    let stays = |c: char| is_safe(c) || matches!(c, '\n' | '\t' | '\r');
    if text.chars().all(stays) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if stays(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    out
}

/// Whether a character can be shown as it is: not so are controls (C0, C1), what turns text around, and what has no width.
#[must_use]
pub fn is_safe(c: char) -> bool {
    let hidden = c.is_control()
        || c.width().unwrap_or(0) == 0
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        )
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
    !hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_control_the_terminal_or_turn_the_text_around() {
        assert_eq!(
            sanitise("a\x1b[2Jb\u{202e}c\u{9b}d"),
            "a\\u{1b}[2Jb\\u{202e}c\\u{9b}d"
        );
        assert_eq!(sanitise("two\nlines"), "two\\nlines");
        assert_eq!(sanitise("zéro 线程"), "zéro 线程");
    }

    #[test]
    fn json_stays_the_same_json() {
        let text = "{\n  \"a\": \"\u{9b}\u{202e}\u{e0001}\"\n}".to_owned();
        assert_eq!(
            json(text),
            "{\n  \"a\": \"\\u009b\\u202e\\udb40\\udc01\"\n}"
        );
        assert_eq!(json("{}\n".to_owned()), "{}\n");
    }
}
