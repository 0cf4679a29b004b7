//! What is recorded, what survives, and what of a damaged file is believed.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    io::Write,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use enforcer_core::{hosted::GrantRecord, workload::CgroupPath};
use numa_placement::{ContainerRequest, Grant, MemoryClaim, MemoryResource, Resources};
use numa_topology::id::NodeId;
use rustix::io::Errno;

mod versions;

use super::{
    fake_disk::FakeDisk,
    lines::LONGEST,
    originals::{JOURNAL, LOCK, Originals},
    reading::{LogBounds, Reading},
    *,
};
use crate::cpuset::ManagedFile;

fn read(path: &Path, text: &[u8], bounds: LogBounds) -> Reading<Originals> {
    reading::read(path, text, false, bounds).unwrap()
}

fn read_file(path: &Path) -> Reading<Originals> {
    log::read(path.parent().unwrap(), &JOURNAL).unwrap()
}

fn key(cgroup: &str, inode: u64) -> EntryKey {
    EntryKey { cgroup: CgroupPath::new(cgroup), file: ManagedFile::Mems, inode }
}

fn entry(original: &str) -> Entry {
    Entry::of_file(original, Some("b"))
}

/// A journal that is closed and says what `/a` held, in its directory.
fn of_one_entry() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(dir.path()).unwrap();
    journal.record(key("/a", 1), entry("0\n")).unwrap();
    let file = dir.path().join("journal");
    (dir, file)
}

#[test]
fn the_first_value_wins_and_survives_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(dir.path()).unwrap();
    journal.record(key("/a", 1), entry("0\n")).unwrap();
    journal.record(key("/a", 1), entry("1\n")).unwrap();
    journal.record(key("/a", 2), entry("\n")).unwrap();
    drop(journal);
    let journal = Journal::open(dir.path()).unwrap();
    let values: Vec<_> = journal.entries().values().map(|entry| entry.original.as_str()).collect();
    assert_eq!(values, ["0\n", "\n"]);
}

#[test]
fn a_closed_entry_is_gone_and_can_be_recorded_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(dir.path()).unwrap();
    journal.record(key("/a", 1), entry("0\n")).unwrap();
    journal.close(&key("/a", 1)).unwrap();
    journal.record(key("/a", 1), entry("1\n")).unwrap();
    drop(journal);
    assert_eq!(Journal::open(dir.path()).unwrap().entries()[&key("/a", 1)], entry("1\n"));
}

#[test]
fn an_entry_of_an_earlier_boot_does_not_stand_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(dir.path()).unwrap();
    journal.record(key("/a", 1), entry("0\n")).unwrap();
    let now = Entry::of_file("1\n", Some("c"));
    journal.record(key("/a", 1), now.clone()).unwrap();
    assert_eq!(journal.entries()[&key("/a", 1)], now);
}

#[test]
fn every_cut_of_the_last_line_leaves_the_lines_before_it() {
    let (dir, file) = of_one_entry();
    let first = fs::read(&file).unwrap();
    let mut journal = Journal::open(dir.path()).unwrap();
    // With what could be taken for the end of a line.
    journal.record(key("/b } b", 2), entry("1\n")).unwrap();
    drop(journal);
    let both = fs::read(&file).unwrap();
    for cut in first.len()..both.len() {
        for behind in ["", "\0\0\0"] {
            fs::write(&file, [&both[..cut], behind.as_bytes()].concat()).unwrap();
            let is_shown = Journal::peek(dir.path()).unwrap().torn.is_some();
            assert_eq!(is_shown, (first.len() + 1..both.len() - 1).contains(&cut), "cut at {cut}");
            assert_eq!(Journal::peek(dir.path()).unwrap().zeros, behind.len(), "cut at {cut}");
            let mut journal = Journal::open(dir.path()).unwrap();
            assert!(journal.damaged().is_empty(), "cut at {cut}: {:?}", journal.damaged());
            assert_eq!(journal.kept(), None, "cut at {cut}");
            // Only its newline is missing, and its sum is right.
            let whole = if cut == both.len() - 1 { &[1, 2][..] } else { &[1] };
            let found: Vec<_> = journal.entries().keys().map(|key| key.inode).collect();
            assert_eq!(found, whole, "cut at {cut}");
            // What is appended after a torn line must not be glued to it.
            journal.record(key("/c", 3), entry("2\n")).unwrap();
            drop(journal);
            let journal = Journal::open(dir.path()).unwrap();
            let found: Vec<_> = journal.entries().keys().map(|key| key.inode).collect();
            assert_eq!(found, [whole, &[3]].concat(), "cut at {cut}");
        }
    }
    assert!(!dir.path().join("journal.damaged").exists(), "no file for an administrator to look at");
}

