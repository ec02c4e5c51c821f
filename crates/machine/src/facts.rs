//! What this machine is and what it lets this process do, from `/proc`, `/sys` and `PATH`.
//!
//! Only text files are read: no privilege, no system call of our own, no `cpuid`. Every place is
//! below a root that the caller gives, so that tests read fixture trees. What cannot be told is a
//! [`Fact::Unknown`] with the reason.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use linewise_topology::CpuSet;

use crate::sysfs::read_text;

/// Something that the machine tells, or why it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// It is told.
    Known(T),
    /// It is not told; the reason in a sentence.
    Unknown(String),
}

impl<T> Fact<T> {
    /// The value, if it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }

    /// Why it is not known; `None` if it is.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Known(_) => None,
            Self::Unknown(reason) => Some(reason),
        }
    }
}

/// Whether the machine is virtual, and on what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hypervisor {
    /// Nothing points to one.
    None,
    /// This one.
    Named(String),
    /// The CPU says that there is one, and nothing names it.
    Unnamed,
}

impl Hypervisor {
    /// Its name: empty on bare metal, `unknown` for one that hides its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::None => "",
            Self::Named(name) => name,
            Self::Unnamed => "unknown",
        }
    }
}

/// What `perf_event_open` grants to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PerfPermission {
    /// Nothing: Debian and Ubuntu kernels at `perf_event_paranoid` 3 and above.
    Nothing,
    /// User-space events of one's own processes (`perf_event_paranoid` 2).
    OwnUserSpace,
    /// Also what the kernel does for them (1).
    OwnWithKernel,
    /// Also every process of a CPU (0).
    WholeCpus,
    /// Everything (-1, or root, or CAP_PERFMON).
    Everything,
}

impl PerfPermission {
    /// What it means, in a sentence without a full stop.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Nothing => "no event may be opened by an ordinary user",
            Self::OwnUserSpace => "user-space events of one's own processes",
            Self::OwnWithKernel => "events of one's own processes, the kernel's part too",
            Self::WholeCpus => "events of whole CPUs, raw tracepoints excepted",
            Self::Everything => "every event of every process",
        }
    }
}

/// What this process may do, from its effective capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// CAP_PERFMON, or CAP_SYS_ADMIN which includes it: perf events without restriction.
    pub perfmon: bool,
    /// CAP_SYS_PTRACE: other users' processes.
    pub ptrace: bool,
    /// CAP_IPC_LOCK: ring buffers beyond `perf_event_mlock_kb`.
    pub ipc_lock: bool,
}

/// The samplers that the kernel offers in `/sys/bus/event_source/devices`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pmus {
    /// The CPU's event counters: the device's name (`cpu`, `cpu_core`, `armv8_pmuv3_0`, ...).
    pub core: Option<String>,
    /// How precise its samples get, 0 to 3, where it says so: above 0 on Intel is PEBS.
    pub max_precise: Option<u32>,
    /// AMD's instruction-based sampling (`ibs_op`).
    pub ibs: bool,
    /// Arm's statistical profiling extension (`arm_spe_0`).
    pub spe: bool,
    /// Hardware breakpoints: what watchpoints are made of.
    pub breakpoint: bool,
}

/// A soft limit of this process in the unit of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most so many.
    Of(u64),
    /// No limit.
    Unlimited,
}

