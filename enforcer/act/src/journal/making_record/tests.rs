//! What the next daemon finds of containers that are being created.

use std::{fs, os::unix::fs::symlink};

use enforcer_core::hosted::{Cpuset, GrantRecord};

use numa_placement::Grant;

use super::{
    super::{
        fake_disk::FakeDisk,
        files,
        lines::encode,
        record::{Granted, RecordedPause},
        tail::Tail,
    },
    *,
};

const BOOT: Option<&str> = Some("boot-1");

fn made(cpus: &str) -> Made {
    let original = Cpuset { cpus: cpus.parse().ok(), mems: None };
    Made { original, renews: false, granted: None, boot_id: BOOT.map(str::to_owned), told_ns: 7 }
}

fn open(dir: &Path) -> MakingRecord {
    MakingRecord::open(dir, BOOT).unwrap().0
}

fn left(dir: &Path) -> Vec<(String, String)> {
    let LeftMaking { made, damaged } = MakingRecord::left(dir, BOOT).unwrap();
    assert_eq!(damaged, [""; 0]);
    let cpus = |made: Made| made.original.cpus.map(|cpus| cpus.to_string()).unwrap_or_default();
    made.into_iter().map(|(cgroup, made)| (cgroup.as_str().to_owned(), cpus(made))).collect()
}

#[test]
fn what_was_told_is_there_for_the_next_daemon_until_it_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (mut record, before) = MakingRecord::open(dir.path(), BOOT).unwrap();
    assert!(before.is_empty());
    for (cgroup, cpus) in [("/a", "0-1"), ("/b b", "2"), ("/a", "3")] {
        record.add(&CgroupPath::new(cgroup), &made(cpus)).unwrap();
    }
    let expected = [("/a", "3"), ("/b b", "2")].map(|(path, cpus)| (path.to_owned(), cpus.to_owned()));
    assert_eq!(left(dir.path()), expected);
    record.clear().unwrap();
    assert_eq!(left(dir.path()), []);
    record.add(&CgroupPath::new("/c"), &made("")).unwrap();
    assert_eq!(left(dir.path()), [("/c".to_owned(), String::new())]);
}

#[test]
fn finished_container_is_not_pending_for_the_next_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let mut record = open(dir.path());
    let [a, b] = ["/a", "/b"].map(CgroupPath::new);
    for cgroup in [&a, &b] {
        record.add(cgroup, &made("0")).unwrap();
    }
    record.over(vec![a.clone()]).unwrap();
    assert_eq!(left(dir.path()), [("/b".to_owned(), "0".to_owned())]);
    record.add(&a, &made("1")).unwrap();
    assert_eq!(left(dir.path())[0], ("/a".to_owned(), "1".to_owned()), "it is made once more");
}

#[test]
fn it_is_bounded_and_does_not_grow_with_what_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut record = open(dir.path());
    let long = |n: usize| CgroupPath::new(&format!("{}{n}", "a".repeat(4_000)));
    for _ in 0..100 {
        record.add(&long(0), &made("0")).unwrap();
        let length = fs::metadata(dir.path().join("making")).unwrap().len();
        assert!(length < 2 * MAKING.long, "{length}");
    }
    let full = (0..2_000).find_map(|n| record.add(&long(n), &made("0")).err()).unwrap();
    assert!(full.to_string().contains("longer than"), "{full}");
    record.clear().unwrap();
    record.add(&long(0), &made("0")).unwrap();
    assert_eq!(left(dir.path()).len(), 1);
}

#[test]
fn omitted_containers_are_dropped_all_at_once_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let mut record = open(dir.path());
    let [a, b, c] = ["/a", "/b", "/c"].map(CgroupPath::new);
    let zero = made("0");
    for cgroup in [&a, &b] {
        record.add(cgroup, &zero).unwrap();
    }
    // What it is written into first cannot be made.
    let next = dir.path().join("making.new");
    fs::create_dir(&next).unwrap();
    let error = record.keep([(&b, &zero)].into_iter()).unwrap_err().to_string();
    assert!(error.contains("making.new") && record.check().is_ok(), "{error}");
    assert_eq!(left(dir.path()).len(), 2, "both are there still");
    fs::remove_dir(&next).unwrap();
    record.keep([(&b, &zero)].into_iter()).unwrap();
    record.add(&c, &zero).unwrap();
    assert_eq!(left(dir.path()), [("/b", "0"), ("/c", "0")].map(|(a, b)| (a.to_owned(), b.to_owned())));
}