#[test]
fn an_end_that_no_crash_leaves_is_damage_and_is_kept() {
    let (dir, file) = of_one_entry();
    let good = fs::read_to_string(&file).unwrap();
    // Rubbish, and a whole line in which something has changed.
    for end in ["rubbish", good.trim_end().replace("\"/a\"", "\"/b\"").as_str()] {
        fs::write(&file, format!("{good}{end}")).unwrap();
        let journal = Journal::open(dir.path()).unwrap();
        assert_eq!(journal.entries().len(), 1, "{end}");
        assert!(journal.damaged()[0].contains("line 2"), "{end}: {:?}", journal.damaged());
        let kept = dir.path().join("journal.damaged");
        assert_eq!(journal.kept(), Some(&*kept));
        assert_eq!(set_aside(dir.path()).unwrap(), [&*kept]);
        assert_eq!(fs::read_to_string(&kept).unwrap(), format!("{good}{end}"));
        fs::remove_file(kept).unwrap();
    }
}

#[test]
fn zeros_are_no_damage_at_the_end_where_they_are_shown_and_are_damage_anywhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let mut journal = Journal::open(dir.path()).unwrap();
    for inode in 1..=3 {
        journal.record(key("/a", inode), entry("0\n")).unwrap();
    }
    drop(journal);
    let good = fs::read(&file).unwrap();
    let line = good.len() / 3;
    let zeroed = |from: usize, to: usize| {
        let mut bytes = good.clone();
        bytes[from..to].fill(0);
        bytes
    };
    let end = 3 * line;
    let many = vec![0; lines::LONGEST.try_into().unwrap()];
    // What is there, which lines of it are believed, whether it is damaged, and how many zeros are shown.
    for (name, bytes, whole, is_damaged, shown) in [
        ("all", zeroed(0, end), &[][..], true, 0),
        ("all but room", [&zeroed(0, end)[..], b"   "].concat(), &[], true, 0),
        ("one", vec![0], &[], true, 0),
        // The next line is glued to them.
        ("the first", zeroed(0, line), &[3], true, 0),
        ("the first but its newline", zeroed(0, line - 1), &[2, 3], true, 0),
        ("the second", zeroed(line, 2 * line), &[1], true, 0),
        ("the second but its newline", zeroed(line, 2 * line - 1), &[1, 3], true, 0),
        ("the last but its newline", zeroed(2 * line, end - 1), &[1, 2], true, 0),
        ("the last", zeroed(2 * line, end), &[1, 2], false, line),
        ("the last two", zeroed(line, end), &[1], false, 2 * line),
        ("half of the last", zeroed(2 * line + line / 2, end), &[1, 2], false, line - line / 2),
        ("the last newline", zeroed(end - 1, end), &[1, 2, 3], false, 1),
        ("behind the last", [&good[..], &[0; 5]].concat(), &[1, 2, 3], false, 5),
        ("behind room", [&good[..], b"  ", &[0; 5]].concat(), &[1, 2, 3], false, 5),
        ("as many as a line may have", [&good[..], &many].concat(), &[1, 2, 3], false, many.len()),
        ("more", [&good[..], &many, b"  ", &many].concat(), &[1, 2, 3], false, 2 * many.len()),
        ("more than half a line", [&good[..end - 9], &many, &many].concat(), &[1, 2], false, 2 * many.len()),
        ("more, and a newline", [&good[..], &many, &many, b"\n"].concat(), &[1, 2, 3], true, 0),
        ("more than all", [&many[..], &many].concat(), &[], true, 0),
    ] {
        fs::write(&file, &bytes).unwrap();
        let contents = Journal::peek(dir.path()).unwrap();
        let found: Vec<_> = contents.entries.keys().map(|key| key.inode).collect();
        assert_eq!(found, whole, "{name}: {:?}", contents.damaged);
        assert_eq!((contents.damaged.len(), contents.zeros), (usize::from(is_damaged), shown), "{name}");
        assert!(!is_damaged || contents.damaged[0].contains("zeros, "), "{name}: {:?}", contents.damaged);
        let mut journal = Journal::open(dir.path()).unwrap();
        assert_eq!(journal.kept().is_some(), is_damaged, "{name}");
        journal.record(key("/b", 9), entry("0\n")).unwrap();
        drop(journal);
        let contents = Journal::peek(dir.path()).unwrap();
        assert_eq!(contents.entries.len(), whole.len() + 1, "{name}");
        assert_eq!((contents.damaged.len(), contents.zeros), (0, 0), "{name}");
        let _absent = fs::remove_file(dir.path().join("journal.damaged"));
    }
}