/// What this machine is and what it lets this process do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The CPU model as the kernel names it.
    pub cpu_model: Fact<String>,
    /// The maker as the CPU names it: `GenuineIntel`, `AuthenticAMD`, `ARM`, ...
    pub cpu_vendor: Fact<String>,
    /// Whether the machine is virtual.
    pub hypervisor: Hypervisor,
    /// The machine's name.
    pub host: Fact<String>,
    /// What tells this time since the machine was started from every other.
    pub boot_id: Fact<String>,
    /// What `uname -r` says.
    pub kernel_release: Fact<String>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Fact<i32>,
    /// `kernel.perf_event_mlock_kb`: an ordinary user's ring buffers, KiB for each CPU.
    pub perf_event_mlock_kb: Fact<u64>,
    /// `kernel.yama.ptrace_scope`; unknown on kernels without Yama, which restrict nothing.
    pub ptrace_scope: Fact<u32>,
    /// Effective capabilities.
    pub capabilities: Capabilities,
    /// Hardware samplers.
    pub pmus: Pmus,
    /// QEMU's user-mode emulator for this architecture.
    pub qemu_user: Fact<PathBuf>,
    /// Where tracefs can be read.
    pub tracefs: Fact<PathBuf>,
    /// Where debugfs can be read.
    pub debugfs: Fact<PathBuf>,
    /// RLIMIT_MEMLOCK, bytes.
    pub memlock_bytes: Fact<Limit>,
    /// RLIMIT_NOFILE, file descriptors. Every followed thread takes several.
    pub open_files: Fact<Limit>,
    /// The CPUs that this process may run on.
    pub allowed_cpus: Fact<CpuSet>,
}

impl Facts {
    /// Reads the facts of the machine whose file system starts at `root` (`/`, or a fixture
    /// tree), looking for programs in `path_directories` (the caller's `PATH`).
    ///
    /// Never fails: what cannot be read is a [`Fact::Unknown`].
    #[must_use]
    pub fn read(root: &Path, path_directories: &[PathBuf]) -> Self {
        let cpuinfo = read_text(&root.join("proc/cpuinfo")).unwrap_or_default();
        let status = read_text(&root.join("proc/self/status")).unwrap_or_default();
        let limits = read_text(&root.join("proc/self/limits")).unwrap_or_default();
        Self {
            cpu_model: cpu_model(&cpuinfo),
            cpu_vendor: cpu_vendor(&cpuinfo),
            hypervisor: hypervisor(root, &cpuinfo),
            host: text_fact(root, "proc/sys/kernel/hostname"),
            boot_id: text_fact(root, "proc/sys/kernel/random/boot_id"),
            kernel_release: text_fact(root, "proc/sys/kernel/osrelease"),
            perf_event_paranoid: number_fact(root, "proc/sys/kernel/perf_event_paranoid"),
            perf_event_mlock_kb: number_fact(root, "proc/sys/kernel/perf_event_mlock_kb"),
            ptrace_scope: number_fact(root, "proc/sys/kernel/yama/ptrace_scope"),
            capabilities: capabilities(&status),
            pmus: pmus(&root.join("sys/bus/event_source/devices")),
            qemu_user: qemu_user(path_directories),
            tracefs: readable(root, &["sys/kernel/tracing", "sys/kernel/debug/tracing"]),
            debugfs: readable(root, &["sys/kernel/debug"]),
            memlock_bytes: limit(&limits, "Max locked memory"),
            open_files: limit(&limits, "Max open files"),
            allowed_cpus: allowed_cpus(&status),
        }
    }

    /// What `perf_event_open` grants to this process, as far as the setting and the capabilities
    /// tell. A seccomp filter can take away more; only trying tells that.
    ///
    /// Source: the kernel's `Documentation/admin-guide/sysctl/kernel.rst`. Level 3 is a patch of
    /// Debian and Ubuntu; other kernels treat it as 2, so the answer there is too cautious.
    #[must_use]
    pub fn perf_permission(&self) -> PerfPermission {
        if self.capabilities.perfmon {
            return PerfPermission::Everything;
        }
        match self.perf_event_paranoid {
            Fact::Known(..=-1) => PerfPermission::Everything,
            Fact::Known(0) => PerfPermission::WholeCpus,
            Fact::Known(1) => PerfPermission::OwnWithKernel,
            Fact::Known(2) => PerfPermission::OwnUserSpace,
            // Without the file the kernel was built without perf events.
            Fact::Known(_) | Fact::Unknown(_) => PerfPermission::Nothing,
        }
    }
}

/// The value of the first line `KEY : value` of a `/proc` text.
pub(crate) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key && !value.trim().is_empty()).then(|| value.trim())
    })
}

