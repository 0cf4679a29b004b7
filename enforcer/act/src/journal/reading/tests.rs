//! Lines of a log that others add to as well.

use enforcer_core::workload::CgroupPath;

use super::{
    super::{lines::sealed, record::RecordedBrake},
    *,
};
use crate::cpuset::ManagedFile;

fn line(id: u64) -> String {
    let brake = RecordedBrake {
        id,
        cgroup: CgroupPath::new("/a b"),
        inode: 7,
        file: ManagedFile::Freeze,
        set: "1".into(),
        original: "0\n".into(),
        boot_id: None,
    };
    format!("\n{}", encode(&Record::Slowed(brake)).unwrap())
}

fn read_shared(path: &str, text: &str) -> Reading<Vec<RecordedBrake>> {
    read(Path::new(path), text.as_bytes(), true, LogBounds::default()).unwrap()
}

/// Ids, and how many lines are damaged.
fn found(text: &str) -> (Vec<u64>, usize) {
    let Reading { state, damaged, .. } = read_shared("record", text);
    (state.into_iter().map(|one| one.id).collect(), damaged.len())
}

#[test]
fn a_line_that_was_cut_is_left_out_and_takes_no_other_with_it() {
    let [one, two] = [1, 2].map(line);
    let json_ends = one.rfind('}').unwrap() + 1;
    for length in 0..one.len() {
        let cut = &one[..length];
        // What lacks nothing but its newline is whole; what lacks its sum, or a part of that, may have
        // been longer.
        let is_whole = length == one.len() - 1;
        let is_told = usize::from(length >= json_ends && !is_whole);
        let both = |mut ids: Vec<u64>| {
            ids.retain(|id| *id == 2 || is_whole);
            (ids, is_told)
        };
        assert_eq!(found(&format!("{two}{cut}")), both(vec![2, 1]), "{cut:?}");
        assert_eq!(found(&format!("{cut}{two}")), both(vec![1, 2]), "{cut:?}");
        assert_eq!(found(&format!("{two}{cut}\0\0\0")), both(vec![2, 1]), "{cut:?}");
    }
}

#[test]
fn a_line_that_is_not_as_it_was_written_is_told() {
    let [one, two] = [1, 2].map(line);
    let json = one.trim().rsplit_once(' ').unwrap().0;
    for (text, why) in [
        (one.replace("/a b", "/a c"), "its checksum"),
        (one.replacen('"', "", 1), "its checksum"),
        (sealed(&json.replace("\"version\":5", "\"version\":6")), "of version 6, of a newer"),
        (sealed("{}"), "missing field"),
        (format!("{json}\n"), "no checksum"),
        ("nonsense\n".to_owned(), "no checksum"),
    ] {
        assert_eq!(found(&format!("{text}{two}")), (vec![2], 1), "{text}");
        let error = read_shared("/record", &text).damaged.remove(0);
        assert!(error.starts_with("/record line ") && error.contains(why), "{error}");
    }
}

#[test]
fn zeros_are_left_out_at_the_end_and_told_anywhere_else() {
    let [one, two] = [1, 2].map(line);
    let zeros = "\0".repeat(one.len());
    for (text, ids, told) in [
        (format!("{one}{zeros}"), vec![1], 0),
        (format!("{one}\n{zeros}"), vec![1], 0),
        (format!("{zeros}{two}"), vec![2], 1),
        (format!("{one}{zeros}\n{two}"), vec![1, 2], 1),
        (zeros.clone(), vec![], 1),
        (format!("\n{zeros}"), vec![], 1),
        (String::new(), vec![], 0),
    ] {
        assert_eq!(found(&text), (ids, told), "{text:?}");
    }
    let error = read_shared("/record", &zeros).damaged.remove(0);
    assert!(error.starts_with("/record line 1: zeros, "), "{error}");
}

#[test]
fn every_byte_that_is_another_is_told() {
    let one = line(1);
    for at in 1..one.len() - 1 {
        let mut bytes = one.clone().into_bytes();
        bytes[at] ^= 1;
        let text = String::from_utf8(bytes).unwrap();
        assert!(matches!(found(&text), (_, 1)), "{text}");
    }
}
