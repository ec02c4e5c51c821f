//! The text protocol of memcached: lines of commands.

/// Bytes of a key at most.
pub(crate) const MOST_KEY: usize = 250;
/// Bytes of a value at most.
pub(crate) const MOST_VALUE: usize = 1024 * 1024;
/// Bytes of a command's line at most.
pub(crate) const MOST_LINE: usize = 64 * 1024;

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas(u64),
}

/// A command. What it names is in the line: as places, so that it outlives the look at the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// The keys are from here to the end of the line.
    Get {
        keys: usize,
        with_cas: bool,
    },
    Store {
        verb: Verb,
        key: (usize, usize),
        flags: u32,
        expires: i64,
        length: usize,
        quiet: bool,
    },
    /// The value is too large, or was told wrongly: so many bytes of it are passed over.
    Skip {
        key: (usize, usize),
        length: usize,
        answer: &'static str,
        quiet: bool,
    },
    Delete {
        key: (usize, usize),
        quiet: bool,
    },
    Count {
        key: (usize, usize),
        up: bool,
        by: u64,
        quiet: bool,
    },
    FlushAll {
        delay: i64,
        quiet: bool,
    },
    Verbosity {
        quiet: bool,
    },
    Version,
    Stats,
    ResetStats,
    Quit,
    /// Answered by this line alone.
    Wrong(&'static str),
}

pub(crate) const UNKNOWN: &str = "ERROR\r\n";
const FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
const DELETE_USAGE: &str =
    "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
const DELTA: &str = "CLIENT_ERROR invalid numeric delta argument\r\n";
const EXPIRES: &str = "CLIENT_ERROR invalid exptime argument\r\n";
pub(crate) const CHUNK: &str = "CLIENT_ERROR bad data chunk\r\n";
pub(crate) const TOO_LARGE: &str = "SERVER_ERROR object too large for cache\r\n";
pub(crate) const LONG_LINE: &str = "CLIENT_ERROR line too long\r\n";

/// The place of the next word at or after `from`.
pub(crate) fn word(line: &[u8], from: usize) -> Option<(usize, usize)> {
    let begin = from + line.get(from..)?.iter().position(|it| *it != b' ')?;
    let length = line[begin..].iter().position(|it| *it == b' ');
    Some((begin, length.map_or(line.len(), |length| begin + length)))
}

/// The words after the name of the command.
struct Words<'l> {
    line: &'l [u8],
    at: usize,
}

impl<'l> Words<'l> {
    fn next(&mut self) -> Option<&'l [u8]> {
        let (begin, end) = self.next_place()?;
        Some(&self.line[begin..end])
    }

    fn next_place(&mut self) -> Option<(usize, usize)> {
        let place = word(self.line, self.at)?;
        self.at = place.1;
        Some(place)
    }

    fn key(&mut self) -> Result<(usize, usize), &'static str> {
        let place = self.next_place().ok_or(UNKNOWN)?;
        if place.1 - place.0 > MOST_KEY {
            return Err(FORMAT);
        }
        Ok(place)
    }

    /// Whether `noreply` ends the line; nothing else may follow.
    fn quiet(&mut self, otherwise: &'static str) -> Result<bool, &'static str> {
        match (self.next(), self.next()) {
            (None, _) => Ok(false),
            (Some(b"noreply"), None) => Ok(true),
            _ => Err(otherwise),
        }
    }
}

fn number<N: std::str::FromStr>(word: Option<&[u8]>) -> Option<N> {
    let word = std::str::from_utf8(word?).ok()?;
    // `+5` is no number to memcached's clients.
    (!word.starts_with('+')).then(|| word.parse().ok())?
}

/// The command of a line, which is given without its end.
pub(crate) fn parse(line: &[u8]) -> Command {
    let Some((begin, end)) = word(line, 0) else {
        return Command::Wrong(UNKNOWN);
    };
    let words = Words { line, at: end };
    let parsed = match &line[begin..end] {
        b"get" => get(words, false),
        b"gets" => get(words, true),
        b"set" => store(words, Verb::Set),
        b"add" => store(words, Verb::Add),
        b"replace" => store(words, Verb::Replace),
        b"append" => store(words, Verb::Append),
        b"prepend" => store(words, Verb::Prepend),
        b"cas" => store(words, Verb::Cas(0)),
        b"delete" => delete(words),
        b"incr" => count(words, true),
        b"decr" => count(words, false),
        b"flush_all" => flush_all(words),
        b"verbosity" => verbosity(words),
        b"version" => alone(words, Command::Version),
        b"quit" => alone(words, Command::Quit),
        b"stats" => stats(words),
        _ => Err(UNKNOWN),
    };
    parsed.unwrap_or_else(Command::Wrong)
}

