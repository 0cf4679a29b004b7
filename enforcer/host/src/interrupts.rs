//! Interrupts of devices: `/proc/interrupts`, `/proc/irq`, `/sys/kernel/irq`, and their PCI devices.
//!
//! Problem: some files must be read at each look (counts, CPUs), the rest is the same for as long as an
//! interrupt lives, and there are hundreds. Idea: the reader keeps what lasts, and reads it again when the
//! kernel describes the number differently. Container runtimes mask `/proc/interrupts` in newer versions; the
//! counts are then those of `/sys/kernel/irq`.
//!
//! Invariants: at most [`MOST_INTERRUPTS`] interrupts and [`MOST_DEVICES`] devices are read. Of a container's
//! file system only a mounted sysfs is read, through no symlink: its content is the kernel's.

use std::{
    collections::BTreeMap,
    io,
    path::{Component, Path},
};

use enforcer_core::{
    interrupts::{Interrupt, InterruptTable},
    parse::interrupts::{InterruptLine, interrupt_columns, interrupts, is_of_each_cpu, per_cpu_count},
};
use numa_topology::{degraded::Degraded, id::NodeId, set::CpuSet};
use rustix::fs::{Dir, Mode, OFlags, ResolveFlags};

use super::{HostPath, HostRoot};

/// Most interrupts that are read.
const MOST_INTERRUPTS: usize = 1 << 14;
/// Most PCI devices whose interrupts are read.
const MOST_DEVICES: usize = 1 << 13;
/// Most network devices of one namespace.
const MOST_NETWORK_DEVICES: usize = 64;
/// Bytes of a file of one interrupt.
const FILE_LIMIT: u64 = 64 << 10;
/// `statfs(2)` of sysfs.
const SYSFS_MAGIC: u64 = 0x6265_6572;
/// Where a pod has the host's `/proc/irq` and `/proc/interrupts`: its own are read-only or masked.
const MOUNTED: &str = "/host/proc";

/// Reader of one host.
#[derive(Debug)]
pub struct InterruptReader {
    host: HostRoot,
    known: BTreeMap<u32, KnownInterrupt>,
    devices: BTreeMap<u32, String>,
}

/// What lasts as long as an interrupt.
#[derive(Debug)]
struct KnownInterrupt {
    description: String,
    name: String,
    identity: Option<String>,
    node: Option<NodeId>,
}

/// The directory `/proc/irq` that the daemon reads and writes.
pub fn irq_dir(host: &HostRoot) -> HostPath {
    let mounted = host.at(Path::new(MOUNTED).join("irq"));
    if !host.captured && mounted.is_dir() { mounted } else { host.proc.join("irq") }
}

/// Chip and hardware number of an interrupt, which another one under the same number does not have.
pub fn interrupt_identity(host: &HostRoot, number: u32) -> Option<String> {
    let dir = host.sys.join("kernel/irq").join(number.to_string());
    let [chip, hwirq] = ["chip_name", "hwirq"].map(|file| line_of(&dir.join(file)));
    Some(format!("{} {}", chip?, hwirq?))
}

impl InterruptReader {
    /// A reader that knows nothing yet.
    pub fn new(host: &HostRoot) -> Self {
        Self { host: host.clone(), known: BTreeMap::new(), devices: BTreeMap::new() }
    }

    /// Reads all interrupts; `now_ns` is the monotonic time. An error says why there are none.
    pub fn read(&mut self, now_ns: u64) -> Result<InterruptTable, Degraded> {
        let (mut lines, cpus) = self.lines().map_err(|reason| {
            Degraded::new("interrupts", reason, "interrupts on exclusive CPUs are neither seen nor moved")
        })?;
        lines.sort_by_key(|line| line.number);
        lines.dedup_by_key(|line| line.number);
        lines.truncate(MOST_INTERRUPTS);
        let is_known = |line: &InterruptLine| {
            self.known.get(&line.number).is_some_and(|known| known.description == line.description)
        };
        if !lines.iter().all(is_known) {
            self.devices = self.read_devices();
        }
        let numbers: std::collections::BTreeSet<u32> = lines.iter().map(|line| line.number).collect();
        self.known.retain(|number, _| numbers.contains(number));
        let dir = irq_dir(&self.host);
        let found = lines.into_iter().map(|line| self.interrupt(&dir, line)).collect();
        Ok(InterruptTable { interrupts: found, cpus, read_ns: now_ns })
    }

