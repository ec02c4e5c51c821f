//! The machine's shape from `/sys/devices/system/{cpu,node}`.
//!
//! Virtual machines and containers leave holes in these trees: no cache directory, a package
//! number of -1, no NUMA nodes. A hole never fails the reading; it becomes a `None` and a
//! [`Hole`] that says which file is missing. Only a tree without any CPU is an error.
//!
//! Files and formats: the kernel's `Documentation/ABI/testing/sysfs-devices-system-cpu` and
//! `Documentation/ABI/stable/sysfs-devices-node`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use linewise_topology::{Cache, CacheKind, Cpu, CpuSet, Hole, Node, ParseCpuSetError, Topology};

/// The folder of the CPUs.
const CPUS: &str = "sys/devices/system/cpu";

/// Why the machine's shape could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SysfsError {
    /// There is no list of CPUs.
    #[error(
        "no CPU is listed in {}: {}",
        root.join(CPUS).display(),
        match root == Path::new("/") {
            true => "sysfs is not mounted or hidden; mount it, or leave the container that hides it",
            false => "name the folder that has a machine's `sys` in it",
        }
    )]
    NoCpus {
        /// Below which CPUs were looked for.
        root: PathBuf,
    },
    /// A file has no list of CPUs.
    #[error("{}: {source}", path.display())]
    NoList {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ParseCpuSetError,
    },
}

/// Reads the shape of the machine whose file system starts at `root`: `/`, or a fixture tree.
///
/// # Errors
/// [`SysfsError::NoCpus`] if the tree lists no CPU, [`SysfsError::NoList`] if a list of CPUs is none.
pub fn read_topology(root: &Path) -> Result<Topology, SysfsError> {
    let directory = root.join(CPUS);
    let online = online_cpus(&directory)?;
    if online.is_empty() {
        let root = root.to_owned();
        return Err(SysfsError::NoCpus { root });
    }

    let mut holes = Vec::new();
    let nodes = read_nodes(&root.join("sys/devices/system/node"), &online, &mut holes)?;
    let cpus = read_cpus(&directory, &online, &nodes, &mut holes)?;
    let caches = read_caches(&directory, &online, &mut holes)?;
    Ok(Topology {
        cpus,
        caches,
        nodes,
        holes,
    })
}

fn online_cpus(directory: &Path) -> Result<CpuSet, SysfsError> {
    // Kernels without CPU hotplug have no `online` file; every directory is an online CPU then.
    let entries = || numbered_entries(directory, "cpu").into_keys().collect();
    Ok(read_list(&directory.join("online"))?.unwrap_or_else(entries))
}

/// The CPUs that a file lists; `None` where there is no such file, or nothing in it.
fn read_list(path: &Path) -> Result<Option<CpuSet>, SysfsError> {
    let told = read_text(path).map(|text| text.parse::<CpuSet>());
    told.transpose().map_err(|source| SysfsError::NoList {
        path: path.to_owned(),
        source,
    })
}

fn read_cpus(
    directory: &Path,
    online: &CpuSet,
    nodes: &[Node],
    holes: &mut Vec<Hole>,
) -> Result<Vec<Cpu>, SysfsError> {
    let mut core_numbers = BTreeMap::<u32, u32>::new();
    let mut without_core = CpuSet::new();
    let mut without_socket = CpuSet::new();
    let mut cpus = Vec::with_capacity(online.len());
    for id in online.iter() {
        let topology = directory.join(format!("cpu{id}/topology"));
        let siblings = match read_list(&topology.join("core_cpus_list"))? {
            None => read_list(&topology.join("thread_siblings_list"))?,
            siblings => siblings,
        };
        let siblings = siblings
            .map(|siblings| siblings.intersection(online))
            .filter(|siblings| siblings.contains(id));
        // A core is known by its lowest CPU, because `core_id` repeats in every socket.
        let core = siblings.and_then(|siblings| siblings.first()).map(|first| {
            let next = u32::try_from(core_numbers.len()).unwrap_or(u32::MAX);
            *core_numbers.entry(first).or_insert(next)
        });
        // Machines that do not know their packages say -1, which is no socket.
        let socket = read_text(&topology.join("physical_package_id"))
            .and_then(|text| text.parse::<u32>().ok());
        if core.is_none() {
            without_core.insert(id);
        }
        if socket.is_none() {
            without_socket.insert(id);
        }
        cpus.push(Cpu {
            id,
            core,
            socket,
            node: nodes
                .iter()
                .find(|node| node.cpus.contains(id))
                .map(|node| node.id),
        });
    }
    if !without_core.is_empty() {
        holes.push(Hole {
            what: "cores".to_owned(),
            reason: format!(
                "no readable cpuN/topology/core_cpus_list for CPU {without_core}: \
                 which CPUs are hyperthreads of one core is unknown"
            ),
        });
    }
    if !without_socket.is_empty() {
        holes.push(Hole {
            what: "sockets".to_owned(),
            reason: format!(
                "no package number in cpuN/topology/physical_package_id for CPU {without_socket}"
            ),
        });
    }
    Ok(cpus)
}

