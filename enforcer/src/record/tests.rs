//! Recorders, files and readers together.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
};

use enforcer_core::{
    declarations::Declarations,
    hosted::Containers,
    model::Model,
    owner::OwnershipFacts,
    owners::Owners,
    policy::Policy,
    sample::Sample,
    turn::{
        Decision, History, Inputs, Partitioned, SelfPlacedWorkloads, TurnLimits, Widened, WrittenCgroups,
    },
};
use numa_placement::{Allocations, Inventory};
use numa_topology::synth::Machine;

use super::{
    frame::FrameStep,
    part::PartRef,
    recorder::Recorder,
    writer::{RecordingMedium, Writer},
    *,
};

fn inventory() -> Arc<Inventory> {
    let machine = Machine::new().sockets(2).threads(1).build();
    Arc::new(Inventory::or_whole(machine, &Policy::default().placement).0)
}

/// A turn in which nothing runs.
fn turn(recorder: &mut Recorder, inventory: &Arc<Inventory>, now_ns: u64) {
    let sample = Sample { monotonic_ns: now_ns, ..Sample::default() };
    recorder.begin();
    recorder.note(PartRef::Facts(&OwnershipFacts::default()));
    let (policy, allocations) = (Policy::default(), Allocations::default());
    let inputs = Inputs {
        inventory,
        workloads: &[],
        sample: &sample,
        model: &Model::new(&inventory.machine, &[], &sample, None),
        policy: &policy,
        declarations: &Declarations::default(),
        containers: &Containers::default(),
        owners: &Owners::default(),
        history: &History::default(),
        widened: &Widened::new(),
        written: WrittenCgroups::NOTHING,
        partitioned: &Partitioned::default(),
        self_placed: &SelfPlacedWorkloads::new(),
        now_ns,
    };
    recorder.note_inputs(&inputs, inventory, None, TurnLimits::default());
    recorder.note(PartRef::Containers(inputs.containers));
    recorder.note(PartRef::Allocations(&allocations));
    recorder.note(PartRef::Decision(&Decision::default()));
    recorder.note(PartRef::Outcomes(&[]));
    recorder.end();
}

/// `time dropped machine's-nodes sample-before` of each turn, and how the file ends.
fn read(bytes: &[u8]) -> (Vec<String>, String) {
    let mut turns = Vec::new();
    let mut reader = RecordingReader::new(bytes);
    loop {
        match reader.turn() {
            Ok(RecordingItem::Turn(turn)) => {
                let seen = turn.situation;
                let before = seen.before.as_ref().map(|sample| sample.monotonic_ns);
                let nodes = seen.machine.nodes.len();
                let daemon = if turn.daemon.is_some() { " begins" } else { "" };
                turns.push(format!("{} {} {nodes} {before:?}{daemon}", seen.now_ns, turn.dropped));
            }
            Ok(end) => return (turns, format!("{end:?}")),
            Err(error) => return (turns, error.to_string()),
        }
    }
}

fn record(path: &Path, limit: u64, times: std::ops::Range<u64>) -> Option<String> {
    let mut recorder = Recorder::start(RecordingFile::open(path, limit).unwrap()).unwrap();
    let inventory = inventory();
    for now_ns in times {
        turn(&mut recorder, &inventory, now_ns);
        recorder.settle();
    }
    recorder.degraded().map(|degraded| degraded.reason)
}

#[test]
fn turns_of_one_daemon_after_another_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turns.rec");
    for times in [1..4, 10..12] {
        assert_eq!(record(&path, 1 << 20, times), None);
    }
    let (turns, end) = read(&fs::read(&path).unwrap());
    assert_eq!(
        turns,
        ["1 0 2 None begins", "2 0 2 Some(1)", "3 0 2 Some(2)", "10 0 2 None begins", "11 0 2 Some(10)"]
    );
    assert_eq!(end, "End");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[test]
fn half_a_turn_is_cut_off_before_the_next_daemon_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turns.rec");
    record(&path, 1 << 20, 1..3);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 7]).unwrap();
    let (turns, end) = read(&fs::read(&path).unwrap());
    assert_eq!((turns.len(), end.starts_with("Torn(")), (1, true), "{end}");
    record(&path, 1 << 20, 5..6);
    let (turns, end) = read(&fs::read(&path).unwrap());
    assert_eq!((turns.last().unwrap().as_str(), end.as_str()), ("5 0 2 None begins", "End"));
    assert_eq!(turns.len(), 2);
}

