//! The contenders that send each increment to a dedicated server in a message of its own: channels,
//! and synchronous delegation in the manner of ffwd and of Gepard.

use super::harness::{Apart, Held, Next, Outcome, Seat, Shards, Stage, Tally, play};
use super::spec::{FIBRES, FetchAddError};
use corosensei::stack::DefaultStack;
use corosensei::{ScopedCoroutine, ScopedCoroutineRef, Yielder};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::cell::Cell;
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

/// Lines between clients and servers in the manner of ffwd, so many to each server for each client.
struct Lines {
    requests: Vec<Vec<Words>>,
    responses: Vec<Vec<Words>>,
}

impl Lines {
    fn new(servers: usize, to_each: usize) -> Self {
        Self {
            requests: lines(servers, to_each),
            responses: lines(servers, to_each.div_ceil(CLIENTS_A_LINE)),
        }
    }

    /// Asks for a variable in a request line whose last answer was taken, and returns the flag that will be
    /// its answer's.
    #[inline(always)]
    fn ask(&self, server: usize, line: usize, variable: usize) -> u64 {
        let request = &self.requests[server][line].0;
        request[FUNCTION].store(0, Ordering::Relaxed);
        request[ARGUMENT].store(variable as u64, Ordering::Relaxed);
        let toggle = request[TOGGLE].load(Ordering::Relaxed) ^ 1;
        request[TOGGLE].store(toggle, Ordering::Release);
        toggle
    }

    /// The answer with this flag, if it has come.
    #[inline(always)]
    fn answer(&self, server: usize, line: usize, toggle: u64) -> Option<u64> {
        let (group, slot) = (line / CLIENTS_A_LINE, line % CLIENTS_A_LINE);
        let response = &self.responses[server][group].0;
        let flag = (response[FLAGS].load(Ordering::Acquire) >> slot) & 1;
        (flag == toggle).then(|| response[slot + 1].load(Ordering::Relaxed))
    }

    /// Serves if the seat is a server's, else plays a client.
    fn play<N: Next>(
        &self,
        seat: &Seat<'_>,
        shards: Shards,
        client: impl FnOnce() -> Tally,
    ) -> Slip {
        match (
            self.requests.get(seat.index),
            self.responses.get(seat.index),
        ) {
            (Some(requests), Some(responses)) => {
                let held = serve::<N>(seat, shards.each, requests, responses);
                (Tally::default(), held)
            }
            _ => (client(), Held::default()),
        }
    }
}

/// Roghanchi, Eriksson and Basu, "ffwd: delegation is (much) faster than you think" (SOSP 2017):
/// each client writes its request, function and arguments, to a line of its own at the server and
/// waits for its flag to turn on the response line, which the server writes once for a group of
/// clients.
pub(super) fn ffwd<N: Next>(stage: &Stage<'_>, variables: usize) -> Result<Outcome, FetchAddError> {
    let shards = Shards::new(variables, stage.servers);
    let lines = Lines::new(stage.servers, stage.threads - stage.servers);
    let (slips, elapsed) = play(stage, |seat| {
        lines.play::<N>(seat, shards, || {
            let line = seat.index - stage.servers;
            seat.hammer(|random| {
                let (server, variable) = shards.choose(random);
                let toggle = lines.ask(server, line, variable);
                loop {
                    if let Some(answer) = lines.answer(server, line, toggle) {
                        return answer;
                    }
                    seat.pause();
                }
            })
        })
    })?;
    let (tally, held) = add_up(slips);
    Ok(Outcome::new(tally, held, elapsed))
}

/// Request lines of a client to each server: Gepard's choice.
const GEPARD_LINES: usize = 4;

/// Gepard as the thesis describes it (chapter 2): the lines of ffwd, four from a client to each server,
/// and fibres in each client: up to 64, with which it is fastest there, but none that would only wait for
/// a line. A fibre takes a line that is free, writes its request and gives way until it is answered.
pub(super) fn gepard<N: Next>(
    stage: &Stage<'_>,
    variables: usize,
) -> Result<Outcome, FetchAddError> {
    let shards = Shards::new(variables, stage.servers);
    let clients = stage.threads - stage.servers;
    let lines = Lines::new(stage.servers, clients * GEPARD_LINES);
    let (slips, elapsed) = play(stage, |seat| {
        lines.play::<N>(seat, shards, || {
            let first = (seat.index - stage.servers) * GEPARD_LINES;
            let taken = vec![Cell::new(0_u32); stage.servers];
            let sum = Cell::new(Tally::default());
            seat.begin();
            let body = |fibre: usize, give_way: &dyn Fn()| {
                let mine = seat.hammer_as(fibre, |random| {
                    let (server, variable) = shards.choose(random);
                    let taken = &taken[server];
                    while taken.get().trailing_ones() as usize >= GEPARD_LINES {
                        give_way();
                    }
                    let free = taken.get().trailing_ones();
                    taken.set(taken.get() | 1 << free);
                    let line = first + free as usize;
                    let toggle = lines.ask(server, line, variable);
                    let answer = loop {
                        if let Some(answer) = lines.answer(server, line, toggle) {
                            break answer;
                        }
                        give_way();
                    };
                    taken.set(taken.get() & !(1 << free));
                    answer
                });
                sum.set(sum.get().plus(mine));
            };
            let fibres = FIBRES.min(GEPARD_LINES * stage.servers);
            in_fibres(fibres, &body, Vec::new());
            sum.get()
        })
    })?;
    let (tally, held) = add_up(slips);
    Ok(Outcome::new(tally, held, elapsed))
}

type Begun<'a> = ScopedCoroutineRef<'a, (), (), (), DefaultStack>;

/// Runs so many fibres beside those begun, round after round until all have ended. Each gets its number and
/// how to give way.
fn in_fibres(more: usize, body: &dyn Fn(usize, &dyn Fn()), mut begun: Vec<Begun<'_>>) {
    if more > 0 {
        let number = begun.len();
        let fibre = ScopedCoroutine::new(|give_way: &Yielder<(), ()>, ()| {
            body(number, &|| give_way.suspend(()));
        });
        return fibre.scope(|fibre| {
            let mut begun: Vec<Begun<'_>> = begun;
            begun.push(fibre);
            in_fibres(more - 1, body, begun);
        });
    }
    while !begun.is_empty() {
        begun.retain_mut(|fibre| fibre.as_mut().resume(()).as_yield().is_some());
    }
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
