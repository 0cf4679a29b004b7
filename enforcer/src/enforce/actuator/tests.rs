//! What is recorded of cgroups that others set on our behalf.

use std::fs;

use super::*;
use crate::enforce::{
    apply_plan,
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
fn who_has_ended_is_released() {
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
    actuator.tidy().unwrap();
    drop(actuator);
    let left: Vec<_> = host.journal().entries().keys().map(|key| key.cgroup.as_str().to_owned()).collect();
    assert_eq!(left, ["/stays"]);
}
