use std::fs;

use enforcer_core::interrupts::Interrupt;

use super::*;
use crate::fixture::Fixture;

const BOOT: Option<&str> = Some("boot-1");

/// A host with interrupt 24, which may be handled on CPUs 0-7.
fn host() -> Fixture {
    let fixture = Fixture::new(true);
    // The journal makes the state directory.
    drop(fixture.journal());
    put(&fixture, "proc/irq/24/smp_affinity_list", "0-7\n");
    put(&fixture, "sys/kernel/irq/24/chip_name", "PCI-MSIX\n");
    put(&fixture, "sys/kernel/irq/24/hwirq", "7\n");
    fixture
}

fn put(fixture: &Fixture, path: &str, text: &str) {
    let path = fixture.host().proc.as_path().parent().unwrap().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn affinity(fixture: &Fixture) -> String {
    fs::read_to_string(fixture.host().proc.join("irq/24/smp_affinity_list").as_path()).unwrap()
}

fn change(original: &str, from: &str, to: &str) -> InterruptChange {
    let [original, from, to] = [original, from, to].map(|text| text.parse().unwrap());
    let (name, reason) = ("eth0".to_owned(), String::new());
    let identity = Some("PCI-MSIX 7".into());
    InterruptChange { number: 24, name, identity, device: None, original, from, to, reason }
}

/// A reading of interrupt 24 with these CPUs.
fn table(affinity: &str) -> InterruptTable {
    let (identity, affinity) = (Some("PCI-MSIX 7".into()), affinity.parse().ok());
    let one = Interrupt { number: 24, identity, affinity, ..Interrupt::default() };
    InterruptTable { interrupts: vec![one], ..InterruptTable::default() }
}

fn writer(fixture: &Fixture) -> InterruptWriter {
    InterruptWriter::open(&fixture.host(), &fixture.state_dir(), BOOT).unwrap()
}

fn restored(fixture: &Fixture, is_preview: bool) -> Vec<RestoreResult> {
    let (results, damaged) = put_back(&fixture.host(), BOOT, &fixture.state_dir(), is_preview).unwrap();
    assert_eq!(damaged, [""; 0]);
    results.into_iter().map(|one| one.result).collect()
}

#[test]
fn what_is_set_is_recorded_and_put_back_once() {
    let fixture = host();
    let mut writer_now = writer(&fixture);
    assert_eq!(writer_now.apply(&change("0-7", "0-7", "0-1")), InterruptOutcome::Set);
    assert_eq!(affinity(&fixture), "0-1\n");
    // The next daemon knows the original.
    drop(writer_now);
    let steered = writer(&fixture).steered();
    assert_eq!(steered[&24].original, "0-7".parse().unwrap());
    assert_eq!(steered[&24].set, "0-1".parse().unwrap());
    assert_eq!(restored(&fixture, true), [RestoreResult::WouldPutBack { from: "0-1".into() }]);
    assert_eq!(affinity(&fixture), "0-1\n");
    assert_eq!(restored(&fixture, false), [RestoreResult::PutBack { from: "0-1".into() }]);
    assert_eq!(affinity(&fixture), "0-7\n");
    assert_eq!(restored(&fixture, false), []);
}

#[test]
fn what_a_turn_gives_back_is_no_longer_recorded() {
    let fixture = host();
    let mut writer = writer(&fixture);
    assert_eq!(writer.apply(&change("0-7", "0-7", "0-1")), InterruptOutcome::Set);
    assert_eq!(writer.apply(&change("0-7", "0-1", "0-7")), InterruptOutcome::Set);
    assert!(writer.steered().is_empty());
    assert_eq!((affinity(&fixture).as_str(), restored(&fixture, false).len()), ("0-7\n", 0));
}

#[test]
fn values_of_others_and_other_interrupts_stay() {
    let fixture = host();
    let mut writer_now = writer(&fixture);
    let skipped = writer_now.apply(&change("0-3", "0-3", "0-1"));
    assert!(matches!(skipped, InterruptOutcome::Skipped(_)), "it holds 0-7: {skipped:?}");
    assert_eq!(writer_now.apply(&change("0-7", "0-7", "0-1")), InterruptOutcome::Set);
    put(&fixture, "proc/irq/24/smp_affinity_list", "5\n");
    assert!(
        matches!(&restored(&fixture, false)[..], [RestoreResult::Skipped { reason }] if reason.contains("to 5"))
    );
    assert_eq!(affinity(&fixture), "5\n");
    // Its number belongs to another interrupt by now.
    assert_eq!(writer(&fixture).apply(&change("5", "5", "0-1")), InterruptOutcome::Set);
    put(&fixture, "sys/kernel/irq/24/hwirq", "9\n");
    let skipped = writer(&fixture).apply(&change("5", "0-1", "2"));
    assert!(matches!(skipped, InterruptOutcome::Skipped(_)), "{skipped:?}");
    assert!(writer(&fixture).steered().is_empty());
    assert_eq!((affinity(&fixture).as_str(), restored(&fixture, false).len()), ("0-1\n", 0));
}

#[test]
fn a_refused_write_is_named_and_leaves_no_record() {
    let fixture = host();
    // The device whose writes fail: /dev/full says ENOSPC.
    let path = fixture.host().proc.join("irq/24");
    let mut writer = writer(&fixture);
    fs::remove_file(path.join("smp_affinity_list").as_path()).unwrap();
    let skipped = writer.apply(&change("0-7", "0-7", "0-1"));
    assert!(
        matches!(&skipped, InterruptOutcome::Skipped(why) if why.contains("irq/24/smp_affinity_list")),
        "{skipped:?}"
    );
    assert!(writer.steered().is_empty());
}

#[test]
fn a_record_ends_when_the_interrupt_is_gone_and_not_when_a_reading_lacks_it() {
    let fixture = host();
    let mut writer = writer(&fixture);
    assert_eq!(writer.apply(&change("0-7", "0-7", "0-1")), InterruptOutcome::Set);
    let without = InterruptTable::default();
    writer.keep_to(&without).unwrap();
    assert_eq!(writer.steered().len(), 1, "a device that is down has no line");
    let identity = fixture.host().sys.join("kernel/irq/24");
    fs::remove_dir_all(identity.as_path()).unwrap();
    writer.keep_to(&without).unwrap();
    assert_eq!(writer.steered().len(), 1, "what cannot be read does not differ");
    fs::remove_dir_all(fixture.host().proc.join("irq/24").as_path()).unwrap();
    writer.keep_to(&without).unwrap();
    assert!(writer.steered().is_empty());
}

#[test]
fn a_record_ends_when_another_program_has_set_the_interrupt() {
    let fixture = host();
    let mut writer = writer(&fixture);
    assert_eq!(writer.apply(&change("0-7", "0-7", "0-1")), InterruptOutcome::Set);
    writer.keep_to(&table("0-1")).unwrap();
    assert_eq!(writer.steered().len(), 1);
    // The value before is no longer the daemon's once its own was there.
    for foreign in ["5", "0-7"] {
        writer.keep_to(&table(foreign)).unwrap();
        assert!(writer.steered().is_empty(), "{foreign}");
        put(&fixture, "proc/irq/24/smp_affinity_list", "0-7\n");
        assert_eq!(writer.apply(&change("0-7", "0-7", "0-1")), InterruptOutcome::Set);
    }
}

#[test]
fn the_original_survives_a_daemon_that_was_killed_between_record_and_write() {
    let fixture = host();
    let mut writer_now = writer(&fixture);
    assert_eq!(writer_now.apply(&change("0-7", "0-7", "0-1")), InterruptOutcome::Set);
    drop(writer_now);
    // It has recorded 0-1 -> 2-3, and was killed before it wrote.
    let mut record = InterruptRecord::open(&fixture.state_dir()).unwrap();
    let begun = RecordedInterrupt {
        irq: 24,
        identity: Some("PCI-MSIX 7".into()),
        original: "0-7".into(),
        set: "2-3".into(),
        was: Some("0-1".into()),
        boot_id: BOOT.map(str::to_owned),
    };
    record.steered(begun).unwrap();
    drop(record);
    let mut writer_now = writer(&fixture);
    writer_now.keep_to(&table("0-1")).unwrap();
    let steered = writer_now.steered();
    assert!(steered[&24].has_set(&"0-1".parse().unwrap()), "{steered:?}");
    drop(writer_now);
    assert_eq!(restored(&fixture, false), [RestoreResult::PutBack { from: "0-1".into() }]);
    assert_eq!(affinity(&fixture), "0-7\n");
}

#[test]
fn original_cpus_that_are_offline_are_no_failure() {
    let fixture = host();
    put(&fixture, "proc/irq/24/smp_affinity_list", "6-7\n");
    let mut writer_now = writer(&fixture);
    assert_eq!(writer_now.apply(&change("6-7", "6-7", "0-1")), InterruptOutcome::Set);
    drop(writer_now);
    put(&fixture, "sys/devices/system/cpu/online", "0-3\n");
    let restored_now = restored(&fixture, false);
    assert!(
        matches!(&restored_now[..], [RestoreResult::Skipped { reason }] if reason.contains("6-7 are offline")),
        "{restored_now:?}"
    );
    assert_eq!((affinity(&fixture).as_str(), restored(&fixture, false).len()), ("0-1\n", 0));
}
