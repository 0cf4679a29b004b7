//! Files of other versions: older ones are taken over, newer ones are named, kept and not used.

use super::*;

#[test]
fn a_line_of_a_newer_version_is_named_with_it_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let json = r#"{"version":6,"record":"unheard-of","cgroup":7}"#;
    let line = format!("{json} {:08x}\n", crc32fast::hash(json.as_bytes()));
    fs::write(dir.path().join("journal"), &line).unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    let said = &journal.damaged()[0];
    assert!(said.contains("version 6") && said.contains("newer numa-enforcer"), "{said}");
    assert_eq!(fs::read_to_string(dir.path().join("journal.damaged")).unwrap(), line);
}

#[test]
fn no_file_of_a_newer_version_is_used_or_lost() {
    let dir = tempfile::tempdir().unwrap();
    let json = r#"{"version":6,"record":"unheard-of","cgroup":"/a"}"#;
    let line = format!("{json} {:08x}\n", crc32fast::hash(json.as_bytes()));
    let names = ["journal", "making", "brakes", "pins", "drift", "pause"];
    for name in names {
        fs::write(dir.path().join(name), &line).unwrap();
    }
    let journal = Journal::open(dir.path()).unwrap();
    let (_making, making) = MakingRecord::open(dir.path(), Some("b")).unwrap();
    let brakes = BrakeRecord::read(dir.path()).unwrap();
    drop(BrakeRecord::open(dir.path()).unwrap());
    let pins = PinsRecord::open(dir.path(), Some("b"));
    let pause = PauseRecord::new(dir.path()).read().unwrap_err().to_string();
    assert!(journal.entries().is_empty() && making.made.is_empty());
    assert!(brakes.slowed.is_empty() && pins.pins.is_empty());
    assert!(DriftRecord::open(dir.path(), "b", 0).1.is_empty());
    for said in [journal.damaged(), &making.damaged, &brakes.damaged, &pins.unread, &[pause]] {
        assert!(said.len() == 1 && said[0].contains("version 6, of a newer numa-enforcer"), "{said:?}");
    }
    // The repairs are a count that begins anew; a pause that cannot be read stays one until it is ended.
    let kept = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    for name in ["journal.damaged", "making.damaged", "brakes.damaged", "pins.damaged", "pause"] {
        assert_eq!(kept(name), line, "{name}");
    }
}

#[test]
fn lines_of_a_daemon_that_wrote_no_checksums_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let line = r#"{"version":1,"record":"before","cgroup":"/a } b","file":"cpuset.mems","inode":1,"original":"0\n","boot_id":"b"}"#;
    fs::write(dir.path().join("journal"), format!("{line}\n")).unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.entries()[&key("/a } b", 1)], entry("0\n"), "{:?}", journal.damaged());
}

#[test]
fn lines_of_a_daemon_that_recorded_no_grants_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let json = r#"{"version":2,"record":"before","cgroup":"/a","file":"cpuset.mems","inode":1,"original":"0\n","boot_id":"b"}"#;
    let line = format!("{json} {:08x}\n", crc32fast::hash(json.as_bytes()));
    fs::write(dir.path().join("journal"), line).unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.entries()[&key("/a", 1)], entry("0\n"), "{:?}", journal.damaged());
}

/// Versions 3 and 4, as builds of 0.1.0 wrote them.
#[test]
fn grants_of_earlier_versions_are_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let fields = r#""engine":"hints","policy":"best-effort","class":"shared","exclusive":"","mems":"0","memory":[],"pool":null,"pin_cpus":true,"pin_mems":true,"one_thread_of":[],"memory_priority":"burstable""#;
    let shared = r#""shared":{"scope":"0-3","milli_cpus":500,"refuge":null}"#;
    let of_3 = format!(
        r#"{{"version":3,"record":"granted","id":"a","cgroup":"/pod/a","turn":7,{fields},{shared},"cold_start":null}}"#
    );
    let of_4 = format!(
        r#"{{"version":4,"record":"granted","id":"b","cgroup":"/pod/b","turn":8,"grant":{{{fields},{shared},"memory_source":null,"cold_start":null,"devices":{{}},"hint":null,"cpu_shares":512,"labels":{{"app":"db"}},"qos":"burstable","affinity":[],"reason":"r"}},"asked":null}}"#
    );
    let before = r#"{"version":4,"record":"before","cgroup":"/pod/b","file":"cpuset.cpus","inode":9,"original":"0-7\n","boot_id":"b"}"#;
    let lines = [of_3.as_str(), &of_4, before].map(lines::sealed).concat();
    fs::write(dir.path().join("journal"), lines).unwrap();
    for opened in ["once", "twice"] {
        let journal = Journal::open(dir.path()).unwrap();
        assert!(journal.damaged().is_empty(), "{opened}: {:?}", journal.damaged());
        let grants =
            journal.grants().iter().map(|(id, grant)| (id.as_str(), grant.cgroup.as_str(), grant.turn));
        assert_eq!(grants.collect::<Vec<_>>(), [("a", "/pod/a", 7), ("b", "/pod/b", 8)], "{opened}");
        let key = EntryKey { file: ManagedFile::Cpus, ..key("/pod/b", 9) };
        assert_eq!(journal.entries()[&key], entry("0-7\n"), "{opened}");
    }
}

#[test]
fn records_of_the_version_before_are_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let line = |json: &str| format!("\n{json} {:08x}\n", crc32fast::hash(json.as_bytes()));
    let write = |name: &str, text: String| fs::write(dir.path().join(name), text).unwrap();
    let brake = |id: u64| {
        format!(
            r#"{{"version":1,"record":"slowed","id":{id},"cgroup":"/a","inode":7,"file":"cgroup.freeze","set":"1","original":"0\n","bootId":"b"}}"#
        )
    };
    let released = r#"{"version":1,"record":"released","id":1}"#;
    write("brakes", [brake(1), brake(2), released.to_owned()].map(|json| line(&json)).concat());
    let made = |cgroup: &str| {
        format!(
            r#"{{"version":3,"cgroup":"{cgroup}","record":"made","cpus":"0-1","mems":null,"boot_id":"b","told_ns":7}}"#
        )
    };
    let over = r#"{"version":3,"cgroup":"/b","record":"over"}"#;
    write("making", [made("/a"), made("/b"), over.to_owned()].map(|json| line(&json)).concat());
    let pins = r#"{"version":1,"cgroup":"/a","before":[],"was":"0-7","told":"2-7","boot_id":"b"}"#;
    write("pins", line(pins));
    write("pause", "{\"version\":1,\"sinceUnixMs\":1000,\"untilUnixMs\":null}\n".to_owned());
    let brakes = BrakeRecord::read(dir.path()).unwrap();
    assert_eq!(
        (brakes.slowed.iter().map(|one| one.id).collect::<Vec<_>>(), brakes.damaged),
        (vec![2], vec![])
    );
    let (mut making, left) = MakingRecord::open(dir.path(), Some("b")).unwrap();
    assert_eq!(
        (left.made.keys().map(CgroupPath::as_str).collect::<Vec<_>>(), left.damaged),
        (vec!["/a"], vec![])
    );
    making.over(vec![CgroupPath::new("/a")]).unwrap();
    assert!(MakingRecord::left(dir.path(), Some("b")).unwrap().is_empty());
    let left = PinsRecord::left(dir.path(), Some("b"));
    assert_eq!((left.pins[&CgroupPath::new("/a")].told.to_string(), left.unread), ("2-7".into(), vec![]));
    let pause = PauseRecord::new(dir.path()).read().unwrap().unwrap();
    assert_eq!(pause.lasted(3_000).as_secs(), 2);
}
