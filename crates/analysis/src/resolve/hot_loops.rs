//! The loops of the functions in which samples are: which of them only look at memory until another thread changes it, and in
//! which a load waits for the stores before it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use linewise_recording::{Address, BlockedLoad, Pid, Polling, Tables};

use super::Resolver;
use super::blocked_loads::blocked_loads;
use super::loops::{Loop, natural_loops};
use super::poll_loop::{only_pauses, polled};
use super::typer::code::Code;

/// Functions whose loops are looked at, at most: those with the most samples.
const MOST_FUNCTIONS: usize = 200;
/// One with a smaller share of the samples is not.
const LEAST_SHARE: f64 = 0.001;
/// Bytes of a function's code, at most.
const MOST_BYTES: usize = 1 << 20;

/// Of several loops that begin with one block one has so much of the time, where the others are around it.
const NEARLY_ALL: f64 = 0.75;

/// An instruction that was sampled.
struct Seen {
    pid: Pid,
    ip: Address,
    /// The distance of its module.
    bias: u64,
    weight: u64,
}

impl Seen {
    /// Its address in the module.
    fn own_ip(&self) -> u64 {
        self.ip.0.wrapping_sub(self.bias)
    }
}

/// Where a function begins: its module, by number, and the address in that.
type Function = (usize, u64);

/// What is told of such loops, sorted.
#[derive(Debug, Default)]
pub(super) struct LoopRows {
    /// The sampled instructions in loops that poll.
    pub(super) polls: Vec<Polling>,
    /// The loads that wait for stores.
    pub(super) blocked_loads: Vec<BlockedLoad>,
}

impl Resolver<'_> {
    /// Looks at them.
    pub(super) fn hot_loops(&mut self, tables: &Tables) -> LoopRows {
        let mut weights: BTreeMap<(Pid, Address), u64> = BTreeMap::new();
        for sample in &tables.samples {
            *weights.entry((sample.pid, sample.ip)).or_default() += sample.weight;
        }
        let all: u64 = weights.values().sum();
        let mut functions: HashMap<Function, (u64, Vec<Seen>)> = HashMap::new();
        for ((pid, ip), weight) in weights {
            if let Some((function, bias)) = self.function_of(pid, ip) {
                let seen = functions.entry(function).or_default();
                seen.0 += weight;
                seen.1.push(Seen {
                    pid,
                    ip,
                    bias,
                    weight,
                });
            }
        }
        let mut functions: Vec<_> = functions.into_iter().collect();
        functions.retain(|(_, (weight, _))| *weight as f64 >= LEAST_SHARE * all as f64);
        functions.sort_by_key(|(function, (weight, _))| (std::cmp::Reverse(*weight), *function));
        let waited_at = tables.samples.iter().map(|it| (it.pid, it.access_ip.0));
        let waited_at: HashSet<(Pid, u64)> = waited_at.collect();
        let mut rows = LoopRows::default();
        for ((module, start), (_, seen)) in functions.into_iter().take(MOST_FUNCTIONS) {
            let code = (self.module(module)).and_then(|module| module.function_code(start));
            let code = code.filter(|(_, bytes)| bytes.len() <= MOST_BYTES);
            let Some(code) = code.and_then(|code| Code::decode(&[code])) else {
                continue;
            };
            let function = Sampled::of(&code, &seen);
            let processes: BTreeMap<Pid, u64> = seen.iter().map(|it| (it.pid, it.bias)).collect();
            let is_sampled = |at: u64| {
                let mut ips = (processes.iter()).map(|(&pid, bias)| (pid, at.wrapping_add(*bias)));
                ips.any(|it| waited_at.contains(&it))
            };
            for it in blocked_loads(&code, &function.loops, is_sampled) {
                let of = |(&pid, &bias): (&Pid, &u64)| BlockedLoad {
                    pid,
                    ip: Address(it.load.wrapping_add(bias)),
                    store_ip: Address(it.store.wrapping_add(bias)),
                    proven: it.proven,
                };
                rows.blocked_loads.extend(processes.iter().map(of));
            }
            for it in seen {
                let loads = function.loads_of(it.own_ip()).into_iter();
                rows.polls.extend(loads.map(|load| Polling {
                    pid: it.pid,
                    ip: it.ip,
                    load_ip: Address(load.wrapping_add(it.bias)),
                }));
            }
        }
        rows.polls.sort_by_key(|row| (row.pid, row.ip, row.load_ip));
        rows.blocked_loads
            .sort_by_key(|row| (row.pid, row.ip, row.store_ip));
        rows
    }

    /// The function that an instruction is in, and the distance of its module. Only of x86-64, and of a file that is by its
    /// build id the one that was recorded.
    fn function_of(&mut self, pid: Pid, ip: Address) -> Option<(Function, u64)> {
        let is_known = !self.map_at(pid, ip)?.build_id.is_empty();
        let (number, bias) = self.module_at(pid, ip).filter(|_| is_known)?;
        let module = self.module(number).filter(|module| module.is_x86())?;
        let start = module.function_start(ip.0.wrapping_sub(bias))?;
        Some(((number, start), bias))
    }
}

/// A function with its samples.
struct Sampled<'c> {
    code: &'c Code,
    loops: Vec<Loop>,
    /// Weight of the samples in each block.
    weights: BTreeMap<usize, u64>,
}

impl<'c> Sampled<'c> {
    fn of(code: &'c Code, seen: &[Seen]) -> Self {
        let mut weights = BTreeMap::new();
        for it in seen {
            if let Some(block) = code.at(it.own_ip()).and_then(|at| code.block_of(at)) {
                *weights.entry(block).or_default() += it.weight;
            }
        }
        Self {
            code,
            loops: natural_loops(code),
            weights,
        }
    }

    /// The loads whose values end the innermost loop that holds the instruction at `address` and does nothing but wait.
    fn loads_of(&self, address: u64) -> BTreeSet<u64> {
        let at = self.code.at(address);
        let Some(block) = at.and_then(|at| self.code.block_of(at)) else {
            return BTreeSet::new();
        };
        let around = self.loops.iter().filter(|it| it.body.contains(&block));
        let loads = around.filter(|it| self.is_most_of_it(it)).map(|it| {
            let inner = self.loops.iter().filter(|other| {
                other.header != it.header
                    && other.body.is_subset(&it.body)
                    && !only_pauses(self.code, &other.body)
            });
            let inner = inner.flat_map(|other| &other.body).copied().collect();
            polled(self.code, &it.body, &inner)
        });
        loads
            .into_iter()
            .find(|it| !it.is_empty())
            .unwrap_or_default()
    }

    /// Whether a loop has nearly all of the time of those that begin with the same block: code does not say which of them is in
    /// the other.
    fn is_most_of_it(&self, one: &Loop) -> bool {
        let alike = self.loops.iter().filter(|it| it.header == one.header);
        let all: BTreeSet<usize> = alike.flat_map(|it| &it.body).copied().collect();
        self.weight(&one.body) as f64 >= NEARLY_ALL * self.weight(&all) as f64
    }

    fn weight(&self, blocks: &BTreeSet<usize>) -> u64 {
        blocks
            .iter()
            .filter_map(|block| self.weights.get(block))
            .sum()
    }
}
