//! Turns over files that another writer changes.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt};

use enforcer_core::{
    audit::AuditedHost,
    plan::OutcomeResult,
    policy::{Interest, Mode, Policy},
    sample::{CgroupSample, Change, ChangeKind, Changes, CpusetFile, NodeSample, Sample},
    workload::{CgroupPath, Origin, Workload},
};
use numa_topology::{Topology, degraded::Degraded, set::NodeSet, synth::Machine};

use crate::engine::{Engine, HostSource, PolledEvents, SourceError};
use enforcer_act::{cpuset, fixture::Fixture, journal::DriftRecord};
use enforcer_host::cgroup::CgroupLayout;
use enforcer_observe::{CgroupWatch, CpusetWatch, KeptCgroups, WatchLimit};
use enforcer_report::tick::TickReport;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;

/// Shows the files of `/db`.
struct Files {
    layout: CgroupLayout,
    watch: CpusetWatch,
    cgroups: CgroupWatch,
}

impl Files {
    fn list(&self, file: &str) -> String {
        self.layout.cpuset.path.join("db").join(file).read_text().unwrap()
    }
}

impl HostSource for Files {
    fn host(&self) -> AuditedHost {
        AuditedHost::default()
    }

    fn topology(&mut self) -> Result<(Topology, Vec<Degraded>), SourceError> {
        Ok((Machine::new().sockets(2).threads(1).build(), Vec::new()))
    }

    fn workloads(&mut self) -> Result<(Vec<Workload>, Vec<Degraded>), SourceError> {
        let cgroup = CgroupPath::new("/db");
        let workload = Workload { cgroup, cgroup_id: None, name: "db".into(), origin: Origin::Cgroup };
        Ok((vec![workload], Vec::new()))
    }

    fn aim(&mut self, _aims: &BTreeMap<CgroupPath, NodeSet>) {}

    fn keep_watch(&mut self, kept: &KeptCgroups) {
        self.watch.follow(kept);
    }

    fn written(&mut self) -> bool {
        self.watch.written()
    }

    fn appeared(&mut self, interest: &dyn Fn(&CgroupPath) -> Interest) -> bool {
        self.cgroups.appeared(interest)
    }

    fn needs_polling(&self) -> bool {
        self.watch.needs_polling() || self.cgroups.needs_polling()
    }

    fn sample(&mut self, workloads: &[Workload], now_ns: u64) -> Sample {
        self.watch.written();
        let free = NodeSample { mem_free_bytes: Some(8 << 30), ..NodeSample::default() };
        let cgroup = CgroupSample {
            cpus_effective: self.list("cpuset.cpus").trim().parse().ok(),
            mems_effective: self.list("cpuset.mems").trim().parse().ok(),
            ..CgroupSample::default()
        };
        let change = Change {
            time_ns: now_ns,
            workload: Some(CgroupPath::new("/db")),
            cgroup_id: 1,
            tid: 12,
            pid: 11,
            command: "sh\n".into(),
            what: ChangeKind::CpusetWritten { file: CpusetFile::Cpus },
        };
        Sample {
            monotonic_ns: now_ns,
            cgroups: workloads.iter().map(|one| (one.cgroup.clone(), cgroup.clone())).collect(),
            nodes: [0, 1].map(|node| (numa_topology::id::NodeId(node), free.clone())).into(),
            changes: Some(Changes { latest: vec![change], ..Changes::default() }),
            ..Sample::default()
        }
    }
}

struct Rig {
    host: Fixture,
    engine: Engine,
}

impl Rig {
    fn new(mode: Mode) -> Self {
        let host = Fixture::new(true);
        host.cgroup("/db", "4-7\n", "0\n");
        Self::start(host, mode, "boot-1", 0)
    }

    /// Starts a daemon on this host and its state directory.
    fn start(host: Fixture, mode: Mode, boot_id: &str, now_ns: u64) -> Self {
        let text = "cool_down = \"10m\"\n[[workload]]\nname = \"db\"\ncgroup = \"/db\"\ncpus = 2\n";
        let policy = Policy { mode, ..toml::from_str(text).unwrap() };
        let watch = CpusetWatch::new(host.layout.clone());
        let cgroups = CgroupWatch::new(host.layout.cpuset.clone(), WatchLimit::default());
        let source = Files { layout: host.layout.clone(), watch, cgroups };
        let mut engine = Engine::new(Box::new(source), policy);
        engine.set_actuator(Box::new(host.actuator()));
        let (record, left) = DriftRecord::open(&host.state_dir(), boot_id, now_ns);
        engine.restore_drift_counts(record, left, now_ns);
        Self { host, engine }
    }

    /// Ends the daemon and starts another one.
    fn started_again(self, boot_id: &str, now_ns: u64) -> Self {
        let Self { host, engine } = self;
        drop(engine);
        Self::start(host, Mode::Enforce, boot_id, now_ns)
    }

