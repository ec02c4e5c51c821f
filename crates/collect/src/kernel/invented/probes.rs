//! Probes on the functions of invented processes.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use linewise_machine::registers::Registers;
use linewise_machine::uprobe::{Hit, Point, ProbeCosts, Returns};

use super::super::denial::Denial;
use super::super::seam::{FunctionProber, FunctionProbes};
use super::Invented;
use super::world::{Asked, World};

/// Probes in one file of a process.
pub(crate) struct ProbesOf {
    pid: u32,
    pub(crate) file: PathBuf,
    points: Vec<Point>,
}

/// A call, as its probes see it: its arguments, what it returned, and what lies on the stack above the return address.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Called {
    pub(crate) arguments: [u64; 3],
    pub(crate) returned: u64,
    pub(crate) above: u64,
}

/// Where the stack of a caller ends.
pub(crate) const STACK_TOP: u64 = 0x7fff_f000;

impl FunctionProbes for Invented {
    type Prober = InventedProber;

    fn probe_costs(&self, _: &[u32]) -> io::Result<ProbeCosts> {
        self.with(|world| {
            world.refused(Asked::Prober)?;
            Ok(ProbeCosts {
                emulated_ns: 1000.0,
                stepped_ns: 2000.0,
                return_ns: 1000.0,
            })
        })
    }

    fn prober(&self, _: &[u32]) -> io::Result<InventedProber> {
        self.with(|world| world.refused(Asked::Prober))?;
        Ok(InventedProber(self.clone()))
    }
}

/// What places probes.
pub(crate) struct InventedProber(Invented);

impl FunctionProber for InventedProber {
    type Placed = InventedProbes;

    fn place(&self, pid: u32, file: &Path, points: &[Point]) -> io::Result<InventedProbes> {
        self.0.with(|world| {
            world.refused(Asked::FunctionProbe)?;
            if world.processes.get(&pid).is_none_or(|it| it.ended) {
                return Err(Denial::NoSuchThread.error());
            }
            world.placings += 1;
            let id = world.placings;
            let probes = ProbesOf {
                pid,
                file: file.to_owned(),
                points: points.to_vec(),
            };
            world.probes.insert(id, probes);
            let kernel = self.0.clone();
            Ok(InventedProbes { kernel, id })
        })
    }

    fn drain(&mut self, into: &mut Vec<Hit>) -> u64 {
        self.0.with(|world| {
            into.append(&mut world.hits);
            std::mem::take(&mut world.hits_lost)
        })
    }
}

/// Probes in a process.
pub(crate) struct InventedProbes {
    kernel: Invented,
    id: u64,
}

impl Drop for InventedProbes {
    fn drop(&mut self) {
        self.kernel.with(|world| world.probes.remove(&self.id));
    }
}

impl World {
    /// A thread calls the function whose code is in `range` of its file, and comes back.
    pub(crate) fn called(&mut self, (pid, tid): (u32, u32), range: &Range<u64>, call: Called) {
        self.begins((pid, tid), range, call);
        self.returns((pid, tid), range, call);
    }

    /// A thread calls it.
    pub(crate) fn begins(&mut self, whose: (u32, u32), range: &Range<u64>, call: Called) {
        let [first, second, third] = call.arguments;
        let registers = [(DI, first), (SI, second), (DX, third), (SP, STACK_TOP - 8)];
        self.hit(
            whose,
            range,
            false,
            &registers,
            vec![RETURN_ADDRESS, call.above],
        );
    }

    /// A thread comes back.
    pub(crate) fn returns(&mut self, whose: (u32, u32), range: &Range<u64>, call: Called) {
        let registers = [(AX, call.returned), (SP, STACK_TOP)];
        self.hit(whose, range, true, &registers, vec![call.above]);
    }

    fn hit(
        &mut self,
        (pid, tid): (u32, u32),
        range: &Range<u64>,
        returned: bool,
        registers: &[(u32, u64)],
        stack: Vec<u64>,
    ) {
        let time = self.shown_ns();
        let probes = self.probes.values().filter(|it| it.pid == pid);
        let points = probes.flat_map(|it| &it.points);
        let mut hit = points
            .filter(|it| range.contains(&it.offset) && !(returned && it.returns == Returns::Not));
        let Some(point) = hit.next() else { return };
        self.hits.push(Hit {
            pid,
            tid,
            time,
            cookie: point.cookie,
            returned,
            registers: Registers::from_pairs(registers),
            stack,
        });
    }
}

/// Where callers go on.
const RETURN_ADDRESS: u64 = 0x40_0123;

/// The kernel's numbers of registers.
const AX: u32 = 0;
const DX: u32 = 3;
const SI: u32 = 4;
const DI: u32 = 5;
const SP: u32 = 7;