#[test]
fn of_a_journal_of_any_length_what_can_be_read_is_read() {
    let (dir, file) = of_one_entry();
    let good = fs::read(&file).unwrap();
    let open = fs::File::options().append(true).open(&file).unwrap();
    open.set_len(16 * LONGEST + 4096).unwrap();
    // Behind what is too long for a line.
    let later = String::from_utf8(good.clone()).unwrap().replace("\"/a\"", "\"/b\"");
    let json = later.rsplit_once(' ').unwrap().0;
    (&open).write_all(format!("\n{json} {:08x}\n", crc32fast::hash(json.as_bytes())).as_bytes()).unwrap();
    assert_eq!(Journal::peek(dir.path()).unwrap().entries.len(), 2);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.entries().len(), 2);
    assert_eq!(journal.damaged().len(), 1, "{:?}", journal.damaged());
    assert!(journal.damaged()[0].contains("line 2: zeros, "), "{:?}", journal.damaged());
    assert!(fs::metadata(&file).unwrap().len() < 1024);
    assert!(fs::metadata(dir.path().join("journal.damaged")).unwrap().len() > 16 * LONGEST);
}

#[test]
fn a_journal_is_read_within_bounds() {
    let line = |path: &str, original: &str| {
        let json = format!(
            r#"{{"version":3,"record":"before","cgroup":"{path}","file":"cpuset.mems","inode":1,"original":"{original}","boot_id":"b"}}"#
        );
        format!("{json} {:08x}\n", crc32fast::hash(json.as_bytes()))
    };
    let text = ["/a", "/b", "/c"].map(|path| line(path, "0\\n")).concat();
    let read = |text: &str, bounds: LogBounds| {
        let Reading { state: Originals { entries, .. }, damaged, .. } =
            read(Path::new("j"), text.as_bytes(), bounds);
        (entries.into_keys().map(|key| key.cgroup.to_string()).collect::<Vec<_>>(), damaged)
    };
    let all = LogBounds::default();
    let one = text.len() / 3;
    let long = format!("{}{text}", line("/long", &"0".repeat(one)));
    let (entries, damaged) = read(&long, LogBounds { line: one as u64, ..all });
    assert_eq!((entries.join(" "), damaged.len()), ("/a /b /c".into(), 1), "{damaged:?}");
    // Zeros, however many, take no room of what counts.
    let zeros = format!("{}\n{text}", "\0".repeat(9 * one));
    let (entries, damaged) = read(&zeros, LogBounds { line: one as u64, kept: 3 * one, ..all });
    assert_eq!((entries.join(" "), damaged.len()), ("/a /b /c".into(), 1), "{damaged:?}");
    let (entries, damaged) = read(&text, LogBounds { kept: 2 * one, ..all });
    assert_eq!((entries.join(" "), damaged.len()), ("/a /b".into(), 1), "{damaged:?}");
    assert!(damaged[0].contains("line 3: one too many"), "{damaged:?}");
    // What is over makes room.
    let over = format!("{}{}{text}", line("/a", "1\\n"), line("/a", "2\\n"));
    assert!(read(&over, LogBounds { kept: 3 * one, ..all }).1.is_empty());
    for read_bytes in [one + 10, 2 * one - 1] {
        let (entries, damaged) = read(&text, LogBounds { read: read_bytes as u64, ..all });
        assert_eq!((entries.join(" "), damaged.len()), ("/a".into(), 1), "{read_bytes}: {damaged:?}");
        assert!(damaged[0].contains("is not read"), "{damaged:?}");
    }
    let (_, damaged) = read(&"\n".repeat(5_000), all);
    assert_eq!(damaged.len(), 101);
    assert!(damaged[100].contains("4900 more lines"), "{}", damaged[100]);
}