    fn turn(&mut self, now_ns: u64) -> TickReport {
        self.engine.turn(now_ns).unwrap()
    }

    /// Writes as a person would.
    fn foreign_write(&self, cpus: &str) {
        fs::write(self.host.path("/db").join("cpuset.cpus"), cpus).unwrap();
    }

    fn cpus(&self) -> String {
        self.host.read("/db", "cpuset.cpus")
    }
}

#[test]
fn foreign_write_is_corrected_three_times_and_the_fourth_is_reported() {
    let mut rig = Rig::new(Mode::Enforce);
    let report = rig.turn(SECOND);
    let ours = rig.cpus();
    assert_eq!(ours, "0-1", "{:?} {:?}", report.decision, report.outcomes);
    assert!(rig.engine.poll_events().wants_turn, "a new workload gets a second look");
    let report = rig.turn(2 * SECOND);
    assert!(report.outcomes.is_empty() && !rig.engine.poll_events().wants_turn, "{:?}", report.outcomes);
    for time in 1..=3 {
        rig.foreign_write("0-7");
        assert!(rig.engine.poll_events().wants_turn, "time {time}: the next turn does not wait");
        let report = rig.turn((2 + time) * SECOND);
        assert_eq!(rig.cpus(), ours, "time {time}: the cool-down is ten minutes");
        assert_eq!(report.totals.drift.repaired, time);
        let reason = &report.outcomes[0].step.reason;
        assert!(reason.contains(r#"it was so before "sh\n" (process 11) wrote its cpuset"#), "{reason}");
        assert!(matches!(report.outcomes[0].result, OutcomeResult::Applied { .. }));
        rig.turn((2 + time) * SECOND);
    }
    rig.engine.poll_events();
    rig.foreign_write("0-7");
    let report = rig.turn(MINUTE);
    assert_eq!((rig.cpus().as_str(), report.totals.drift.left_alone), ("0-7", 1));
    let degraded: Vec<_> = report.audit.degraded.iter().filter(|entry| entry.source == "drift:/db").collect();
    assert!(degraded[0].reason.contains("3 times within an hour"), "{degraded:?}");
    assert!(degraded[0].reason.contains("left alone for 60 min"), "{degraded:?}");
    rig.foreign_write("0-6");
    assert!(!rig.engine.poll_events().wants_turn, "a cgroup that is left alone causes no turn");
    assert_eq!(rig.turn(2 * MINUTE).totals.drift.left_alone, 1);

    // A reload, as with SIGHUP.
    rig.engine.set_policy(rig.engine.policy().clone());
    let report = rig.turn(3 * MINUTE);
    assert_eq!((rig.cpus(), report.totals.drift.repaired), (ours, 4));
    assert!(!report.audit.degraded.iter().any(|entry| entry.source.starts_with("drift")));
}

#[test]
fn foreign_write_during_a_pause_is_corrected_as_soon_as_it_is_over() {
    let mut rig = Rig::new(Mode::Enforce);
    rig.turn(SECOND);
    rig.turn(2 * SECOND);
    let ours = rig.cpus();
    rig.engine.poll_events();
    assert!(rig.engine.poll_events().is_quiet, "the control");
    rig.engine.gate().close(None);
    assert!(rig.engine.poll_events().wants_turn, "that it is paused is told at once");
    assert!(rig.turn(3 * SECOND).paused.is_some());
    rig.foreign_write("0-7");
    for second in 4..6 {
        // No event signals the end of a pause.
        assert_eq!(
            rig.engine.poll_events(),
            PolledEvents { wants_turn: false, misplaced: false, is_quiet: false }
        );
        rig.turn(second * SECOND);
        assert_eq!(rig.cpus(), "0-7");
    }
    rig.engine.gate().open();
    assert!(rig.engine.poll_events().wants_turn);
    let report = rig.turn(7 * SECOND);
    assert_eq!((rig.cpus(), report.totals.drift.repaired), (ours, 1));
}

#[test]
fn restarted_daemon_goes_on_counting_and_leaves_the_fourth_write_alone() {
    let mut rig = Rig::new(Mode::Enforce);
    rig.turn(SECOND);
    rig.turn(2 * SECOND);
    let ours = rig.cpus();
    // One before each start but the last.
    for time in 1..=3 {
        rig.foreign_write("0-7");
        rig.turn((2 + time) * SECOND);
        assert_eq!(rig.cpus(), ours, "time {time}");
        rig = rig.started_again("boot-1", (2 + time) * SECOND);
    }
    rig.foreign_write("0-7");
    for minute in 1..=2 {
        let report = rig.turn(minute * MINUTE);
        assert_eq!((rig.cpus().as_str(), report.totals.drift.repaired), ("0-7", 0), "minute {minute}");
        assert!(report.audit.degraded.iter().any(|entry| entry.source == "drift:/db"), "minute {minute}");
        rig = rig.started_again("boot-1", minute * MINUTE);
    }
    // A reload, and a restart before the next turn.
    rig.engine.set_policy(rig.engine.policy().clone());
    rig = rig.started_again("boot-1", 3 * MINUTE);
    rig.turn(3 * MINUTE);
    assert_eq!(rig.cpus(), ours);
}

#[test]
fn what_was_counted_is_over_with_the_hour_and_with_the_boot() {
    for (boot_id, now_ns, there) in
        [("boot-1", MINUTE, "0-7"), ("boot-2", MINUTE, "0-1"), ("boot-1", 62 * MINUTE, "0-1")]
    {
        let mut rig = Rig::new(Mode::Enforce);
        rig.turn(SECOND);
        rig.turn(SECOND);
        for _ in 0..3 {
            rig.foreign_write("0-7");
            rig.turn(SECOND);
        }
        rig.foreign_write("0-7");
        rig = rig.started_again(boot_id, now_ns);
        rig.turn(now_ns);
        assert_eq!(rig.cpus(), there, "{boot_id} {now_ns}");
    }
}

#[test]
fn observing_daemon_watches_no_cgroup() {
    let mut rig = Rig::new(Mode::Observe);
    rig.turn(SECOND);
    rig.foreign_write("0-7");
    assert!(!rig.engine.poll_events().wants_turn);
    assert_eq!(rig.turn(2 * SECOND).totals.drift.repaired, 0);
    assert_eq!(rig.cpus(), "0-7");
}

#[test]
fn a_declared_cgroup_that_appears_between_two_turns_does_not_wait_for_the_next() {
    for (mode, soon) in [(Mode::Enforce, true), (Mode::Observe, false)] {
        let mut rig = Rig::new(mode);
        rig.engine.set_policy(Policy {
            mode,
            ..toml::from_str("[[workload]]\nname = \"late\"\ncgroup = \"/late*\"\ncpus = 2\n").unwrap()
        });
        rig.turn(SECOND);
        rig.engine.poll_events();
        for (cgroup, declared) in [("other", false), ("late", true)] {
            let dir = rig.host.layout.cpuset.path.as_path().join(cgroup);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("cgroup.procs"), "").unwrap();
            assert!(!rig.engine.poll_events().wants_turn, "{cgroup}: it is empty");
            fs::write(dir.join("cgroup.procs"), "7\n").unwrap();
            assert_eq!(rig.engine.poll_events().wants_turn, declared && soon, "{cgroup}");
            assert!(!rig.engine.poll_events().wants_turn, "{cgroup}: once");
        }
    }
}

#[test]
fn a_look_is_quiet_where_all_that_could_come_tells_of_itself() {
    let mut rig = Rig::new(Mode::Enforce);
    let policy = "mode = \"enforce\"\n[[workload]]\nname = \"late\"\ncgroup = \"/late*\"\ncpus = 2\n";
    rig.engine.set_policy(toml::from_str(policy).unwrap());
    rig.turn(SECOND);
    rig.engine.poll_events();
    assert_eq!(
        rig.engine.poll_events(),
        PolledEvents { wants_turn: false, misplaced: false, is_quiet: true }
    );
    // A fixture has no cgroup.events, like v1: no event signals a new process.
    let dir = rig.host.layout.cpuset.path.as_path().join("late");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("cgroup.procs"), "").unwrap();
    assert_eq!(
        rig.engine.poll_events(),
        PolledEvents { wants_turn: false, misplaced: false, is_quiet: false }
    );
    fs::write(dir.join("cgroup.procs"), "7\n").unwrap();
    assert_eq!(
        rig.engine.poll_events(),
        PolledEvents { wants_turn: true, misplaced: false, is_quiet: false }
    );
    assert_eq!(
        rig.engine.poll_events(),
        PolledEvents { wants_turn: false, misplaced: false, is_quiet: true }
    );
}

#[test]
fn a_turn_in_which_nothing_changed_opens_no_cgroup_and_records_nothing() {
    let mut rig = Rig::new(Mode::Enforce);
    rig.turn(SECOND);
    rig.turn(2 * SECOND);
    let journal = || fs::metadata(rig.host.state_dir().join("journal")).unwrap();
    let before = (cpuset::opened(), journal().len(), journal().ino());
    assert!(before.0 > 0 && before.1 > 0, "it was written: {before:?}");
    // Enough turns for everything that runs every so many turns.
    for second in 3..70 {
        let report = rig.engine.turn(second * SECOND).unwrap();
        assert!(report.outcomes.is_empty(), "{:?}", report.outcomes);
    }
    assert_eq!((cpuset::opened(), journal().len(), journal().ino()), before);
    // The control: a foreign write is corrected.
    rig.foreign_write("0-7");
    rig.turn(70 * SECOND);
    assert!(cpuset::opened() > before.0);
}