#[test]
fn a_recording_stays_below_its_limit_and_says_that_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turns.rec");
    let said = record(&path, 3000, 1..100).unwrap();
    assert!(said.contains("of at most 3000 bytes (--record-limit)"), "{said}");
    let bytes = fs::read(&path).unwrap();
    let (turns, end) = read(&bytes);
    assert!(bytes.len() <= 3000 && turns.len() > 1 && end == "End", "{} {} {end}", bytes.len(), turns.len());
    assert!(record(&path, 100, 1..2).is_some(), "one that is full already stops no daemon");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn what_is_no_recording_of_ours_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turns.rec");
    fs::write(&path, "precious").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let error = RecordingFile::open(&path, 1 << 20).unwrap_err().to_string();
    assert!(error.contains("turns.rec, which is left as it is: at byte 0: not a recording"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);

    fs::remove_file(&path).unwrap();
    record(&path, 1 << 20, 1..3);
    let mut damaged = fs::read(&path).unwrap();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let error = RecordingFile::open(&path, 1 << 20).unwrap_err().to_string();
    assert!(error.contains("the frame is damaged"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), damaged);

    let link = dir.path().join("link");
    symlink("/etc/passwd", &link).unwrap();
    RecordingFile::open(&link, 1 << 20).unwrap_err();
}

#[test]
fn what_a_loss_of_power_leaves_is_cut_off_and_the_next_daemon_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turns.rec");
    record(&path, 1 << 20, 1..3);
    let whole = fs::read(&path).unwrap();
    let mut frames = FrameReader::at(0, &whole[..]);
    frames.skip().unwrap();
    frames.skip().unwrap();
    let second = usize::try_from(frames.offset()).unwrap();
    for (kept, turns) in [
        (0, 0),
        (7, 0),
        (46, 0),
        (51, 0),
        (second - 40, 0),
        (second, 1),
        (second + 5, 1),
        (whole.len() - 40, 1),
        (whole.len(), 2),
    ] {
        for length in [whole.len(), whole.len() + 5_000] {
            let mut lost = whole[..kept].to_vec();
            lost.resize(length, 0);
            fs::write(&path, lost).unwrap();
            assert_eq!(record(&path, 1 << 20, 5..6), None);
            let (read, end) = read(&fs::read(&path).unwrap());
            assert_eq!((read.len(), end.as_str()), (turns + 1, "End"), "{kept} of {length}");
            assert_eq!(read.last().unwrap(), "5 0 2 None begins");
        }
    }
    for length in 0..46 {
        fs::write(&path, &whole[..length]).unwrap();
        record(&path, 1 << 20, 5..6);
        assert_eq!(read(&fs::read(&path).unwrap()).0.len(), 1, "{length}");
    }
}

#[test]
fn nothing_is_added_to_what_others_may_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turns.rec");
    record(&path, 1 << 20, 1..2);
    let whole = fs::read(&path).unwrap();
    for mode in [0o602, 0o620, 0o666] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let error = RecordingFile::open(&path, 1 << 20).unwrap_err().to_string();
        assert!(error.ends_with(&format!("turns.rec: others may write it (mode {mode:04o})")), "{error}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    RecordingFile::open(&path, 1 << 20).unwrap();
}

#[test]
fn two_daemons_do_not_record_into_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turns.rec");
    let first = RecordingFile::open(&path, 1 << 20).unwrap();
    let error = RecordingFile::open(&path, 1 << 20).unwrap_err().to_string();
    assert!(error.contains("another daemon records there"), "{error}");
    drop(first);
    RecordingFile::open(&path, 1 << 20).unwrap();
}

/// A disk that writes a frame when it is allowed to.
struct Slow {
    allowed: Receiver<()>,
    written: Sender<Vec<u8>>,
}

impl RecordingMedium for Slow {
    fn write(&mut self, plain: &[u8]) -> Result<(), String> {
        self.allowed.recv().map_err(|_over| "over".to_owned())?;
        self.written.send(frame::encode(plain).unwrap()).map_err(|_over| "over".to_owned())
    }
}

#[test]
fn a_slow_disk_costs_turns_in_the_recording_and_nothing_else() {
    let (allow, allowed) = channel();
    let (written, frames) = channel();
    let mut recorder = Recorder::with(Writer::start(Slow { allowed, written }).unwrap());
    let inventory = inventory();
    // None of these waits: the writer holds one at most, and two are waiting.
    for now_ns in 1..=20 {
        turn(&mut recorder, &inventory, now_ns);
    }
    let mut file = Vec::new();
    // The next ones are recorded as soon as there is room, and say what is missing.
    for now_ns in 21..=40 {
        allow.send(()).unwrap();
        file.extend(frames.recv().unwrap());
        turn(&mut recorder, &inventory, now_ns);
    }
    let (turns, end) = read(&file);
    assert_eq!((turns[0].as_str(), end.as_str()), ("1 0 2 None begins", "End"));
    let (mut before, mut missing) = (0, 0);
    for turn in &turns {
        let mut numbers = turn.split(' ').map(|number| number.parse::<u64>().unwrap_or_default());
        let (now_ns, dropped) = (numbers.next().unwrap(), numbers.next().unwrap());
        assert_eq!(now_ns, before + dropped + 1, "{turns:?}");
        assert!(dropped == 0 || turn.ends_with("None"), "nothing of those before it counts: {turn}");
        (before, missing) = (now_ns, missing + dropped);
    }
    assert!(missing >= 17, "{turns:?}");
    drop(allow);
}

