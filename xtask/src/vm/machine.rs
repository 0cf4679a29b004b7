//! A topology as QEMU's command line.
//!
//! Board and processor are in `platform`. Problem: each choice below is there because another one was seen to
//! fail under QEMU 10's TCG.
//! - `store-global-state=off`: a guest that was saved while stopped runs when it is resumed.
//! - Root is opened with `snapshot=on`: its writes are thrown away. A machine that is to be saved writes
//!   to a copy, which then belongs to its state.
//! - The guest numbers nodes of NVDIMMs in the order in which QEMU lists the devices, which is by id,
//!   last first. Ids are given so that guest and file agree.
//! - The network card has only ports on the bus, no memory and no MSI-X: with a modern card QEMU was seen to
//!   end in two of 46 boots, once with an assertion in `iotlb_to_section`; with this one in none of 33.
//!
//! Pure: text in, arguments out. Nothing is started here.

use std::path::Path;

use super::{
    platform::GuestPlatform,
    topology::{GuestHmat, GuestTopology},
};
use crate::setup::GuestRig;

/// Translation-block cache in MiB; the default grows with the guest's memory and the host has little.
const ACCELERATOR: &str = "tcg,thread=multi,tb-size=256";

/// A card without firmware: no guest starts from a network.
const NETWORK_CARD: &str =
    "virtio-net-pci,netdev=host,romfile=,disable-modern=on,disable-legacy=off,vectors=0";

/// Memory that a node made of an NVDIMM loses: labels, and alignment to a block of 128 MiB.
const NVDIMM_LOSS_MIB: u32 = 128;

/// Files and settings of one boot.
pub(super) struct GuestMachine<'a> {
    pub(super) rig: &'a GuestRig,
    pub(super) topology: &'a GuestTopology,
    /// ext4 image that appears at `/inject`.
    pub(super) inject: &'a Path,
    /// Text of the job, padded to whole sectors.
    pub(super) job: &'a Path,
    /// Log of the kernel's console.
    pub(super) console: &'a Path,
    /// Appended to the kernel command line.
    pub(super) kernel_arguments: &'a str,
    /// Whether it has a network card, through which it reaches this host at 10.0.2.2.
    pub(super) has_network: bool,
    pub(super) start: Start<'a>,
}

/// From which state a machine starts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start<'a> {
    /// From nothing.
    Cold,
    /// From nothing; QEMU listens on `monitor`, and `root` keeps what is written to it.
    ToBeSaved { root: &'a Path, monitor: &'a Path },
    /// From memory and devices in `state`, with the disk `root`.
    Saved { root: &'a Path, state: &'a Path },
}