#[test]
fn a_torn_line_takes_no_other_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut record = open(dir.path());
    record.add(&CgroupPath::new("/a"), &made("0")).unwrap();
    let path = dir.path().join("making");
    let text = fs::read_to_string(&path).unwrap();
    let json_ends = text.rfind('}').unwrap() + 1;
    for length in 0..text.len() {
        fs::write(&path, &text[..length]).unwrap();
        record.add(&CgroupPath::new("/b"), &made("1")).unwrap();
        let LeftMaking { made, damaged } = MakingRecord::left(dir.path(), BOOT).unwrap();
        assert!(made.contains_key(&CgroupPath::new("/b")), "{length}");
        let is_whole = length == text.len() - 1;
        // What lacks only its sum, or a part of that, may have been longer.
        let is_told = length >= json_ends && !is_whole;
        assert_eq!(
            (made.len(), damaged.len()),
            (1 + usize::from(is_whole), usize::from(is_told)),
            "{length}"
        );
    }
}

#[test]
fn what_cannot_be_written_is_tried_again_until_it_can() {
    let mut record = MakingRecord::at(Path::new("/dev/full"));
    assert_eq!(record.check(), Ok(()), "nothing was tried");
    assert!(record.add(&CgroupPath::new("/a"), &made("0")).is_err());
    assert!(record.check().unwrap_err().contains("/dev/full"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("making");
    fs::write(&path, "").unwrap();
    record.log.tail = MakingRecord::at(&path).log.tail;
    assert_eq!((record.check(), record.check()), (Ok(()), Ok(())));
    record.add(&CgroupPath::new("/b"), &made("1")).unwrap();
    assert_eq!(left(dir.path()), [("/b".to_owned(), "1".to_owned())]);
}

#[test]
fn an_end_that_cannot_be_written_is_written_with_the_next_line_or_check() {
    for by_check in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (mut record, disk) = (open(dir.path()), FakeDisk::default());
        record.log.tail = Tail::new(record.log.path(), Box::new(disk.clone()), true);
        let [a, b, c, d] = ["/a", "/b", "/c", "/d"].map(CgroupPath::new);
        for cgroup in [&a, &b, &c] {
            record.add(cgroup, &made("0")).unwrap();
        }
        disk.leave_room(Some(0));
        assert!(record.over(vec![a.clone(), b.clone()]).is_err());
        assert!(record.add(&d, &made("0")).is_err() && record.check().is_err());
        disk.leave_room(None);
        if by_check {
            record.check().unwrap();
        } else {
            record.add(&b, &made("1")).unwrap();
        }
        fs::write(dir.path().join("making"), disk.text()).unwrap();
        let expected = if by_check { vec![("/c", "0")] } else { vec![("/b", "1"), ("/c", "0")] };
        let expected: Vec<_> = expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(left(dir.path()), expected);
    }
}

#[test]
fn a_record_that_is_removed_or_replaced_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut record = open(dir.path());
    let path = dir.path().join("making");
    record.add(&CgroupPath::new("/a"), &made("0")).unwrap();
    fs::remove_file(&path).unwrap();
    record.check().unwrap();
    assert_eq!(left(dir.path()), [("/a".to_owned(), "0".to_owned())], "a check is enough");
    fs::remove_file(&path).unwrap();
    record.add(&CgroupPath::new("/b"), &made("1")).unwrap();
    assert_eq!(left(dir.path()).len(), 2);
    fs::write(dir.path().join("other"), "foreign\n").unwrap();
    fs::rename(dir.path().join("other"), &path).unwrap();
    record.add(&CgroupPath::new("/c"), &made("2")).unwrap();
    assert_eq!(left(dir.path()).len(), 3);
    assert_eq!(fs::read_to_string(dir.path().join("making.damaged")).unwrap(), "foreign\n");
    fs::remove_file(&path).unwrap();
    fs::create_dir(dir.path().join("making.new")).unwrap();
    assert!(record.check().unwrap_err().contains("making.new"));
}

#[test]
fn a_line_of_another_log_is_damage_and_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).add(&CgroupPath::new("/a"), &made("0")).unwrap();
    let path = dir.path().join("making");
    let foreign = encode(&Record::Paused(RecordedPause { since_unix_ms: 1, until_unix_ms: None })).unwrap();
    let text = fs::read_to_string(&path).unwrap() + &foreign;
    fs::write(&path, &text).unwrap();
    let LeftMaking { made, damaged } = MakingRecord::left(dir.path(), BOOT).unwrap();
    assert_eq!((made.len(), damaged.len()), (1, 1));
    assert!(damaged[0].ends_with("line 3: it is of another log"), "{damaged:?}");
    open(dir.path());
    assert_eq!(fs::read_to_string(dir.path().join("making.damaged")).unwrap(), text);
    assert!(MakingRecord::left(dir.path(), BOOT).unwrap().damaged.is_empty());
}

