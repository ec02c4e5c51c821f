//! The page that everything is printed on. It alone decides what reaches the terminal: every text
//! is made harmless here and no line can get wider than the page.

use super::text;

/// What a piece of text is, and so how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// As everything else.
    Plain,
    /// What to read first.
    Strong,
    /// What few will need.
    Dim,
    /// What must be known before the rest is believed.
    Warning,
    /// False sharing.
    FalseSharing,
    /// True sharing.
    TrueSharing,
    /// What to do.
    Remedy,
    /// The n-th thread of a drawing.
    Thread(usize),
}

impl Tone {
    fn code(self) -> &'static str {
        // Bright and dark cyan, yellow, magenta, green, blue: told apart on black and on white.
        const THREADS: [&str; 5] = ["36", "33", "35", "32", "34"];
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Dim => "2",
            Self::Warning => "1;33",
            Self::FalseSharing => "1;35",
            Self::TrueSharing => "1;34",
            Self::Remedy => "32",
            Self::Thread(n) => THREADS[n % THREADS.len()],
        }
    }
}

/// Columns that are always used.
pub(super) const MIN_WIDTH: usize = 80;

/// Text under way to a terminal.
#[derive(Debug)]
pub(super) struct Page {
    width: usize,
    colour: bool,
    verbose: bool,
    out: String,
}

impl Page {
    pub(super) fn new(width: usize, colour: bool) -> Self {
        Self {
            width,
            colour,
            verbose: false,
            out: String::new(),
        }
    }

    /// The same with all that is known instead of what a reader acts on, if `verbose`.
    pub(super) fn in_full(self, verbose: bool) -> Self {
        Self { verbose, ..self }
    }

    /// Whether all that is known is asked for.
    pub(super) fn is_in_full(&self) -> bool {
        self.verbose
    }

    /// Columns of a line.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Whether nothing was printed yet.
    pub(super) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    pub(super) fn blank(&mut self) {
        self.out.push('\n');
    }

    /// Prints one line; what goes beyond the width is cut off with an ellipsis.
    pub(super) fn line<S: AsRef<str>>(&mut self, spans: &[(Tone, S)]) {
        let mut room = self.width;
        let mut pieces: Vec<(Tone, String)> = Vec::with_capacity(spans.len());
        for (tone, span) in spans {
            let safe = text::sanitise(span.as_ref());
            let kept = text::prefix(&safe, room);
            if kept.len() == safe.len() {
                room -= text::width(kept).min(room);
                pieces.push((*tone, safe.into_owned()));
                continue;
            }
            // One column for the ellipsis; if the text before left none, it takes its last.
            match room.checked_sub(1) {
                Some(rest) => pieces.push((*tone, format!("{}…", text::prefix(&safe, rest)))),
                None => {
                    while pieces.last().is_some_and(|(_, text)| text.is_empty()) {
                        pieces.pop();
                    }
                    if let Some((_, last)) = pieces.last_mut() {
                        last.pop();
                        last.push('…');
                    }
                }
            }
            break;
        }
        // Blanks at the end are nothing but trouble for whoever copies the line.
        while let Some((_, last)) = pieces.last_mut() {
            last.truncate(last.trim_end().len());
            if !last.is_empty() {
                break;
            }
            pieces.pop();
        }
        for (tone, piece) in pieces {
            self.piece(tone, &piece);
        }
        self.out.push('\n');
    }

    fn piece(&mut self, tone: Tone, text: &str) {
        let code = tone.code();
        if self.colour && !code.is_empty() && !text.is_empty() {
            self.out.push_str("\u{1b}[");
            self.out.push_str(code);
            self.out.push('m');
            self.out.push_str(text);
            self.out.push_str("\u{1b}[0m");
        } else {
            self.out.push_str(text);
        }
    }

    /// Prints `label`, then `text` wrapped beside it, `indent` columns from the left.
    pub(super) fn labelled(&mut self, label: &str, indent: usize, tone: Tone, text: &str) {
        self.labelled_in(label, indent, tone, Tone::Plain, text);
    }

    /// [`Page::labelled`] with a tone for the text, too.
    pub(super) fn labelled_in(
        &mut self,
        label: &str,
        indent: usize,
        label_tone: Tone,
        tone: Tone,
        text: &str,
    ) {
        let start = label.len() - label.trim_start().len();
        for (i, line) in text::wrap(text, self.width - indent.min(self.width - 1))
            .iter()
            .enumerate()
        {
            let (blank, word) = label.split_at(start);
            let (label, rest) = match i {
                0 => (word, indent.saturating_sub(label.len())),
                _ => ("", indent - start.min(indent)),
            };
            let gap = " ".repeat(rest);
            self.line(&[
                (Tone::Plain, blank),
                (label_tone, label),
                (Tone::Plain, &gap),
                (tone, line),
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_does_not_fit_ends_with_an_ellipsis() {
        let mut page = Page::new(10, false);
        page.line(&[(Tone::Plain, "0123456"), (Tone::Strong, "789abc")]);
        page.line(&[(Tone::Plain, "0123456789"), (Tone::Strong, "a")]);
        page.line(&[(Tone::Plain, "0123456789"), (Tone::Strong, "")]);
        page.line(&[(Tone::Plain, "blank "), (Tone::Strong, "  ")]);
        assert_eq!(page.finish(), "012345678…\n012345678…\n0123456789\nblank\n");
    }

    #[test]
    fn wrapped_text_stays_beside_its_label() {
        let mut page = Page::new(20, false);
        page.labelled("  note", 8, Tone::Dim, "one two three four");
        assert_eq!(page.finish(), "  note  one two\n        three four\n");
    }
}
