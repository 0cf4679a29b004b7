use std::{fs, os::unix::fs::MetadataExt};

use enforcer_core::{
    plan::{Action, OutcomeResult},
    workload::{CgroupPath, UnitName},
};

use super::{
    UnitProperties, Units,
    fake::{FakeSystemd, Mood},
    own_settings, recorded_settings,
    restore::{preview, restore},
};
use crate::{
    Actuator, LiveActuator, apply_plan,
    cpuset::{CpusetTree, ManagedFile},
    fixture::{Fixture, plan, set_cpus, set_mems},
    journal::EntryKey,
    restore::{RestoreReport, RestoreResult, restore as restore_files},
};

const CGROUP: &str = "/system.slice/a.service";
const UNIT: &str = "a.service";
const BOOT: Option<&str> = Some("boot-1");

/// A host with one service, with or without cpuset files, and its systemd.
fn host(files: bool) -> (Fixture, FakeSystemd) {
    let host = Fixture::new(true);
    if files {
        host.cgroup(CGROUP, "\n", "\n");
    } else {
        fs::create_dir_all(host.path(CGROUP)).unwrap();
    }
    let systemd = FakeSystemd::new(host.layout.cpuset.path.as_path());
    systemd.start(CGROUP);
    (host, systemd)
}

fn actuator(host: &Fixture, systemd: &FakeSystemd) -> LiveActuator {
    host.actuator().with_units(Units::new(Box::new(systemd.clone())))
}

fn enforce(actuator: &mut LiveActuator, actions: impl IntoIterator<Item = Action>) -> Vec<OutcomeResult> {
    apply_plan(&plan(actions), actuator).outcomes.into_iter().map(|outcome| outcome.result).collect()
}

fn applied(read_back: &str) -> OutcomeResult {
    OutcomeResult::Applied { read_back: read_back.into() }
}

/// As `numa-enforcer restore` does it.
fn restore_all(host: &Fixture, systemd: &FakeSystemd) -> RestoreReport {
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    let mut journal = host.journal();
    restore(Ok(systemd), BOOT, &mut journal, None).and(restore_files(&tree, BOOT, &mut journal))
}

#[test]
fn what_is_set_of_a_unit_outlives_a_daemon_reload_and_what_is_only_written_does_not() {
    let (host, systemd) = host(true);
    assert_eq!(enforce(&mut host.actuator(), [set_cpus(CGROUP, "2-3")]), [applied("2-3")]);
    systemd.reload();
    assert!(!host.path(CGROUP).join("cpuset.cpus").exists(), "the control");

    let (host, systemd) = self::host(true);
    let done = enforce(&mut actuator(&host, &systemd), [set_mems(CGROUP, "1"), set_cpus(CGROUP, "0,2-3")]);
    assert_eq!(done, [applied("1"), applied("0,2-3")]);
    assert_eq!(systemd.values(UNIT), ("0 2-3".into(), "1".into()));
    systemd.reload();
    assert_eq!(
        (host.read(CGROUP, "cpuset.cpus"), host.read(CGROUP, "cpuset.mems")),
        ("0,2-3\n".into(), "1\n".into())
    );
}

#[test]
fn a_unit_without_cpuset_files_gets_them_from_systemd_and_loses_them_again() {
    let (host, systemd) = host(false);
    let failed = enforce(&mut host.actuator(), [set_cpus(CGROUP, "2-3")]);
    assert!(
        matches!(failed[..], [OutcomeResult::Failed { .. } | OutcomeResult::Gone]),
        "the control: {failed:?}"
    );
    assert_eq!(enforce(&mut actuator(&host, &systemd), [set_cpus(CGROUP, "2-3")]), [applied("2-3")]);
    let report = restore_all(&host, &systemd);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(systemd.values(UNIT), (String::new(), String::new()));
    assert!(!host.path(CGROUP).join("cpuset.cpus").exists());
    assert!(host.journal().entries().is_empty());
}