/// The frame of the first turn, as lines.
fn lines() -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turns.rec");
    record(&path, 1 << 20, 1..2);
    let bytes = fs::read(&path).unwrap();
    let Ok(FrameStep::Frame(plain)) = FrameReader::at(0, &bytes[..]).read() else { panic!("no frame") };
    String::from_utf8(plain).unwrap().lines().map(str::to_owned).collect()
}

fn said(lines: &[String]) -> String {
    read(&frame::encode(lines.join("\n").as_bytes()).unwrap()).1
}

#[test]
fn every_part_is_needed_and_none_may_be_made_up() {
    let whole = lines();
    assert_eq!(said(&whole), "End");
    for line in &whole {
        let name = line.split('"').nth(1).unwrap();
        let without: Vec<String> = whole.iter().filter(|other| *other != line).cloned().collect();
        let wanted = if name == "outcomes" {
            "End".into()
        } else {
            format!("at byte 0: the frame has no part `{name}`, and none before it had")
        };
        assert_eq!(said(&without), wanted);
    }
    let with = |from: &str, to: &str| {
        let changed: Vec<String> = whole.iter().map(|line| line.replace(from, to)).collect();
        assert_ne!(changed, whole, "{from}");
        said(&changed)
    };
    for (from, to, error) in [
        ("{\"machine\":", "{\"magic\":", "unknown variant `magic`"),
        ("\"interval\":\"10s\"", "\"interval\":\"0s\"", "policy: interval = 0s: it must be longer than zero"),
        ("\"nowNs\":1", "\"nowNs\":-1", "invalid value"),
        ("{\"sample\":", "{\"sample\":[[[[", "line "),
    ] {
        let said = with(from, to);
        assert!(said.starts_with("at byte 0: ") && said.contains(error), "{said}");
    }
    let twice = said(&[&whole[..], &whole].concat());
    assert_eq!(twice, "at byte 0: the frame has more parts than a turn has");
    for line in &whole {
        // As many parts as a turn may have, with one of them twice in the place of another.
        let other = whole.iter().position(|other| other != line).unwrap();
        let mut twice = whole.clone();
        twice[other].clone_from(line);
        assert_eq!(said(&twice), "at byte 0: the frame has more parts than a turn has", "{line}");
    }
    let no_nodes: Vec<String> = whole
        .iter()
        .map(|line| {
            if line.starts_with("{\"machine\"") {
                "{\"machine\":{\"nodes\":[],\"cpus\":[]}}".into()
            } else {
                line.clone()
            }
        })
        .collect();
    let said = said(&no_nodes);
    assert!(said.starts_with("at byte 0: "), "{said}");
}

#[test]
fn what_would_take_much_more_memory_than_its_text_is_refused_before_it_does() {
    let whole = lines();
    let key = |number: usize| format!("\"/{number:x}\"");
    let with = |name: &str, line: String| {
        let of_it = format!("{{\"{name}\":");
        let changed: Vec<String> = whole
            .iter()
            .map(|had| if had.starts_with(&of_it) { line.clone() } else { had.clone() })
            .collect();
        assert_ne!(changed, whole, "{name}");
        said(&changed)
    };
    let sets = |count: usize, nodes: &str| {
        let all: Vec<String> = (0..count).map(|number| format!("{}:\"{nodes}\"", key(number))).collect();
        with("widened", format!("{{\"widened\":{{{}}}}}", all.join(",")))
    };
    assert_eq!(sets(10_000, "0-1023"), "End");
    assert!(sets(10_000, "0-1024").contains("id 1024 is above the greatest supported id 1023"));
    let said = sets(600_000, "0-8191");
    assert!(said.contains("it could take more than 512 MiB of memory"), "{said}");

    let globs = |count: usize| {
        let entry = |number: usize| format!("{{\"name\":\"n{number}\",\"cgroup\":\"/{number}\",\"cpus\":1}}");
        let all: Vec<String> = (0..count).map(entry).collect();
        let policy = whole.iter().find(|line| line.starts_with("{\"policy\":{")).unwrap();
        with("policy", policy.replacen(":{", &format!(":{{\"workload\":[{}],", all.join(",")), 1))
    };
    assert_eq!(globs(20), "End");
    assert!(globs(20_000).contains("it could take more than 512 MiB of memory"));

    let sample = whole.iter().find(|line| line.starts_with("{\"sample\":")).unwrap();
    let cgroups = |count: usize| {
        let all: Vec<String> = (0..count).map(|number| format!("{}:{{}}", key(number))).collect();
        let line = sample.replace("\"cgroups\":{}", &format!("\"cgroups\":{{{}}}", all.join(",")));
        with("sample", line)
    };
    assert_eq!(cgroups(10_000), "End");
    assert!(cgroups(600_000).contains("it could take more than 512 MiB of memory"));
}