    /// Lines, and the CPUs that they count.
    fn lines(&self) -> Result<(Vec<InterruptLine>, Option<CpuSet>), String> {
        let mounted = self.host.at(Path::new(MOUNTED).join("interrupts"));
        let file =
            if !self.host.captured && mounted.exists() { mounted } else { self.host.proc.join("interrupts") };
        let read = file.read_text().map_err(|error| error.to_string());
        let parsed = read.and_then(|text| {
            let named = |error| format!("reading {}: {error}", file.display());
            let cpus = interrupt_columns(&text).map_err(named)?.into_iter().collect();
            Ok((interrupts(&text).map_err(named)?, Some(cpus)))
        });
        parsed.or_else(|reason| Ok((self.lines_of_sysfs().ok_or(reason)?, None)))
    }

    /// The same from `/sys/kernel/irq`, a file for each interrupt.
    fn lines_of_sysfs(&self) -> Option<Vec<InterruptLine>> {
        let dir = self.host.sys.join("kernel/irq");
        let numbers = dir.list_dir().ok()??.into_iter().filter_map(|name| name.parse::<u32>().ok());
        let line = |number: u32| {
            let of = |file: &str| line_of(&dir.join(number.to_string()).join(file));
            let actions = of("actions").filter(|actions| !actions.is_empty())?;
            let hwirq = of("hwirq").and_then(|text| text.parse().ok());
            if of("chip_name").is_some_and(|chip| is_of_each_cpu(&chip, hwirq)) {
                return None;
            }
            let counts = per_cpu_count(&of("per_cpu_count")?);
            Some(InterruptLine { number, counts, description: actions })
        };
        let found: Vec<InterruptLine> = numbers.take(MOST_INTERRUPTS).filter_map(line).collect();
        (!found.is_empty()).then_some(found)
    }

    fn interrupt(&mut self, dir: &HostPath, line: InterruptLine) -> Interrupt {
        let InterruptLine { number, counts, description } = line;
        let own = dir.join(number.to_string());
        let cpus = |file: &str| line_of(&own.join(file)).and_then(|text| text.parse::<CpuSet>().ok());
        let (affinity, effective) = (cpus("smp_affinity_list"), cpus("effective_affinity_list"));
        if self.known.get(&number).is_none_or(|known| known.description != description) {
            let actions = line_of(&self.host.sys.join("kernel/irq").join(number.to_string()).join("actions"));
            let node = line_of(&own.join("node")).and_then(|text| text.parse::<u32>().ok());
            let name = actions.filter(|actions| !actions.is_empty()).unwrap_or_else(|| description.clone());
            let identity = interrupt_identity(&self.host, number);
            self.known.insert(number, KnownInterrupt { description, name, identity, node: node.map(NodeId) });
        }
        let device = self.devices.get(&number).cloned();
        let (name, identity, node) = match self.known.get(&number) {
            Some(known) => (known.name.clone(), known.identity.clone(), known.node),
            None => Default::default(),
        };
        Interrupt { number, name, identity, affinity, effective, node, device, counts }
    }

