//! The command line of the thesis's own program (Curto, appendix B).

use super::characters::Characteristics;
use super::error::AccesstestError;
use super::spec::{AccesstestSpec, SessionType, Start};
use std::str::FromStr;

/// What a line of the thesis's program asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct AppendixB {
    /// `-s`, `--sessions`.
    pub sessions: usize,
    /// `-d`, `--duration`: seconds.
    pub seconds: f64,
    /// `-r`, `--seed`.
    pub seed: u64,
    /// `--sess-distr`.
    pub start: Start,
    /// `--signal`.
    pub on_signal: bool,
    /// `--log-sessions`.
    pub log_sessions: Option<String>,
    /// `-v`, `--verbose`.
    pub verbose: bool,
    /// What the phases access.
    pub characteristics: Characteristics,
    /// `thread` or `fibre`.
    pub session_type: SessionType,
}

const WHAT: &str = "line of the thesis's accesstest";
const EXAMPLE: &str = "-s 100 -d 10 0/256,0.1 0/256,0.1 fibre";

fn wrong(line: &str, why: String) -> AccesstestError {
    AccesstestError::Syntax {
        given: line.to_owned(),
        what: WHAT,
        why,
        example: EXAMPLE,
    }
}

impl FromStr for Start {
    type Err = AccesstestError;

    /// The index of a phase, or `u`.
    fn from_str(text: &str) -> Result<Self, AccesstestError> {
        if text == "u" {
            return Ok(Self::Spread);
        }
        text.parse()
            .map(Self::Phase)
            .map_err(|_| AccesstestError::Syntax {
                given: text.to_owned(),
                what: "start of sessions",
                why: "it is neither the index of a phase nor u".to_owned(),
                example: "0 for the first phase, or u to spread the sessions over all",
            })
    }
}

/// What has been read so far.
struct Reading<'l> {
    line: &'l str,
    words: std::iter::Peekable<std::str::SplitAsciiWhitespace<'l>>,
    read: AppendixB,
}

impl<'l> Reading<'l> {
    fn number<T: FromStr>(
        &mut self,
        name: &str,
        given: Option<&'l str>,
    ) -> Result<T, AccesstestError> {
        let text = self.text(name, given)?;
        text.parse()
            .map_err(|_| wrong(self.line, format!("{name} takes a number, not {text:?}")))
    }

    fn text(&mut self, name: &str, given: Option<&'l str>) -> Result<&'l str, AccesstestError> {
        let next = given.or_else(|| self.words.next());
        next.ok_or_else(|| wrong(self.line, format!("{name} takes a value")))
    }

    /// Reads an option.
    fn option(&mut self, word: &'l str) -> Result<(), AccesstestError> {
        let (name, given) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (word, None),
        };
        match name {
            "-s" | "--sessions" => self.read.sessions = self.number(name, given)?,
            "-d" | "--duration" => {
                let seconds = self.text(name, given)?;
                self.read.seconds = AccesstestSpec::seconds_of(seconds)?;
            }
            "-r" | "--seed" => self.read.seed = self.number(name, given)?,
            "--sess-distr" => self.read.start = self.text(name, given)?.parse()?,
            "--log-sessions" => self.read.log_sessions = Some(self.text(name, given)?.to_owned()),
            "--signal" if given.is_none() => self.read.on_signal = true,
            "-v" | "--verbose" if given.is_none() => self.read.verbose = true,
            "-h" | "--help" => {
                let why = "it asks for help, which is in linewise bench accesstest --help";
                return Err(wrong(self.line, why.to_owned()));
            }
            _ => return Err(wrong(self.line, format!("there is no option {word}"))),
        }
        Ok(())
    }
}

impl FromStr for AppendixB {
    type Err = AccesstestError;

    /// `[./accesstest] [option...] phase_local_chars... [phase_global_chars...] thread|fibre`
    fn from_str(line: &str) -> Result<Self, AccesstestError> {
        let mut reading = Reading {
            line,
            words: line.split_ascii_whitespace().peekable(),
            read: Self {
                sessions: 1,
                seconds: 1.0,
                seed: 5489,
                start: Start::Phase(0),
                on_signal: false,
                log_sessions: None,
                verbose: false,
                characteristics: Characteristics::default(),
                session_type: SessionType::Fibre,
            },
        };
        reading
            .words
            .next_if(|word| *word == "accesstest" || word.ends_with("/accesstest"));
        let mut session_type = None;
        while let Some(word) = reading.words.next() {
            let characteristics = &mut reading.read.characteristics;
            if session_type.is_some() {
                return Err(wrong(line, format!("{word} stands after the session type")));
            } else if word.starts_with('-') {
                reading.option(word)?;
            } else if word.contains(':') {
                characteristics.shared.push(word.parse()?);
            } else if word.contains('/') {
                if !characteristics.shared.is_empty() {
                    let why = format!("{word} of one phase stands after lines that several share");
                    return Err(wrong(line, why));
                }
                characteristics.phases.push(word.parse()?);
            } else {
                session_type = Some(match word {
                    "thread" => SessionType::Thread,
                    "fibre" => SessionType::Fibre,
                    _ => {
                        let why = format!(
                            "{word} is neither an option, nor what phases access, nor thread or fibre"
                        );
                        return Err(wrong(line, why));
                    }
                });
            }
        }
        let missing = |what: &str| wrong(line, format!("{what} missing"));
        if reading.read.characteristics.phases.is_empty() {
            return Err(missing("what the phases access (as 0/256,0.1) is"));
        }
        reading.read.session_type =
            session_type.ok_or_else(|| missing("the session type (thread or fibre) is"))?;
        Ok(reading.read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_thesis_are_read() {
        let read: AppendixB = EXAMPLE.parse().unwrap();
        assert_eq!((read.sessions, read.seconds, read.seed), (100, 10.0, 5489));
        assert_eq!(read.characteristics.phases.len(), 2);
        assert_eq!(read.session_type, SessionType::Fibre);
        let read: AppendixB =
            "./accesstest --sessions=3 -r 7 --sess-distr=u --signal --log-sessions=x.csv -v \
                               1/2 3/4 5/6:0,0.1,0.2/1 thread"
                .parse()
                .unwrap();
        assert_eq!((read.sessions, read.seconds, read.seed), (3, 1.0, 7));
        assert_eq!(
            (read.start, read.on_signal, read.verbose),
            (Start::Spread, true, true)
        );
        assert_eq!(read.log_sessions.as_deref(), Some("x.csv"));
        assert_eq!(read.characteristics.shared.len(), 1);
        assert_eq!(read.session_type, SessionType::Thread);
        let read: AppendixB = "--sess-distr 1 0/1 0/1 fibre".parse().unwrap();
        assert_eq!(read.start, Start::Phase(1));
    }

    #[test]
    fn what_is_unknown_is_named() {
        for (line, named) in [
            ("", "what the phases access"),
            ("0/256", "session type"),
            ("fibre", "what the phases access"),
            ("0/256 pthread", "pthread"),
            ("-x 0/256 fibre", "no option -x"),
            ("--frobnicate=3 0/256 fibre", "--frobnicate=3"),
            ("-s ten 0/256 fibre", "\"ten\""),
            ("-s", "takes a value"),
            ("--signal=3 0/2 fibre", "--signal=3"),
            ("0/256 fibre 0/2", "after the session type"),
            ("0/1 0/1:0/1 0/1 fibre", "after lines that several share"),
            ("0/256,x fibre", "\"x\""),
            ("--sess-distr=v 0/1 fibre", "neither the index"),
            ("-h", "--help"),
        ] {
            let error = line.parse::<AppendixB>().unwrap_err().to_string();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
