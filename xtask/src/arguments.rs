//! The options of the verbs that measure: `--name value` and switches.

use std::str::FromStr;

use anyhow::{Context, anyhow, bail};

/// What was typed after the verb. Each option is taken once; what is left over is an error.
#[derive(Debug)]
pub(crate) struct Arguments(Vec<String>);

impl Arguments {
    pub(crate) fn new(arguments: impl IntoIterator<Item = String>) -> Self {
        Self(arguments.into_iter().collect())
    }

    /// The value of `--name value`, if it was given.
    ///
    /// # Errors
    /// If the value is missing or does not parse.
    pub(crate) fn value<T: FromStr>(&mut self, name: &str) -> anyhow::Result<Option<T>> {
        let Some(at) = self.0.iter().position(|word| word == name) else {
            return Ok(None);
        };
        let value = self
            .0
            .get(at + 1)
            .with_context(|| format!("{name} needs a value"))?;
        let parsed = value
            .parse()
            .map_err(|_| anyhow!("{name} {value}: not a value that it takes"))?;
        self.0.drain(at..at + 2);
        Ok(Some(parsed))
    }

    /// The value of `--name value`, a number of at least one.
    ///
    /// # Errors
    /// If the value is missing, no number, or below one.
    pub(crate) fn count(&mut self, name: &str, default: usize) -> anyhow::Result<usize> {
        match self.value(name)? {
            Some(0) => bail!("{name} must be at least 1"),
            given => Ok(given.unwrap_or(default)),
        }
    }

    /// Whether the switch `name` was given.
    pub(crate) fn switch(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|word| word != name);
        self.0.len() < before
    }

    /// Ends the parsing.
    ///
    /// # Errors
    /// If something was typed that nobody took.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        match self.0.first() {
            Some(word) => bail!("{word}: no such option; `cargo xtask help` lists them"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Arguments {
        Arguments::new(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_taken_in_any_order() -> anyhow::Result<()> {
        let mut arguments = typed("--json --only demo --runs 7");
        assert_eq!(arguments.count("--runs", 20)?, 7);
        assert_eq!(arguments.count("--seconds", 3)?, 3);
        assert_eq!(
            arguments.value::<String>("--only")?.as_deref(),
            Some("demo")
        );
        assert!(arguments.switch("--json"));
        arguments.finish()
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert!(typed("--runs 0").count("--runs", 20).is_err());
        assert!(typed("--runs many").count("--runs", 20).is_err());
        assert!(typed("--runs").count("--runs", 20).is_err());
        assert!(typed("--rnus 3").finish().is_err());
    }
}