#[test]
fn the_second_of_two_steps_that_fails_takes_the_first_ones_property_back() {
    let (host, systemd) = host(true);
    let mut actuator = actuator(&host, &systemd);
    assert_eq!(enforce(&mut actuator, [set_cpus(CGROUP, "0-3")]), [applied("0-3")]);
    fs::remove_file(host.path(CGROUP).join("cpuset.mems")).unwrap();
    // A link is not followed.
    std::os::unix::fs::symlink("elsewhere", host.path(CGROUP).join("cpuset.mems")).unwrap();
    let done = enforce(&mut actuator, [set_cpus(CGROUP, "1"), set_mems(CGROUP, "1")]);
    assert!(matches!(done[..], [OutcomeResult::RolledBack { .. }, OutcomeResult::Failed { .. }]), "{done:?}");
    assert_eq!(systemd.values(UNIT).0, "0-3");
    let originals: Vec<_> =
        actuator.journal().entries().values().map(|entry| entry.original.trim()).collect();
    assert_eq!(originals, ["", ""], "originals of the earlier plan, which is still applied");
}

#[test]
fn only_a_units_own_cgroup_is_set_by_systemd() {
    let (host, systemd) = host(true);
    host.cgroup("/work/a.service", "\n", "\n");
    host.cgroup("/system.slice/a.service/inner", "\n", "\n");
    host.cgroup("/other.slice/a.service", "\n", "\n");
    let mut actuator = actuator(&host, &systemd);
    for cgroup in ["/work/a.service", "/system.slice/a.service/inner", "/other.slice/a.service"] {
        assert_eq!(enforce(&mut actuator, [set_cpus(cgroup, "1")]), [applied("1")], "{cgroup}");
    }
    // Only systemd knows that the third one is not the unit's.
    assert_eq!(systemd.asked(), ["show a.service"]);
    assert_eq!(systemd.values(UNIT), (String::new(), String::new()));
}

#[test]
fn what_is_set_already_is_not_set_again() {
    let (host, systemd) = host(true);
    let mut actuator = actuator(&host, &systemd);
    enforce(&mut actuator, [set_cpus(CGROUP, "0,2-3")]);
    systemd.asked();
    // Another program writes the file, and our value is restored.
    fs::write(host.path(CGROUP).join("cpuset.cpus"), "0-7\n").unwrap();
    assert_eq!(enforce(&mut actuator, [set_cpus(CGROUP, "0,2-3")]), [applied("0,2-3")]);
    assert_eq!(systemd.asked(), ["show a.service"]);
}

#[test]
fn where_systemd_does_not_do_it_the_file_is_written_and_that_is_named() {
    for mood in [Mood::Refusing, Mood::Silent] {
        let (host, systemd) = host(true);
        let mut actuator = actuator(&host, &systemd);
        assert_eq!(actuator.degraded(), None);
        systemd.be(mood);
        assert_eq!(enforce(&mut actuator, [set_cpus(CGROUP, "2-3")]), [applied("2-3")], "{mood:?}");
        let degraded = actuator.degraded().unwrap();
        assert_eq!(degraded.source, "systemd");
        assert!(degraded.effect.contains("daemon-reload"), "{degraded:?}");
        systemd.asked();
        enforce(&mut actuator, [set_cpus(CGROUP, "1"), set_mems(CGROUP, "1")]);
        let asked_again = mood == Mood::Refusing;
        assert_eq!(!systemd.asked().is_empty(), asked_again, "a silent systemd is not asked at every step");
        systemd.be(Mood::Obliging);
        drop(actuator);
        assert!(restore_all(&host, &systemd).is_complete(), "{mood:?}");
    }
}

#[test]
fn a_unit_without_files_fails_where_systemd_refuses_and_leaves_nothing_behind() {
    let (host, systemd) = host(false);
    let mut actuator = actuator(&host, &systemd);
    systemd.be(Mood::Refusing);
    let done = enforce(&mut actuator, [set_cpus(CGROUP, "2-3")]);
    assert!(
        matches!(&done[..], [OutcomeResult::Failed { error }] if error.contains("a.service")),
        "{done:?}"
    );
    systemd.be(Mood::Obliging);
    drop(actuator);
    let report = restore_all(&host, &systemd);
    assert!(report.is_complete(), "{report:?}");
    assert!(host.journal().entries().is_empty());
}

