use std::{cell::RefCell, fs, rc::Rc, time::SystemTime};

use enforcer_core::cluster::{
    model::NodeModel,
    observed::NodeStateSource,
    outcome::{PredictionCheck, PredictionOutcomes},
};
use numa_placement::{ContainerKind, PodRequest, admit};

use super::{
    super::{podresources::ask, tests::Kubelet},
    played_kubelet::{Moment, PlayedKubelet, pod, told},
    *,
};

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        // xorshift64 (Marsaglia 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }

    fn pod(&mut self, uid: &str) -> PodRequest {
        let mut containers = Vec::new();
        if self.below(6) == 0 {
            let kind = if self.below(2) == 0 { ContainerKind::Init } else { ContainerKind::Sidecar };
            containers.push((kind, 1 + self.below(2), 1, self.below(2)));
        }
        for _ in 0..=self.below(2) {
            let gpus = self.below(3).saturating_sub(1);
            let cpus = if self.below(12) == 0 { 9 } else { 1 + self.below(4) };
            containers.push((ContainerKind::App, cpus, 1 + self.below(4), gpus));
        }
        pod(uid, &containers)
    }
}

/// What looks during writes have seen.
#[derive(Debug, Default)]
struct Seen {
    torn: usize,
    torn_for_one_file: usize,
    whole: usize,
}

/// A look in the middle: a torn state is never exact.
fn look_between(kubelet: &PlayedKubelet, moment: Moment, seen: &RefCell<Seen>) {
    let observation = kubelet.observation();
    let state = kubelet.state(&observation);
    let mut seen = seen.borrow_mut();
    match moment {
        Moment::Torn => {
            seen.torn += 1;
            assert!(!state.exact, "a torn state is exact: {observation:?}");
            // The control: the same look, each file by itself. Both files are in order, and CPUs are nowhere.
            let (Some(cpus), Some(_)) = (observation.cpus.content(), observation.memory.content()) else {
                panic!("{observation:?}");
            };
            let given = cpus.containers.values().flat_map(|of| of.values());
            let all = given.fold(cpus.default_cpus.clone(), |all, cpus| all.union(cpus));
            seen.torn_for_one_file += usize::from(all.len() < 16);
        }
        Moment::Whole => {
            seen.whole += 1;
            assert_eq!(state.inexact, [], "{observation:?}");
        }
    }
}

/// A daemon that checks the predictions of its states.
struct CheckedStates {
    source: NodeStateSource,
    check: PredictionCheck,
}

impl Default for CheckedStates {
    fn default() -> Self {
        Self { source: NodeStateSource::new(0), check: PredictionCheck::default() }
    }
}

impl CheckedStates {
    fn look(&mut self, kubelet: &PlayedKubelet) -> PredictionOutcomes {
        let observation = kubelet.observation();
        let state = self.source.observe(kubelet.inputs(&observation)).unwrap();
        // The played kubelet refuses each pod at second 1.
        self.check.observe(state, &kubelet.api, 0)
    }
}

/// Plays pods that come and go; after each the observed state is what the engine holds, and during the writes
/// no torn one is exact.
fn play(policy: &str, count: usize, seed: u64) -> Seen {
    let mut kubelet = PlayedKubelet::new(policy);
    let socket = kubelet.dir().join("kubelet.sock");
    let served = Kubelet::of(Vec::new()).listen(socket.clone());
    let (mut numbers, seen) = (Numbers(seed), RefCell::default());
    let mut source = NodeStateSource::new(0);
    let mut revision = None;
    let mut checked = CheckedStates::default();
    for at in 0..count {
        let asks = numbers.pod(&format!("{at:04}"));
        // Each look costs some models, so a quarter of the pods is looked at during their writes.
        let look = |kubelet: &PlayedKubelet, moment| {
            if at % 4 == 0 {
                look_between(kubelet, moment, &seen);
            }
        };
        while kubelet.pods.len() > 6 || (!kubelet.pods.is_empty() && numbers.below(4) == 0) {
            let gone = usize::try_from(numbers.below(kubelet.pods.len() as u64)).unwrap();
            kubelet.end(gone, look);
        }
        assert_eq!(checked.look(&kubelet).wrong, 0, "pod {at}");
        // What the state before predicts is what the kubelet then does.
        let before = NodeModel::new(&kubelet.state(&kubelet.observation())).unwrap();
        let mut predicted = before.allocations.clone();
        let prediction = admit(&before.inventory, &before.settings, &mut predicted, &asks);
        let admitted = kubelet.admit(&asks, look);
        assert_eq!(prediction.is_ok(), admitted, "pod {at}: {prediction:?}");
        assert_eq!(told(&predicted), told(&kubelet.truth), "pod {at}: the prediction");
        let outcomes = checked.look(&kubelet);
        assert_eq!((outcomes.right, outcomes.wrong, outcomes.unchecked), (1, 0, 0), "pod {at}: {outcomes:?}");
        assert_eq!(outcomes.events.len(), usize::from(!admitted), "pod {at}: {outcomes:?}");

        // Over the real socket.
        let (list, allocatable) = kubelet.answers();
        *served.lock().unwrap() = Kubelet { list, allocatable: Some(allocatable) };
        let pace = LookPace { most: 1, pause: Duration::ZERO };
        let observation =
            observe(&kubelet.paths(), pace, &kubelet.machine, &kubelet.profile, || ask(&socket));
        let state = source.observe(kubelet.inputs(&observation)).unwrap();
        assert_eq!(state.inexact, [], "pod {at}");
        assert_ne!(revision.replace(state.revision), Some(state.revision), "pod {at}: a new revision");
        let model = NodeModel::new(state).unwrap();
        assert!(model.is_exact(), "pod {at}");
        assert_eq!(told(&model.allocations), told(&kubelet.truth), "pod {at}: the state");
        assert_eq!(model.inventory, kubelet.base.inventory, "pod {at}");
        let names = state.pods.iter().map(|pod| (pod.uid.as_str(), pod.name.as_str()));
        for (uid, name) in names {
            assert_eq!(format!("pod-{uid}"), name);
        }
    }
    seen.into_inner()
}

