//! What C passes in and gets back: older and newer versions of the structures, and wrong arguments.

#![expect(unsafe_code, reason = "calls the functions as C does")]

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use linewise_delegate_c::array::{linewise_array_new, linewise_array_options};
use linewise_delegate_c::client::{
    linewise_client_close, linewise_client_open, linewise_client_open_at,
    linewise_client_statistics, linewise_client_stats, linewise_flush,
};
use linewise_delegate_c::domain::{
    LINEWISE_FLAT_QUEUE, linewise_domain, linewise_domain_close, linewise_domain_open,
    linewise_domain_options, linewise_domain_shards, linewise_shard_statistics,
    linewise_shard_stats,
};
use linewise_delegate_c::error::{
    LINEWISE_ARGUMENT, LINEWISE_NO_SEAT, LINEWISE_OK, linewise_last_error,
};

fn last_error() -> String {
    // SAFETY: the text is valid until the next error.
    let text = unsafe { CStr::from_ptr(linewise_last_error()) };
    text.to_string_lossy().into_owned()
}

fn options() -> linewise_domain_options {
    linewise_domain_options {
        size: size_of::<linewise_domain_options>(),
        shards: 1,
        policy: 0,
        bound: 0,
        request_lines: 0,
        pending_lines: 0,
        ordered: 0,
        placement: 0,
        timed: 0,
        server_cpus: null(),
        server_cpu_count: 0,
        client_cpus: null(),
        client_cpu_count: 0,
        shard_bytes: 0,
    }
}

fn open(options: &linewise_domain_options) -> Result<*mut linewise_domain, i32> {
    let mut domain = null_mut();
    // SAFETY: both are valid.
    match unsafe { linewise_domain_open(options, &raw mut domain) } {
        LINEWISE_OK => Ok(domain),
        code => Err(code),
    }
}

#[test]
fn the_options_have_no_hidden_padding() {
    assert_eq!(size_of::<linewise_domain_options>(), 8 + 8 * 4 + 5 * 8);
    assert_eq!(size_of::<linewise_client_stats>(), 11 * 8);
    assert_eq!(size_of::<linewise_shard_stats>(), 7 * 8);
    assert_eq!(size_of::<linewise_array_options>(), 8 + 2 * 4 + 5 * 8);
}

#[test]
fn a_shorter_structure_is_an_older_version() {
    let old = linewise_domain_options {
        size: 16,
        // Beyond the 16 bytes, so that it is not seen.
        request_lines: 1000,
        ..options()
    };
    let domain = open(&old).unwrap();
    // SAFETY: the handle is valid, and closed once.
    unsafe {
        assert_eq!(linewise_domain_shards(domain), 1);
        assert_eq!(linewise_domain_close(domain), LINEWISE_OK);
    }
}

#[test]
fn a_longer_structure_is_a_newer_version_and_must_not_ask_for_what_is_unknown() {
    #[repr(C)]
    struct Newer {
        known: linewise_domain_options,
        unknown: u64,
    }
    let mut newer = Newer {
        known: linewise_domain_options {
            size: size_of::<Newer>(),
            ..options()
        },
        unknown: 0,
    };
    let mut domain = null_mut();
    // SAFETY: the structure is as long as its size says; the handle is closed once.
    unsafe {
        let options = (&raw const newer).cast::<linewise_domain_options>();
        assert_eq!(linewise_domain_open(options, &raw mut domain), LINEWISE_OK);
        assert_eq!(linewise_domain_close(domain), LINEWISE_OK);
        newer.unknown = 1;
        let options = (&raw const newer).cast::<linewise_domain_options>();
        let code = linewise_domain_open(options, &raw mut domain);
        assert_eq!(code, LINEWISE_ARGUMENT);
    }
    assert!(last_error().contains("does not know"), "{}", last_error());
}

