//! A consistent look at everything that a kubelet tells of its node.
//!
//! Problem: the kubelet's three files and its socket are not one snapshot, and one admission writes the files
//! several times. Idea: read the files, ask the socket, read the files again. The look counts if the bytes
//! are the same, if no file was replaced in the last moment (a pod with several containers is admitted one
//! container after another), and if nothing in it contradicts anything else. Otherwise it is repeated after
//! [`PAUSE`], at most [`MOST_LOOKS`] times; then the observation says what is wrong with it.
//!
//! Invariants: what was read is whole or has a reason. Each look is bounded by the limits of its readers. A
//! socket that does not answer is asked once.

#[cfg(test)]
mod played_kubelet;
#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

use enforcer_core::{
    cluster::{
        observed::{NodeObservation, SourceRead, contradictions},
        state::KubeletProfile,
    },
    policy::KubeletSettings,
};
use numa_topology::Topology;

use super::{
    CPU_STATE, DEVICE_STATE, MEMORY_STATE, PodResourcesError, cpu_state, device_state, in_use, memory_state,
    podresources::{PodResourcesAnswer, ask},
    state::{StateDamage, StateError, StateText, read_text},
};

/// Time between two looks, and the age from which a file counts as settled. An admission takes some
/// milliseconds for each container.
const PAUSE: Duration = Duration::from_millis(20);
/// Most looks for one observation.
const MOST_LOOKS: usize = 5;

/// How often and how fast a look is repeated.
#[derive(Debug, Clone, Copy)]
pub(super) struct LookPace {
    /// Most looks.
    pub(super) most: usize,
    /// Time between two, and the age from which a file counts as settled.
    pub(super) pause: Duration,
}
/// Directory of the device plugins, wherever the kubelet's own is
/// (`staging/src/k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/constants.go`).
const PLUGINS: &str = "/var/lib/kubelet/device-plugins";

/// What the kubelet of this node tells now. Takes some milliseconds, a tenth of a second while the kubelet
/// changes its files, and as long as [`ask`] waits if its socket does not answer.
pub fn observe_node(
    settings: &KubeletSettings,
    machine: &Topology,
    kubelet: &KubeletProfile,
) -> NodeObservation {
    let settings = in_use(settings);
    let pace = LookPace { most: MOST_LOOKS, pause: PAUSE };
    observe(&files_of(&settings, Path::new(PLUGINS)), pace, machine, kubelet, || ask(&settings.podresources))
}

/// Paths of the files that [`observe_node`] reads: of CPUs, memory and devices. The last one does not exist
/// until a device plugin has registered.
pub(super) fn observed_files(settings: &KubeletSettings) -> [PathBuf; 3] {
    files_of(settings, Path::new(PLUGINS))
}

fn files_of(settings: &KubeletSettings, plugins: &Path) -> [PathBuf; 3] {
    let [cpus, memory] = [CPU_STATE, MEMORY_STATE].map(|name| settings.root_dir.join(name));
    let below_root = settings.root_dir.join("device-plugins").join(DEVICE_STATE);
    let usual = plugins.join(DEVICE_STATE);
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    let devices = if is_there(&usual) || !is_there(&below_root) { usual } else { below_root };
    [cpus, memory, devices]
}

/// The same of the files of CPUs, memory and devices, with another way to ask.
pub(super) fn observe(
    paths: &[PathBuf; 3],
    pace: LookPace,
    machine: &Topology,
    kubelet: &KubeletProfile,
    mut ask: impl FnMut() -> Result<PodResourcesAnswer, PodResourcesError>,
) -> NodeObservation {
    let mut left = pace.most;
    loop {
        let files = KubeletFiles::read(paths);
        let told = ask();
        let is_asked_again = told.is_ok();
        let after = KubeletFiles::read(paths);
        let torn = files.differs_from(&after).or_else(|| after.unsettled(SystemTime::now(), pace.pause));
        let observation = NodeObservation { torn, ..files.observation(told) };
        left = left.saturating_sub(1);
        if left == 0 || !is_asked_again || is_consistent(&observation, machine, kubelet) {
            return observation;
        }
        thread::sleep(pace.pause);
    }
}

/// Is it of one moment, as far as it shows?
fn is_consistent(observation: &NodeObservation, machine: &Topology, kubelet: &KubeletProfile) -> bool {
    let NodeObservation { cpus, memory, devices, torn, .. } = observation;
    torn.is_none()
        && !(cpus.is_unusable() || memory.is_unusable() || devices.is_unusable())
        && contradictions(machine, kubelet, observation).is_empty()
}

/// The texts of the three files at one moment.
struct KubeletFiles([(&'static str, Result<Option<StateText>, StateError>); 3]);

impl KubeletFiles {
    fn read([cpus, memory, devices]: &[PathBuf; 3]) -> Self {
        Self(
            [(CPU_STATE, cpus), (MEMORY_STATE, memory), (DEVICE_STATE, devices)]
                .map(|(name, path)| (name, read_text(path))),
        )
    }

    /// Which file another look read differently.
    fn differs_from(&self, other: &Self) -> Option<String> {
        let mut both = self.0.iter().zip(&other.0);
        let text = |read: &Result<Option<StateText>, StateError>| match read {
            Ok(text) => Ok(text.as_ref().map(|one| one.text.clone())),
            Err(error) => Err(error.to_string()),
        };
        let differing = both.find(|((_, one), (_, other))| text(one) != text(other));
        differing.map(|((name, _), _)| format!("{name} changes while it is read"))
    }

    /// Which file was replaced within the last moment. A time in the future, as after a step of the clock,
    /// says nothing.
    fn unsettled(&self, now: SystemTime, settled: Duration) -> Option<String> {
        let is_young = |text: &StateText| {
            text.replaced.is_some_and(|at| now.duration_since(at).is_ok_and(|age| age < settled))
        };
        let mut all = self.0.iter();
        let young = all.find(|(_, read)| read.as_ref().is_ok_and(|text| text.as_ref().is_some_and(is_young)));
        young.map(|(name, _)| format!("{name} was replaced a moment ago"))
    }

    fn observation(&self, told: Result<PodResourcesAnswer, PodResourcesError>) -> NodeObservation {
        let [(_, cpus), (_, memory), (_, devices)] = &self.0;
        let (offered, listed) = match told {
            Ok(told) => {
                let offered = told.offered.map_or_else(SourceRead::Unusable, SourceRead::Read);
                (offered, SourceRead::Read(told.listed))
            }
            Err(PodResourcesError::Absent { .. }) => (SourceRead::Absent, SourceRead::Absent),
            Err(error) => (SourceRead::Unusable(error.to_string()), SourceRead::Unusable(error.to_string())),
        };
        NodeObservation {
            cpus: parsed(cpus, cpu_state::parse),
            memory: parsed(memory, memory_state::parse),
            devices: parsed(devices, device_state::parse),
            offered,
            listed,
            torn: None,
        }
    }
}

fn parsed<T>(
    read: &Result<Option<StateText>, StateError>,
    parse: impl FnOnce(&str) -> Result<T, StateDamage>,
) -> SourceRead<T> {
    match read {
        Ok(None) => SourceRead::Absent,
        Ok(Some(text)) => match parse(&text.text) {
            Ok(content) => SourceRead::Read(content),
            Err(problem) => SourceRead::Unusable(problem.to_string()),
        },
        Err(error) => SourceRead::Unusable(error.to_string()),
    }
}
