//! The contenders that send each increment to a dedicated server in a message of its own: channels,
//! and synchronous delegation in the manner of ffwd.

use super::harness::{Apart, Held, Next, Outcome, Seat, Shards, Stage, Tally, play};
use super::spec::FetchAddError;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Answers that a client of a channel leaves outstanding: enough that neither side waits for the
/// other to be scheduled.
const WINDOW: usize = 1024;
/// Idle looks of a server between two at whether its clients have gone.
const IDLE_LOOKS: u32 = 64;

/// A server's variable, on a line of its own.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Variable(pub(super) u64);

impl Variable {
    /// Applies the operation and returns what the variable held.
    #[inline(always)]
    pub(super) fn fetch<N: Next>(&mut self) -> u64 {
        let held = self.0;
        self.0 = N::next(held);
        held
    }
}

/// What a thread hands in: its own tally as a client, its variables as a server.
type Slip = (Tally, Held);

fn add_up(slips: Vec<Slip>) -> (Tally, Held) {
    slips.into_iter().fold(
        (Tally::default(), Held::default()),
        |(tally, held), slip| (tally.plus(slip.0), held.plus(slip.1)),
    )
}

fn held(variables: Vec<Variable>) -> Held {
    Held::of(variables.into_iter().map(|variable| variable.0))
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A request to a channel's server.
#[derive(Clone, Copy)]
struct Letter {
    client: u32,
    variable: u32,
}

/// One end or the other of the channels.
enum End {
    Server {
        requests: Receiver<Letter>,
        clients: Vec<Sender<u64>>,
    },
    Client {
        servers: Vec<Sender<Letter>>,
        answers: Receiver<u64>,
    },
}

/// Bounded channels, one to each server and one back to each client; a client goes on sending
/// while answers are outstanding.
pub(super) fn channel<N: Next>(
    stage: &Stage<'_>,
    variables: usize,
) -> Result<Outcome, FetchAddError> {
    let shards = Shards::new(variables, stage.servers);
    let clients = stage.threads - stage.servers;
    let (to_servers, requests): (Vec<_>, Vec<_>) =
        (0..stage.servers).map(|_| bounded(WINDOW)).unzip();
    let (to_clients, answers): (Vec<_>, Vec<_>) = (0..clients).map(|_| bounded(WINDOW)).unzip();
    let servers = requests.into_iter().map(|requests| End::Server {
        requests,
        clients: to_clients.clone(),
    });
    let clients = answers.into_iter().map(|answers| End::Client {
        servers: to_servers.clone(),
        answers,
    });
    // Each thread takes its own end, so that a server hears when the last client has gone.
    let ends: Vec<_> = servers
        .chain(clients)
        .map(|end| Mutex::new(Some(end)))
        .collect();
    drop((to_servers, to_clients));
    let (slips, elapsed) = play(stage, |seat| match take(&ends[seat.index]) {
        Some(End::Server { requests, clients }) => {
            let mut variables = vec![Variable(0); shards.each];
            seat.begin();
            for letter in &requests {
                let held = variables[letter.variable as usize].fetch::<N>();
                // Its client waits for all that it has asked.
                let _ = clients[letter.client as usize].send(held);
            }
            (Tally::default(), held(variables))
        }
        Some(End::Client { servers, answers }) => {
            let client = (seat.index - stage.servers) as u32;
            (
                correspond(seat, shards, client, &servers, &answers),
                Held::default(),
            )
        }
        None => Slip::default(),
    })?;
    let (tally, held) = add_up(slips);
    Ok(Outcome::new(tally, held, elapsed))
}

fn correspond(
    seat: &Seat<'_>,
    shards: Shards,
    client: u32,
    servers: &[Sender<Letter>],
    answers: &Receiver<u64>,
) -> Tally {
    let (mut outstanding, mut returned) = (0, 0_u64);
    let mut tally = seat.hammer(|random| {
        let (server, variable) = shards.choose(random);
        let letter = Letter {
            client,
            variable: variable as u32,
        };
        // In batches: who looks for an answer after every request makes both sides fight over the
        // channel's lines all the time, and is slower by a factor.
        if outstanding == WINDOW {
            for answer in answers.iter().take(WINDOW / 2) {
                returned = returned.wrapping_add(answer);
            }
            outstanding -= WINDOW / 2;
        }
        // A server never waits for room for an answer, since there is room for all.
        if servers[server].send(letter).is_err() {
            return 0;
        }
        outstanding += 1;
        0
    });
    for answer in answers.iter().take(outstanding) {
        returned = returned.wrapping_add(answer);
    }
    tally.returned = returned;
    tally
}

/// Eight words on a line; two lines apart, because some processors fetch pairs.
type Words = Apart<[AtomicU64; 8]>;

/// Clients that share a response line: one word holds their flags, one for each an answer.
const CLIENTS_A_LINE: usize = 7;

/// Words of a request line.
const TOGGLE: usize = 0;
const FUNCTION: usize = 1;
const ARGUMENT: usize = 2;
/// The word of a response line that holds the flags.
const FLAGS: usize = 0;

/// What a request may ask for: ffwd passes addresses, and a table of them costs the same call.
const FUNCTIONS: usize = 2;

/// Roghanchi, Eriksson and Basu, "ffwd: delegation is (much) faster than you think" (SOSP 2017):
/// each client writes its request, function and arguments, to a line of its own at the server and
/// waits for its flag to turn on the response line, which the server writes once for a group of
/// clients.
pub(super) fn ffwd<N: Next>(stage: &Stage<'_>, variables: usize) -> Result<Outcome, FetchAddError> {
    let shards = Shards::new(variables, stage.servers);
    let clients = stage.threads - stage.servers;
    let requests: Vec<Vec<Words>> = lines(stage.servers, clients);
    let responses: Vec<Vec<Words>> = lines(stage.servers, clients.div_ceil(CLIENTS_A_LINE));
    let (slips, elapsed) = play(stage, |seat| {
        if let (Some(requests), Some(responses)) =
            (requests.get(seat.index), responses.get(seat.index))
        {
            let held = serve::<N>(seat, shards.each, requests, responses);
            return (Tally::default(), held);
        }
        let client = seat.index - stage.servers;
        let (line, slot) = (client / CLIENTS_A_LINE, client % CLIENTS_A_LINE);
        let mut toggles = vec![0_u64; stage.servers];
        let tally = seat.hammer(|random| {
            let (server, variable) = shards.choose(random);
            let request = &requests[server][client].0;
            request[FUNCTION].store(0, Ordering::Relaxed);
            request[ARGUMENT].store(variable as u64, Ordering::Relaxed);
            toggles[server] ^= 1;
            request[TOGGLE].store(toggles[server], Ordering::Release);
            let response = &responses[server][line].0;
            while (response[FLAGS].load(Ordering::Acquire) >> slot) & 1 != toggles[server] {
                seat.pause();
            }
            response[slot + 1].load(Ordering::Relaxed)
        });
        (tally, Held::default())
    })?;
    let (tally, held) = add_up(slips);
    Ok(Outcome::new(tally, held, elapsed))
}

fn lines(servers: usize, each: usize) -> Vec<Vec<Words>> {
    let of_server = || (0..each).map(|_| Words::default()).collect();
    (0..servers).map(|_| of_server()).collect()
}

fn serve<N: Next>(seat: &Seat<'_>, each: usize, requests: &[Words], responses: &[Words]) -> Held {
    type Function = fn(&mut [Variable], u64) -> u64;
    let fetch: Function = |variables, variable| variables[variable as usize].fetch::<N>();
    let read: Function = |variables, variable| variables[variable as usize].0;
    // Not known to the compiler, as an address out of a request is not.
    let functions: [Function; FUNCTIONS] = std::hint::black_box([fetch, read]);
    let mut variables = vec![Variable(0); each];
    let mut flags = vec![0_u64; responses.len()];
    let mut idle = 0;
    seat.begin();
    loop {
        let mut served = false;
        for ((group, response), flags) in requests
            .chunks(CLIENTS_A_LINE)
            .zip(responses)
            .zip(&mut flags)
        {
            let before = *flags;
            for (slot, request) in group.iter().enumerate() {
                let toggle = request.0[TOGGLE].load(Ordering::Acquire);
                if toggle == (*flags >> slot) & 1 {
                    continue;
                }
                let function = request.0[FUNCTION].load(Ordering::Relaxed) as usize % FUNCTIONS;
                let argument = request.0[ARGUMENT].load(Ordering::Relaxed);
                let answer = functions[function](&mut variables, argument);
                response.0[slot + 1].store(answer, Ordering::Relaxed);
                *flags ^= 1 << slot;
            }
            if *flags != before {
                response.0[FLAGS].store(*flags, Ordering::Release);
                served = true;
            }
        }
        if served {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle % IDLE_LOOKS == 0 && seat.deserted() {
            return held(variables);
        }
        seat.pause();
    }
}
