//! Interrupts in turns: what is set, told and given back, and what keeps the daemon from it.

use std::fs;

use enforcer_core::{finding::Rule, interrupts::InterruptMode};

use super::*;

impl Rig {
    fn put(&self, path: &str, text: &str) {
        let path = self.host.host().proc.as_path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// CPUs of the one interrupt after a turn.
    fn after_turn(&mut self, seconds: u64) -> (String, TickReport) {
        let report = self.engine.turn(seconds * SECOND).unwrap();
        let path = self.host.host().proc.join("irq/24/smp_affinity_list");
        (fs::read_to_string(path.as_path()).unwrap(), report)
    }
}

/// The workload is given CPUs 0-1, and interrupt 24 may be handled anywhere.
fn with_interrupt(mode: Mode, interrupts: InterruptMode) -> Rig {
    let mut rig = rig(mode);
    rig.named.set(Some("4-7"));
    rig.put("interrupts", "     CPU0 CPU5\n 24:  100  1  PCI-MSI 1-edge eth0\n");
    rig.put("irq/24/smp_affinity_list", "0-7\n");
    rig.engine.policy.interrupts.mode = interrupts;
    let (host, state_dir) = (rig.host.host(), rig.host.state_dir());
    let parts = InterruptParts { host, state_dir, boot_id: Some("boot-1".into()), is_left: false };
    rig.engine.allow_interrupts(parts);
    rig
}

#[test]
fn interrupts_leave_exclusive_cpus_and_come_back_when_the_setting_ends() {
    let mut rig = with_interrupt(Mode::Enforce, InterruptMode::Enforce);
    let (cpus, report) = rig.after_turn(1);
    // The turn itself gives it CPUs 0-1. Those of its sample are more than its entry asks for, and nobody's.
    assert_eq!(cpus, "2-7\n");
    let seen = report.interrupts.unwrap();
    assert_eq!((seen.set, seen.totals.set), (1, 1));
    // It still comes there: what the chip sends is counted, and told.
    rig.named.set(Some("0-1"));
    rig.put("interrupts", "     CPU0 CPU5\n 24:  200  1  PCI-MSI 1-edge eth0\n");
    let (cpus, report) = rig.after_turn(11);
    assert_eq!(cpus, "2-7\n");
    let seen = report.interrupts.unwrap();
    assert_eq!((seen.totals.set, seen.totals.on_exclusive[&NodeId(0)]), (1, 100));
    assert!(report.audit.findings.iter().any(|one| one.rule == Rule::ExclusiveCpuInterrupts));
    assert_eq!(seen.workloads[0].on_exclusive, ["interrupt 24 (PCI-MSI 1-edge eth0): 100 on CPU 0 in 10 s"]);
    rig.engine.policy.interrupts.mode = InterruptMode::Observe;
    let (cpus, report) = rig.after_turn(21);
    assert_eq!(cpus, "0-7\n");
    assert_eq!(report.interrupts.unwrap().set, 0);
}

#[test]
fn interrupts_stay_where_nothing_is_enforced() {
    for (mode, interrupts, told) in [
        (Mode::Enforce, InterruptMode::Off, false),
        (Mode::Enforce, InterruptMode::Observe, true),
        (Mode::Observe, InterruptMode::Enforce, true),
    ] {
        let mut rig = with_interrupt(mode, interrupts);
        rig.after_turn(1);
        let (cpus, report) = rig.after_turn(11);
        assert_eq!(cpus, "0-7\n", "{mode} {interrupts:?}");
        assert_eq!(report.interrupts.is_some(), told, "{mode} {interrupts:?}");
    }
    // A pause counts as well.
    let mut rig = with_interrupt(Mode::Enforce, InterruptMode::Enforce);
    rig.engine.gate().close(None);
    assert_eq!(rig.after_turn(1).0, "0-7\n");
}

#[test]
fn beside_irqbalance_nothing_is_set() {
    let mut rig = with_interrupt(Mode::Enforce, InterruptMode::Enforce);
    rig.balanced.set(true);
    let (cpus, report) = rig.after_turn(1);
    assert_eq!(cpus, "0-7\n");
    assert!(report.audit.degraded.iter().any(|one| one.source == "interrupts:irqbalance"));
}

#[test]
fn one_foreign_write_ends_the_record_and_blocks_nothing() {
    let mut rig = with_interrupt(Mode::Enforce, InterruptMode::Enforce);
    assert_eq!(rig.after_turn(1).0, "2-7\n");
    // Another program chooses CPUs that nothing speaks against.
    rig.put("irq/24/smp_affinity_list", "3\n");
    for seconds in [11, 21, 31, 41] {
        let (cpus, report) = rig.after_turn(seconds);
        assert_eq!(cpus, "3\n");
        let seen = report.interrupts.unwrap();
        assert_eq!((seen.set, seen.refused), (0, Vec::new()), "after {seconds} s");
    }
    // Chosen once more, exclusive CPUs are left, and the original is the other program's.
    rig.put("irq/24/smp_affinity_list", "0-3\n");
    assert_eq!(rig.after_turn(51).0, "2-3\n");
    rig.engine.policy.interrupts.mode = InterruptMode::Observe;
    assert_eq!(rig.after_turn(61).0, "0-3\n");
}

#[test]
fn a_reload_tells_the_driver_of_claims_whether_interrupts_are_set() {
    let mut rig = with_interrupt(Mode::Enforce, InterruptMode::Enforce);
    let steers = rig.engine.steers_interrupts();
    for (mode, expected) in [(InterruptMode::Enforce, true), (InterruptMode::Observe, false)] {
        let mut policy = rig.engine.policy().clone();
        policy.interrupts.mode = mode;
        rig.engine.set_policy(policy);
        assert_eq!(steers.load(std::sync::atomic::Ordering::Relaxed), expected);
    }
}
