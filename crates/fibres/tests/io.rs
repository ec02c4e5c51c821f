//! Sockets, pipes and files: the fibre waits, its worker does not.
#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linewise_fibres::fs::File;
use linewise_fibres::{
    Builder, JoinError, Runtime, TcpListener, TcpStream, blocking, pipe, sleep, spawn, yield_now,
};

fn start(builder: Builder) -> Runtime {
    // SAFETY: the tests' fibres hold nothing over a waiting call that belongs to their thread.
    unsafe { builder.start() }.unwrap()
}

fn runtime() -> Runtime {
    start(Runtime::builder().pool("one", 1).pool("two", 2))
}

/// Answers with what came, until the other side closes.
fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 64];
    while let Ok(count) = stream.read(&mut buffer) {
        if count == 0 || stream.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
}

/// As many connections as the process may have descriptors for, at most `wanted`.
fn connections(wanted: u64) -> usize {
    // SAFETY: fills and reads a plain value.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max.min(65_536);
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        limit.rlim_cur
    };
    wanted.min((limit - 100) / 2) as usize
}

#[test]
fn connections_wait_in_the_listeners_queue_until_a_fibre_accepts_them() {
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let most: u64 = most.trim().parse().unwrap();
    // More than the 128 that the standard library's own call would leave room for, where the kernel lets it.
    let count = connections(most.min(1000));
    let runtime = runtime();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.get_ref().local_addr().unwrap();
    // One that finds no room is tried again by the kernel after a second.
    let clients: Vec<_> = (0..count)
        .map(|nth| {
            let client = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(900));
            client.unwrap_or_else(|error| panic!("{nth} of {count}: {error}"))
        })
        .collect();
    let accepted = runtime.spawn(move || {
        let streams: Vec<_> = (0..count).map(|_| listener.accept().unwrap()).collect();
        streams.len()
    });
    assert_eq!(accepted.unwrap().join().unwrap(), clients.len());
}

#[test]
fn ten_thousand_connections_each_have_a_fibre() {
    let count = connections(10_000);
    let runtime = runtime();
    let pools = runtime.pools();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.get_ref().local_addr().unwrap();
    let served = Arc::new(AtomicUsize::new(0));
    let accepting = {
        let served = served.clone();
        runtime.spawn(move || {
            for _ in 0..count {
                let (stream, _) = listener.accept().unwrap();
                let served = served.clone();
                spawn(move || {
                    echo(stream);
                    served.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
            }
        })
    };
    let clients = pools[1].spawn(move || {
        let mut streams: Vec<_> = (0..count)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        for round in 0..2_u8 {
            for (index, stream) in streams.iter_mut().enumerate() {
                stream
                    .write_all(&[round, index as u8, (index >> 8) as u8])
                    .unwrap();
            }
            for (index, stream) in streams.iter_mut().enumerate() {
                let mut answer = [0; 3];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer, [round, index as u8, (index >> 8) as u8]);
            }
        }
    });
    clients.unwrap().join().unwrap();
    accepting.unwrap().join().unwrap();
    runtime.wait();
    assert_eq!(served.load(Ordering::Relaxed), count);
}

#[test]
fn two_fibres_accept_from_one_listener() {
    let runtime = runtime();
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.get_ref().local_addr().unwrap();
    let accepting: Vec<_> = (0..2)
        .map(|_| {
            let listener = listener.clone();
            runtime.spawn(move || (0..50).for_each(|_| echo(listener.accept().unwrap().0)))
        })
        .collect();
    for index in 0..100_u8 {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(&[index]).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [index]);
    }
    for accepting in accepting {
        accepting.unwrap().join().unwrap();
    }
}

#[test]
fn a_pipe_holds_up_its_reader_and_nobody_else() {
    let runtime = runtime();
    let (mut reader, mut writer) = pipe().unwrap();
    let turns = Arc::new(AtomicUsize::new(0));
    let reads = runtime.spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    let others = {
        let turns = turns.clone();
        runtime.spawn(move || {
            for _ in 0..1000 {
                turns.fetch_add(1, Ordering::Relaxed);
                yield_now();
            }
        })
    };
    others.unwrap().join().unwrap();
    assert_eq!(turns.load(Ordering::Relaxed), 1000);
    let writes = runtime.spawn(move || {
        for _ in 0..3 {
            writer.write_all(b"part ").unwrap();
            sleep(Duration::from_millis(1));
        }
    });
    writes.unwrap().join().unwrap();
    assert_eq!(reads.unwrap().join().unwrap(), "part part part ");
}

