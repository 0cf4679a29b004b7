//! Interrupts of devices, kept off exclusive CPUs.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result};

use crate::{
    cgroup::Cgroup,
    check::Checks,
    ids::{self, Ids},
    process::Running,
    product::{self, Daemon},
    wait,
};

/// Longest wait for the daemon: a bound on a hang, not a promise. The host may be busy.
const LIMIT: Duration = Duration::from_mins(2);

/// Turns after which a daemon has done what it does.
const SETTLED: u32 = 3;

/// An interrupt of a virtio device whose CPUs the kernel does not manage.
fn movable() -> Result<u32> {
    let text = fs::read_to_string("/proc/interrupts")?;
    let line = text.lines().find(|line| line.contains("-config"));
    let number = line.and_then(|line| line.split(':').next()?.trim().parse().ok());
    number.with_context(|| format!("no interrupt of a virtio device:\n{text}"))
}

fn affinity(irq: u32) -> Result<String> {
    let path = format!("/proc/irq/{irq}/smp_affinity_list");
    fs::read_to_string(&path).with_context(|| path)
}

/// An interrupt on exclusive CPUs is moved off and put back exactly; without the setting it stays.
pub(super) fn leave_exclusive_cpus(checks: &mut Checks) -> Result<()> {
    let irq = movable()?;
    let cgroup = Cgroup::create("/rt")?;
    let inside = Running::spawn(Command::new("sleep").arg("1000"))?;
    cgroup.adopt(inside.pid())?;
    let rules = product::rules(&[&cgroup]);

    // The control: the workload gets its CPUs, and an interrupt that is sent there stays.
    let daemon = Daemon::start_with("enforce", &format!("{rules}[interrupts]\nmode = \"off\"\n"))?;
    daemon.metrics_after_ticks(SETTLED)?;
    let own: Ids = cgroup.ids("cpuset.cpus")?;
    checks.equal("CPUs of the workload", 2, own.len());
    let text = cgroup.read("cpuset.cpus")?;
    fs::write(format!("/proc/irq/{irq}/smp_affinity_list"), format!("{text}\n"))?;
    let original = affinity(irq)?;
    daemon.metrics_after_ticks(SETTLED)?;
    checks.equal("off: CPUs of the interrupt", original.clone(), affinity(irq)?);
    daemon.ends_well(checks)?;

    let daemon = Daemon::start_with("enforce", &format!("{rules}[interrupts]\nmode = \"enforce\"\n"))?;
    let moved = wait::until("the interrupt is moved", LIMIT, || {
        let now = ids::parse(affinity(irq)?.trim())?;
        Ok((now.intersection(&own).count() == 0).then_some(now))
    });
    let moved = moved.with_context(|| format!("the daemon printed:\n{}", Daemon::printed()))?;
    checks.holds("it has a CPU", !moved.is_empty(), &moved);
    let metrics = daemon.metrics_after_ticks(SETTLED)?;
    let set = metrics.sum("numa_enforcer_interrupts_set", &[]);
    checks.above("interrupts that are set", 0.0, Some(set));
    let writes = metrics.sum("numa_enforcer_interrupt_writes_total", &[("result", "applied")]);
    let later = daemon.metrics_after_ticks(SETTLED)?;
    let again = later.sum("numa_enforcer_interrupt_writes_total", &[("result", "applied")]);
    checks.equal("writes after that", 0.0, again - writes);
    // Queues of virtio-blk are managed by the kernel, which takes no other CPUs: each is tried once.
    let refused = later.sum("numa_enforcer_interrupt_writes_total", &[("result", "failed")]);
    checks.note("refused writes", &refused);
    daemon.ends_well(checks)?;

    let output = product::run(&["restore", "--state-dir", product::STATE])?;
    checks.equal("exit status of restore", Some(0), output.status);
    checks.equal("CPUs of the interrupt after restore", original, affinity(irq)?);
    Ok(())
}
