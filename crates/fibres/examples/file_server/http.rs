//! HTTP/1.1, as far as a server of files needs it: heads of requests and of answers.

use std::ffi::CString;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::input::position;

/// Bytes of a request's head at most.
pub(crate) const MOST_HEAD: usize = 16 * 1024;

/// What stands at the begin of the input.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// Not yet a whole head.
    Partial,
    /// A request whose head takes so many bytes.
    Whole(Request, usize),
    /// Nothing that could be answered but by this; the connection ends.
    Bad(Status),
}

#[derive(Debug)]
pub(crate) struct Request {
    /// HEAD instead of GET.
    pub(crate) head_only: bool,
    pub(crate) keep_alive: bool,
    /// The client must be told that the connection stays.
    pub(crate) is_old: bool,
    /// Below the root, without a slash before it; none if no file can be called so.
    pub(crate) path: Option<CString>,
    /// The path as it came ended with a slash.
    pub(crate) names_folder: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    Moved,
    Bad,
    Forbidden,
    NotFound,
    NoMethod,
    Timeout,
    TooLarge,
    Failed,
    Busy,
    NoVersion,
}

impl Status {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::Moved => "301 Moved Permanently",
            Self::Bad => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::NoMethod => "405 Method Not Allowed",
            Self::Timeout => "408 Request Timeout",
            Self::TooLarge => "431 Request Header Fields Too Large",
            Self::Failed => "500 Internal Server Error",
            Self::Busy => "503 Service Unavailable",
            Self::NoVersion => "505 HTTP Version Not Supported",
        }
    }
}

/// The head of the request with which `input` begins.
pub(crate) fn parse(input: &[u8]) -> Parsed {
    // Empty lines before a request are to be passed over.
    let blank = input
        .iter()
        .take_while(|it| matches!(it, b'\r' | b'\n'))
        .count();
    let Some(length) = head_length(&input[blank..]) else {
        return if input.len() > MOST_HEAD {
            Parsed::Bad(Status::TooLarge)
        } else {
            Parsed::Partial
        };
    };
    if length > MOST_HEAD {
        return Parsed::Bad(Status::TooLarge);
    }
    match parse_head(&input[blank..blank + length]) {
        Ok(request) => Parsed::Whole(request, blank + length),
        Err(status) => Parsed::Bad(status),
    }
}

/// Up to and with the empty line.
fn head_length(input: &[u8]) -> Option<usize> {
    let mut begin = 0;
    loop {
        let at = begin + position(&input[begin..], b'\n')?;
        if at == begin || at == begin + 1 && input[begin] == b'\r' {
            return (begin > 0).then_some(at + 1);
        }
        begin = at + 1;
    }
}

/// The lines of a head, without their ends.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = head;
    std::iter::from_fn(move || {
        let at = position(rest, b'\n')?;
        let line = &rest[..at];
        rest = &rest[at + 1..];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    })
}

fn parse_head(head: &[u8]) -> Result<Request, Status> {
    let mut lines = lines(head);
    let first = lines.next().ok_or(Status::Bad)?;
    let mut words = first.split(|it| *it == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Status::Bad);
    };
    let is_old = match version {
        b"HTTP/1.1" => false,
        b"HTTP/1.0" => true,
        _ if version.starts_with(b"HTTP/") => return Err(Status::NoVersion),
        _ => return Err(Status::Bad),
    };
    let fields = parse_fields(lines)?;
    if !is_old && fields.hosts != 1 || fields.hosts > 1 || fields.has_body {
        // What a body to GET would mean is said nowhere; read as a request it would be a trap.
        return Err(Status::Bad);
    }
    let head_only = match method {
        b"GET" => false,
        b"HEAD" => true,
        _ if !method.is_empty() && method.iter().all(u8::is_ascii_graphic) => {
            return Err(Status::NoMethod);
        }
        _ => return Err(Status::Bad),
    };
    let target = path_of(target)?;
    Ok(Request {
        head_only,
        keep_alive: fields.keep_alive.unwrap_or(!is_old),
        is_old,
        names_folder: target.ends_with(b"/"),
        path: file_of(target)?,
    })
}

#[derive(Default)]
struct Fields {
    hosts: usize,
    has_body: bool,
    keep_alive: Option<bool>,
}