#[test]
fn waiting_for_a_socket_ends_in_time_and_at_shutdown() {
    let runtime = runtime();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.get_ref().local_addr().unwrap();
    let stream = std::net::TcpStream::connect(address).unwrap();
    let waits = runtime.spawn(move || {
        let (accepted, _) = listener.accept().unwrap();
        let ready = accepted.wait_readable(Duration::from_millis(5)).unwrap();
        (accepted, ready)
    });
    let (accepted, ready) = waits.unwrap().join().unwrap();
    assert!(!ready);
    let reads = runtime.spawn(move || echo(accepted)).unwrap();
    sleep(Duration::from_millis(5));
    runtime.shut_down();
    assert!(matches!(reads.join(), Err(JoinError::Cancelled)));
    drop(stream);
}

#[test]
fn a_read_waits_as_long_as_it_may_each_time_anew() {
    let runtime = start(Runtime::builder().pool("one", 1));
    let (mut reader, mut writer) = pipe().unwrap();
    let reads = runtime.spawn(move || {
        let mut byte = [0];
        // Times that are never reached, each later than the one before.
        reader.set_read_timeout(Some(Duration::from_secs(100)));
        for _ in 0..20 {
            assert_eq!(reader.read(&mut byte).unwrap(), 1);
        }
        for _ in 0..3 {
            reader.set_read_timeout(Some(Duration::from_millis(5)));
            let begun = std::time::Instant::now();
            let error = reader.read(&mut byte).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
            assert!(begun.elapsed() >= Duration::from_millis(5));
            assert!(begun.elapsed() < Duration::from_secs(5));
        }
        reader.set_read_timeout(None);
        assert_eq!(reader.read(&mut byte).unwrap(), 1);
    });
    let writes = runtime.spawn(move || {
        for _ in 0..20 {
            writer.write_all(b"x").unwrap();
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_millis(100));
        writer.write_all(b"x").unwrap();
    });
    reads.unwrap().join().unwrap();
    writes.unwrap().join().unwrap();
}

#[test]
fn a_close_that_comes_with_the_last_bytes_is_seen() {
    let runtime = runtime();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.get_ref().local_addr().unwrap();
    let reads = runtime.spawn(move || {
        let mut sums = Vec::new();
        for _ in 0..300 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            sums.push(all.len());
        }
        sums
    });
    for index in 0..300_u64 {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(b"first").unwrap();
        std::thread::sleep(Duration::from_micros(index % 7 * 30));
        stream.write_all(b"last").unwrap();
    }
    assert_eq!(reads.unwrap().join().unwrap(), vec![9; 300]);
}

