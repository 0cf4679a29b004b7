//! Makes a state of the node whenever the kubelet changes what it gives away.
//!
//! A changed file is seen within [`LOOK`], by one `stat` each; the socket is asked every [`ASK`], because
//! devices change their health without any file. The kubelet's settings are read when another process of it
//! runs, or when the API server has said something new: it reads its files at its start alone.

use std::{
    thread,
    time::{Duration, Instant},
};

use enforcer_cluster::PublishedObject;
use enforcer_core::{
    cluster::{
        observed::{NodeInputs, NodeStateSource},
        state::NodeState,
    },
    policy::KubeletSettings,
};
use enforcer_host::{HostRoot, topology::read_topology};
use enforcer_runtime::kubelet::{
    self, FileStamps, observe_node,
    settings::{self, EffectiveKubelet, NoKubelet, RunningKubelet},
};
use numa_topology::Topology;
use serde_json::Map;
use tokio::sync::watch;

use super::ClusterAnswers;
use crate::wall_clock;

/// Interval of checks for changed files.
const LOOK: Duration = Duration::from_millis(250);
/// Longest time between two questions to the socket.
const ASK: Duration = Duration::from_secs(5);
/// Interval of searches for another process of the kubelet, and of looks at the machine.
const SEARCH: Duration = Duration::from_secs(10);

/// Reads the node.
pub(super) struct NodeObserver {
    pub(super) host: HostRoot,
    pub(super) kubelet: KubeletSettings,
}

/// What changes with the kubelet's process and the machine, and not with pods.
struct Surroundings {
    /// Where its files are.
    located: KubeletSettings,
    machine: Topology,
    process: Result<RunningKubelet, NoKubelet>,
    settings: EffectiveKubelet,
}

impl NodeObserver {
    /// Sends each new state until the receiver of states is gone.
    pub(super) fn watch(
        &self,
        answers: &watch::Receiver<Option<ClusterAnswers>>,
        states: &watch::Sender<Option<PublishedObject>>,
    ) {
        let mut answers = answers.clone();
        let mut source: Option<NodeStateSource> = None;
        let mut surroundings: Option<Surroundings> = None;
        let (mut stamps, mut asked, mut searched) = (None, Instant::now(), Instant::now());
        while !states.is_closed() {
            let is_news = answers.has_changed().unwrap_or_default();
            let Some(answer) = answers.borrow_and_update().clone() else {
                thread::sleep(LOOK);
                continue;
            };
            if is_news || searched.elapsed() >= SEARCH {
                searched = Instant::now();
                surroundings = self.surroundings(&answer, surroundings.as_ref());
            }
            if let Some(around) = &surroundings {
                let now = FileStamps::read(&around.located);
                if !is_news && stamps == Some(now) && asked.elapsed() < ASK {
                    thread::sleep(LOOK);
                    continue;
                }
                (stamps, asked) = (Some(now), Instant::now());
                let source = source.get_or_insert_with(|| {
                    NodeStateSource::new(wall_clock::unix_ns().max(answer.published_epoch.saturating_add(1)))
                });
                self.observe(source, around, &answer, states);
            }
            thread::sleep(LOOK);
        }
    }

    fn observe(
        &self,
        source: &mut NodeStateSource,
        around: &Surroundings,
        answer: &ClusterAnswers,
        states: &watch::Sender<Option<PublishedObject>>,
    ) {
        let EffectiveKubelet { profile, inexact, .. } = &around.settings;
        let observation = observe_node(&self.kubelet, &around.machine, profile);
        let inputs = NodeInputs {
            machine: &around.machine,
            kubelet: profile,
            kubelet_inexact: inexact,
            observation: &observation,
            api: &answer.node,
        };
        match source.observe(inputs).map_err(|fault| fault.to_string()).and_then(object) {
            Ok(object) => {
                states.send_if_modified(|last| {
                    let is_new = last.as_ref() != Some(&object);
                    *last = Some(object);
                    is_new
                });
            }
            Err(fault) => tracing::error!("no state of this node can be published: {fault}"),
        }
    }

    /// The machine and the kubelet's settings now. `None` if the machine cannot be read.
    fn surroundings(&self, answer: &ClusterAnswers, before: Option<&Surroundings>) -> Option<Surroundings> {
        let machine = match read_topology(&self.host) {
            Ok((machine, _)) => machine,
            Err(error) => {
                tracing::warn!("no state of this node is published: {error}");
                return None;
            }
        };
        let mut process = settings::find(&self.host, &self.kubelet);
        // The time of its start is derived from the clock, which may be set: it is read once.
        if let (Ok(now), Some(Surroundings { process: Ok(before), .. })) = (&process, before)
            && (now.pid, now.start_ticks) == (before.pid, before.start_ticks)
        {
            process = Ok(before.clone());
        }
        let files = process.as_ref().ok().map(|kubelet| settings::read_files(&self.host, kubelet));
        let version = Some(answer.version.as_str()).filter(|version| !version.is_empty());
        let running = process.as_ref().map_err(|none| *none);
        let settings = settings::effective(running, files.as_ref(), answer.configz.as_ref(), version);
        Some(Surroundings { located: kubelet::in_use(&self.kubelet), machine, process, settings })
    }
}

/// The content of the published object.
fn object(state: &NodeState) -> Result<PublishedObject, String> {
    let state = serde_json::to_value(state).map_err(|error| error.to_string())?;
    Ok(PublishedObject { content: Map::from_iter([("state".to_owned(), state)]) })
}