fn read_caches(
    directory: &Path,
    online: &CpuSet,
    holes: &mut Vec<Hole>,
) -> Result<Vec<Cache>, SysfsError> {
    // Every CPU lists the caches that it shares, so one cache is met as often as it has CPUs.
    let mut caches = BTreeMap::<(u32, CacheKind, CpuSet), Cache>::new();
    let mut without = CpuSet::new();
    let mut unclear = CpuSet::new();
    for id in online.iter() {
        let indices = numbered_entries(&directory.join(format!("cpu{id}/cache")), "index");
        if indices.is_empty() {
            without.insert(id);
        }
        for index in indices.into_values() {
            match read_cache(&index, online, id)? {
                Some(cache) => {
                    let key = (cache.level, cache.kind, cache.cpus.clone());
                    caches.entry(key).or_insert(cache);
                }
                None => {
                    unclear.insert(id);
                }
            }
        }
    }
    if !without.is_empty() {
        holes.push(Hole {
            what: "caches".to_owned(),
            reason: format!(
                "no cpuN/cache directory for CPU {without}: the hypervisor or the firmware hides \
                 the caches"
            ),
        });
    }
    if !unclear.is_empty() {
        holes.push(Hole {
            what: "caches".to_owned(),
            reason: format!(
                "a cpuN/cache/indexN without level, type or shared_cpu_list for CPU {unclear}: \
                 that cache is left out"
            ),
        });
    }
    Ok(caches.into_values().collect())
}

/// The cache of a folder; `None` where that does not tell enough.
fn read_cache(index: &Path, online: &CpuSet, cpu: u32) -> Result<Option<Cache>, SysfsError> {
    let number = |name: &str| read_text(&index.join(name))?.parse::<u32>().ok();
    let kind = match read_text(&index.join("type")).as_deref() {
        Some("Data") => CacheKind::Data,
        Some("Instruction") => CacheKind::Instruction,
        Some("Unified") => CacheKind::Unified,
        _ => return Ok(None),
    };
    let cpus = read_list(&index.join("shared_cpu_list"))?.unwrap_or_default();
    let cpus = cpus.intersection(online);
    let (Some(level), true) = (number("level"), cpus.contains(cpu)) else {
        return Ok(None);
    };
    // A zero means that the firmware did not say.
    let nonzero = |name: &str| number(name).filter(|&value| value != 0);
    Ok(Some(Cache {
        level,
        kind,
        size_bytes: read_text(&index.join("size")).and_then(|text| parse_size(&text)),
        line_bytes: nonzero("coherency_line_size"),
        ways: nonzero("ways_of_associativity"),
        sets: nonzero("number_of_sets"),
        cpus,
    }))
}

fn read_nodes(
    directory: &Path,
    online: &CpuSet,
    holes: &mut Vec<Hole>,
) -> Result<Vec<Node>, SysfsError> {
    let entries = numbered_entries(directory, "node");
    if entries.is_empty() {
        holes.push(Hole {
            what: "nodes".to_owned(),
            reason: "no /sys/devices/system/node: this kernel has no NUMA support, or hides it"
                .to_owned(),
        });
    }
    let count = entries.len();
    let mut without = Vec::new();
    let nodes = entries
        .into_iter()
        .map(|(id, path)| -> Result<Node, SysfsError> {
            let distances: Vec<u32> = read_text(&path.join("distance"))
                .unwrap_or_default()
                .split_whitespace()
                .map_while(|word| word.parse().ok())
                .collect();
            let complete = distances.len() == count;
            if !complete {
                without.push(id.to_string());
            }
            let cpus = read_list(&path.join("cpulist"))?.unwrap_or_default();
            Ok(Node {
                id,
                cpus: cpus.intersection(online),
                distances: if complete { distances } else { Vec::new() },
            })
        })
        .collect::<Result<Vec<Node>, SysfsError>>()?;
    if !without.is_empty() {
        holes.push(Hole {
            what: "distances".to_owned(),
            reason: format!("no complete nodeN/distance for node {}", without.join(", ")),
        });
    }
    Ok(nodes)
}

/// The entries `PREFIX0`, `PREFIX1`, ... of a directory, by number; none if it cannot be read.
fn numbered_entries(directory: &Path, prefix: &str) -> BTreeMap<u32, PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix(prefix)?;
            let plain = number.bytes().all(|byte| byte.is_ascii_digit());
            let number = number.parse().ok().filter(|_| plain)?;
            (number <= CpuSet::HIGHEST).then(|| (number, entry.path()))
        })
        .collect()
}

