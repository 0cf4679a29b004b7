//! Recording and replaying as people meet it, and the recordings that are kept.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::common::{Ended, finish, run};
use serde_json::Value;
use tempfile::TempDir;

/// One turn of this host, recorded.
fn recorded(dir: &TempDir) -> PathBuf {
    record(dir);
    dir.path().join("turns.rec")
}

/// Records it and gives what the daemon said.
fn record(dir: &TempDir) -> String {
    let file = dir.path().join("turns.rec");
    let state = dir.path().join("state");
    let [file_text, state] = [&file, &state].map(|path| path.to_str().unwrap());
    let ended =
        run(&["run", "--once", "--metrics-listen", "off", "--state-dir", state, "--record", file_text]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.stderr
}

fn replay(file: &Path, more: &[&str]) -> Ended {
    run(&[&["replay", file.to_str().unwrap()], more].concat())
}

fn report(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", ended.stdout, ended.stderr))
}

#[test]
fn a_turn_of_this_host_comes_out_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let file = recorded(&dir);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    let ended = replay(&file, &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.ends_with("1 turn, all come out as recorded\n"), "{}", ended.stdout);

    // A second daemon goes on behind the first.
    recorded(&dir);
    let report = report(&replay(&file, &["-o", "json"]));
    assert_eq!((&report["recording"]["turns"], &report["different"]), (&2.into(), &0.into()));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(report["recording"]["versions"], serde_json::json!([version, version]));

    let policy = dir.path().join("policy.toml");
    fs::write(&policy, "[placement]\nengine = \"pools\"\n").unwrap();
    let ended = replay(&file, &["--policy", policy.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "no workload is declared: {}{}", ended.stdout, ended.stderr);
    fs::write(&policy, "engine = 1\n").unwrap();
    assert_eq!(replay(&file, &["--policy", policy.to_str().unwrap()]).code, Some(64));
}

#[test]
fn what_is_no_whole_recording_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let file = recorded(&dir);
    let whole = fs::read(&file).unwrap();

    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let ended = replay(&file, &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "nothing was compared");
    let said = "turns.rec: no turn is whole: it ends in the middle of a turn, at byte 0";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);

    fs::write(&file, &whole).unwrap();
    recorded(&dir);
    let two = fs::read(&file).unwrap();
    fs::write(&file, &two[..two.len() - 1]).unwrap();
    let ended = replay(&file, &[]);
    assert_eq!(ended.code, Some(0), "a crash is no damage: {}", ended.stderr);
    let middle = format!("in the middle of a turn, at byte {}", whole.len());
    assert!(ended.stdout.contains(&middle), "{}", ended.stdout);

    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 4;
    fs::write(&file, &damaged).unwrap();
    let ended = replay(&file, &[]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("turns.rec: at byte 0: the frame is damaged: "), "{}", ended.stderr);

    let mut other = whole;
    other[44] = b'9';
    for (other, said) in [(&other[..], "version 9"), (b"numarec\n\x01\0\0\0", "version 1")] {
        fs::write(&file, other).unwrap();
        let ended = replay(&file, &[]);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains(&format!("it has {said} of recordings")), "{}", ended.stderr);
    }

    fs::remove_file(&file).unwrap();
    assert_eq!(replay(&file, &[]).code, Some(2));

    let ended = replay("/dev/zero".as_ref(), &[]);
    assert_eq!(ended.code, Some(2), "what never ends is refused: {}", ended.stdout);
    assert!(ended.stderr.contains("/dev/zero: at byte 0: not a recording"), "{}", ended.stderr);
}

