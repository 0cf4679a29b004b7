//! What is recorded of cgroups that others set on our behalf.

use std::{collections::BTreeSet, fs};

use super::*;
use crate::{
    apply_plan, cpuset,
    fixture::{Fixture, plan, set_cpus},
    restore::restore,
};

fn originals(cgroup: &str, cpus: Option<&str>) -> BTreeMap<CgroupPath, Original> {
    let cpus = cpus.map(|list| list.parse().unwrap());
    [(CgroupPath::new(cgroup), Original { cpus, mems: None })].into()
}

#[test]
fn what_a_runtime_sets_for_us_is_put_back_as_it_would_have_been() {
    for (v2, cpus, mems) in [(true, "0-2\n", "\n"), (false, "0-2\n", "0-1\n")] {
        let host = Fixture::new(v2);
        host.cgroup("/pod", "0-7\n", "0-1\n");
        let mut actuator = host.actuator();
        let wanted = originals("/pod/id", Some("0-2"));
        assert!(actuator.record(&wanted).unwrap().is_empty(), "it is not there yet");
        // As the runtime makes it.
        host.cgroup("/pod/id", "4-5\n", "1\n");
        assert_eq!(actuator.record(&wanted).unwrap(), [CgroupPath::new("/pod/id")]);
        // What is there when the daemon itself writes is not the original.
        apply_plan(&plan([set_cpus("/pod/id", "6")]), &mut actuator);
        drop(actuator);
        let tree = CpusetTree::new(&host.layout.cpuset.path, v2);
        let report = restore(&tree, Some("boot-1"), &mut host.journal());
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(
            (host.read("/pod/id", "cpuset.cpus"), host.read("/pod/id", "cpuset.mems")),
            (cpus.into(), mems.into())
        );
    }
}

#[test]
fn what_a_runtime_was_told_later_is_put_back_instead() {
    let host = Fixture::new(true);
    host.cgroup("/pod", "0-7\n", "0-1\n");
    host.cgroup("/pod/id", "4-5\n", "1\n");
    let mut actuator = host.actuator();
    actuator.record(&originals("/pod/id", Some("0-2"))).unwrap();
    let mut renewed = originals("/pod/id", Some("1,6"));
    renewed.extend(originals("/pod/other", Some("3")));
    actuator.renew(&renewed).unwrap();
    assert!(actuator.journal().entries().keys().all(|key| key.cgroup.as_str() == "/pod/id"));
    drop(actuator);
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    assert!(restore(&tree, Some("boot-1"), &mut host.journal()).is_complete());
    let files = (host.read("/pod/id", "cpuset.cpus"), host.read("/pod/id", "cpuset.mems"));
    assert_eq!(files, ("1,6\n".into(), "\n".into()));
}

#[test]
fn a_container_whose_cgroup_can_never_be_keeps_no_other_from_the_journal() {
    let host = Fixture::new(true);
    std::os::unix::fs::symlink("/tmp", host.path("/").join("link")).unwrap();
    host.cgroup("/z/good", "4-5\n", "1\n");
    let never =
        ["/a\0b".to_owned(), "/y".repeat(3000), format!("/{}", "n".repeat(300)), "/link/x".to_owned()];
    let mut wanted = originals("/z/good", Some("0-2"));
    wanted.extend(originals("/z/later", None));
    wanted.extend(never.iter().flat_map(|path| originals(path, None)));
    let mut actuator = host.actuator();
    let mut recorded = actuator.record(&wanted).unwrap();
    recorded.sort_unstable();
    let mut over: Vec<_> = never.iter().map(|path| CgroupPath::new(path)).collect();
    over.push(CgroupPath::new("/z/good"));
    over.sort_unstable();
    assert_eq!(recorded, over, "they are not asked for again");
    let kept: BTreeSet<_> = actuator.journal().entries().keys().map(|key| key.cgroup.as_str()).collect();
    assert_eq!(kept, ["/z/good"].into());
    assert_eq!(actuator.degraded(), None);
    assert_eq!(actuator.ready(), Ok(()));
}

#[test]
fn a_container_that_cannot_be_looked_at_just_now_is_named_and_keeps_no_other_from_the_journal() {
    let host = Fixture::new(false);
    host.cgroup("/", "0-7\n", "0-1\n");
    for path in ["/bad/id", "/pod", "/pod/id", "/alone"] {
        host.cgroup(path, "4-5\n", "1\n");
    }
    // On v1 what would have been is read of the cgroup above: here it is no file.
    let unreadable = host.path("/bad").join("cpuset.cpus");
    fs::create_dir(&unreadable).unwrap();
    fs::write(host.path("/bad").join("cpuset.mems"), "0-1\n").unwrap();
    let mut wanted = originals("/bad/id", None);
    wanted.extend(originals("/pod/id", None));
    wanted.extend(originals("/alone", None));
    let mut actuator = host.actuator();
    let recorded = actuator.record(&wanted).unwrap();
    assert_eq!(recorded, ["/alone", "/pod/id"].map(CgroupPath::new));
    let said = actuator.degraded().unwrap();
    assert!(said.source == "journal" && said.reason.contains("/bad/cpuset.cpus"), "{said:?}");
    assert_eq!(actuator.ready(), Ok(()), "what is recorded can be set");
    fs::remove_dir(&unreadable).unwrap();
    fs::write(&unreadable, "0-7\n").unwrap();
    assert_eq!(actuator.record(&originals("/bad/id", None)).unwrap(), [CgroupPath::new("/bad/id")]);
    assert_eq!(actuator.degraded(), None);
}