#[test]
fn a_link_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, "").unwrap();
    symlink(&elsewhere, dir.path().join("making")).unwrap();
    assert!(MakingRecord::open(dir.path(), BOOT).unwrap_err().to_string().contains("making"));
}

#[test]
fn a_damaged_line_is_named_kept_and_takes_no_other_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut record = open(dir.path());
    for cgroup in ["/a", "/b"] {
        record.add(&CgroupPath::new(cgroup), &made("0")).unwrap();
    }
    let path = dir.path().join("making");
    let damaged = fs::read_to_string(&path).unwrap().replace("/a", "/c");
    fs::write(&path, &damaged).unwrap();
    let (mut record, left) = MakingRecord::open(dir.path(), BOOT).unwrap();
    assert_eq!(left.made.keys().map(CgroupPath::as_str).collect::<Vec<_>>(), ["/b"]);
    let [line] = left.damaged.as_slice() else { panic!("{left:?}") };
    assert!(line.starts_with(path.to_str().unwrap()) && line.contains(" line 2: "), "{line}");
    record.clear().unwrap();
    let kept = files::set_aside(dir.path()).unwrap();
    assert_eq!(kept, [dir.path().join("making.damaged")]);
    assert_eq!(fs::read_to_string(&kept[0]).unwrap(), damaged);
    assert!(MakingRecord::left(dir.path(), BOOT).unwrap().is_empty());
}

#[test]
fn zeros_at_the_end_are_taken_away_and_others_are_damage() {
    let dir = tempfile::tempdir().unwrap();
    let mut record = open(dir.path());
    for cgroup in ["/a", "/b"] {
        record.add(&CgroupPath::new(cgroup), &made("0")).unwrap();
    }
    let path = dir.path().join("making");
    let good = fs::read(&path).unwrap();
    fs::write(&path, [&good[..], &[0; 90]].concat()).unwrap();
    open(dir.path()).add(&CgroupPath::new("/c"), &made("0")).unwrap();
    assert_eq!(left(dir.path()).len(), 3, "nothing is behind zeros");
    let all = vec![0; good.len()];
    let first = good.len() / 2;
    for (bytes, there) in [(all.clone(), 0), ([&all[..first], &good[first..]].concat(), 1)] {
        fs::write(&path, &bytes).unwrap();
        let (mut record, left) = MakingRecord::open(dir.path(), BOOT).unwrap();
        assert_eq!(left.made.len(), there);
        let [line] = left.damaged.as_slice() else { panic!("{left:?}") };
        assert!(line.contains("making") && line.contains("zeros"), "{line}");
        record.clear().unwrap();
        let kept = dir.path().join("making.damaged");
        assert_eq!(fs::read(&kept).unwrap(), bytes);
        fs::remove_file(kept).unwrap();
    }
}

#[test]
fn a_damaged_line_that_cannot_be_set_aside_stays() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("making"), "nonsense\n").unwrap();
    let mut record = MakingRecord::at(&dir.path().join("making"));
    record.log.is_damaged = true;
    fs::create_dir(dir.path().join("making.new")).unwrap();
    assert!(record.clear().is_err());
    assert_eq!(MakingRecord::left(dir.path(), BOOT).unwrap().damaged.len(), 1);
}

#[test]
fn container_of_another_boot_is_not_pending() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).add(&CgroupPath::new("/a"), &made("0")).unwrap();
    for (boot, there) in [(BOOT, 1), (None, 1), (Some("boot-2"), 0)] {
        assert_eq!(MakingRecord::left(dir.path(), boot).unwrap().made.len(), there, "{boot:?}");
    }
}

#[test]
fn what_was_granted_comes_back() {
    let (dir, cgroup) = (tempfile::tempdir().unwrap(), CgroupPath::new("/a"));
    let grant =
        Grant { engine: "hints", exclusive: "2-3".parse().unwrap(), pin_cpus: true, ..Grant::default() };
    let grant = GrantRecord::of(&cgroup, 1, &grant, None).unwrap();
    let granted =
        |id: &str| Made { granted: Some(Granted { id: id.to_owned(), grant: grant.clone() }), ..made("0-7") };
    let mut record = open(dir.path());
    record.add(&cgroup, &granted("one")).unwrap();
    let left = || MakingRecord::left(dir.path(), BOOT).unwrap().made.remove(&cgroup).unwrap();
    assert_eq!(left(), granted("one"));
    record.add(&cgroup, &granted(&"x".repeat(LONGEST_NAMES))).unwrap();
    assert_eq!(left(), made("0-7"), "its line would be too long");
}

#[test]
fn container_answered_long_ago_is_dropped() {
    let within = MADE_WITHIN.as_secs() * 1_000_000_000;
    assert!(made("").may_come(within + 6) && !made("").may_come(within + 7));
}
