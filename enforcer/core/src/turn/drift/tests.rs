use proptest::prelude::*;

use super::*;
use crate::plan::{Action, Step};

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = WINDOW_NS;

fn goal(cpus: &str) -> Cpuset {
    Cpuset { cpus: Some(cpus.parse().unwrap()), mems: Some("0".parse().unwrap()) }
}

fn path() -> CgroupPath {
    CgroupPath::new("/db")
}

/// Outcome of the writes of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Fails,
    Unfinished,
}

/// One cgroup, and a daemon that acts by the standing.
struct Rig {
    drift: Drift,
    goal: &'static str,
    id: u64,
    /// Present cpuset.
    is: &'static str,
    counts: DriftCounts,
}

const FOREIGN: &str = "0-7";

impl Rig {
    fn new() -> Self {
        Self { drift: Drift::default(), goal: "0-1", id: 1, is: FOREIGN, counts: DriftCounts::default() }
    }

    fn turn(&mut self, now_ns: u64, fate: Fate) -> DriftStatus {
        let cpuset = goal(self.goal);
        let in_place = self.is == self.goal;
        let standing = self.drift.standing(&path(), Some(self.id), &cpuset, in_place, now_ns);
        let target = CpusetTarget { cgroup_id: Some(self.id), cpuset, standing };
        let targets = [(path(), target)].into();
        let writes = matches!(standing, DriftStatus::OnItsWay | DriftStatus::Drifted);
        let action = Action::SetCpus { cgroup: path(), cpus: self.goal.parse().unwrap() };
        let result = match fate {
            Fate::Fails => OutcomeResult::Failed { error: "no".into() },
            _ => OutcomeResult::Applied { read_back: self.goal.into() },
        };
        let outcome = Outcome { step: Step { action, reason: String::new() }, result };
        let outcomes: Vec<_> = writes.then_some(outcome).into_iter().collect();
        let unfinished = (writes && fate == Fate::Unfinished).then(path).into_iter().collect();
        if writes && fate == Fate::Done {
            self.is = self.goal;
        }
        for (cgroup, fate) in self.drift.note(&targets, &outcomes, &unfinished, now_ns) {
            assert_eq!(cgroup, path());
            self.counts.count(fate);
        }
        standing
    }

    /// Is written, and seen there.
    fn is_placed(&mut self) {
        assert_eq!(self.turn(0, Fate::Done), DriftStatus::OnItsWay);
        assert_eq!(self.turn(0, Fate::Done), DriftStatus::InPlace);
    }

    fn foreign_write(&mut self) {
        self.is = FOREIGN;
    }
}

#[test]
fn it_is_put_back_three_times_in_an_hour_and_then_left_alone() {
    let mut rig = Rig::new();
    rig.is_placed();
    for (minute, standing) in [
        (1, DriftStatus::Drifted),
        (2, DriftStatus::Drifted),
        (30, DriftStatus::Drifted),
        (31, DriftStatus::LeftAlone),
        (60, DriftStatus::LeftAlone),
        // The first time is an hour ago.
        (61, DriftStatus::Drifted),
        (61, DriftStatus::LeftAlone),
        (62, DriftStatus::Drifted),
        (89, DriftStatus::LeftAlone),
    ] {
        rig.foreign_write();
        assert_eq!(rig.turn(minute * 60 * SECOND, Fate::Done), standing, "minute {minute}");
    }
    assert_eq!(rig.counts, DriftCounts { repaired: 5, failed: 0, left_alone: 3 });
    assert_eq!(rig.drift.left_alone_for(&path(), 89 * 60 * SECOND), 60 * SECOND);
    rig.drift.forgive();
    assert_eq!(rig.turn(89 * 60 * SECOND, Fate::Done), DriftStatus::Drifted);
}

#[test]
fn a_new_goal_and_a_cgroup_that_was_made_again_are_no_drift() {
    let mut rig = Rig::new();
    for (goal, id) in [("0-1", 1), ("0", 1), ("0", 2)] {
        (rig.goal, rig.id, rig.is) = (goal, id, FOREIGN);
        assert_eq!(rig.turn(SECOND, Fate::Done), DriftStatus::OnItsWay, "{goal} {id}");
        assert_eq!(rig.turn(SECOND, Fate::Done), DriftStatus::InPlace, "{goal} {id}");
    }
    assert_eq!(rig.counts, DriftCounts::default());
}

#[test]
fn what_is_left_alone_follows_a_new_goal_but_is_not_fought_for() {
    let mut rig = Rig::new();
    rig.is_placed();
    for _ in 0..3 {
        rig.foreign_write();
        rig.turn(SECOND, Fate::Done);
    }
    rig.goal = "0";
    assert_eq!(rig.turn(2 * SECOND, Fate::Done), DriftStatus::OnItsWay);
    rig.foreign_write();
    assert_eq!(rig.turn(3 * SECOND, Fate::Done), DriftStatus::LeftAlone);
}

#[test]
fn what_a_runtime_writes_for_us_is_no_drift() {
    let mut rig = Rig::new();
    rig.is_placed();
    rig.foreign_write();
    rig.drift.expect([&path()]);
    assert_eq!(rig.turn(SECOND, Fate::Done), DriftStatus::OnItsWay);
    assert_eq!(rig.turn(SECOND, Fate::Done), DriftStatus::InPlace);
    rig.foreign_write();
    assert_eq!(rig.turn(2 * SECOND, Fate::Done), DriftStatus::Drifted);
}

