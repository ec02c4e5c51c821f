//! Flat delegation: who serves when (the paper's section 2.2, "Scheduling Strategies").

/// When a thread of a flat domain serves its own shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Pending queues; a client serves before it writes and reads request lines, and after every
    /// 256 calls on its own shard, which run inline. The paper's fastest, and the default.
    #[default]
    Queue,
    /// No pending queues: a request goes into a request line or the client serves until one is
    /// free. Calls on the own shard go through request lines too, so a client comes to serve
    /// whatever it calls.
    ServeWhenBlocked,
    /// As `ServeWhenBlocked`, but calls on the own shard run inline. A client that calls nothing
    /// else never serves (the paper's greedy client): others wait until it polls, waits or leaves.
    FastPath,
    /// As `FastPath`, and a client serves after so many calls on its own shard (at least 1).
    UpperBound(u32),
    /// As `FastPath`, and a blocked client rings the bell of the shard it waits for; a client looks
    /// at its bell at every call.
    Doorbell,
}

/// What a policy means to the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Requests go straight into request lines.
    pub(crate) direct: bool,
    /// Calls on the own shard run inline.
    pub(crate) inline_own: bool,
    /// Serve after so many calls on the own shard; 0: never for that reason.
    pub(crate) serve_every: u32,
    /// Serve before request lines are written and read.
    pub(crate) serve_first: bool,
    /// Ring when blocked, and look at the bell at every call.
    pub(crate) bell: bool,
}

/// Calls on the own shard between two looks at what others ask, under [`Policy::Queue`].
const OWN_CALLS: u32 = 256;

impl Policy {
    pub(crate) fn rules(self) -> Rules {
        let direct = Rules {
            direct: true,
            inline_own: true,
            serve_every: 0,
            serve_first: false,
            bell: false,
        };
        match self {
            Self::Queue => Rules {
                direct: false,
                serve_every: OWN_CALLS,
                serve_first: true,
                ..direct
            },
            Self::ServeWhenBlocked => Rules {
                inline_own: false,
                ..direct
            },
            Self::FastPath => direct,
            Self::UpperBound(calls) => Rules {
                serve_every: calls.max(1),
                ..direct
            },
            Self::Doorbell => Rules {
                bell: true,
                ..direct
            },
        }
    }
}

impl Rules {
    /// Own calls until the next look at what others ask: never where the policy has no bound.
    pub(crate) fn own_calls(rules: Option<&Self>) -> u32 {
        match rules.map(|rules| rules.serve_every) {
            None | Some(0) => u32::MAX,
            Some(calls) => calls,
        }
    }
}
