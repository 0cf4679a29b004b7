//! Whether the CPUs of interrupts can be set.

use enforcer_act::interrupts::check_irq_dir;
use enforcer_host::HostRoot;
use enforcer_report::checks::Check;

/// Whether `/proc/irq` is there and writable.
pub(super) fn check(host: &HostRoot) -> Check {
    let name = "interrupts";
    match check_irq_dir(host) {
        Ok(()) => Check::ok(name, "CPUs of interrupts can be set"),
        Err(reason) => Check::degraded(
            name,
            reason,
            "interrupts.mode is enforce: systemd needs ReadWritePaths=/proc/irq (interrupts.conf of docs/deploy.md), a \
             pod the value interrupts.enforce of the chart",
        ),
    }
}