#[test]
fn program_that_undoes_it_before_the_next_look_is_not_fought_without_end() {
    let mut rig = Rig::new();
    for (time, standing) in [
        (0, DriftStatus::OnItsWay),
        // From here on it is put back.
        (1, DriftStatus::OnItsWay),
        (2, DriftStatus::Drifted),
        (3, DriftStatus::Drifted),
        (4, DriftStatus::LeftAlone),
    ] {
        rig.foreign_write();
        assert_eq!(rig.turn(time * SECOND, Fate::Done), standing, "time {time}");
    }
    assert_eq!(rig.counts, DriftCounts { repaired: 3, failed: 0, left_alone: 1 });
}

#[test]
fn what_cannot_be_put_back_waits_for_its_cool_down_and_what_is_not_finished_goes_on() {
    let mut rig = Rig::new();
    rig.is_placed();
    rig.foreign_write();
    assert_eq!(rig.turn(SECOND, Fate::Fails), DriftStatus::Drifted);
    assert_eq!(rig.turn(SECOND, Fate::Done), DriftStatus::OnItsWay);
    for fate in [Fate::Unfinished, Fate::Done] {
        rig.foreign_write();
        rig.turn(SECOND, fate);
        assert_eq!(rig.turn(SECOND, Fate::Done) == DriftStatus::InPlace, fate == Fate::Done);
    }
    assert_eq!(rig.counts, DriftCounts { repaired: 2, failed: 1, left_alone: 0 });
}

#[test]
fn workload_missing_from_one_sample_keeps_its_record() {
    let mut rig = Rig::new();
    rig.is_placed();
    for _ in 0..3 {
        rig.foreign_write();
        rig.turn(SECOND, Fate::Done);
    }
    let empty = BTreeMap::new();
    rig.drift.note(&empty, &[], &BTreeSet::new(), 2 * SECOND);
    rig.foreign_write();
    assert_eq!(rig.turn(3 * SECOND, Fate::Done), DriftStatus::LeftAlone);
    rig.drift.note(&empty, &[], &BTreeSet::new(), 2 * HOUR);
    assert_eq!(rig.drift, Drift::default());
}

/// State of a restarted daemon.
fn started_again(drift: &Drift, now_ns: u64) -> Drift {
    let text = serde_json::to_string(&drift.lasting(now_ns).to_record("boot")).unwrap();
    Drift::of_record(serde_json::from_str(&text).unwrap(), "boot", now_ns).unwrap()
}

#[derive(Debug, Clone)]
enum Event {
    Turn(Fate),
    Wait(u64),
    ForeignWrite,
    NewGoal {
        told: bool,
    },
    MadeAgain,
    /// The daemon is restarted on the same host.
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    let fate = prop::sample::select(vec![Fate::Done, Fate::Done, Fate::Fails, Fate::Unfinished]);
    prop_oneof![
        6 => fate.prop_map(Event::Turn),
        3 => (0..HOUR / 2).prop_map(Event::Wait),
        4 => Just(Event::ForeignWrite),
        2 => any::<bool>().prop_map(|told| Event::NewGoal { told }),
        1 => Just(Event::MadeAgain),
        2 => Just(Event::Restart),
    ]
}

proptest! {
    #[test]
    fn no_program_is_fought_more_than_three_times_in_any_hour(events in prop::collection::vec(event(), 0..80)) {
        let mut rig = Rig::new();
        let (mut now, mut repairs, mut foreign) = (HOUR, Vec::<u64>::new(), false);
        for event in events {
            match event {
                Event::Turn(fate) => {
                    let before = rig.counts;
                    let standing = rig.turn(now, fate);
                    let told = (rig.counts.repaired + rig.counts.failed) - (before.repaired + before.failed);
                    prop_assert!(told == 0 || foreign, "no other program has written");
                    prop_assert!(standing != DriftStatus::Drifted || told == 1);
                    repairs.extend((told > 0).then_some(now));
                    foreign &= rig.is != rig.goal;
                }
                Event::Wait(time) => now += time,
                Event::ForeignWrite => (rig.is, foreign) = (FOREIGN, true),
                // The goal changes, and a runtime that was told so writes it in a moment.
                Event::NewGoal { told } => {
                    rig.goal = if rig.goal == "0" { "0-1" } else { "0" };
                    if told {
                        rig.drift.expect([&path()]);
                        rig.is = rig.goal;
                    }
                }
                Event::MadeAgain => {
                    (rig.id, rig.is) = (rig.id + 1, "");
                    repairs.clear();
                }
                Event::Restart => rig.drift = started_again(&rig.drift, now),
            }
        }
        for window in repairs.windows(REPAIRS + 1) {
            prop_assert!(window[REPAIRS] - window[0] >= WINDOW_NS, "{window:?}");
        }
    }

    /// Without a repair within the hour a start is an ordinary start.
    #[test]
    fn restarted_daemon_decides_as_one_that_was_not_restarted(events in prop::collection::vec(event(), 0..80)) {
        let (mut one, mut other, mut now) = (Rig::new(), Rig::new(), HOUR);
        for event in events {
            if let Event::Wait(time) = event {
                now += time;
            }
            if matches!(event, Event::Restart) && !one.drift.lasting(now).is_empty() {
                other.drift = started_again(&other.drift, now);
            }
            for rig in [&mut one, &mut other] {
                match event {
                    Event::ForeignWrite => rig.foreign_write(),
                    Event::NewGoal { told } => {
                        rig.goal = if rig.goal == "0" { "0-1" } else { "0" };
                        if told {
                            rig.drift.expect([&path()]);
                            rig.is = rig.goal;
                        }
                    }
                    Event::MadeAgain => (rig.id, rig.is) = (rig.id + 1, ""),
                    Event::Turn(_) | Event::Wait(_) | Event::Restart => {}
                }
            }
            if let Event::Turn(fate) = event {
                prop_assert_eq!(one.turn(now, fate), other.turn(now, fate));
                prop_assert_eq!(one.counts, other.counts);
                prop_assert_eq!(one.is, other.is);
            }
        }
    }
}
