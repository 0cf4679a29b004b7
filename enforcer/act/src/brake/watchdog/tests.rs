use std::{fs, path::Path, thread, thread::JoinHandle};

use super::*;

/// Longest wait for the other end: a bound on a hang.
const LIMIT: Duration = Duration::from_mins(1);

/// A process that watches, as a thread; it returns what it told.
fn watching() -> (BrakeWatchdog, JoinHandle<Vec<u8>>) {
    let (near, far) = pair().unwrap();
    let other = thread::spawn(move || {
        let mut told = Vec::new();
        watch(far.as_fd(), &mut told, &|_| ()).unwrap();
        told
    });
    (BrakeWatchdog::ready_over(near), other)
}

/// A file that holds this, opened for reading and writing.
fn holding(dir: &Path, name: &str, text: &str) -> File {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

fn hold(watchdog: &mut BrakeWatchdog, id: u64, file: &File, set: &str, original: &str) {
    watchdog.hold(id, file.as_fd(), set, original).unwrap();
}

#[test]
fn when_the_daemon_ends_what_it_set_is_put_back_at_once_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (mut watchdog, other) = watching();
    let files =
        [("frozen", "1\n", "1", "0"), ("high", "1048576\n", "1048576", "max"), ("theirs", "7\n", "1", "0")];
    for (id, (name, now, set, original)) in (1..).zip(files) {
        hold(&mut watchdog, id, &holding(dir.path(), name, now), set, original);
    }
    let released = holding(dir.path(), "released", "1\n");
    hold(&mut watchdog, 9, &released, "1", "0");
    watchdog.let_go(9);
    drop(watchdog);
    let told = String::from_utf8(other.join().unwrap()).unwrap();
    let begins = |name: &str, text: &str| {
        let now = fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(now.starts_with(text), "{name}: {now:?}");
    };
    begins("frozen", "0\n");
    begins("high", "max\n");
    begins("theirs", "7\n");
    begins("released", "1\n");
    let lines: String = (1..=3).map(|id| released_line(id).unwrap()).collect();
    assert_eq!(told, lines);
}

#[test]
fn what_is_not_released_in_time_is_put_back_while_the_daemon_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let (mut watchdog, other) = watching();
    let file = holding(dir.path(), "frozen", "1\n");
    let begun = Instant::now();
    hold(&mut watchdog, 1, &file, "1", "0");
    while text_of(&file).unwrap().trim() == "1" {
        assert!(begun.elapsed() < LIMIT, "it stays frozen");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(begun.elapsed() >= LONGEST, "not before its time");
    assert_eq!(watchdog.lost(), None);
    drop(watchdog);
    assert_eq!(other.join().unwrap(), released_line(1).unwrap().as_bytes());
}

#[test]
fn ended_or_late_watchdog_is_not_relied_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = holding(dir.path(), "frozen", "0\n");
    let (near, far) = pair().unwrap();
    let mut watchdog = BrakeWatchdog::over(near, LIMIT);
    drop(far);
    assert_eq!(watchdog.lost(), Some("it has ended"));
    assert_eq!(
        watchdog.hold(1, file.as_fd(), "1", "0").unwrap_err(),
        "no process watches over it: it has ended"
    );

    let (near, far) = pair().unwrap();
    let mut watchdog = BrakeWatchdog::over(near, Duration::from_millis(5));
    let silent = watchdog.hold(1, file.as_fd(), "1", "0").unwrap_err();
    assert!(silent.contains("did not say \"held 1\""), "{silent}");
    let (said, got) = receive(far.as_fd()).unwrap().unwrap();
    assert_eq!((said.as_str(), got.is_some()), ("hold 1 1 0", true));
    assert_eq!(receive(far.as_fd()).unwrap().unwrap().0, "gone 1");
    // It was late, and is not any more.
    watchdog.patience = LIMIT;
    let answers = thread::spawn(move || {
        send(far.as_fd(), "held 1", None).unwrap();
        readable::wait([Some(far.as_fd())], LIMIT).unwrap();
        for answer in ["held 1", "held 2"] {
            send(far.as_fd(), answer, None).unwrap();
        }
        far
    });
    watchdog.hold(2, file.as_fd(), "1", "0").unwrap();
    assert_eq!(watchdog.lost(), None);
    drop(answers.join().unwrap());
    assert!(watchdog.lost().is_some());
}

#[test]
fn nonsense_neither_ends_it_nor_has_it_write() {
    let (mut watchdog, other) = watching();
    for message in ["hold", "hold 1 1 0", "hold x 1 0", "gone", "gone x", "  ", "\u{0}", &"x".repeat(500)] {
        send(watchdog.socket.as_fd(), message, None).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    hold(&mut watchdog, 1, &holding(dir.path(), "file", "1\n"), "1", "0");
    drop(watchdog);
    assert_eq!(other.join().unwrap(), released_line(1).unwrap().as_bytes());
}