#[test]
fn what_is_wrong_is_said() {
    let wrong = |change: fn(&mut linewise_domain_options)| {
        let mut wrong = options();
        change(&mut wrong);
        (open(&wrong).unwrap_err(), last_error())
    };
    for (wanted, (code, text)) in [
        ("size is 0", wrong(|options| options.size = 0)),
        ("size is 12", wrong(|options| options.size = 12)),
        ("no order 2", wrong(|options| options.ordered = 2)),
        ("no placement 2", wrong(|options| options.placement = 2)),
        ("no policy 99", wrong(|options| options.policy = 99)),
        ("request lines", wrong(|options| options.request_lines = 33)),
        ("shards", wrong(|options| options.shards = 0)),
        (
            "server_cpus is NULL",
            wrong(|options| options.server_cpu_count = 1),
        ),
    ] {
        assert_eq!(code, LINEWISE_ARGUMENT, "{wanted}");
        assert!(text.contains(wanted), "{text}");
    }
    // SAFETY: null is refused.
    unsafe {
        assert_eq!(linewise_domain_open(null(), null_mut()), LINEWISE_ARGUMENT);
        assert_eq!(linewise_flush(null_mut()), LINEWISE_ARGUMENT);
        assert_eq!(
            linewise_array_new(null(), null(), null_mut()),
            LINEWISE_ARGUMENT
        );
        assert_eq!(linewise_domain_close(null_mut()), LINEWISE_OK);
        assert_eq!(linewise_client_close(null_mut()), LINEWISE_OK);
    }
}

#[test]
fn a_flat_domain_has_a_seat_for_each_shard() {
    let flat = linewise_domain_options {
        policy: LINEWISE_FLAT_QUEUE,
        ..options()
    };
    let domain = open(&flat).unwrap();
    let (mut client, mut second) = (null_mut(), null_mut());
    let mut stats = linewise_client_stats {
        size: 24,
        lines: 7,
        requests: 7,
        local: 7,
        polls: 7,
        ready: 7,
        pops: 7,
        failed_pops: 7,
        blocked: 7,
        latency_ticks: 7,
        latency_lines: 7,
    };
    // SAFETY: the handles are valid, and closed once.
    unsafe {
        let code = linewise_client_open_at(domain, 0, &raw mut client);
        assert_eq!(code, LINEWISE_OK);
        let code = linewise_client_open(domain, &raw mut second);
        assert_eq!(code, LINEWISE_NO_SEAT);
        let code = linewise_client_open_at(domain, 5, &raw mut second);
        assert_eq!(code, LINEWISE_ARGUMENT);
        let code = linewise_client_statistics(client, &raw mut stats);
        assert_eq!(code, LINEWISE_OK);
        assert_eq!(linewise_client_close(client), LINEWISE_OK);
        assert_eq!(linewise_domain_close(domain), LINEWISE_OK);
    }
    // Of an older version's structure only that much was written.
    assert_eq!((stats.lines, stats.requests, stats.local), (0, 0, 7));
}

#[test]
fn what_a_newer_version_of_a_result_has_beyond_ours_is_zero() {
    #[repr(C)]
    struct Newer {
        known: linewise_shard_stats,
        unknown: [u64; 2],
    }
    let domain = open(&options()).unwrap();
    let mut newer = Newer {
        known: linewise_shard_stats {
            size: size_of::<Newer>(),
            passes: 7,
            busy_passes: 7,
            visits: 7,
            lines: 7,
            requests: 7,
            busy_ticks: 7,
        },
        unknown: [7; 2],
    };
    // SAFETY: the handle is valid, and closed once; the structure is as long as its size says.
    unsafe {
        let place = (&raw mut newer).cast::<linewise_shard_stats>();
        assert_eq!(linewise_shard_statistics(domain, 0, place), LINEWISE_OK);
        assert_eq!(linewise_domain_close(domain), LINEWISE_OK);
    }
    assert_eq!((newer.known.busy_ticks, newer.unknown), (0, [0; 2]));
    assert_eq!(newer.known.size, size_of::<Newer>());
}
