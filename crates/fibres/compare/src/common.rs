//! What the servers have in common: where they run, and how they accept.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::host::Host;
use crate::options::{self, Options};

/// Runs each step where the session is.
pub(crate) struct Plain;

impl Host for Plain {
    #[inline]
    fn step<T: Send>(&self, _: usize, work: impl FnOnce() -> T + Send) -> T {
        work()
    }
}

/// The options, `threads` or `tokio`, and what else was given.
pub(crate) fn read(steps: &[&str]) -> (Options, String, Vec<(String, String)>) {
    let mut kind = "tokio".to_owned();
    let mut others = Vec::new();
    let options = options::read(steps, |name, value| {
        match name {
            "--kind" => value.clone_into(&mut kind),
            _ => others.push((name.to_owned(), value.to_owned())),
        }
        Ok(true)
    });
    match options {
        Ok(Some(options)) => (options, kind, others),
        Ok(None) => {
            print!("--kind threads|tokio\n{}", options::HELP);
            std::process::exit(0)
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2)
        }
    }
}

fn pin(cpus: &[u32]) {
    // SAFETY: the set is plain numbers that the calls fill and read.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu as usize, &mut set);
        }
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// A thread for each connection, on the CPUs of all.
pub(crate) fn serve_by_threads<F>(options: &Options, serve: F) -> io::Result<()>
where
    F: Fn(std::net::TcpStream) -> io::Result<()> + Send + Sync + 'static,
{
    let cpus: Vec<_> = options.cpus.iter().flatten().copied().collect();
    if !cpus.is_empty() {
        pin(&cpus);
    }
    let listener = std::net::TcpListener::bind(options.address)?;
    println!("threads: listening on {}", listener.local_addr()?);
    let serve = std::sync::Arc::new(serve);
    let idle = options.idle;
    loop {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let serve = serve.clone();
        let thread = std::thread::Builder::new().stack_size(128 * 1024);
        let _ = thread.spawn(move || {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(idle))?;
            stream.set_write_timeout(Some(idle))?;
            serve(stream)
        });
    }
}

/// A task for each connection, on a thread for each CPU.
pub(crate) fn serve_by_tokio<F, T>(options: &Options, serve: F) -> io::Result<()>
where
    F: Fn(tokio::net::TcpStream) -> T + Send + Sync + 'static,
    T: Future<Output = io::Result<()>> + Send + 'static,
{
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let cpus = options.cpus.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.cpus.len())
        .enable_all()
        .on_thread_start(move || {
            // Threads beyond those are for calls that block.
            if let Some(Some(cpu)) = cpus.get(NEXT.fetch_add(1, Ordering::Relaxed)) {
                pin(&[*cpu]);
            }
        })
        .build()?;
    let address = options.address;
    let accepting = async move {
        let listener = tokio::net::TcpListener::bind(address).await?;
        println!("tokio: listening on {}", listener.local_addr()?);
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    stream.set_nodelay(true)?;
                    tokio::spawn(serve(stream));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    runtime.block_on(async { tokio::spawn(accepting).await.map_err(io::Error::other)? })
}
