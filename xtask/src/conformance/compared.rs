//! Two runs of a program, byte for byte.

use super::process::{Outcome, cut};

/// What is first found to differ between what was expected and what was found.
pub(super) fn difference(expected: &Outcome, found: &Outcome) -> Option<String> {
    let mut said = Vec::new();
    if found.late {
        said.push(format!(
            "it had not ended after {} s",
            found.limit.as_secs()
        ));
    } else if expected.code != found.code {
        said.push(format!(
            "ended with {}, not with {}",
            found.end(),
            expected.end()
        ));
    }
    said.extend(differing("stdout", &expected.stdout, &found.stdout));
    said.extend(differing("stderr", &expected.stderr, &found.stderr));
    (!said.is_empty()).then(|| said.join("; "))
}

/// The first line that differs, and how many do.
fn differing(what: &str, expected: &[u8], found: &[u8]) -> Option<String> {
    if expected == found {
        return None;
    }
    let lines = |text: &[u8]| -> Vec<String> {
        let text = String::from_utf8_lossy(text);
        text.split('\n').map(str::to_owned).collect()
    };
    let (expected, found) = (lines(expected), lines(found));
    let longest = expected.len().max(found.len());
    let differs = |at: &usize| expected.get(*at) != found.get(*at);
    let count = (0..longest).filter(differs).count();
    let Some(first) = (0..longest).find(differs) else {
        return Some(format!("{what}: bytes that are no text differ"));
    };
    let shown = |lines: &[String]| match lines.get(first) {
        Some(line) => format!("`{}`", cut(line)),
        None => "nothing".to_owned(),
    };
    Some(format!(
        "{what} line {}: {} instead of {} ({count} lines differ)",
        first + 1,
        shown(&found),
        shown(&expected)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(stdout: &str, code: i32) -> Outcome {
        Outcome {
            stdout: stdout.into(),
            code: Some(code),
            ..Outcome::default()
        }
    }

    #[test]
    fn what_is_the_same_does_not_differ() {
        assert_eq!(difference(&outcome("a\n", 1), &outcome("a\n", 1)), None);
    }

    #[test]
    fn every_byte_and_the_code_count() {
        let expected = outcome("a\nb\n", 1);
        for found in [
            outcome("a\nb\n", 2),
            outcome("a\nb", 1),
            outcome("a\nc\n", 1),
            outcome("", 1),
            Outcome {
                stderr: "x".into(),
                ..outcome("a\nb\n", 1)
            },
            Outcome {
                late: true,
                ..outcome("a\nb\n", 1)
            },
        ] {
            assert!(difference(&expected, &found).is_some(), "{found:?}");
        }
    }

    #[test]
    fn the_first_line_that_differs_is_told() {
        let said = difference(&outcome("a\nb\n", 0), &outcome("a\nc\n", 0));
        assert_eq!(
            said.as_deref(),
            Some("stdout line 2: `c` instead of `b` (1 lines differ)")
        );
    }
}