    /// PCI addresses by number of their interrupts.
    fn read_devices(&self) -> BTreeMap<u32, String> {
        let bus = self.host.sys.join("bus/pci/devices");
        let mut found = BTreeMap::new();
        for address in bus.list_dir().ok().flatten().into_iter().flatten().take(MOST_DEVICES) {
            let device = bus.join(&address);
            let messages = device.join("msi_irqs").list_dir().ok().flatten().unwrap_or_default();
            let mut numbers: Vec<u32> = messages.iter().filter_map(|name| name.parse().ok()).collect();
            if numbers.is_empty() {
                // A wired interrupt; 0 is none.
                let wired = line_of(&device.join("irq")).and_then(|text| text.parse::<u32>().ok());
                numbers.extend(wired.filter(|number| *number != 0));
            }
            for number in numbers.into_iter().take(MOST_INTERRUPTS) {
                found.entry(number).or_insert_with(|| address.clone());
            }
        }
        found
    }
}

/// PCI addresses of the network devices in the network namespace of a process; none where that is the first
/// one, which the devices of the host are in. It asks the sysfs that is mounted in the process's own root. An
/// error says why they are unknown.
pub fn network_devices(host: &HostRoot, pid: u32) -> Result<Vec<String>, String> {
    let namespace = |process: &str| {
        let link = host.proc.join(process).join("ns/net");
        link.read_link().ok_or_else(|| format!("{} cannot be read", link.display()))
    };
    if namespace(&pid.to_string())? == namespace("1")? {
        return Ok(Vec::new());
    }
    if host.captured {
        return Err("a captured machine shows no devices of another network namespace".to_owned());
    }
    let root = host.proc.join(pid.to_string()).join("root");
    addresses_in(root.as_path()).map_err(|error| {
        format!("network devices of process {pid}, {}/sys/class/net: {error}", root.display())
    })
}

fn addresses_in(root: &Path) -> io::Result<Vec<String>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let dir = rustix::fs::openat2(&root, "sys/class/net", flags, Mode::empty(), resolve)?;
    // A container writes what it likes into its own files.
    if u64::try_from(rustix::fs::fstatfs(&dir)?.f_type).ok() != Some(SYSFS_MAGIC) {
        return Err(io::Error::other("no sysfs is mounted there"));
    }
    let mut found = Vec::new();
    for entry in Dir::read_from(&dir)?.take(MOST_NETWORK_DEVICES) {
        let entry = entry?;
        let Ok(target) = rustix::fs::readlinkat(&dir, entry.file_name(), Vec::new()) else { continue };
        found.extend(last_address(Path::new(&*target.to_string_lossy())));
    }
    Ok(found)
}

/// `0000:3b:00.0` of `../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/net/eth0`.
fn last_address(link: &Path) -> Option<String> {
    let is_address = |text: &&str| {
        let parts: Vec<&str> = text.split([':', '.']).collect();
        let is_hex = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        parts.len() == 4 && parts.iter().all(is_hex)
    };
    let mut names = link.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    names.rfind(is_address).map(str::to_owned)
}