fn parse_fields<'h>(lines: impl Iterator<Item = &'h [u8]>) -> Result<Fields, Status> {
    let mut fields = Fields::default();
    for line in lines.take_while(|line| !line.is_empty()) {
        let colon = position(line, b':').ok_or(Status::Bad)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || !name.iter().all(|it| it.is_ascii_graphic()) {
            return Err(Status::Bad); // Folded lines too: they begin with a space.
        }
        if value.iter().any(|it| matches!(it, b'\r' | 0)) {
            return Err(Status::Bad);
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => fields.hosts += 1,
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for option in value.split(|it| *it == b',') {
                    let option = option.trim_ascii();
                    if option.eq_ignore_ascii_case(b"close") {
                        fields.keep_alive = Some(false);
                    } else if option.eq_ignore_ascii_case(b"keep-alive") {
                        fields.keep_alive.get_or_insert(true);
                    }
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => fields.has_body |= value != b"0",
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => fields.has_body = true,
            _ => {}
        }
    }
    Ok(fields)
}

/// The path of a target, which begins with a slash.
fn path_of(target: &[u8]) -> Result<&[u8], Status> {
    let mut path = target;
    if target.len() > 7 && target[..7].eq_ignore_ascii_case(b"http://") {
        let after = &target[7..];
        path = position(after, b'/').map_or(b"/", |at| &after[at..]);
    }
    if let Some(at) = position(path, b'?') {
        path = &path[..at];
    }
    let is_path = path.first() == Some(&b'/') && path.iter().all(u8::is_ascii_graphic);
    if is_path { Ok(path) } else { Err(Status::Bad) }
}

/// The file that a path names, below the root; none where it leads out of it.
fn file_of(path: &[u8]) -> Result<Option<CString>, Status> {
    let mut decoded = Vec::with_capacity(path.len() + INDEX.len());
    let mut bytes = path.iter();
    while let Some(&byte) = bytes.next() {
        let byte = if byte == b'%' {
            let mut digit = || (*bytes.next()? as char).to_digit(16);
            let (Some(high), Some(low)) = (digit(), digit()) else {
                return Err(Status::Bad);
            };
            (high << 4 | low) as u8
        } else {
            byte
        };
        // A slash at the begin of the whole, or twice, is none.
        if byte != b'/' || decoded.last().is_some_and(|it| *it != b'/') {
            decoded.push(byte);
        }
    }
    if decoded.split(|it| *it == b'/').any(|part| part == b"..") {
        return Ok(None);
    }
    if decoded.is_empty() || decoded.ends_with(b"/") {
        decoded.extend_from_slice(INDEX);
    }
    CString::new(decoded).map(Some).map_err(|_| Status::Bad)
}

/// The file that stands for its folder.
const INDEX: &[u8] = b"index.html";

/// What kind of content a file of this name has.
pub(crate) fn content_type(path: &[u8]) -> &'static str {
    let at = path.iter().rposition(|it| matches!(it, b'.' | b'/'));
    let ending = at.map_or(&b""[..], |at| &path[at + 1..]);
    match ending {
        b"html" | b"htm" => "text/html; charset=utf-8",
        b"css" => "text/css; charset=utf-8",
        b"js" | b"mjs" => "text/javascript; charset=utf-8",
        b"txt" | b"md" => "text/plain; charset=utf-8",
        b"json" => "application/json",
        b"xml" => "application/xml",
        b"svg" => "image/svg+xml",
        b"png" => "image/png",
        b"jpg" | b"jpeg" => "image/jpeg",
        b"gif" => "image/gif",
        b"webp" => "image/webp",
        b"wasm" => "application/wasm",
        b"pdf" => "application/pdf",
        _ => "application/octet-stream",
    }
}

/// The time, as answers tell it; made anew each second.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    second: u64,
    text: String,
}

impl Clock {
    pub(crate) fn date(&mut self) -> &str {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let second = now.map_or(0, |now| now.as_secs());
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = date_of(second);
        }
        &self.text
    }
}

/// A time since 1970 as RFC 9110 writes it.
fn date_of(second: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let days = second / 86_400;
    // Years that begin in March, so that a leap day is the last of its year (Howard Hinnant's algorithm).
    let since = days + 719_468;
    let (era, day_of_era) = (since / 146_097, since % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    format!(
        "{}, {day:02} {} {year} {:02}:{:02}:{:02} GMT",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        second / 3600 % 24,
        second / 60 % 60,
        second % 60
    )
}

/// Adds the head of an answer to `out`.
pub(crate) fn put_head(
    out: &mut Vec<u8>,
    status: Status,
    date: &str,
    (kind, length): (&str, u64),
    (keep_alive, is_old): (bool, bool),
) {
    let status = status.text();
    let connection = match (keep_alive, is_old) {
        (false, _) => "Connection: close\r\n",
        (true, true) => "Connection: keep-alive\r\n",
        (true, false) => "",
    };
    // A vector takes all that is written.
    let _ = write!(
        out,
        "HTTP/1.1 {status}\r\nDate: {date}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         {connection}"
    );
}