#[test]
fn a_grant_of_endless_names_is_not_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(dir.path()).unwrap();
    let grants = ["x".repeat(1 << 20), "y".to_owned()].map(|id| (id, grant("0")));
    journal.note_grants(grants.into()).unwrap();
    drop(journal);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!((journal.grants().len(), journal.damaged().len()), (1, 0));
}

#[test]
fn writable_journal_is_read_in_a_private_directory_and_made_private() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let file = state.join("journal");
    let mut journal = Journal::open(&state).unwrap();
    journal.record(key("/a", 1), entry("0\n")).unwrap();
    drop(journal);
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    set(&file, 0o666);
    set(&state, 0o755);
    for error in [Journal::open(&state).unwrap_err(), Journal::peek(&state).unwrap_err()] {
        assert!(error.to_string().contains("others may write it (mode 0666)"), "{error}");
    }
    set(&state, 0o700);
    assert_eq!(Journal::peek(&state).unwrap().entries.len(), 1);
    assert_eq!(mode(), 0o666, "reading changes nothing");
    assert_eq!(Journal::open(&state).unwrap().entries().len(), 1);
    assert_eq!(mode(), 0o600);
}

#[test]
fn a_symlink_in_the_place_of_the_journal_is_called_one() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/null", dir.path().join("journal")).unwrap();
    for error in [Journal::open(dir.path()).unwrap_err(), Journal::peek(dir.path()).unwrap_err()] {
        assert!(error.to_string().contains("a symbolic link, which is not followed"), "{error}");
    }
}

#[test]
fn a_damaged_line_is_named_and_kept_and_does_not_hide_the_others() {
    let (dir, file) = of_one_entry();
    let good = fs::read_to_string(&file).unwrap();
    // The sum of one is wrong, and the other one's version without a sum is not known.
    let other = good.replace("0\\n", "1\\n");
    let without = good.rsplit_once(' ').unwrap().0;
    fs::write(&file, format!("rubbish\n{other}{without}\n{good}")).unwrap();
    assert_ne!(other, good);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.entries().values().collect::<Vec<_>>(), [&entry("0\n")]);
    assert_eq!(journal.damaged().len(), 3, "{:?}", journal.damaged());
    assert!(journal.damaged()[1].contains("checksum"), "{:?}", journal.damaged());
    assert!(journal.damaged()[0].contains("line 1"), "{:?}", journal.damaged());
    assert!(fs::read_to_string(dir.path().join("journal.damaged")).unwrap().starts_with("rubbish"));
}

#[test]
fn of_any_change_of_a_byte_nothing_is_believed() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(dir.path()).unwrap();
    journal.record(key("/a", 1), entry("0-3\n")).unwrap();
    drop(journal);
    let file = dir.path().join("journal");
    let good = fs::read(&file).unwrap();
    for at in 0..good.len() - 1 {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let contents = read(&file, &bad[..], LogBounds::default()).state;
        assert!(contents.entries.is_empty(), "byte {at}");
    }
}