#[test]
fn a_thousand_pods_are_observed_as_they_are_placed() {
    for (policy, count, seed) in
        [("single-numa-node", 500, 7), ("restricted", 300, 11), ("best-effort", 200, 13)]
    {
        let seen = play(policy, count, seed);
        assert!(seen.torn > count / 2 && seen.whole > count / 4, "{policy}: {seen:?}");
        assert!(
            seen.torn_for_one_file > count / 16,
            "a reader without the rule sees no torn state: {seen:?}"
        );
    }
}

#[test]
fn a_half_written_file_is_not_exact() {
    let mut kubelet = PlayedKubelet::new("single-numa-node");
    assert!(kubelet.admit(&pod("a", &[(ContainerKind::App, 2, 1, 1)]), |_, _| {}));
    for path in kubelet.paths() {
        let text = fs::read_to_string(&path).unwrap();
        for length in (0..text.len()).step_by(7) {
            fs::write(&path, &text[..length]).unwrap();
            let state = kubelet.state(&kubelet.observation());
            assert!(!state.exact, "{} with {length} bytes", path.display());
        }
        fs::remove_file(&path).unwrap();
        assert!(!kubelet.state(&kubelet.observation()).exact, "without {}", path.display());
        fs::write(&path, &text).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    assert!(kubelet.state(&kubelet.observation()).exact);
}

#[test]
fn a_changed_file_is_never_exact_with_other_content() {
    let mut kubelet = PlayedKubelet::new("single-numa-node");
    assert!(kubelet.admit(&pod("a", &[(ContainerKind::App, 2, 1, 1)]), |_, _| {}));
    let truth = kubelet.state(&kubelet.observation());
    for path in kubelet.paths() {
        let bytes = fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by(3) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            let state = kubelet.state(&kubelet.observation());
            assert!(!state.exact || state == truth, "{} at {at}: {state:?}", path.display());
        }
        fs::write(&path, &bytes).unwrap();
    }
}

/// A kubelet that goes on while it is read: each question to its socket lets it make its next writes.
fn observed_while(
    writes: impl FnMut(&mut PlayedKubelet) + 'static,
) -> (enforcer_core::cluster::state::NodeState, usize) {
    let kubelet = Rc::new(RefCell::new(PlayedKubelet::new("single-numa-node")));
    let (paths, machine, profile) = {
        let kubelet = kubelet.borrow();
        (kubelet.paths(), kubelet.machine.clone(), kubelet.profile.clone())
    };
    let (mut writes, mut looks) = (writes, 0);
    let pace = LookPace { most: 5, pause: Duration::ZERO };
    let observation = observe(&paths, pace, &machine, &profile, || {
        looks += 1;
        let answer = kubelet.borrow().answer();
        writes(&mut kubelet.borrow_mut());
        Ok(answer)
    });
    let kubelet = kubelet.borrow();
    (kubelet.state(&observation), looks)
}