fn cpu_model(cpuinfo: &str) -> Fact<String> {
    // Arm kernels name no model, but the maker's numbers identify it.
    let by_numbers = || {
        let implementer = field(cpuinfo, "CPU implementer")?;
        let part = field(cpuinfo, "CPU part")?;
        Some(format!("implementer {implementer} part {part}"))
    };
    field(cpuinfo, "model name")
        .or_else(|| field(cpuinfo, "Model"))
        .map(str::to_owned)
        .or_else(by_numbers)
        .map_or_else(
            || Fact::Unknown("/proc/cpuinfo names no model".to_owned()),
            Fact::Known,
        )
}

fn cpu_vendor(cpuinfo: &str) -> Fact<String> {
    if let Some(vendor) = field(cpuinfo, "vendor_id") {
        return Fact::Known(vendor.to_owned());
    }
    match field(cpuinfo, "CPU implementer") {
        Some("0x41") => Fact::Known("ARM".to_owned()),
        Some(number) => Fact::Known(format!("implementer {number}")),
        None => Fact::Unknown("/proc/cpuinfo names no maker".to_owned()),
    }
}

/// Names the hypervisor by whatever the kernel shows without privilege, surest first.
fn hypervisor(root: &Path, cpuinfo: &str) -> Hypervisor {
    let named = |name: &str| Hypervisor::Named(name.to_owned());
    if let Some(kind) = read_text(&root.join("sys/hypervisor/type")) {
        return Hypervisor::Named(match kind.as_str() {
            "xen" => "Xen".to_owned(),
            _ => kind,
        });
    }
    let flags = field(cpuinfo, "flags").unwrap_or_default();
    let flagged = flags.split_whitespace().any(|flag| flag == "hypervisor");
    let clocks = "sys/devices/system/clocksource/clocksource0/available_clocksource";
    let clocks = read_text(&root.join(clocks)).unwrap_or_default();
    for clock in clocks.split_whitespace() {
        if clock == "kvm-clock" {
            return named("KVM");
        }
        if clock.starts_with("hyperv") {
            return named("Hyper-V");
        }
    }
    if let Some(compatible) = read_text(&root.join("proc/device-tree/hypervisor/compatible")) {
        let kvm = compatible.contains("kvm");
        return named(if kvm {
            "KVM"
        } else {
            compatible.trim_matches('\0')
        });
    }
    let dmi = |name: &str| read_text(&root.join("sys/class/dmi/id").join(name));
    let vendor = dmi("sys_vendor").unwrap_or_default();
    let product = dmi("product_name").unwrap_or_default();
    let makers = [
        ("QEMU", "KVM or QEMU"),
        ("VMware", "VMware"),
        ("innotek", "VirtualBox"),
        ("Amazon EC2", "Amazon EC2"),
        ("Google", "Google Compute Engine"),
        ("Xen", "Xen"),
        ("Parallels", "Parallels"),
        ("OpenStack", "KVM (OpenStack)"),
        ("DigitalOcean", "KVM (DigitalOcean)"),
    ];
    // Amazon and Google also rent bare metal under these names; there the flag is not set.
    if flagged || cfg!(not(target_arch = "x86_64")) {
        if let Some((_, name)) = makers.iter().find(|(maker, _)| vendor.starts_with(maker)) {
            return named(name);
        }
        if vendor.starts_with("Microsoft") && product.contains("Virtual Machine") {
            return named("Hyper-V");
        }
    }
    if flagged {
        Hypervisor::Unnamed
    } else {
        Hypervisor::None
    }
}

/// A random number of 128 bits in lower-case hex, another at each call.
#[must_use]
pub fn random_id(root: &Path) -> Fact<String> {
    match text_fact(root, "proc/sys/kernel/random/uuid") {
        Fact::Known(uuid) => Fact::Known(uuid.replace('-', "")),
        unknown => unknown,
    }
}