#[test]
fn what_can_never_be_is_left_out_of_those_that_may_be_widened_too() {
    let host = Fixture::new(true);
    host.cgroup("/good", "4-5\n", "1\n");
    let mut actuator = host.actuator();
    actuator.record_mems(&[&CgroupPath::new("/a\0b"), &CgroupPath::new("/good")]).unwrap();
    assert!(actuator.has_set(&CgroupPath::new("/good")));
}

#[test]
fn ended_workload_is_released() {
    let host = Fixture::new(true);
    for path in ["/ends", "/again", "/stays"] {
        host.cgroup(path, "0-3\n", "0\n");
    }
    let mut actuator = host.actuator();
    apply_plan(&plan(["/ends", "/again", "/stays"].map(|path| set_cpus(path, "1"))), &mut actuator);
    fs::remove_dir_all(host.path("/ends")).unwrap();
    // The old directory is kept elsewhere, so that its inode cannot be given out again.
    fs::rename(host.path("/again"), host.path("/stays/old")).unwrap();
    host.cgroup("/again", "0-3\n", "0\n");
    actuator.tidy(&|cgroup| cgroup.as_str() == "/stays").unwrap();
    drop(actuator);
    let left: Vec<_> = host.journal().entries().keys().map(|key| key.cgroup.as_str().to_owned()).collect();
    assert_eq!(left, ["/stays"]);
}

#[test]
fn recreated_cgroup_leaves_no_entry_of_its_first_life() {
    let host = Fixture::new(true);
    host.cgroup("/again", "0-3\n", "0\n");
    host.cgroup("/kept", "0-3\n", "0\n");
    let mut actuator = host.actuator();
    apply_plan(&plan([set_cpus("/again", "1")]), &mut actuator);
    fs::rename(host.path("/again"), host.path("/kept/old")).unwrap();
    host.cgroup("/again", "0-3\n", "0\n");
    apply_plan(&plan([set_cpus("/again", "1")]), &mut actuator);
    assert_eq!(actuator.journal().entries().len(), 2);
    actuator.tidy(&|_| true).unwrap();
    assert_eq!(actuator.journal().entries().len(), 1);
}

#[test]
fn to_tidy_up_opens_nothing_that_was_seen() {
    const CGROUPS: usize = 200;
    let host = Fixture::new(true);
    let paths: Vec<String> = (0..CGROUPS).map(|index| format!("/pods/{index}")).collect();
    for path in &paths {
        host.cgroup(path, "0-3\n", "0\n");
    }
    let mut actuator = host.actuator();
    apply_plan(&plan(paths.iter().map(|path| set_cpus(path, "1"))), &mut actuator);
    fs::remove_dir_all(host.path("/pods/7")).unwrap();
    let opened = |actuator: &mut LiveActuator, is_there: &dyn Fn(&CgroupPath) -> bool| {
        let before = cpuset::opened();
        actuator.tidy(is_there).unwrap();
        cpuset::opened() - before
    };
    assert_eq!(opened(&mut actuator, &|_| true), 0);
    assert_eq!(actuator.journal().entries().len(), CGROUPS);
    assert_eq!(opened(&mut actuator, &|cgroup| cgroup.as_str() != "/pods/7"), 1);
    assert_eq!(actuator.journal().entries().len(), CGROUPS - 1);
    // The control: an actuator that knows of no cgroup looks at all of them.
    assert_eq!(opened(&mut actuator, &|_| false), CGROUPS - 1);
}

#[test]
fn a_write_that_is_cut_says_which_cgroup_above_is_too_narrow() {
    let host = Fixture::new(true);
    for (path, effective) in [
        ("/top", "0-3\n"),
        ("/top/narrow", "0-1\n"),
        ("/top/narrow/in", "0-1\n"),
        ("/top/narrow/in/a", "1\n"),
    ] {
        host.cgroup(path, "\n", "0\n");
        fs::write(host.path(path).join("cpuset.cpus.effective"), effective).unwrap();
    }
    let mut actuator = host.actuator();
    let done = apply_plan(&plan([set_cpus("/top/narrow/in/a", "1-2")]), &mut actuator);
    let said = format!("{:?}", done.outcomes[0].result);
    assert!(said.contains("in effect: 1; /top/narrow above it allows only 0-1; taken back"), "{said}");
}

#[test]
fn what_was_set_is_known_until_it_is_put_back() {
    let host = Fixture::new(true);
    host.cgroup("/a", "0-3\n", "0\n");
    host.cgroup("/a/b", "0-3\n", "0\n");
    let mut actuator = host.actuator();
    apply_plan(&plan([set_cpus("/a/b", "1")]), &mut actuator);
    let has_set = |actuator: &LiveActuator| {
        ["/", "/a", "/a/b", "/b"].map(|path| actuator.has_set(&CgroupPath::new(path)))
    };
    assert_eq!(has_set(&actuator), [false, false, true, false]);
    drop(actuator);
    assert_eq!(has_set(&host.actuator()), [false, false, true, false], "also by the next daemon");
}