fn write_and_read(runtime: &Runtime) {
    let folder = std::env::temp_dir().join(format!("fibres-{}-{:p}", std::process::id(), runtime));
    std::fs::create_dir_all(&folder).unwrap();
    let handles: Vec<_> = (0..20_u64)
        .map(|index| {
            let path = folder.join(index.to_string());
            runtime.spawn(move || {
                let text = vec![index as u8; 100_000];
                let file = File::create(&path).unwrap();
                assert_eq!(file.write_at(&text, 0).unwrap(), text.len());
                file.sync_all().unwrap();
                let file = File::open(&path).unwrap();
                let mut read = vec![0; 200_000];
                assert_eq!(file.read_at(&mut read, 1000).unwrap(), 99_000);
                assert_eq!(read[..99_000], text[1000..]);
                assert_eq!(file.read_at(&mut read, 100_000).unwrap(), 0);
                let no_place = |result: std::io::Result<usize>| result.unwrap_err().raw_os_error();
                assert_eq!(
                    no_place(file.read_at(&mut read, u64::MAX)),
                    Some(libc::EINVAL)
                );
                assert_eq!(no_place(file.write_at(b"X", u64::MAX)), Some(libc::EINVAL));
                let missing = File::open(path.with_extension("none")).unwrap_err();
                assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
            })
        })
        .collect();
    for handle in handles {
        handle.unwrap().join().unwrap();
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn files_are_written_and_read() {
    write_and_read(&runtime());
}

#[test]
fn files_are_written_and_read_without_a_ring() {
    write_and_read(&start(Runtime::builder().pool("one", 1).without_events()));
}

#[test]
fn what_blocks_runs_elsewhere() {
    let runtime = start(Runtime::builder().pool("one", 1));
    let begun = std::time::Instant::now();
    let handles: Vec<_> = (0..20)
        .map(|index| {
            runtime.spawn(move || {
                let mut seen = 0;
                blocking(|| {
                    std::thread::sleep(Duration::from_millis(20));
                    seen = index;
                });
                seen
            })
        })
        .collect();
    for (index, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.unwrap().join().unwrap(), index);
    }
    assert!(begun.elapsed() < Duration::from_millis(390));
    let thrown = runtime.spawn(|| blocking(|| std::panic::resume_unwind(Box::new(5_u8))));
    let thrown: Result<(), _> = thrown.unwrap().join();
    assert!(matches!(thrown, Err(JoinError::Panicked(_))));
}

#[test]
fn more_calls_on_files_may_end_at_once_than_a_ring_has_room_for() {
    let runtime = start(Runtime::builder().pool("one", 1));
    let (reader, mut writer) = std::io::pipe().unwrap();
    let file = Arc::new(File::from(std::fs::File::from(OwnedFd::from(reader))));
    let count = 2000;
    let read = Arc::new(AtomicUsize::new(0));
    for _ in 0..count {
        let (file, read) = (file.clone(), read.clone());
        let began = runtime.spawn(move || {
            // Refused where there is no ring, as a pipe has no offsets.
            let _ = file.read_at(&mut [0], 0);
            read.fetch_add(1, Ordering::Relaxed);
        });
        began.unwrap();
    }
    sleep(Duration::from_millis(50));
    writer.write_all(&vec![1; count]).unwrap();
    runtime.wait();
    assert_eq!(read.load(Ordering::Relaxed), count);
}

#[test]
fn a_call_that_blocks_may_wait_for_another_fibre_that_is_cancelled() {
    struct Told(std::sync::mpsc::Sender<()>);
    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let runtime = start(Runtime::builder().pool("one", 1));
    let (tell, told) = std::sync::mpsc::channel();
    let waits = runtime.spawn(move || blocking(move || told.recv()));
    let told = Told(tell);
    let cancelled = runtime.spawn(move || {
        let _told = told;
        sleep(Duration::from_secs(1000));
    });
    sleep(Duration::from_millis(10));
    runtime.shut_down();
    assert!(waits.unwrap().join().unwrap().is_ok());
    assert!(cancelled.unwrap().join().is_err());
}

#[test]
fn a_socket_outlives_the_runtime_that_knew_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.get_ref().local_addr().unwrap();
    let mut client = std::net::TcpStream::connect(address).unwrap();
    let first = runtime();
    let accepts = first.spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut word = [0; 2];
        // Nothing is there yet: it becomes known.
        stream.read_exact(&mut word).unwrap();
        stream
    });
    sleep(Duration::from_millis(5));
    client.write_all(b"ab").unwrap();
    let mut stream = accepts.unwrap().join().unwrap();
    first.shut_down();
    let second = runtime();
    let reads = second.spawn(move || {
        let mut word = [0; 2];
        stream.read_exact(&mut word).unwrap();
        word
    });
    sleep(Duration::from_millis(5));
    client.write_all(b"cd").unwrap();
    assert_eq!(&reads.unwrap().join().unwrap(), b"cd");
}

#[test]
fn who_waits_in_another_runtime_is_not_forgotten_when_the_first_ends() {
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.get_ref().local_addr().unwrap();
    let (first, second) = (runtime(), runtime());
    let known = {
        let listener = listener.clone();
        first.spawn(move || listener.wait_readable(Duration::from_millis(2)).unwrap())
    };
    assert!(!known.unwrap().join().unwrap());
    let accepts = second.spawn(move || listener.accept().map(drop).unwrap());
    sleep(Duration::from_millis(5));
    first.shut_down();
    let _client = std::net::TcpStream::connect(address).unwrap();
    accepts.unwrap().join().unwrap();
}

#[test]
fn who_shows_a_socket_holds_nothing_of_its_reactor() {
    struct Throws;
    impl std::fmt::Write for Throws {
        fn write_str(&mut self, _: &str) -> std::fmt::Result {
            std::panic::resume_unwind(Box::new("thrown"))
        }
    }
    let runtime = runtime();
    let (reader, mut writer) = pipe().unwrap();
    let reads = runtime.spawn(move || {
        assert!(!reader.wait_readable(Duration::from_millis(1)).unwrap());
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            std::fmt::Write::write_fmt(&mut Throws, format_args!("{reader:?}"))
        }));
        assert!(shown.is_err());
        let mut text = String::new();
        (&reader).read_to_string(&mut text).unwrap();
        text
    });
    sleep(Duration::from_millis(5));
    writer.write_all(b"text").unwrap();
    drop(writer);
    assert_eq!(reads.unwrap().join().unwrap(), "text");
}
