//! Licence expressions: enough of SPDX annex D to decide whether a policy allows one.
//!
//! ```text
//! any     = all { ("OR" | "/") all }      the slash is how crates wrote OR before 2018
//! all     = one { "AND" one }
//! one     = "(" any ")" | id [ "WITH" exception ]
//! ```

/// Whether some choice that `expression` offers needs only licences in `allowed`. An entry of
/// `allowed` is an id, or `id WITH exception`.
///
/// # Errors
/// The part that is not understood.
pub(crate) fn allows(expression: &str, allowed: &[String]) -> Result<bool, String> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser {
        words: &words,
        allowed,
    };
    let verdict = parser.any()?;
    match parser.words.first() {
        None => Ok(verdict),
        Some(rest) => Err(format!("`{rest}` is out of place in `{expression}`")),
    }
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl<'a> Parser<'a> {
    fn take(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn took(&mut self, word: &str) -> bool {
        let here = self.words.first() == Some(&word);
        if here {
            self.take();
        }
        here
    }

    fn any(&mut self) -> Result<bool, String> {
        let mut verdict = self.all()?;
        while self.took("OR") {
            // Both sides are parsed whatever the first one says: nonsense must not hide behind it.
            verdict |= self.all()?;
        }
        Ok(verdict)
    }

    fn all(&mut self) -> Result<bool, String> {
        let mut verdict = self.one()?;
        while self.took("AND") {
            verdict &= self.one()?;
        }
        Ok(verdict)
    }

    fn one(&mut self) -> Result<bool, String> {
        match self.take() {
            Some("(") => {
                let verdict = self.any()?;
                if self.took(")") {
                    Ok(verdict)
                } else {
                    Err("a parenthesis is not closed".to_owned())
                }
            }
            Some(word @ (")" | "OR" | "AND" | "WITH")) => Err(format!("`{word}` is out of place")),
            None => Err("the expression ends early".to_owned()),
            Some(id) => {
                let name = if self.took("WITH") {
                    let exception = self.take().ok_or("WITH needs an exception")?;
                    format!("{id} WITH {exception}")
                } else {
                    id.to_owned()
                };
                Ok(self.allowed.contains(&name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(expression: &str) -> Result<bool, String> {
        let allowed = [
            "MIT",
            "Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
            "Unicode-3.0",
        ];
        allows(expression, &allowed.map(str::to_owned))
    }

    #[test]
    fn one_allowed_choice_is_enough_and_every_part_of_a_sum_is_needed() {
        assert_eq!(verdict("MIT OR GPL-3.0"), Ok(true));
        assert_eq!(verdict("GPL-3.0/MIT"), Ok(true));
        assert_eq!(verdict("MIT AND GPL-3.0"), Ok(false));
        assert_eq!(verdict("(MIT OR Apache-2.0) AND Unicode-3.0"), Ok(true));
        assert_eq!(verdict("(MIT OR Apache-2.0) AND CDDL-1.0"), Ok(false));
    }

    #[test]
    fn and_binds_tighter_than_or() {
        assert_eq!(verdict("MIT OR GPL-3.0 AND CDDL-1.0"), Ok(true));
        assert_eq!(verdict("GPL-3.0 AND MIT OR CDDL-1.0"), Ok(false));
    }

    #[test]
    fn an_exception_belongs_to_its_licence() {
        assert_eq!(verdict("Apache-2.0 WITH LLVM-exception"), Ok(true));
        assert_eq!(verdict("MIT WITH LLVM-exception"), Ok(false));
    }

    #[test]
    fn nonsense_is_an_error_even_behind_an_allowed_choice() {
        for nonsense in [
            "",
            "MIT OR",
            "MIT OR (GPL-3.0",
            "MIT MIT",
            "OR MIT",
            "MIT WITH",
            ")",
        ] {
            assert!(verdict(nonsense).is_err(), "{nonsense}");
        }
    }
}