#[test]
fn a_state_directory_that_others_may_change_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&state, &link).unwrap();
    for (path, mode, said) in [
        (&state, 0o777, "others may write it (mode 0777)"),
        (&state, 0o1777, "others may write it (mode 1777)"),
        (&state, 0o770, "others may write it (mode 0770)"),
        (&link, 0o700, "not a directory"),
    ] {
        fs::set_permissions(&state, fs::Permissions::from_mode(mode)).unwrap();
        for error in [Journal::open(path).unwrap_err(), Journal::peek(path).unwrap_err()] {
            let error = error.to_string();
            assert!(error.contains(path.to_str().unwrap()) && error.contains(said), "{error}");
        }
        assert!(fs::read_dir(&state).unwrap().next().is_none(), "nothing is made in it");
    }
}

#[test]
fn files_in_the_place_of_ours_are_not_followed_and_do_not_block() {
    use rustix::fs::{CWD, FileType, mknodat};

    for name in ["lock", "journal", "journal.new"] {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let state = dir.path().join("state");
        fs::create_dir(&state).unwrap();
        fs::write(state.join("journal"), "torn").unwrap();
        let _absent = fs::remove_file(state.join(name));
        std::os::unix::fs::symlink(&victim, state.join(name)).unwrap();
        let error = Journal::open(&state).unwrap_err().to_string();
        assert!(error.contains(state.join(name).to_str().unwrap()), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious", "{name}");
        fs::remove_file(state.join(name)).unwrap();
        mknodat(CWD, state.join(name), FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(Journal::open(&state).is_err(), "{name}");
    }
}

#[test]
fn a_journal_of_another_user_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    fs::write(&file, "").unwrap();
    if std::os::unix::fs::chown(&file, Some(65534), None).is_err() {
        println!("skipped: only root can give a file away");
        return;
    }
    let error = Journal::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("it belongs to another user (65534)"), "{error}");
}

#[test]
fn a_journal_with_nothing_to_tidy_is_not_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(dir.path()).unwrap();
    journal.record(key("/b", 1), entry("0\n")).unwrap();
    journal.record(key("/a", 1), entry("0\n")).unwrap();
    drop(journal);
    // As a full disk would, this makes every new file fail.
    fs::create_dir(dir.path().join("journal.new")).unwrap();
    let mut journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.entries().len(), 2);
    journal.close(&key("/a", 1)).unwrap();
    drop(journal);
    Journal::open(dir.path()).unwrap_err();
}

#[test]
fn only_one_can_hold_it_and_the_files_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let journal = Journal::open(&state).unwrap();
    let error = Journal::open(&state).unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    assert_eq!(mode(&state.join("journal")), 0o600);
    assert_eq!(mode(&state.join("lock")), 0o600);
    drop(journal);
    Journal::open(&state).unwrap();
}

fn grant(exclusive: &str) -> GrantRecord {
    let claim = MemoryClaim {
        resource: MemoryResource::Hugepages(2 << 20),
        zone: "0-1".parse().unwrap(),
        bytes: 3 << 20,
        by_node: [(NodeId(0), 1 << 20), (NodeId(1), 2 << 20)].into(),
    };
    let exclusive = exclusive.parse().unwrap();
    let grant = Grant { engine: "hints", exclusive, memory: vec![claim], ..Grant::default() };
    let requests = Resources { hugepages: [(2 << 20, 4 << 20)].into(), ..Resources::default() };
    let devices = [("nic".to_owned(), 1)].into();
    let asked = ContainerRequest { requests, devices, ..ContainerRequest::default() };
    GrantRecord::of(&CgroupPath::new("/pod/a"), 0, &grant, Some(&asked)).unwrap()
}

#[test]
fn grants_survive_a_reopen_and_only_what_is_different_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let mut journal = Journal::open(dir.path()).unwrap();
    journal.record(key("/a", 1), entry("0\n")).unwrap();
    let both = BTreeMap::from([("a".to_owned(), grant("0-1")), ("b".to_owned(), grant("2-3"))]);
    journal.note_grants(both.clone()).unwrap();
    let length = fs::metadata(&file).unwrap().len();
    journal.note_grants(both).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().len(), length, "nothing is different");
    let now = BTreeMap::from([("b".to_owned(), grant("4-5"))]);
    journal.note_grants(now.clone()).unwrap();
    drop(journal);
    for opened in ["once", "twice"] {
        let journal = Journal::open(dir.path()).unwrap();
        assert_eq!((journal.grants(), journal.entries().len()), (&now, 1), "{opened}");
        assert!(journal.damaged().is_empty(), "{opened}: {:?}", journal.damaged());
    }
}