fn text_fact(root: &Path, path: &str) -> Fact<String> {
    read_text(&root.join(path)).map_or_else(
        || Fact::Unknown(format!("/{path} cannot be read")),
        Fact::Known,
    )
}

fn number_fact<T: std::str::FromStr>(root: &Path, path: &str) -> Fact<T> {
    let Some(text) = read_text(&root.join(path)) else {
        return Fact::Unknown(format!("/{path} does not exist or cannot be read"));
    };
    text.parse().map_or_else(
        |_| Fact::Unknown(format!("/{path} holds `{text}`, which is no number")),
        Fact::Known,
    )
}

fn capabilities(status: &str) -> Capabilities {
    // Bit numbers: include/uapi/linux/capability.h.
    const IPC_LOCK: u32 = 14;
    const SYS_PTRACE: u32 = 19;
    const SYS_ADMIN: u32 = 21;
    const PERFMON: u32 = 38;
    let bits = field(status, "CapEff")
        .and_then(|text| u64::from_str_radix(text, 16).ok())
        .unwrap_or_default();
    let has = |bit: u32| bits & (1 << bit) != 0;
    Capabilities {
        perfmon: has(PERFMON) || has(SYS_ADMIN),
        ptrace: has(SYS_PTRACE),
        ipc_lock: has(IPC_LOCK),
    }
}

fn pmus(directory: &Path) -> Pmus {
    let names: Vec<String> = fs::read_dir(directory)
        .map(|entries| {
            entries
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok())
                .collect()
        })
        .unwrap_or_default();
    let has = |name: &str| names.iter().any(|known| known == name);
    let core = ["cpu", "cpu_core"]
        .into_iter()
        .find(|name| has(name))
        .map(str::to_owned)
        .or_else(|| {
            names
                .iter()
                .filter(|name| name.starts_with("armv8") || name.starts_with("armv9"))
                .min()
                .cloned()
        });
    let max_precise = core.as_ref().and_then(|name| {
        read_text(&directory.join(name).join("caps/max_precise"))?
            .parse()
            .ok()
    });
    Pmus {
        core,
        max_precise,
        ibs: has("ibs_op"),
        spe: names.iter().any(|name| name.starts_with("arm_spe_")),
        breakpoint: has("breakpoint"),
    }
}

fn qemu_user(path_directories: &[PathBuf]) -> Fact<PathBuf> {
    let name = format!("qemu-{}", std::env::consts::ARCH);
    path_directories
        .iter()
        .map(|directory| directory.join(&name))
        .find(|path| {
            fs::metadata(path).is_ok_and(|metadata| {
                metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
            })
        })
        .map_or_else(|| Fact::Unknown(format!("no {name} on PATH")), Fact::Known)
}

/// The first of `paths` that is a directory with something readable in it.
fn readable(root: &Path, paths: &[&str]) -> Fact<PathBuf> {
    let mut reasons = Vec::new();
    for path in paths {
        match fs::read_dir(root.join(path)) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Fact::Known(Path::new("/").join(path));
                }
                reasons.push(format!("/{path} is empty: not mounted"));
            }
            Err(error) => reasons.push(format!("/{path}: {}", plain(&error))),
        }
    }
    Fact::Unknown(reasons.join("; "))
}

/// The error without its number.
fn plain(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "does not exist",
        std::io::ErrorKind::PermissionDenied => "only for root",
        _ => "cannot be read",
    }
}

fn limit(limits: &str, name: &str) -> Fact<Limit> {
    let soft = limits
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next());
    match soft {
        Some("unlimited") => Fact::Known(Limit::Unlimited),
        Some(number) => number.parse().map_or_else(
            |_| Fact::Unknown(format!("`{name}` in /proc/self/limits is no number")),
            |number| Fact::Known(Limit::Of(number)),
        ),
        None => Fact::Unknown(format!("/proc/self/limits has no `{name}`")),
    }
}