impl GuestMachine<'_> {
    /// QEMU's arguments.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut arguments = words(&[
            "-accel",
            ACCELERATOR,
            "-cpu",
            self.platform().processor,
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-global",
            "migration.store-global-state=off",
        ]);
        arguments.extend(processors(self.platform(), self.topology));
        arguments.extend(memory(self.topology));
        arguments.extend(distances(self.topology));
        if let Some(hmat) = &self.topology.hmat {
            arguments.extend(heterogeneous(self.topology, hmat));
        }
        arguments.extend(self.devices());
        arguments.extend(self.kernel());
        match self.start {
            Start::Cold => {}
            Start::ToBeSaved { monitor, .. } => {
                let listen = format!("unix:{},server=on,wait=off", monitor.display());
                arguments.extend(["-qmp".to_owned(), listen]);
            }
            Start::Saved { state, .. } => {
                arguments.extend(["-incoming".to_owned(), format!("file:{}", state.display())]);
            }
        }
        arguments
    }

    fn platform(&self) -> &'static GuestPlatform {
        GuestPlatform::of(self.rig.architecture)
    }

    fn devices(&self) -> Vec<String> {
        let mut devices = Vec::new();
        let (root, root_options) = match self.start {
            Start::Cold => (self.rig.root.as_path(), "cache=unsafe,snapshot=on"),
            Start::ToBeSaved { root, .. } => (root, "cache=unsafe"),
            Start::Saved { root, .. } => (root, "cache=unsafe,snapshot=on"),
        };
        for (id, path, options) in [
            ("root", root, root_options),
            ("inject", self.inject, "readonly=on"),
            ("job", self.job, "readonly=on"),
        ] {
            devices.push("-drive".to_owned());
            devices.push(format!("if=none,id={id},file={},format=raw,{options}", path.display()));
            devices.push("-device".to_owned());
            devices.push(format!("virtio-blk-pci,drive={id}"));
        }
        for (id, backend) in [
            ("console", format!("file,id=console,path={}", self.console.display())),
            ("job-tty", "stdio,id=job-tty,signal=off".to_owned()),
        ] {
            devices.extend(["-chardev".to_owned(), backend, "-serial".to_owned(), format!("chardev:{id}")]);
        }
        if self.has_network {
            devices.extend(words(&["-netdev", "user,id=host", "-device", NETWORK_CARD]));
        }
        devices
    }

    fn kernel(&self) -> Vec<String> {
        let mut line = self.platform().kernel_arguments.to_owned();
        if self.topology.has_nvdimms() {
            line.push_str(" rig.nvdimm=ram");
        }
        if !self.kernel_arguments.is_empty() {
            line.push(' ');
            line.push_str(self.kernel_arguments);
        }
        vec![
            "-kernel".to_owned(),
            self.rig.kernel.display().to_string(),
            "-initrd".to_owned(),
            self.rig.initrd.display().to_string(),
            "-append".to_owned(),
            line,
        ]
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn processors(platform: &GuestPlatform, topology: &GuestTopology) -> Vec<String> {
    let GuestTopology { sockets, dies, cores, threads, .. } = topology;
    let mut machine = platform.machine.to_owned();
    if topology.hmat.is_some() {
        machine.push_str(",hmat=on");
    }
    if topology.has_nvdimms() {
        machine.push_str(",nvdimm=on");
    }
    let smp =
        format!("{},sockets={sockets},dies={dies},cores={cores},threads={threads}", topology.cpu_count());
    vec!["-machine".to_owned(), machine, "-smp".to_owned(), smp]
}

fn memory(topology: &GuestTopology) -> Vec<String> {
    let mut arguments = Vec::new();
    for (number, node) in topology.nodes.iter().enumerate() {
        let mut numa = vec![format!("node,nodeid={number}")];
        if node.memory_mib > 0 {
            let backend = format!("memory-backend-ram,id=memory{number},size={}M", node.memory_mib);
            arguments.extend(["-object".to_owned(), backend]);
            numa.push(format!("memdev=memory{number}"));
        }
        // A topology that was loaded has been checked, its lists of CPUs included.
        let ranges = node.cpu_ranges().unwrap_or_default();
        numa.extend(ranges.iter().map(|range| format!("cpus={}-{}", range.start(), range.end())));
        if let (Some(initiator), Some(_)) = (node.initiator, &topology.hmat) {
            numa.push(format!("initiator={initiator}"));
        }
        arguments.extend(["-numa".to_owned(), numa.join(",")]);
    }
    let ordinary: u32 = topology.nodes.iter().map(|node| node.memory_mib).sum();
    let nvdimms = nvdimms(topology);
    let mut size = format!("{ordinary}M");
    if !nvdimms.is_empty() {
        let total: u32 = nvdimms.iter().map(|&(_, mebibytes)| mebibytes).sum();
        // Each slot may be aligned up to 1 GiB, and the region itself as well.
        size = format!("{size},slots={},maxmem={}M", nvdimms.len(), ordinary + 2 * total + 4096);
    }
    arguments.extend(["-m".to_owned(), size]);
    for (number, mebibytes) in nvdimms {
        let order = topology.nodes.len() - number;
        arguments.extend([
            "-object".to_owned(),
            format!("memory-backend-ram,id=nvdimm{number},size={mebibytes}M"),
            "-device".to_owned(),
            format!("nvdimm,id=slot{order},memdev=nvdimm{number},node={number}"),
        ]);
    }
    arguments
}

/// Nodes made of an NVDIMM, and the size of the device in MiB.
fn nvdimms(topology: &GuestTopology) -> Vec<(usize, u32)> {
    let nodes = topology.nodes.iter().enumerate();
    nodes.filter(|(_, n)| n.nvdimm_mib > 0).map(|(at, n)| (at, n.nvdimm_mib + NVDIMM_LOSS_MIB)).collect()
}

/// Both directions of every pair: QEMU takes one for the other only if no pair differs.
fn distances(topology: &GuestTopology) -> Vec<String> {
    let mut arguments = Vec::new();
    for (from, row) in topology.distances.iter().enumerate() {
        for (to, distance) in row.iter().enumerate().filter(|&(to, _)| to != from) {
            arguments.extend(["-numa".to_owned(), format!("dist,src={from},dst={to},val={distance}")]);
        }
    }
    arguments
}

fn heterogeneous(topology: &GuestTopology, hmat: &GuestHmat) -> Vec<String> {
    let mut arguments = Vec::new();
    for (row, initiator) in topology.initiators().into_iter().enumerate() {
        for target in 0..topology.nodes.len() {
            let pair = format!("hmat-lb,initiator={initiator},target={target},hierarchy=memory");
            let (latency, bandwidth) = (hmat.latency_ns[row][target], hmat.bandwidth_gib[row][target]);
            arguments
                .extend(["-numa".to_owned(), format!("{pair},data-type=access-latency,latency={latency}")]);
            arguments.extend([
                "-numa".to_owned(),
                format!("{pair},data-type=access-bandwidth,bandwidth={bandwidth}G"),
            ]);
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{architecture::Architecture, workspace::Workspace};

    fn line(name: &str, kernel_arguments: &str) -> String {
        line_from(name, kernel_arguments, Start::Cold)
    }

    fn line_from(name: &str, kernel_arguments: &str, start: Start) -> String {
        line_of(Architecture::Amd64, name, kernel_arguments, start)
    }

    fn line_of(architecture: Architecture, name: &str, kernel_arguments: &str, start: Start) -> String {
        line_with(false, architecture, name, kernel_arguments, start)
    }

    fn line_with(
        has_network: bool,
        architecture: Architecture,
        name: &str,
        kernel_arguments: &str,
        start: Start,
    ) -> String {
        let topology = GuestTopology::load(&Workspace::find().unwrap().topologies(), name).unwrap();
        let rig = GuestRig {
            architecture,
            qemu: PathBuf::from("/rig/qemu"),
            kernel: PathBuf::from("/rig/vmlinux"),
            initrd: PathBuf::from("/rig/initrd"),
            root: PathBuf::from("/rig/root.ext4"),
        };
        let machine = GuestMachine {
            rig: &rig,
            topology: &topology,
            inject: Path::new("/run/inject"),
            job: Path::new("/run/job"),
            console: Path::new("/run/console"),
            kernel_arguments,
            has_network,
            start,
        };
        machine.arguments().join(" ")
    }

    #[test]
    fn the_whole_line_of_two_sockets() {
        let wanted = "-accel tcg,thread=multi,tb-size=256 \
            -cpu max,la57=off,monitor=off,vendor=GenuineIntel,family=6,model=85,stepping=7,level=30 \
            -nodefaults -no-user-config -display none -no-reboot -global migration.store-global-state=off \
            -machine q35,pit=off -smp 4,sockets=2,dies=1,cores=2,threads=1 \
            -object memory-backend-ram,id=memory0,size=512M -numa node,nodeid=0,memdev=memory0,cpus=0-1 \
            -object memory-backend-ram,id=memory1,size=512M -numa node,nodeid=1,memdev=memory1,cpus=2-3 \
            -m 1024M -numa dist,src=0,dst=1,val=21 -numa dist,src=1,dst=0,val=21 \
            -drive if=none,id=root,file=/rig/root.ext4,format=raw,cache=unsafe,snapshot=on \
            -device virtio-blk-pci,drive=root \
            -drive if=none,id=inject,file=/run/inject,format=raw,readonly=on -device virtio-blk-pci,drive=inject \
            -drive if=none,id=job,file=/run/job,format=raw,readonly=on -device virtio-blk-pci,drive=job \
            -chardev file,id=console,path=/run/console -serial chardev:console \
            -chardev stdio,id=job-tty,signal=off -serial chardev:job-tty \
            -kernel /rig/vmlinux -initrd /rig/initrd -append console=ttyS0 quiet panic=-1 mitigations=off nokaslr \
            init_on_alloc=0 tsc=reliable no_timer_check rcupdate.rcu_expedited=1 random.trust_cpu=on \
            cryptomgr.notests audit=0 numa_balancing=disable";
        assert_eq!(line("2s", "numa_balancing=disable"), wanted);
    }

    #[test]
    fn another_architecture_is_another_board_processor_and_console() {
        let line = line_of(Architecture::Arm64, "2s-memory", "", Start::Cold);
        for part in [
            "-cpu neoverse-n1 ",
            "-machine virt,gic-version=3 -smp 4,sockets=2,dies=1,cores=2,threads=1 ",
            "-numa node,nodeid=2,memdev=memory2 ",
            "-numa dist,src=1,dst=2,val=28 ",
            "-append console=ttyAMA0 ",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }

    #[test]
    fn a_machine_that_reaches_this_host_has_one_more_device() {
        let line = line_with(true, Architecture::Amd64, "2s", "", Start::Cold);
        let (before, after) = line.split_once("-netdev user,id=host ").unwrap();
        let rest = after.strip_prefix(&format!("-device {NETWORK_CARD} ")).unwrap();
        assert_eq!(format!("{before}{rest}"), self::line("2s", ""));
    }

    #[test]
    fn a_resumed_machine_differs_in_its_disk_and_its_state_only() {
        let cold = line("2s", "");
        let saved = Start::Saved { root: Path::new("/snap/root"), state: Path::new("/snap/state") };
        let wanted = cold.replace("/rig/root.ext4", "/snap/root") + " -incoming file:/snap/state";
        assert_eq!(line_from("2s", "", saved), wanted);
        let saving = Start::ToBeSaved { root: Path::new("/new/root"), monitor: Path::new("/new/qmp") };
        let wanted = cold.replace("/rig/root.ext4", "/new/root").replace(",snapshot=on", "")
            + " -qmp unix:/new/qmp,server=on,wait=off";
        assert_eq!(line_from("2s", "", saving), wanted);
    }

    #[test]
    fn asymmetric_distances_keep_their_direction() {
        let line = line("asym", "");
        assert!(
            line.contains("dist,src=0,dst=1,val=17") && line.contains("dist,src=1,dst=0,val=28"),
            "{line}"
        );
    }

    #[test]
    fn slow_memory_is_told_by_hmat() {
        let line = line("hmat", "");
        for part in [
            "-machine q35,pit=off,hmat=on",
            "node,nodeid=2,memdev=memory2,initiator=0",
            "hmat-lb,initiator=1,target=2,hierarchy=memory,data-type=access-latency,latency=450",
            "hmat-lb,initiator=1,target=3,hierarchy=memory,data-type=access-bandwidth,bandwidth=5G",
            "-m 2048M ",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }

    #[test]
    fn nvdimms_get_room_slots_and_ids_in_falling_order() {
        let line = line("pmem", "");
        for part in [
            "-machine q35,pit=off,nvdimm=on",
            "-numa node,nodeid=2 ",
            "memory-backend-ram,id=nvdimm2,size=640M",
            "nvdimm,id=slot2,memdev=nvdimm2,node=2",
            "nvdimm,id=slot1,memdev=nvdimm3,node=3",
            "-m 1024M,slots=2,maxmem=7680M",
            " rig.nvdimm=ram",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }

    #[test]
    fn dies_and_threads_are_processors() {
        assert!(line("snc", "").contains("-smp 8,sockets=2,dies=2,cores=2,threads=1"));
        assert!(line("smt", "").contains("-smp 8,sockets=2,dies=1,cores=2,threads=2"));
        assert!(line("8n", "").contains("dist,src=0,dst=7,val=31"));
    }
}
