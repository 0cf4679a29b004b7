//! Which decisions are stored, for how long, and how many.

use enforcer_core::plan::{Action, OutcomeResult, Step};

use super::*;

fn cgroup(path: &str) -> DecisionSubject {
    DecisionSubject {
        name: path.into(),
        cgroup: Some(CgroupPath::new(path)),
        container_id: None,
        ended: false,
    }
}

fn container(id: &str) -> DecisionSubject {
    DecisionSubject {
        name: format!("shop/{id}/main"),
        cgroup: None,
        container_id: Some(id.into()),
        ended: false,
    }
}

fn of(decisions: &Decisions, name: &str) -> Remembered {
    decisions.all().into_iter().find(|one| one.subject.name == name).unwrap()
}

fn workload(path: &str) -> Workload {
    let cgroup = CgroupPath::new(path);
    Workload { cgroup, cgroup_id: None, name: path.into(), origin: Origin::Cgroup }
}

fn outcome(path: &str, result: OutcomeResult) -> Outcome {
    let action = Action::SetCpus { cgroup: CgroupPath::new(path), cpus: "0".parse().unwrap() };
    Outcome { step: Step { action, reason: "why".into() }, result }
}

#[test]
fn the_same_decision_again_is_one_entry_and_an_event_is_one_each_time() {
    use DecisionState::{Corrected, InPlace};

    let decisions = Decisions::default();
    let in_place = Decision { in_place: vec![CgroupPath::new("/a")], ..Decision::default() };
    (0..100).for_each(|_| decisions.note_turn(&[workload("/a")], &in_place, &[], false));
    let remembered = of(&decisions, "/a");
    assert_eq!((remembered.records.len(), remembered.records[0].times), (1, 100));
    // A pause makes a new entry, and so does another outcome.
    decisions.note_turn(&[workload("/a")], &in_place, &[], true);
    assert_eq!(of(&decisions, "/a").records.len(), 2);
    let applied = || outcome("/a", OutcomeResult::Applied { read_back: "0".into() });
    for _ in 0..2 {
        decisions.note_turn(&[workload("/a")], &Decision::default(), &[applied()], false);
    }
    let states: Vec<_> = of(&decisions, "/a").records.iter().map(|record| record.state).collect();
    assert_eq!(states, [InPlace, InPlace, Corrected, Corrected]);
}

#[test]
fn workload_no_longer_declared_is_released_once() {
    use DecisionState::{Changed, InPlace, Placed, Released};

    let decisions = Decisions::default();
    let in_place = Decision { in_place: vec![CgroupPath::new("/a")], ..Decision::default() };
    decisions.note_turn(&[workload("/a")], &in_place, &[], false);
    decisions.note(cgroup("/a"), entry("create", Changed));
    // The turn decided before the runtime's call and does not know of it.
    decisions.note(cgroup("/b"), entry("create", Placed));
    for _ in 0..3 {
        let all = ["/a", "/b", "/c"].map(workload);
        decisions.note_turn(&all, &Decision::default(), &[], false);
    }
    let states = |name| of(&decisions, name).records.iter().map(|record| record.state).collect::<Vec<_>>();
    assert_eq!(states("/a"), [InPlace, Changed, Released]);
    assert!(!of(&decisions, "/a").subject.ended, "its cgroup is there");
    let last = of(&decisions, "/a").records.back().unwrap().reason.clone();
    assert!(last.contains("numa-enforcer restore"), "{last}");
    assert_eq!(states("/b"), [Placed]);
    assert_eq!(decisions.all().len(), 2, "a workload never controlled makes no entry");
    decisions.note_turn(&[workload("/a")], &in_place, &[], false);
    assert_eq!(states("/a"), [InPlace, Changed, Released, InPlace]);
}

#[test]
fn what_the_steps_came_to_is_told_by_the_worst() {
    let applied = || outcome("/a", OutcomeResult::Applied { read_back: "0".into() });
    let failed = || outcome("/a", OutcomeResult::Failed { error: "no".into() });
    let skipped = || outcome("/a", OutcomeResult::Skipped { because: "pages are on their way".into() });
    let dry = || outcome("/a", OutcomeResult::DryRun);
    for (outcomes, state) in [
        (vec![applied()], DecisionState::Corrected),
        (vec![applied(), failed()], DecisionState::Failed),
        (vec![applied(), skipped()], DecisionState::Unfinished),
        (vec![failed(), skipped()], DecisionState::Failed),
        (vec![dry(), dry()], DecisionState::Planned),
    ] {
        assert_eq!(DecisionState::of(&outcomes), state, "{outcomes:?}");
    }
}