/// A journal with one entry, and the disk to which further lines go.
fn on_fake_disk() -> (tempfile::TempDir, Journal, FakeDisk) {
    let dir = tempfile::tempdir().unwrap();
    let disk = FakeDisk::default();
    let mut journal = Journal::open(dir.path()).unwrap().appending_to(&disk);
    journal.record(key("/a", 1), entry("0\n")).unwrap();
    (dir, journal, disk)
}

fn inodes(text: &str) -> Vec<u64> {
    let found = read(Path::new("journal"), text.as_bytes(), LogBounds::default());
    assert!(found.damaged.is_empty(), "{:?}", found.damaged);
    found.state.entries.keys().map(|key| key.inode).collect()
}

#[test]
fn a_full_disk_takes_no_line_in_part_and_has_an_end() {
    let (_dir, mut journal, disk) = on_fake_disk();
    let whole = disk.text();
    for room in [0, 1, whole.len() - 1] {
        disk.leave_room(Some(room));
        let error = journal.record(key("/b", 2), entry("1\n")).unwrap_err();
        assert!(error.is_no_room() && error.to_string().contains("appending to /"), "{error}");
        assert!(!journal.entries().contains_key(&key("/b", 2)), "it is not durable");
        assert_eq!(disk.text(), whole, "room for {room}");
        assert!(journal.check().unwrap_err().contains("No space left"), "{:?}", journal.check());
        assert_eq!(disk.text(), whole, "and none is taken to find out");
    }
    disk.leave_room(None);
    journal.check().unwrap();
    let asked = disk.asked();
    journal.check().unwrap();
    assert_eq!(disk.asked(), asked, "what works is not tried");
    journal.record(key("/b", 2), entry("1\n")).unwrap();
    assert_eq!(inodes(&disk.text()), [1, 2]);
}

#[test]
fn removed_journal_is_there_again_before_the_next_line() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 5] = [
        ("taken away", |file| fs::remove_file(file).unwrap()),
        ("renamed", |file| fs::rename(file, file.with_extension("old")).unwrap()),
        ("cut", |file| fs::write(file, "").unwrap()),
        ("replaced", |file| {
            fs::remove_file(file).unwrap();
            fs::write(file, "theirs\n").unwrap();
        }),
        ("its lock taken away", |file| fs::remove_file(file.with_file_name(LOCK)).unwrap()),
    ];
    for (what, harm) in harms {
        for is_seen_by_a_turn in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("journal");
            let mut journal = Journal::open(dir.path()).unwrap();
            journal.record(key("/a", 1), entry("0\n")).unwrap();
            harm(&file);
            if is_seen_by_a_turn {
                assert_eq!(journal.check(), Ok(()), "{what}");
            } else {
                journal.record(key("/b", 2), entry("1\n")).unwrap();
            }
            assert_eq!(Journal::peek(dir.path()).unwrap().entries, *journal.entries(), "{what}");
            let held = Journal::check_free(dir.path());
            assert!(matches!(held, Err(JournalError::Held { .. })), "{what}: {held:?}");
            let kept = journal.kept().map(|kept| fs::read_to_string(kept).unwrap());
            assert_eq!(kept.as_deref(), (what == "replaced").then_some("theirs\n"));
        }
    }
}

#[test]
fn without_its_directory_nothing_can_be_recorded_until_it_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let state_dir = dir.path().join("state");
    let mut journal = Journal::open(&state_dir).unwrap();
    journal.record(key("/a", 1), entry("0\n")).unwrap();
    fs::remove_dir_all(&state_dir).unwrap();
    assert!(journal.record(key("/b", 2), entry("1\n")).is_err());
    assert!(journal.check().unwrap_err().contains("No such file"), "{:?}", journal.check());
    DirBuilder::new().mode(0o700).create(&state_dir).unwrap();
    assert_eq!(journal.check(), Ok(()));
    journal.record(key("/b", 2), entry("1\n")).unwrap();
    assert_eq!(Journal::peek(&state_dir).unwrap().entries.len(), 2);

    fs::remove_dir_all(&state_dir).unwrap();
    let _other = Journal::open(&state_dir).unwrap();
    assert!(journal.check().unwrap_err().contains("held by another"), "{:?}", journal.check());
    assert!(Journal::peek(&state_dir).unwrap().entries.is_empty(), "what is another one's is left alone");
}

