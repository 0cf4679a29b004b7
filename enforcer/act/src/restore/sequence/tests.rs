//! Records that the journal takes over before anything is put back.

use super::*;
use crate::fixture::Fixture;

#[test]
fn journal_takes_over_noted_pins_once_their_cgroup_can_be_read() {
    let host = Fixture::new(true);
    host.cgroup("/a", "4\n", "0\n");
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    let inode = tree.open(&CgroupPath::new("/a")).unwrap().inode();
    let key = EntryKey { cgroup: CgroupPath::new("/a"), file: ManagedFile::Cpus, inode };
    let mut journal = host.journal();
    journal.record(key.clone(), Entry::of_file("0-6\n", None)).unwrap();
    let thread = serde_json::json!({"pid": 9, "tid": 9, "start_ticks": 7, "command": "db", "cpus": "2"});
    let noted: NotedPins = serde_json::from_value(serde_json::json!({
        "was": "0-6", "told": "4-6",
        "before": [{"cgroup": "/a", "cpus": "0-6", "mems": "0", "threads": [thread]}],
    }))
    .unwrap();
    let keep = |cgroups: &[&str]| {
        let all = cgroups.iter().map(|cgroup| (CgroupPath::new(cgroup), noted.clone()));
        PinsRecord::new(&host.state_dir(), None).keep(&all.collect()).unwrap();
    };
    // The root exists and cannot be opened for writing.
    keep(&["/", "/ended"]);
    let path = host.state_dir().join("pins");
    let state_dir = host.state_dir();
    let mut take = |top: Option<&str>| {
        let read = RestoreSurvey::read(&host.host(), &state_dir, || Ok::<_, JournalError>(tree.clone()));
        let mut survey = read.unwrap();
        if let Some(top) = top {
            survey.narrow_to(CgroupPath::new(top));
        }
        survey.take_over_pins(&tree, &mut journal)
    };
    let report = take(None);
    assert!(report.unusable[0].contains("threads of / had pinned"), "{report:?}");
    assert_eq!(PinsRecord::left(&host.state_dir(), None).pins.len(), 2, "nothing is forgotten");
    keep(&["/a", "/ended"]);
    assert!(take(Some("/other")).is_complete() && path.exists(), "the others wait on");
    assert!(take(None).is_complete() && !path.exists());
    assert_eq!(journal.entries()[&key].threads[0].tid, 9);
}