#[test]
fn a_daemon_goes_on_with_what_a_loss_of_power_has_left_and_says_what_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let file = recorded(&dir);
    let whole = fs::read(&file).unwrap();
    recorded(&dir);
    let mut lost = fs::read(&file).unwrap();
    let length = lost.len();
    lost[whole.len() + 40..].fill(0);
    fs::write(&file, &lost).unwrap();

    let left_out = length - whole.len();
    let ended = replay(&file, &["-o", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let ends =
        format!("in the middle of a turn, at byte {}, with {left_out} bytes that are left out", whole.len());
    assert_eq!(report(&ended)["recording"]["ends"], ends);

    let said = format!("its last {left_out} bytes were not written whole and are cut off");
    assert_eq!(record(&dir).matches(&said).count(), 1);
    let read = report(&replay(&file, &["-o", "json"]));
    assert_eq!((&read["recording"]["turns"], &read["recording"]["ends"]), (&2.into(), &Value::Null));

    // Not even the beginning was written.
    for left in [&b""[..], &whole[..7], &[0; 4096]] {
        fs::write(&file, left).unwrap();
        let ended = replay(&file, &[]);
        assert_eq!(ended.code, Some(2), "nothing was compared: {}", ended.stdout);
        let said = if left.is_empty() { "no turn is whole" } else { "in the middle of a turn, at byte 0" };
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
        recorded(&dir);
        assert_eq!(report(&replay(&file, &["-o", "json"]))["recording"]["turns"], 1);
    }
}

#[test]
fn a_largest_file_ends_the_recording_and_not_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let [file, state] = ["turns.rec", "state"].map(|name| dir.path().join(name));
    let [file, state] = [&file, &state].map(|path| path.to_str().unwrap());
    let program = env!("CARGO_BIN_EXE_numa-enforcer");
    let limited = |arguments: &[&str]| {
        let mut command = Command::new("/bin/sh");
        // In blocks of 512 bytes, or of 1,024 where the shell is bash.
        command.args(["-c", "ulimit -f 1 && exec \"$0\" \"$@\"", program]).args(arguments);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command)
    };
    let ended =
        limited(&["run", "--once", "--metrics-listen", "off", "--state-dir", state, "--record", file]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let said = format!("turns are no longer recorded: writing {file}: File too large");
    assert!(ended.stderr.contains(&said), "{}", ended.stderr);
    assert_eq!(fs::metadata(file).unwrap().len(), 0, "no half a turn is left");

    let metrics = dir.path().join("numa.prom");
    let ended = limited(&["audit", "-o", "prometheus", "--write", metrics.to_str().unwrap()]);
    assert!(ended.code.is_some_and(|code| code > 1) && ended.stderr.contains("File too large"), "{ended:?}");
    assert!(!metrics.exists());
}

/// What one of the kept recordings says otherwise than it should, and whether a configuration without
/// workloads decides as it.
fn judged(path: &Path) -> (Vec<String>, bool) {
    let mut wrong = Vec::new();
    let told = replay(path, &["-o", "json"]);
    if told.code != Some(0) {
        let ended = replay(path, &[]);
        wrong.push(format!("it comes out otherwise:\n{}{}", ended.stdout, ended.stderr));
        return (wrong, false);
    }
    let said = report(&told);
    let recording = &said["recording"];
    if recording["turns"] == 0 {
        wrong.push("it has no turn".into());
    }
    if !recording["ends"].is_null() {
        wrong.push(format!("it ends {}; `cargo xtask recordings` would have cut it", recording["ends"]));
    }
    if replay(path, &["-o", "json"]).stdout != told.stdout {
        wrong.push("taken once more it says something else".into());
    }
    let empty = tempfile::NamedTempFile::new().unwrap();
    let other = replay(path, &["--policy", empty.path().to_str().unwrap()]);
    if !matches!(other.code, Some(0 | 1)) {
        wrong.push(format!("with another configuration:\n{}{}", other.stdout, other.stderr));
    }
    (wrong, other.code == Some(0))
}

/// Recordings of scenarios in virtual machines (tests/fixtures/recordings/README.md).
#[test]
fn kept_recordings_give_the_same_plans() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/recordings");
    let all = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut recordings: Vec<PathBuf> =
        all.filter(|path| path.extension().is_some_and(|it| it == "rec")).collect();
    recordings.sort();
    assert!(!recordings.is_empty(), "{} has none", folder.display());
    let (mut wrong, mut without_steps) = (Vec::new(), 0);
    for path in &recordings {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (of_it, same_without) = judged(path);
        wrong.extend(of_it.iter().map(|one| format!("{name}: {one}")));
        without_steps += usize::from(same_without);
    }
    assert!(
        wrong.is_empty(),
        "{} of {} recordings; if this change is meant to decide otherwise, renew them as {} says\n{}",
        wrong.len(),
        recordings.len(),
        folder.join("README.md").display(),
        wrong.join("\n")
    );
    // A replay that finds no difference in anything would pass all of that.
    assert!(without_steps < recordings.len(), "no configuration decides as each of these");
}