#[test]
fn what_cannot_be_taken_away_at_once_is_before_the_next_line() {
    let (_dir, mut journal, disk) = on_fake_disk();
    disk.leave_room(Some(10));
    disk.fail_cuts(Some(Errno::IO));
    journal.record(key("/b", 2), entry("1\n")).unwrap_err();
    disk.leave_room(None);
    let torn = disk.text();
    assert!(!torn.ends_with('\n'));
    let error = journal.record(key("/c", 3), entry("1\n")).unwrap_err().to_string();
    assert!(error.contains("cutting"), "{error}");
    assert_eq!(disk.text(), torn, "nothing is glued to half a line");
    disk.fail_cuts(None);
    journal.record(key("/d", 4), entry("1\n")).unwrap();
    assert_eq!(inodes(&disk.text()), [1, 4]);
}

#[test]
fn line_that_fails_is_not_recorded() {
    let (_dir, mut journal, disk) = on_fake_disk();
    let whole = disk.text();
    disk.fail_adds(Some(Errno::IO));
    journal.record(key("/b", 2), entry("1\n")).unwrap_err();
    journal.note_grants([("x".to_owned(), grant("0"))].into()).unwrap_err();
    journal.close(&key("/a", 1)).unwrap_err();
    assert_eq!((disk.text(), journal.entries().len(), journal.grants().len()), (whole, 1, 0));
}

#[test]
fn a_journal_that_cannot_be_written_anew_is_used_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(dir.path()).unwrap();
    for inode in [1, 2] {
        journal.record(key("/a", inode), entry("0\n")).unwrap();
    }
    journal.close(&key("/a", 1)).unwrap();
    drop(journal);
    let path = dir.path().join("journal");
    let whole = fs::read(&path).unwrap();
    // A torn end need not be text.
    fs::write(&path, [&whole[..], b"{\"ver\xff"].concat()).unwrap();
    let torn_at = read_file(&path).torn_at;
    drop(files::open_whole(&path, torn_at).unwrap());
    assert_eq!(fs::read(&path).unwrap(), whole);
    // What is a line gets the newline that it lacks, before another one comes behind it.
    for end in ["rubbish", String::from_utf8_lossy(&whole).trim_end()] {
        fs::write(&path, [&whole[..], end.as_bytes()].concat()).unwrap();
        let torn_at = read_file(&path).torn_at;
        drop(files::open_whole(&path, torn_at).unwrap());
        assert_eq!(fs::read(&path).unwrap(), [&whole[..], end.as_bytes(), b"\n"].concat());
    }
    // Zeros in the place of its newline go, and no more.
    fs::write(&path, [whole.strip_suffix(b"\n").unwrap(), &[0; 3]].concat()).unwrap();
    drop(files::open_whole(&path, read_file(&path).torn_at).unwrap());
    assert_eq!(fs::read(&path).unwrap(), whole);
    assert_eq!(inodes(&String::from_utf8(whole).unwrap()), [2]);
}

/// An entry of many bytes.
fn wide_entry(original: &str) -> Entry {
    entry(&original.repeat(64 << 10))
}