#[test]
fn a_crash_between_record_and_setting_is_undone_and_both_values_are_known_as_ours() {
    let (host, systemd) = host(true);
    enforce(&mut actuator(&host, &systemd), [set_cpus(CGROUP, "0,2-3")]);
    let mut after = actuator(&host, &systemd);
    systemd.be(Mood::Refusing);
    enforce(&mut after, [set_cpus(CGROUP, "1")]);
    drop(after);
    let own = recorded_settings(&host.state_dir());
    for (value, ours) in [("0 2-3", true), ("1", true), ("0-3", false)] {
        assert_eq!(own.has(UNIT, "AllowedCPUs", value), ours, "{value}");
    }
    systemd.be(Mood::Obliging);
    let report = restore_all(&host, &systemd);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(systemd.values(UNIT).0, "");
    assert_eq!(own_settings(host.journal().entries()), enforcer_core::owner::OwnSettings::default());
}

#[test]
fn a_unit_that_has_ended_does_not_start_where_it_was() {
    for known in [true, false] {
        let (host, systemd) = host(true);
        let mut actuator = actuator(&host, &systemd);
        enforce(&mut actuator, [set_cpus(CGROUP, "2-3")]);
        actuator.tidy(&|_| false).unwrap();
        assert_eq!(systemd.values(UNIT).0, "2-3", "it runs");
        systemd.end(UNIT, known);
        fs::remove_dir_all(host.path(CGROUP)).unwrap();
        actuator.tidy(&|_| false).unwrap();
        assert!(actuator.journal().entries().is_empty(), "{known}");
        if known {
            assert_eq!(systemd.values(UNIT).0, "");
        }
    }
}

/// As `systemctl restart` does it: the cgroup is another one, and systemd has it as the properties say.
fn start_again(host: &Fixture, systemd: &FakeSystemd) {
    // The old directory is kept elsewhere, so that its inode cannot be given out again.
    fs::rename(host.path(CGROUP), host.path("/old")).unwrap();
    fs::create_dir(host.path(CGROUP)).unwrap();
    systemd.reload();
}

#[test]
fn after_a_restart_of_the_service_what_we_told_systemd_is_not_its_original() {
    let cgroup = CgroupPath::new(CGROUP);
    for (had, file_had) in [("", None), ("0,2-3", Some("0,2-3\n"))] {
        let (host, systemd) = host(true);
        let unit = UnitName::of_cgroup(&cgroup).unwrap();
        for property in [ManagedFile::AllowedMemoryNodes, ManagedFile::AllowedCpus] {
            UnitProperties::set(&systemd, &unit, property, had).unwrap();
        }
        if had.is_empty() {
            host.cgroup(CGROUP, "\n", "\n");
        }
        let mut actuator = actuator(&host, &systemd);
        let done = enforce(&mut actuator, [set_mems(CGROUP, "0"), set_cpus(CGROUP, "1,3")]);
        assert_eq!(done, [applied("0"), applied("1,3")]);
        start_again(&host, &systemd);
        assert_eq!(host.read(CGROUP, "cpuset.mems"), "0\n", "the control");
        actuator.record_mems(&[&cgroup]).unwrap();
        assert_eq!(enforce(&mut actuator, [set_cpus(CGROUP, "2")]), [applied("2")]);
        drop(actuator);
        let report = restore_all(&host, &systemd);
        assert!(report.is_complete(), "{had:?}: {report:?}");
        for file in ["cpuset.mems", "cpuset.cpus"] {
            let text = fs::read_to_string(host.path(CGROUP).join(file)).ok();
            assert_eq!(text.as_deref(), file_had, "{had:?}: {file}");
        }
    }
}

#[test]
fn foreign_value_is_the_original_even_if_it_equals_ours() {
    let cgroup = CgroupPath::new(CGROUP);
    let (host, systemd) = host(true);
    let original = |actuator: &LiveActuator| {
        let inode = fs::metadata(host.path(CGROUP)).unwrap().ino();
        let key = EntryKey { cgroup: cgroup.clone(), file: ManagedFile::Mems, inode };
        actuator.journal().entries()[&key].original.clone()
    };
    host.cgroup(CGROUP, "\n", "1\n");
    let mut actuator = actuator(&host, &systemd);
    assert_eq!(enforce(&mut actuator, [set_mems(CGROUP, "1")]), [applied("1")]);
    actuator.record_mems(&[&cgroup]).unwrap();
    assert_eq!(original(&actuator), "1\n", "it was there before systemd was told");
    start_again(&host, &systemd);
    fs::write(host.path(CGROUP).join("cpuset.mems"), "0-1\n").unwrap();
    actuator.record_mems(&[&cgroup]).unwrap();
    assert_eq!(original(&actuator), "0-1\n", "systemd was told something else");
}

