//! What of QEMU's command line depends on the architecture of the guest.
//!
//! Problem: each choice below is there because another one was seen to fail under QEMU 10's TCG.
//! - amd64 is `q35`: `microvm` takes `-numa` without a word and gives the guest one node. The processor is an
//!   Intel server part: plain `max` is an AMD without `topoext`, with wrong caches and siblings. `level=30`
//!   hides CPUID leaf 0x1f; its emulation aborts QEMU when a socket has several dies. Without 5-level paging
//!   (`la57`) TLB fills are cheaper. Without `monitor` an idle processor halts: Linux before 6.0 waits by
//!   MWAIT on every Intel (`prefer_mwait_c1_over_halt` in arch/x86/kernel/process.c), which is emulated as a
//!   busy loop.
//! - `pit=off`: the kernel measures its clock against the PIT. On a busy host that was seen to come out ten
//!   times too slow (`PIT calibration deviates from HPET` in arch/x86/kernel/tsc.c, which believes the PIT),
//!   after which the guest's time runs ten times too fast, and all its limits with it. Without a PIT it takes
//!   the HPET.
//! - arm64 is `virt` without firmware: QEMU's device tree tells nodes, distances, sockets and cores; it has
//!   no words for HMAT, dies and NVDIMMs.

use anyhow::{Result, ensure};

use super::topology::GuestTopology;
use crate::architecture::Architecture;

/// A board with its processor, and how a kernel is told about it.
pub(super) struct GuestPlatform {
    /// QEMU's program.
    pub(super) program: &'static str,
    /// The board, with its settings.
    pub(super) machine: &'static str,
    pub(super) processor: &'static str,
    /// Kernel command line of every guest: quick to boot, loud when it dies.
    pub(super) kernel_arguments: &'static str,
    /// The guest's second serial port, which belongs to the job.
    pub(super) job_terminal: &'static str,
    /// Whether it can tell of dies, HMAT and NVDIMMs.
    has_firmware: bool,
}

const AMD64: GuestPlatform = GuestPlatform {
    program: "qemu-system-x86_64",
    machine: "q35,pit=off",
    processor: "max,la57=off,monitor=off,vendor=GenuineIntel,family=6,model=85,stepping=7,level=30",
    kernel_arguments: "console=ttyS0 quiet panic=-1 mitigations=off nokaslr init_on_alloc=0 tsc=reliable \
                       no_timer_check rcupdate.rcu_expedited=1 random.trust_cpu=on cryptomgr.notests audit=0",
    job_terminal: "/dev/ttyS1",
    has_firmware: true,
};

const ARM64: GuestPlatform = GuestPlatform {
    program: "qemu-system-aarch64",
    machine: "virt,gic-version=3",
    processor: "neoverse-n1",
    kernel_arguments: "console=ttyAMA0 quiet panic=-1 mitigations=off nokaslr init_on_alloc=0 \
                       rcupdate.rcu_expedited=1 random.trust_cpu=on cryptomgr.notests audit=0",
    job_terminal: "/dev/ttyAMA1",
    has_firmware: false,
};

impl GuestPlatform {
    /// That of guests of an architecture.
    pub(super) const fn of(architecture: Architecture) -> &'static Self {
        match architecture {
            Architecture::Amd64 => &AMD64,
            Architecture::Arm64 => &ARM64,
        }
    }

    /// Fails for a topology that it cannot tell a kernel of.
    pub(super) fn check(&self, topology: &GuestTopology) -> Result<()> {
        let is_plain = topology.hmat.is_none() && !topology.has_nvdimms() && topology.dies == 1;
        ensure!(
            self.has_firmware || is_plain,
            "{}: a guest of {} has no dies, HMAT and NVDIMMs",
            topology.description,
            self.machine
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn what_the_device_tree_has_no_words_for_is_refused() {
        let shipped = Workspace::find().unwrap().topologies();
        for (name, is_plain) in
            [("2s", true), ("2s-memory", true), ("hmat", false), ("pmem", false), ("snc", false)]
        {
            let topology = GuestTopology::load(&shipped, name).unwrap();
            assert_eq!(ARM64.check(&topology).is_ok(), is_plain, "{name}");
            AMD64.check(&topology).unwrap();
        }
    }
}