#[test]
fn a_journal_does_not_grow_with_what_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut journal = Journal::open(dir.path()).unwrap();
    journal.record(key("/kept", 1), entry("0\n")).unwrap();
    journal.note_grants([("x".to_owned(), grant("0"))].into()).unwrap();
    for inode in 2..60 {
        journal.record(key("/a", inode), wide_entry("0")).unwrap();
        journal.close(&key("/a", inode)).unwrap();
        let length = fs::metadata(&path).unwrap().len();
        assert!(length < 2 << 20, "{length} bytes after {inode}");
    }
    journal.record(key("/b", 2), entry("1\n")).unwrap();
    let (entries, grants) = (journal.entries().clone(), journal.grants().clone());
    drop(journal);
    let journal = Journal::open(dir.path()).unwrap();
    assert!(journal.damaged().is_empty(), "{:?}", journal.damaged());
    assert_eq!((journal.entries(), journal.grants()), (&entries, &grants));
    assert_eq!(entries.len(), 2);
}

#[test]
fn a_long_journal_of_what_is_not_over_is_not_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let inode = || fs::metadata(dir.path().join("journal")).map(|found| found.ino()).unwrap();
    let mut journal = Journal::open(dir.path()).unwrap();
    journal.record(key("/a", 0), entry("0\n")).unwrap();
    let first = inode();
    for inode in 1..40 {
        journal.record(key("/a", inode), wide_entry("0")).unwrap();
    }
    assert_eq!(inode(), first);
    assert_eq!(journal.entries().len(), 40);
}

#[test]
fn a_journal_that_cannot_be_made_shorter_is_used_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    // As a full disk would, this makes every new file fail.
    let in_the_way = dir.path().join("journal.new");
    let mut journal = Journal::open(dir.path()).unwrap();
    fs::create_dir(&in_the_way).unwrap();
    let cycle = |journal: &mut Journal, inode| {
        journal.record(key("/kept", inode), entry("0\n")).unwrap();
        journal.record(key("/a", inode), wide_entry("0")).unwrap();
        journal.close(&key("/a", inode)).unwrap();
        fs::metadata(&path).unwrap().len()
    };
    let length = (0..40).map(|inode| cycle(&mut journal, inode)).last().unwrap();
    assert!(length > 2 << 20, "{length}");
    assert_eq!(read_file(&path).state.entries, *journal.entries());
    fs::remove_dir(&in_the_way).unwrap();
    let length = (40..60).map(|inode| cycle(&mut journal, inode)).last().unwrap();
    assert!(length < 2 << 20, "{length}");
    assert_eq!(read_file(&path).state.entries, *journal.entries());
    assert_eq!(journal.entries().len(), 60);
}

#[test]
fn damaged_lines_are_kept_when_the_journal_becomes_shorter() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    fs::write(&path, "rubbish\n").unwrap();
    let mut journal = Journal::open(dir.path()).unwrap();
    for inode in 0..60 {
        journal.record(key("/a", inode), wide_entry("0")).unwrap();
        journal.close(&key("/a", inode)).unwrap();
    }
    assert!(fs::metadata(&path).unwrap().len() < 2 << 20);
    assert_eq!(fs::read_to_string(dir.path().join("journal.damaged")).unwrap(), "rubbish\n");
}

#[test]
fn each_damaged_journal_is_kept_until_there_are_many() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    // Whatever is in the way.
    fs::create_dir(dir.path().join("journal.damaged.2")).unwrap();
    for number in 0..12 {
        fs::write(&path, format!("rubbish {number}\n")).unwrap();
        Journal::open(dir.path()).unwrap().record(key("/a", 1), wide_entry("0")).unwrap();
        let journal = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!journal.contains("rubbish"), "{journal}");
    }
    let kept = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(
        (kept("journal.damaged"), kept("journal.damaged.3")),
        ("rubbish 0\n".into(), "rubbish 1\n".into())
    );
    assert_eq!(kept("journal.damaged.8"), "rubbish 11\n");
    assert!(!dir.path().join("journal.damaged.9").exists());
}

#[test]
fn check_of_the_lock_does_not_keep_a_daemon_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    drop(lock::take_lock(&path).unwrap());
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                // Free or not.
                let _ = lock::check_free(&path);
            }
        });
        let taken: Vec<_> = (0..2_000).map(|_| lock::take_lock(&path).map(drop)).collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let refused: Vec<_> = taken.into_iter().filter_map(Result::err).collect();
        assert!(refused.is_empty(), "{} times: {}", refused.len(), refused[0]);
    });
}