#[test]
fn a_container_that_ends_is_known_to_have_ended_and_one_that_is_there_stays() {
    let decisions = Decisions::default();
    for id in ["a", "b", "c"] {
        decisions.note(container(id), entry("create", DecisionState::Placed));
    }
    decisions.end("a");
    decisions.end("a");
    decisions.only(&BTreeSet::from(["b"]));
    for (name, ended, entries) in
        [("shop/a/main", true, 2), ("shop/b/main", false, 1), ("shop/c/main", true, 2)]
    {
        let remembered = of(&decisions, name);
        assert_eq!((remembered.subject.ended, remembered.records.len()), (ended, entries), "{name}");
    }
    // A cgroup that no turn sees has ended too, until a turn sees it again.
    let refused = Decision { in_place: vec![CgroupPath::new("/d")], ..Decision::default() };
    decisions.note_turn(&[workload("/d")], &refused, &[], false);
    decisions.note_turn(&[], &Decision::default(), &[], false);
    assert!(of(&decisions, "/d").subject.ended);
    decisions.note_turn(&[workload("/d")], &refused, &[], false);
    assert!(!of(&decisions, "/d").subject.ended);
}

#[test]
fn it_is_bounded_and_those_that_ended_are_forgotten_first() {
    let decisions = Decisions::default();
    let event = || entry("create", DecisionState::Placed);
    for _ in 0..100 {
        decisions.note(cgroup("/much"), event());
    }
    let much = of(&decisions, "/much");
    assert_eq!(
        (much.records.len(), much.forgotten),
        (MAX_RECORDS_PER_WORKLOAD, 100 - MAX_RECORDS_PER_WORKLOAD as u64)
    );
    decisions.note(container("old"), event());
    decisions.end("old");
    for number in 0..MAX_RECORDS - MAX_RECORDS_PER_WORKLOAD {
        decisions.note(cgroup(&format!("/c{number}")), event());
        let entries: usize = decisions.all().iter().map(|one| one.records.len()).sum();
        assert!(entries <= MAX_RECORDS, "{entries}");
    }
    assert!(!decisions.all().iter().any(|one| one.subject.ended), "it went first");
    assert_eq!(of(&decisions, "/much").forgotten, 100 - MAX_RECORDS_PER_WORKLOAD as u64);
    decisions.note(cgroup("/last"), event());
    assert_eq!(of(&decisions, "/much").forgotten, 101 - MAX_RECORDS_PER_WORKLOAD as u64);
}

#[test]
fn long_texts_and_long_lists_are_cut() {
    let decisions = Decisions::default();
    let long = "ä".repeat(100_000);
    let record = DecisionRecord {
        reason: long.clone(),
        warnings: vec![long; 100],
        ..entry("create", DecisionState::Placed)
    };
    decisions.note(cgroup("/a"), record);
    let record = of(&decisions, "/a").records[0].clone();
    assert_eq!(
        (record.warnings.len(), record.reason.chars().count()),
        (MAX_LINES_PER_RECORD, MAX_TEXT_CHARS + 1)
    );
    assert!(record.warnings.iter().all(|text| text.chars().count() == MAX_TEXT_CHARS + 1));
}

#[test]
fn a_place_that_is_kept_is_still_explained_by_what_was_considered_for_it() {
    use enforcer_core::considered::DecisionTrace;
    use numa_placement::Candidate;

    let decisions = Decisions::default();
    let place = Candidate {
        container: String::new(),
        place: "node 0".into(),
        chosen: true,
        because: "nearest".into(),
    };
    for candidates in [vec![place.clone()], Vec::new()] {
        let considered = DecisionTrace { candidates, ..DecisionTrace::default() };
        let decision =
            Decision { considered: [(CgroupPath::new("/a"), considered)].into(), ..Decision::default() };
        let planned = outcome("/a", OutcomeResult::DryRun);
        decisions.note_turn(&[workload("/a")], &decision, &[planned], true);
    }
    let remembered = of(&decisions, "/a");
    assert_eq!((remembered.records.len(), remembered.records[0].times), (1, 2));
    assert_eq!(remembered.records[0].considered.candidates, [place]);
}

#[test]
fn of_those_that_ended_only_the_latest_are_remembered() {
    let decisions = Decisions::default();
    decisions.note(cgroup("/stays"), entry("turn", DecisionState::Placed));
    for number in 0..100 {
        let id = format!("c{number:02}");
        decisions.note(container(&id), entry("create", DecisionState::Placed));
        decisions.end(&id);
    }
    let names: Vec<String> = decisions.all().into_iter().map(|one| one.subject.name).collect();
    assert_eq!(names.len(), MAX_ENDED_WORKLOADS + 1);
    assert!(names.contains(&"/stays".to_owned()) && names.contains(&"shop/c99/main".to_owned()));
    assert!(!names.contains(&"shop/c00/main".to_owned()));
    assert_eq!(decisions.lock().entries, 1 + 2 * MAX_ENDED_WORKLOADS);
    // The same for workloads without a runtime.
    decisions.note_turn(&[], &Decision::default(), &[], false);
    assert!(decisions.all().len() <= MAX_ENDED_WORKLOADS);
}