fn alone(mut words: Words<'_>, command: Command) -> Result<Command, &'static str> {
    match words.next() {
        None => Ok(command),
        Some(_) => Err(UNKNOWN),
    }
}

fn get(mut words: Words<'_>, with_cas: bool) -> Result<Command, &'static str> {
    let (first, _) = words.key()?;
    // All are looked at before any is answered.
    while let Some((begin, end)) = words.next_place() {
        if end - begin > MOST_KEY {
            return Err(FORMAT);
        }
    }
    Ok(Command::Get {
        keys: first,
        with_cas,
    })
}

fn store(mut words: Words<'_>, verb: Verb) -> Result<Command, &'static str> {
    let key = words.next_place().ok_or(UNKNOWN)?;
    let numbers = (words.next(), words.next(), words.next());
    let (Some(_), Some(_), Some(length)) = numbers else {
        return Err(UNKNOWN);
    };
    let length: i64 = number(Some(length)).ok_or(FORMAT)?;
    let Ok(length) = usize::try_from(length) else {
        return Err(CHUNK);
    };
    let verb = match verb {
        Verb::Cas(_) => {
            let word = words.next().ok_or(UNKNOWN)?;
            number(Some(word)).map(Verb::Cas)
        }
        verb => Some(verb),
    };
    let skip = |answer, quiet| Command::Skip {
        key,
        length,
        answer,
        quiet,
    };
    // The client sends its value whatever the rest of the line is, and it is no line of commands.
    let Ok(quiet) = words.quiet(FORMAT) else {
        return Ok(skip(FORMAT, false));
    };
    let (Some(verb), Some(flags), Some(expires)) = (verb, number(numbers.0), number(numbers.1))
    else {
        return Ok(skip(FORMAT, quiet));
    };
    if key.1 - key.0 > MOST_KEY {
        return Ok(skip(FORMAT, quiet));
    }
    if length > MOST_VALUE {
        return Ok(skip(TOO_LARGE, quiet));
    }
    Ok(Command::Store {
        verb,
        key,
        flags,
        expires,
        length,
        quiet,
    })
}

fn delete(mut words: Words<'_>) -> Result<Command, &'static str> {
    let key = words.key()?;
    let quiet = match (words.next(), words.next(), words.next()) {
        (None | Some(b"0"), None, None) => false,
        (Some(b"noreply"), None, None) | (Some(b"0"), Some(b"noreply"), None) => true,
        _ => return Err(DELETE_USAGE),
    };
    Ok(Command::Delete { key, quiet })
}

fn count(mut words: Words<'_>, up: bool) -> Result<Command, &'static str> {
    let key = words.key()?;
    let by = words.next().ok_or(UNKNOWN)?;
    let quiet = words.quiet(FORMAT)?;
    let by = number(Some(by)).ok_or(DELTA)?;
    Ok(Command::Count { key, up, by, quiet })
}

fn flush_all(mut words: Words<'_>) -> Result<Command, &'static str> {
    let (delay, quiet) = match (words.next(), words.next(), words.next()) {
        (None, ..) => (0, false),
        (Some(b"noreply"), None, None) => (0, true),
        (Some(delay), None, None) => (number(Some(delay)).ok_or(EXPIRES)?, false),
        (Some(delay), Some(b"noreply"), None) => (number(Some(delay)).ok_or(EXPIRES)?, true),
        _ => return Err(UNKNOWN),
    };
    Ok(Command::FlushAll { delay, quiet })
}

fn verbosity(mut words: Words<'_>) -> Result<Command, &'static str> {
    let level = words.next().ok_or(UNKNOWN)?;
    if level == b"noreply" {
        return Ok(Command::Verbosity { quiet: true });
    }
    let quiet = words.quiet(FORMAT)?;
    let level: Option<u32> = number(Some(level));
    level.map(|_| Command::Verbosity { quiet }).ok_or(FORMAT)
}

fn stats(mut words: Words<'_>) -> Result<Command, &'static str> {
    match (words.next(), words.next()) {
        (None, _) => Ok(Command::Stats),
        (Some(b"reset"), None) => Ok(Command::ResetStats),
        _ => Err(UNKNOWN),
    }
}