/// The first line of a short file.
fn line_of(file: &HostPath) -> Option<String> {
    let text = file.read_text_within(FILE_LIMIT).ok()?;
    Some(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use numa_topology::id::CpuId;

    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let host = HostRoot::captured(dir.path());
        (dir, host)
    }

    const FILES: [(&str, &str); 9] = [
        (
            "proc/interrupts",
            "      CPU0  CPU1\n 24:  5  0  PCI-MSIX-0000:3b:00.0 0-edge eth0\n  9:  0  1  IO-APIC 9-fasteoi acpi\n",
        ),
        ("proc/irq/24/smp_affinity_list", "0-1\n"),
        ("proc/irq/24/effective_affinity_list", "0\n"),
        ("proc/irq/24/node", "1\n"),
        ("proc/irq/9/smp_affinity_list", "nonsense\n"),
        ("proc/irq/9/node", "-1\n"),
        ("sys/kernel/irq/24/chip_name", "PCI-MSIX\n"),
        ("sys/kernel/irq/24/hwirq", "7\n"),
        ("sys/bus/pci/devices/0000:3b:00.0/msi_irqs/24", "msix\n"),
    ];

    #[test]
    fn interrupts_have_their_cpus_counts_and_device() {
        let (dir, host) = host(&FILES);
        let mut reader = InterruptReader::new(&host);
        let table = reader.read(5).unwrap();
        let [acpi, eth] = &table.interrupts[..] else { panic!("{table:?}") };
        assert_eq!((acpi.number, &acpi.affinity, acpi.node, &acpi.device), (9, &None, None, &None));
        assert_eq!(eth.affinity, Some("0-1".parse().unwrap()));
        assert_eq!(eth.effective, Some("0".parse().unwrap()));
        assert_eq!((eth.node, eth.device.as_deref()), (Some(NodeId(1)), Some("0000:3b:00.0")));
        assert_eq!(eth.identity.as_deref(), Some("PCI-MSIX 7"));
        assert_eq!(eth.counts, [(CpuId(0), 5)]);
        assert_eq!(table.cpus, Some("0-1".parse().unwrap()));
        // Another driver has the number: what lasts is read again.
        fs::write(dir.path().join("proc/interrupts"), " CPU0\n 24: 1 PCI-MSI 3-edge nvme0q1\n").unwrap();
        fs::write(dir.path().join("sys/kernel/irq/24/hwirq"), "8\n").unwrap();
        let table = reader.read(6).unwrap();
        assert_eq!(table.interrupts[0].identity.as_deref(), Some("PCI-MSIX 8"));
    }

    #[test]
    fn masked_file_is_replaced_by_sysfs_and_without_both_there_is_a_reason() {
        let (dir, host) = host(&FILES);
        fs::write(dir.path().join("proc/interrupts"), "").unwrap();
        let error = InterruptReader::new(&host).read(0).unwrap_err();
        assert!(error.reason.contains("proc/interrupts"), "{error:?}");
        fs::write(dir.path().join("sys/kernel/irq/24/actions"), "eth0-TxRx-0\n").unwrap();
        fs::write(dir.path().join("sys/kernel/irq/24/per_cpu_count"), "0,7\n").unwrap();
        let table = InterruptReader::new(&host).read(0).unwrap();
        assert_eq!(table.interrupts[0].counts, [(CpuId(1), 7)]);
        assert_eq!(table.interrupts[0].name, "eth0-TxRx-0");
        // A timer of each CPU is no device's.
        fs::write(dir.path().join("sys/kernel/irq/24/chip_name"), "GICv3\n").unwrap();
        assert!(InterruptReader::new(&host).read(0).is_err(), "nothing else is left");
    }

    #[test]
    fn device_of_an_interface_is_the_last_address_of_its_link() {
        for (link, expected) in [
            ("../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/net/eth0", Some("0000:3b:00.0")),
            ("../../devices/pci0000:00/0000:00:02.0/virtio0/net/eth0", Some("0000:00:02.0")),
            ("../../devices/virtual/net/lo", None),
        ] {
            assert_eq!(last_address(Path::new(link)).as_deref(), expected, "{link}");
        }
        // A directory that is no sysfs is not believed.
        let (dir, _) = host(&[("sys/class/net/x", "")]);
        std::os::unix::fs::symlink("../../0000:3b:00.0", dir.path().join("sys/class/net/eth0")).unwrap();
        assert!(addresses_in(dir.path()).unwrap_err().to_string().contains("no sysfs"));
    }

    #[test]
    fn network_devices_of_an_unreadable_or_captured_namespace_are_unknown() {
        let (dir, host) = host(&[("proc/7/stat", ""), ("proc/8/stat", ""), ("proc/1/stat", "")]);
        for (process, namespace) in [("1", "net:[1]"), ("7", "net:[1]"), ("8", "net:[9]")] {
            let ns = dir.path().join("proc").join(process).join("ns");
            fs::create_dir(&ns).unwrap();
            std::os::unix::fs::symlink(namespace, ns.join("net")).unwrap();
        }
        assert_eq!(network_devices(&host, 7), Ok(Vec::new()), "that of the host");
        assert!(network_devices(&host, 8).unwrap_err().contains("captured"));
        assert!(network_devices(&host, 9).unwrap_err().contains("proc/9/ns/net cannot be read"));
    }
}