#[test]
fn restore_says_what_it_would_do_and_what_it_cannot_do() {
    let (host, systemd) = host(true);
    enforce(&mut actuator(&host, &systemd), [set_cpus(CGROUP, "2-3")]);
    let contents = crate::Journal::peek(&host.state_dir()).unwrap();
    let would = preview(Ok(&systemd), BOOT, &contents).files;
    assert_eq!(would.len(), 1);
    assert_eq!(would[0].result, RestoreResult::WouldPutBack { from: "2-3".into() });
    assert_eq!(systemd.values(UNIT).0, "2-3");

    let elsewhere = CgroupPath::new("/user.slice");
    assert!(restore(Ok(&systemd), BOOT, &mut host.journal(), Some(&elsewhere)).files.is_empty());
    let failed = restore(Err("process 1 is not systemd"), BOOT, &mut host.journal(), None);
    assert!(!failed.is_complete());
    systemd.be(Mood::Refusing);
    assert!(!restore(Ok(&systemd), BOOT, &mut host.journal(), None).is_complete());
    systemd.be(Mood::Obliging);
    let another = restore(Ok(&systemd), Some("boot-2"), &mut host.journal(), None);
    assert!(matches!(another.files[0].result, RestoreResult::Skipped { .. }), "{another:?}");
    assert_eq!(systemd.values(UNIT).0, "2-3", "it was set after the boot");
}

#[test]
fn the_fake_has_units_by_name() {
    let (_host, systemd) = host(true);
    let other = UnitName::of_cgroup(&CgroupPath::new("/system.slice/b.service")).unwrap();
    assert_eq!(UnitProperties::show(&systemd, &other).unwrap(), super::UnitState::default());
}

/// A runtime with the systemd cgroup driver sets its scopes to what it was told for us (systemd 262).
#[test]
fn what_a_runtime_has_set_of_a_scope_for_us_is_taken_back_on_the_scope_too() {
    let id = "a".repeat(64);
    let cgroup = format!("/kubepods.slice/kubepods-besteffort.slice/cri-containerd-{id}.scope");
    let unit = format!("cri-containerd-{id}.scope");
    let host = Fixture::new(true);
    host.cgroup(&cgroup, "0,3\n", "0\n");
    let systemd = FakeSystemd::new(host.layout.cpuset.path.as_path());
    systemd.start(&cgroup);
    let name = UnitName::of_cgroup(&CgroupPath::new(&cgroup)).unwrap();
    systemd.set(&name, ManagedFile::AllowedCpus, "0 3").unwrap();
    let inode = fs::metadata(host.path(&cgroup)).unwrap().ino();
    let key = EntryKey { cgroup: CgroupPath::new(&cgroup), file: ManagedFile::Cpus, inode };
    let mut journal = host.journal();
    journal.record(key, crate::journal::Entry::of_file("0-7\n", BOOT)).unwrap();
    drop(journal);
    let would =
        |systemd: &FakeSystemd| preview(Ok(systemd), BOOT, &crate::Journal::peek(&host.state_dir()).unwrap());
    let result = RestoreResult::WouldPutBack { from: "0 3".into() };
    assert_eq!(would(&systemd).files.iter().map(|file| &file.result).collect::<Vec<_>>(), [&result]);
    // While systemd cannot be asked its files are put back; each restore says what is left.
    systemd.be(Mood::Silent);
    for _ in 0..2 {
        let report = restore_all(&host, &systemd);
        assert_eq!(report.failures().count(), 1, "{report:?}");
        assert_eq!((host.read(&cgroup, "cpuset.cpus").trim(), &*systemd.values(&unit).0), ("0-7", "0 3"));
    }
    systemd.be(Mood::Obliging);
    assert_eq!(would(&systemd).files.iter().map(|file| &file.result).collect::<Vec<_>>(), [&result]);
    let report = restore_all(&host, &systemd);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(systemd.values(&unit).0, "0-7");
    assert_eq!(host.read(&cgroup, "cpuset.cpus").trim(), "0-7");
    assert!(host.journal().entries().is_empty());
}