fn allowed_cpus(status: &str) -> Fact<CpuSet> {
    field(status, "Cpus_allowed_list")
        .and_then(|list| list.parse().ok())
        .map_or_else(
            || Fact::Unknown("/proc/self/status has no Cpus_allowed_list".to_owned()),
            Fact::Known,
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Facts {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/sysfs")
            .join(name);
        Facts::read(&root, &[root.join("usr/bin")])
    }

    #[test]
    fn a_random_id_is_128_bits_and_never_comes_again() {
        let [one, other] = [(), ()].map(|()| random_id(Path::new("/")));
        let id = one.known().expect("an id");
        assert_eq!(id.len(), 32, "{id}");
        assert!(u128::from_str_radix(id, 16).is_ok(), "{id}");
        assert_ne!(one, other);
    }

    #[test]
    fn a_kvm_guest_without_a_pmu_is_recognised_by_its_clock() {
        let facts = fixture("epyc-vm-2cpu");
        assert_eq!(facts.cpu_model, Fact::Known("AMD EPYC".to_owned()));
        assert_eq!(facts.cpu_vendor, Fact::Known("AuthenticAMD".to_owned()));
        assert_eq!(facts.hypervisor, Hypervisor::Named("KVM".to_owned()));
        assert_eq!(facts.pmus.core, None);
        assert!(!facts.pmus.ibs && !facts.pmus.spe && facts.pmus.breakpoint);
        assert_eq!(facts.memlock_bytes, Fact::Known(Limit::Of(8_388_608)));
        assert_eq!(facts.perf_event_mlock_kb, Fact::Known(516));
        assert_eq!(
            facts.allowed_cpus.known().map(CpuSet::to_string),
            Some("0-1".to_owned())
        );
    }

    #[test]
    fn an_ordinary_user_at_level_two_gets_his_own_user_space() {
        let mut facts = fixture("epyc-vm-2cpu");
        assert_eq!(facts.capabilities, Capabilities::default());
        assert_eq!(facts.perf_permission(), PerfPermission::OwnUserSpace);
        facts.perf_event_paranoid = Fact::Known(3);
        assert_eq!(facts.perf_permission(), PerfPermission::Nothing);
        facts.perf_event_paranoid = Fact::Known(-1);
        assert_eq!(facts.perf_permission(), PerfPermission::Everything);
    }

    #[test]
    fn bare_metal_with_a_pmu_has_precise_events_and_no_hypervisor() {
        let facts = fixture("two-sockets-8cpu");
        assert_eq!(facts.hypervisor, Hypervisor::None);
        assert_eq!(facts.hypervisor.name(), "");
        assert_eq!(facts.pmus.core.as_deref(), Some("cpu"));
        assert_eq!(facts.pmus.max_precise, Some(3));
        assert_eq!(facts.ptrace_scope, Fact::Known(1));
        assert_eq!(facts.open_files, Fact::Known(Limit::Unlimited));
    }

    #[test]
    fn root_may_open_every_event_whatever_the_level() {
        let facts = fixture("two-sockets-8cpu");
        assert!(facts.capabilities.perfmon && facts.capabilities.ptrace);
        assert_eq!(facts.perf_event_paranoid, Fact::Known(3));
        assert_eq!(facts.perf_permission(), PerfPermission::Everything);
    }

    #[test]
    fn a_guest_that_hides_its_hypervisor_is_still_known_to_be_one() {
        let facts = fixture("vm-with-holes");
        assert_eq!(facts.hypervisor, Hypervisor::Unnamed);
        assert!(facts.perf_event_paranoid.reason().is_some());
        assert_eq!(facts.perf_permission(), PerfPermission::Nothing);
    }

    #[test]
    fn a_tree_with_nothing_in_it_gives_reasons_not_a_panic() {
        let facts = fixture("no-such-tree");
        assert_eq!(facts.cpu_model.known(), None);
        let reason = facts.qemu_user.reason().unwrap();
        assert!(reason.contains("on PATH"), "{reason}");
        assert_eq!(facts.pmus, Pmus::default());
    }
}