#[test]
fn a_look_is_repeated_until_nothing_changes() {
    let mut left = 3;
    let (state, looks) = observed_while(move |kubelet| {
        if left > 0 {
            left -= 1;
            assert!(kubelet.admit(&pod(&left.to_string(), &[(ContainerKind::App, 1, 1, 0)]), |_, _| {}));
        }
    });
    assert_eq!((state.inexact.clone(), looks, state.pods.len()), (Vec::new(), 4, 3));
}

#[test]
fn a_kubelet_that_never_stops_is_inconsistent() {
    let mut count = 0;
    let (state, looks) = observed_while(move |kubelet| {
        count += 1;
        if !kubelet.pods.is_empty() {
            kubelet.end(0, |_, _| {});
        }
        kubelet.admit(&pod(&count.to_string(), &[(ContainerKind::App, 1, 1, 0)]), |_, _| {});
    });
    assert_eq!((state.exact, looks), (false, 5));
    let of = |source: &str| state.inexact.iter().find(|one| one.source == source);
    assert_eq!(of("inconsistent").unwrap().reason, "cpu_manager_state changes while it is read");
}

#[test]
fn a_file_that_was_replaced_a_moment_ago_is_read_again() {
    let kubelet = PlayedKubelet::new("single-numa-node");
    let files = KubeletFiles::read(&kubelet.paths());
    let now = SystemTime::now();
    let minute = Duration::from_mins(1);
    assert_eq!(files.unsettled(now + minute, PAUSE), None);
    assert_eq!(files.unsettled(now - minute, PAUSE), None, "the clock has gone back");
    assert!(files.unsettled(now, minute).unwrap().contains("was replaced a moment ago"));
    // A file that was written long before it took its place: a sync may take that long.
    for path in kubelet.paths() {
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(now - minute * 5).unwrap();
        fs::rename(&path, kubelet.dir().join("moved")).unwrap();
        fs::rename(kubelet.dir().join("moved"), &path).unwrap();
    }
    let files = KubeletFiles::read(&kubelet.paths());
    assert!(files.unsettled(SystemTime::now(), minute).is_some(), "the time of modification does not count");
}

#[test]
fn a_socket_that_fails_is_asked_once() {
    let kubelet = PlayedKubelet::new("single-numa-node");
    let socket = kubelet.dir().join("none.sock");
    let mut asked = 0;
    let pace = LookPace { most: 5, pause: Duration::ZERO };
    let observation = observe(&kubelet.paths(), pace, &kubelet.machine, &kubelet.profile, || {
        asked += 1;
        ask(&socket)
    });
    let state = kubelet.state(&observation);
    assert_eq!((asked, state.exact), (1, false));
    assert!(state.inexact.iter().any(|one| one.source == "kubelet:podresources"), "{:?}", state.inexact);
}

#[test]
fn the_device_file_is_where_the_plugins_are() {
    let dir = tempfile::tempdir().unwrap();
    let settings = KubeletSettings { root_dir: dir.path().join("root"), ..KubeletSettings::default() };
    let (usual, below) = (dir.path().join("plugins"), settings.root_dir.join("device-plugins"));
    let found = || files_of(&settings, &usual)[2].parent().unwrap().to_owned();
    assert_eq!(found(), usual);
    fs::create_dir_all(&below).unwrap();
    fs::write(below.join(DEVICE_STATE), "").unwrap();
    assert_eq!(found(), below, "as in a container that has the directory elsewhere");
    fs::create_dir(&usual).unwrap();
    fs::write(usual.join(DEVICE_STATE), "").unwrap();
    assert_eq!(found(), usual, "whatever the directory of the kubelet is");
    assert_eq!(files_of(&settings, &usual)[0], settings.root_dir.join(CPU_STATE));
}

#[test]
fn a_node_is_observed_by_its_settings() {
    let mut kubelet = PlayedKubelet::new("single-numa-node");
    assert!(kubelet.admit(&pod("a", &[(ContainerKind::App, 2, 1, 0)]), |_, _| {}));
    let settings = KubeletSettings {
        enabled: true,
        root_dir: kubelet.dir().to_owned(),
        podresources: kubelet.dir().join("kubelet.sock"),
    };
    let (list, mut allocatable) = kubelet.answers();
    // The device file of this host, if it has one, is another kubelet's.
    allocatable.devices.clear();
    Kubelet { list, allocatable: Some(allocatable) }.listen(settings.podresources.clone());
    let observation = observe_node(&settings, &kubelet.machine, &kubelet.profile);
    assert_eq!(observation.torn, None, "the first look may be too early, a later one is not");
    assert_eq!(observation.cpus.content(), kubelet.observation().cpus.content());
    assert_eq!(observation.memory.content(), kubelet.observation().memory.content());
    assert_eq!(observation.listed.content(), kubelet.observation().listed.content());
}