/// A file of sysfs is shorter than this, bytes.
const LONGEST_TEXT: u64 = 1 << 16;

/// The trimmed text of a file; `None` if it cannot be read, is empty, or no regular file: the folder may be anybody's.
pub(crate) fn read_text(path: &Path) -> Option<String> {
    let mut options = fs::OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    file.metadata().ok()?.is_file().then_some(())?;
    let mut text = String::new();
    file.take(LONGEST_TEXT).read_to_string(&mut text).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Bytes of a size as sysfs writes it: `48K`, `1M`, `512`.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits
        .parse::<u64>()
        .ok()?
        .checked_mul(unit)
        .filter(|&bytes| bytes != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linewise_topology::Proximity;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/sysfs")
            .join(name)
    }

    #[test]
    fn a_vm_that_tells_everything_has_no_holes() {
        let machine = read_topology(&fixture("epyc-vm-2cpu")).unwrap();
        assert_eq!(machine.holes, []);
        assert_eq!(machine.cpu_set().to_string(), "0-1");
        assert_eq!(machine.cores().len(), 2);
        assert_eq!(machine.proximity(0, 1), Some(Proximity::SameLlc));
        assert_eq!(machine.line_size(), Some(64));
        let l3 = machine.caches.last().unwrap();
        assert_eq!(
            (l3.level, l3.size_bytes, l3.ways, l3.sets),
            (3, Some(32 << 20), Some(16), Some(32_768))
        );
        // Two of each private kind and one shared L3.
        assert_eq!(machine.caches.len(), 7);
        assert_eq!(machine.node_distance(0, 0), Some(10));
    }

    #[test]
    fn two_sockets_with_hyperthreads_keep_their_cores_apart_though_core_ids_repeat() {
        let machine = read_topology(&fixture("two-sockets-8cpu")).unwrap();
        assert_eq!(machine.holes, []);
        assert_eq!(machine.cores().len(), 4);
        assert_eq!(machine.proximity(0, 4), Some(Proximity::SameCore));
        assert_eq!(machine.proximity(0, 1), Some(Proximity::SameLlc));
        assert_eq!(machine.proximity(0, 2), Some(Proximity::OtherSocket));
        assert_eq!(machine.node_distance(0, 1), Some(21));
        assert_eq!(machine.cpu(6).and_then(|cpu| cpu.node), Some(1));
    }

    #[test]
    fn a_vm_that_hides_caches_packages_and_nodes_says_so_and_is_still_read() {
        let machine = read_topology(&fixture("vm-with-holes")).unwrap();
        assert_eq!(machine.cpu_set().to_string(), "0-3");
        assert_eq!(machine.caches, []);
        assert_eq!(machine.nodes, []);
        assert_eq!(machine.cpu(0).and_then(|cpu| cpu.socket), None);
        assert_eq!(machine.proximity(0, 1), None);
        let missing: Vec<&str> = machine
            .holes
            .iter()
            .map(|hole| hole.what.as_str())
            .collect();
        assert_eq!(missing, ["nodes", "cores", "sockets", "caches"]);
        let cores = &machine.holes[1].reason;
        assert!(cores.contains("CPU 2-3"), "{cores}");
    }

    #[test]
    fn a_tree_without_cpus_is_an_error_that_says_what_to_try() {
        let error = read_topology(&fixture("epyc-vm-2cpu").join("sys")).unwrap_err();
        assert!(error.to_string().contains("`sys` in it"), "{error}");
    }

    #[test]
    fn a_list_of_cpus_that_is_none_is_refused_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let cpus = folder.path().join(CPUS);
        let put = |name: &str, text: &str| {
            let path = cpus.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let lists = [
            "online",
            "cpu0/topology/core_cpus_list",
            "cpu0/cache/index0/shared_cpu_list",
            "../node/node0/cpulist",
        ];
        put("cpu0/cache/index0/level", "3\n");
        put("cpu0/cache/index0/type", "Unified\n");
        lists.iter().for_each(|name| put(name, "0-1\n"));
        assert!(read_topology(folder.path()).is_ok());
        for name in lists {
            for text in ["5-1", "abc", "0-99999999"] {
                put(name, text);
                let error = read_topology(folder.path()).unwrap_err().to_string();
                let file = name.rsplit('/').next().unwrap();
                assert!(error.contains(file) && error.contains(text), "{error}");
            }
            put(name, "0-1\n");
        }
    }

    #[test]
    fn sizes_are_read_in_every_unit_and_nonsense_is_refused() {
        assert_eq!(parse_size("48K"), Some(49_152));
        assert_eq!(parse_size("1M"), Some(1 << 20));
        assert_eq!(parse_size("512"), Some(512));
        for nonsense in ["", "K", "0K", "-1K", "99999999999999999999G", "1X"] {
            assert_eq!(parse_size(nonsense), None, "{nonsense}");
        }
    }
}
