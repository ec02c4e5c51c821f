//! The example servers, as clients see them.
#![allow(unsafe_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A server that runs until it is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

/// The example of this name, which cargo builds with the tests.
fn example(name: &str) -> Command {
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().and_then(Path::parent).unwrap();
    let path = folder.join("examples").join(name);
    assert!(path.exists(), "{} is not built", path.display());
    Command::new(path)
}

impl Server {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .rsplit(' ')
            .next()
            .and_then(|it| it.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}"));
        Self { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        let time = Some(Duration::from_secs(20));
        stream.set_read_timeout(time).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a call on numbers; the child is not yet waited for.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
    }

    /// Ends by a signal, within the time that open connections are given.
    fn ends_well(mut self) {
        self.signal(libc::SIGTERM);
        let begun = Instant::now();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
        assert!(begun.elapsed() < Duration::from_secs(4));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with files to serve, and one beside it.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let name = format!("fibres-servers-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let root = folder.join("root");
        std::fs::create_dir_all(root.join("sub folder")).unwrap();
        std::fs::write(folder.join("secret"), "secret").unwrap();
        std::fs::write(root.join("small.txt"), "some text\n").unwrap();
        std::fs::write(root.join("empty"), "").unwrap();
        std::fs::write(root.join("sub folder/index.html"), "<p>").unwrap();
        std::fs::write(root.join("large"), Self::large()).unwrap();
        std::os::unix::fs::symlink("../secret", root.join("out")).unwrap();
        std::os::unix::fs::symlink("small.txt", root.join("within")).unwrap();
        Self(folder)
    }

    fn large() -> Vec<u8> {
        (0..1_500_000_u32).map(|it| (it % 251) as u8).collect()
    }

    fn server(&self, options: &[&str]) -> Server {
        let mut command = example("file_server");
        command.arg("--root").arg(self.0.join("root")).args(options);
        Server::start(command)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An answer: its status line, its other lines, its body.
fn answer(reader: &mut impl BufRead, has_body: bool) -> (String, String, Vec<u8>) {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        assert!(
            reader.read_line(&mut line).unwrap() > 0,
            "closed after {lines:?}"
        );
        if line == "\r\n" {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let length = lines
        .iter()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .map_or(0, |it| it.parse().unwrap());
    let mut body = vec![0; if has_body { length } else { 0 }];
    reader.read_exact(&mut body).unwrap();
    (lines.remove(0), lines.join("\n"), body)
}

/// Asks once, by a connection of its own.
fn ask(server: &Server, request: &str) -> (String, String, Vec<u8>) {
    let mut stream = server.connect();
    stream.write_all(request.as_bytes()).unwrap();
    answer(&mut BufReader::new(stream), !request.starts_with("HEAD"))
}

fn get(server: &Server, path: &str) -> (String, Vec<u8>) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n");
    let (status, _, body) = ask(server, &request);
    (status, body)
}

fn serves_files(options: &[&str]) {
    let name = options.join("").replace(['-', '='], "");
    let files = Files::new(&name);
    let server = files.server(options);
    // Several requests at once by one connection, large answers among them.
    let mut stream = server.connect();
    let paths = [
        "/small.txt",
        "/large",
        "/missing",
        "/empty",
        "/sub%20folder/",
        "/within",
    ];
    let mut requests = String::new();
    for path in paths.iter().cycle().take(60) {
        requests += &format!("GET {path}?query=1 HTTP/1.1\r\nHost: here\r\n\r\n");
    }
    requests += "HEAD /large HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
    let mut writing = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || writing.write_all(requests.as_bytes()).unwrap());
    let large = Files::large();
    let mut reader = BufReader::new(&mut stream);
    for path in paths.iter().cycle().take(60) {
        let (status, _, body) = answer(&mut reader, true);
        let (expected, content): (_, &[u8]) = match *path {
            "/small.txt" | "/within" => ("HTTP/1.1 200 OK", b"some text\n"),
            "/large" => ("HTTP/1.1 200 OK", &large),
            "/empty" => ("HTTP/1.1 200 OK", b""),
            "/missing" => ("HTTP/1.1 404 Not Found", b"404 Not Found\n"),
            _ => ("HTTP/1.1 200 OK", b"<p>"),
        };
        assert_eq!(status, expected, "{path}");
        assert!(body == content, "{path}: {} bytes", body.len());
    }
    let (status, head, _) = answer(&mut reader, false);
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(head.contains("Content-Length: 1500000"), "{head}");
    assert!(head.contains("Connection: close"), "{head}");
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    writer.join().unwrap();
    // Byte by byte.
    let mut stream = server.connect();
    for byte in b"\r\nGET /small.txt HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    let (status, head, _) = answer(&mut BufReader::new(stream), true);
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(head.contains("Connection: keep-alive"), "{head}");
    server.ends_well();
}

#[test]
fn files_are_served_as_they_are() {
    serves_files(&["--workers=2"]);
    serves_files(&["--workers=2", "--listeners=each", "--read=mmap"]);
    serves_files(&["--write=sendfile"]);
}

#[test]
fn each_step_of_a_file_server_can_be_elsewhere() {
    for step in ["read-socket", "parse", "open", "fstat", "read", "write"] {
        for mode in ["yield", "delegate"] {
            serves_files(&[&format!("--delegate={step}={mode}")]);
        }
    }
    let all = ["read-socket", "parse", "open", "fstat", "read", "write"]
        .map(|step| format!("--delegate={step}"));
    for more in [&["--read=mmap"][..], &["--write=sendfile", "--workers=3"]] {
        let options: Vec<_> = all
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied())
            .collect();
        serves_files(&options);
    }
}

#[test]
fn no_path_leads_out_of_the_root() {
    let files = Files::new("out");
    let server = files.server(&[]);
    for path in [
        "/../secret",
        "/sub%20folder/../../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/./../secret",
        "/out",
        "//../secret",
        "/sub%20folder/%2e%2e%2f%2e%2e%2fsecret",
    ] {
        let (status, body) = get(&server, path);
        assert_eq!(status, "HTTP/1.1 404 Not Found", "{path}");
        assert_ne!(body, b"secret", "{path}");
    }
    assert_eq!(get(&server, "http://here/small.txt").1, b"some text\n");
    let request = "GET /sub%20folder HTTP/1.1\r\nHost: here\r\n\r\n";
    let (status, head, _) = ask(&server, request);
    assert_eq!(status, "HTTP/1.1 301 Moved Permanently");
    assert!(head.contains("Location: /sub%20folder/"), "{head}");
}

#[test]
fn what_is_no_request_is_refused() {
    let files = Files::new("bad");
    let server = files.server(&[]);
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(20_000));
    for (request, status) in [
        ("GET /small.txt HTTP/1.1\r\n\r\n", "400"),
        ("GET small.txt HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET  /small.txt HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET /a%00 HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            "400",
        ),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", "505"),
        ("\u{1}\u{2}\u{3}\r\n\r\n", "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        (&long, "431"),
    ] {
        let (line, _, _) = ask(&server, request);
        assert_eq!(line.split(' ').nth(1), Some(status), "{request:?}");
    }
}

#[test]
fn who_says_nothing_is_shown_out() {
    let files = Files::new("idle");
    let server = files.server(&["--idle", "1"]);
    let begun = Instant::now();
    let mut silent = server.connect();
    let mut slow = server.connect();
    slow.write_all(b"GET /small.txt HT").unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    assert!(begun.elapsed() >= Duration::from_millis(900));
    assert!(begun.elapsed() < Duration::from_secs(10));
    // Who drips is answered that it took too long.
    let mut dripping = server.connect();
    dripping.write_all(b"GET /small.txt HTTP/1.1\r\n").unwrap();
    for _ in 0..14 {
        std::thread::sleep(Duration::from_millis(100));
        if dripping.write_all(b"A: b\r\n").is_err() {
            break;
        }
    }
    let mut text = String::new();
    let _ = dripping.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
}

fn failed(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn what_cannot_be_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (code, text) = failed(example("kv_server").args(["--port", &port]));
    assert_eq!(code, Some(1));
    assert!(text.contains("another program has it"), "{text}");
    let (code, text) = failed(example("file_server").args(["--root", "/nowhere"]));
    assert_eq!(code, Some(1));
    assert!(text.contains("the root /nowhere: No such file"), "{text}");
    for (options, said) in [
        (&["--delegate", "sing"][..], "no step is called `sing`"),
        (&["--delegate", "parse=sing"], "no mode is called `sing`"),
        (&["--workers", "0"], "nobody would serve"),
        (&["--workers", "3", "--cpus", "0,1"], "--cpus names 2 CPUs"),
        (&["--cpus", "1-0"], "no list of CPUs"),
        (&["--port", "70000"], "no number that fits"),
        (&["--delegate-cpu", "0"], "without a step that is delegated"),
        (&["--what", "0"], "there is no option --what"),
        (&["--port"], "needs a value"),
        (&["what"], "is no option"),
    ] {
        for name in ["kv_server", "file_server"] {
            let (code, text) = failed(example(name).args(options));
            assert_eq!(code, Some(2), "{options:?}: {text}");
            assert!(text.contains(said), "{options:?}: {text}");
        }
    }
    let same = ["--cpus", "0", "--delegate", "parse", "--delegate-cpu", "0"];
    let (code, text) = failed(example("kv_server").args(same));
    assert_eq!(code, Some(1));
    assert!(text.contains("two workers on CPU 0"), "{text}");
}

#[test]
fn connections_beyond_the_descriptors_wait() {
    let path = example("kv_server").get_program().to_owned();
    let mut limited = Command::new("sh");
    let line = "ulimit -n 40; exec \"$0\" --workers 1";
    limited.args(["-c", line]).arg(path).stderr(Stdio::null());
    let server = Server::start(limited);
    let mut first: Vec<_> = (0..60).map(|_| server.connect()).collect();
    first[0].write_all(b"version\r\n").unwrap();
    let mut room = [0; 8];
    first[0].read_exact(&mut room).unwrap();
    assert_eq!(&room, b"VERSION ");
    let mut last = first.pop().unwrap();
    last.write_all(b"version\r\n").unwrap();
    drop(first);
    last.read_exact(&mut room).unwrap();
    assert_eq!(&room, b"VERSION ");
    server.ends_well();
}

/// Says `text` and compares what comes with `expected`, in which `~` is any number.
fn dialogue(stream: &mut TcpStream, text: &[u8], expected: &str) {
    stream.write_all(text).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let said = String::from_utf8_lossy(&text[..text.len().min(100)]).into_owned();
    for wanted in expected.split_inclusive("\r\n") {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let is_right = match wanted.split_once('~') {
            Some((before, after)) => line
                .strip_prefix(before)
                .and_then(|it| it.strip_suffix(after))
                .is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit())),
            None => line == wanted,
        };
        assert!(is_right, "{said:?}: {line:?}, not {wanted:?}");
    }
    assert!(
        reader.buffer().is_empty(),
        "{said:?}: {:?} too",
        reader.buffer()
    );
}

const DIALOGUES: &[(&str, &str)] = &[
    ("get a\r\n", "END\r\n"),
    ("set a 7 0 3\r\nabc\r\n", "STORED\r\n"),
    ("get a\r\n", "VALUE a 7 3\r\nabc\r\nEND\r\n"),
    (
        "get none a also-none a\n",
        "VALUE a 7 3\r\nabc\r\nVALUE a 7 3\r\nabc\r\nEND\r\n",
    ),
    ("gets a\r\n", "VALUE a 7 3 ~\r\nabc\r\nEND\r\n"),
    (
        "add a 0 0 1\r\nx\r\nadd b 0 0 1\r\nx\r\n",
        "NOT_STORED\r\nSTORED\r\n",
    ),
    (
        "replace c 0 0 1\r\nx\r\nreplace b 1 0 2\r\nyy\r\n",
        "NOT_STORED\r\nSTORED\r\n",
    ),
    (
        "append b 0 0 1\r\nz\r\nprepend b 0 0 1\r\nx\r\nget b\r\n",
        "STORED\r\nSTORED\r\nVALUE b 1 4\r\nxyyz\r\nEND\r\n",
    ),
    ("append none 0 0 1\r\nz\r\n", "NOT_STORED\r\n"),
    (
        "cas none 0 0 1 5\r\nx\r\ncas a 0 0 1 0\r\nx\r\n",
        "NOT_FOUND\r\nEXISTS\r\n",
    ),
    ("delete b\r\ndelete b\r\n", "DELETED\r\nNOT_FOUND\r\n"),
    (
        "delete b 0\r\ndelete b 5\r\n",
        "NOT_FOUND\r\nCLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
    ),
    (
        "set n 0 0 2\r\n10\r\nincr n 5\r\ndecr n 100\r\n",
        "STORED\r\n15\r\n0\r\n",
    ),
    (
        "incr n 18446744073709551615\r\nincr n 2\r\n",
        "18446744073709551615\r\n1\r\n",
    ),
    (
        "incr none 1\r\nincr n x\r\nincr n -1\r\nincr a 1\r\n",
        "NOT_FOUND\r\nCLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    ),
    (
        "set q 0 0 1 noreply\r\nx\r\nincr n 1 noreply\r\ndelete a noreply\r\nget q a n\r\n",
        "VALUE q 0 1\r\nx\r\nVALUE n 0 1\r\n2\r\nEND\r\n",
    ),
    (
        "verbosity 1\r\nverbosity noreply\r\nversion\r\nstats reset\r\n",
        concat!("OK\r\nVERSION ", env!("CARGO_PKG_VERSION"), "\r\nRESET\r\n"),
    ),
    ("set old 0 -1 1\r\nx\r\nget old\r\n", "STORED\r\nEND\r\n"),
    (
        "set old 0 1000000000 1\r\nx\r\nget old\r\n",
        "STORED\r\nEND\r\n",
    ),
    (
        "set new 0 4000000000 0\r\n\r\nget new\r\n",
        "STORED\r\nVALUE new 0 0\r\n\r\nEND\r\n",
    ),
    (
        "\r\nsing\r\nget\r\nset\r\nset a 0 0\r\nincr a\r\nGET a\r\n",
        "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n",
    ),
    (
        "set x 0 0 -1\r\nset x 0 0 y\r\n",
        "CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\n",
    ),
    (
        "set x y 0 2\r\nab\r\nset x 0 0 2 nothing\r\nab\r\nget x\r\n",
        "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nEND\r\n",
    ),
    (
        "set x 0 0 2\r\nabcd\r\n",
        "CLIENT_ERROR bad data chunk\r\nERROR\r\n",
    ),
    (
        "flush_all noreply\r\nget q n\r\nflush_all\r\nflush_all 100\r\nflush_all 0 noreply\r\nflush_all x\r\n",
        "END\r\nOK\r\nOK\r\nCLIENT_ERROR invalid exptime argument\r\n",
    ),
];

fn serves_values(options: &[&str]) {
    let mut command = example("kv_server");
    command.args(options);
    let server = Server::start(command);
    let mut stream = server.connect();
    for (text, expected) in DIALOGUES {
        dialogue(&mut stream, text.as_bytes(), expected);
    }
    // All at once; and a byte at a time.
    let all: String = DIALOGUES.iter().map(|it| it.0).collect();
    let expected: String = DIALOGUES.iter().map(|it| it.1).collect();
    dialogue(&mut server.connect(), all.as_bytes(), &expected);
    let mut drips = server.connect();
    for byte in all.bytes().take(300) {
        drips.write_all(&[byte]).unwrap();
    }
    let key = "k".repeat(251);
    let text = format!("get {key}\r\nset {key} 0 0 2\r\nab\r\n");
    let format = "CLIENT_ERROR bad command line format\r\n";
    dialogue(&mut stream, text.as_bytes(), &format.repeat(2));
    large_values(&mut stream);
    let mut text = vec![b'x'; 200_000];
    text[0] = b'g';
    dialogue(
        &mut server.connect(),
        &text,
        "CLIENT_ERROR line too long\r\n",
    );
    let mut quitting = server.connect();
    quitting.write_all(b"quit\r\n").unwrap();
    assert_eq!(quitting.read(&mut [0]).unwrap(), 0);
    server.ends_well();
}

fn large_values(stream: &mut TcpStream) {
    let value = "v".repeat(1024 * 1024);
    let length = value.len();
    let text = format!("set l 0 0 {length}\r\n{value}\r\nget l l\r\n");
    let item = format!("VALUE l 0 {length}\r\n{value}\r\n");
    dialogue(
        stream,
        text.as_bytes(),
        &format!("STORED\r\n{item}{item}END\r\n"),
    );
    // Too large: it is passed over, and the old value is gone.
    let text = format!("set l 0 0 {}\r\n{value}v\r\nget l\r\n", length + 1);
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    dialogue(stream, text.as_bytes(), &format!("{too_large}END\r\n"));
    let text = format!(
        "set l 0 0 {} noreply\r\n{value}v\r\nversion\r\n",
        length + 1
    );
    let version = concat!("VERSION ", env!("CARGO_PKG_VERSION"), "\r\n");
    dialogue(stream, text.as_bytes(), version);
}

#[test]
fn values_are_kept_as_memcached_keeps_them() {
    serves_values(&["--workers=2"]);
    serves_values(&["--workers=2", "--listeners=each"]);
}

#[test]
fn each_step_of_a_store_can_be_elsewhere() {
    let steps = ["read-socket", "parse", "lookup", "store", "write"];
    for step in steps {
        for mode in ["normal", "yield", "delegate"] {
            serves_values(&[&format!("--delegate={step}={mode}")]);
        }
    }
    let all = steps.map(|step| format!("--delegate={step}"));
    let mut options: Vec<_> = all.iter().map(String::as_str).collect();
    options.push("--workers=3");
    serves_values(&options);
}

#[test]
fn values_expire_and_are_told_apart_and_counted() {
    let server = Server::start(example("kv_server"));
    let mut stream = server.connect();
    dialogue(
        &mut stream,
        b"set a 0 1 1\r\nx\r\nget a\r\n",
        "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    );
    stream.write_all(b"gets a\r\n").unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let cas = line.trim_end().rsplit(' ').next().unwrap();
    let text = format!("cas a 5 1 2 {cas}\r\nyy\r\ncas a 5 1 2 {cas}\r\nzz\r\n");
    let mut rest = [0; 8];
    reader.read_exact(&mut rest).unwrap();
    dialogue(&mut stream, text.as_bytes(), "STORED\r\nEXISTS\r\n");
    dialogue(
        &mut stream,
        b"set b 0 0 1\r\nx\r\nflush_all 1\r\nget b\r\n",
        "STORED\r\nOK\r\nVALUE b 0 1\r\nx\r\nEND\r\n",
    );
    std::thread::sleep(Duration::from_millis(2100));
    dialogue(&mut stream, b"get a b\r\n", "END\r\n");
    stream.write_all(b"stats\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut stats = String::new();
    while !stats.ends_with("END\r\n") {
        assert!(reader.read_line(&mut stats).unwrap() > 0);
    }
    for line in [
        "cmd_get 5",
        "get_hits 3",
        "get_misses 2",
        "cas_hits 1",
        "cas_badval 1",
        "curr_items 0",
        "curr_connections 1",
    ] {
        assert!(
            stats.contains(&format!("STAT {line}\r\n")),
            "{line}: {stats}"
        );
    }
    server.ends_well();
}

#[test]
fn a_full_store_drops_what_nobody_looks_up() {
    let server = Server::start({
        let mut command = example("kv_server");
        command.args(["--memory", "1"]);
        command
    });
    let mut stream = server.connect();
    let value = "v".repeat(500_000);
    for number in 0..400 {
        let text = format!("set k{number} 0 0 500000\r\n{value}\r\n");
        dialogue(&mut stream, text.as_bytes(), "STORED\r\n");
    }
    stream.write_all(b"stats\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut stats = String::new();
    while !stats.ends_with("END\r\n") {
        assert!(reader.read_line(&mut stats).unwrap() > 0);
    }
    assert!(!stats.contains("STAT evictions 0\r\n"), "{stats}");
}

#[test]
fn a_signal_lets_a_request_in_work_be_answered() {
    let files = Files::new("signal");
    let server = files.server(&["--workers", "2"]);
    let mut stream = server.connect();
    stream
        .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut reader = BufReader::new(stream);
    let mut first = [0; 1];
    reader.read_exact(&mut first).unwrap();
    let reading = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        rest.len()
    });
    server.signal(libc::SIGINT);
    assert!(reading.join().unwrap() > 1_500_000);
    let mut server = server;
    assert!(server.child.wait().unwrap().success());
}
