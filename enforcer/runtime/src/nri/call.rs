//! Calls and events of the runtime, one by one and in order.
//!
//! Their receiver answers through the [`Reply`] in them. The runtime waits for a limited time and disconnects
//! a plugin that is too slow. The link answers "no change" by itself when time is up. The reply then reports
//! that it was too late, so that the decision is carried out in another way.

use std::{borrow::Cow, time::Instant};

use enforcer_core::{
    dra::cdi,
    workload::{cut_at, printable_within},
};
use tokio::sync::oneshot;

use super::{
    api::{Container, ContainerUpdate, LinuxResources, Mount, PodSandbox},
    marks::{is_mark, labels},
    request::LONGEST_PATH,
};

/// Longest name of a pod, a namespace or a container in characters: that of a DNS subdomain, which Kubernetes
/// allows (RFC 1123). Longer ones are cut: names are kept while the container runs, and shown in reports,
/// logs and labels.
const LONGEST_NAME: usize = 253;

/// Longest id of a container, a sandbox or a pod in bytes. Runtimes use 64.
const LONGEST_ID: usize = 128;

/// Longest text of a runtime that is shown, in characters.
const LONGEST_TEXT: usize = 200;

/// The runtime at the other end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// `containerd`, `cri-o`.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// Version of NRI, where the runtime sends it (0.12 and later).
    pub nri: Option<String>,
}

/// A container and its pod. Either may be absent in what a runtime sends; then it is empty here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NriSubject {
    /// The pod.
    pub pod: PodSandbox,
    /// The container.
    pub container: Container,
}

impl NriSubject {
    /// A subject from a runtime's message.
    pub(super) fn of_message(pod: Option<PodSandbox>, container: Option<Container>) -> Self {
        Self {
            pod: short_pod(pod.unwrap_or_default()),
            container: short_container(container.unwrap_or_default()),
        }
    }

    /// Why its ids are too long to be real. Ids are kept while the container runs, so such a container is
    /// skipped.
    pub(super) fn beyond(&self) -> Option<String> {
        beyond_pod(&self.pod).or_else(|| beyond_container(&self.container))
    }
}

/// As [`NriSubject::beyond`].
pub(super) fn beyond_pod(pod: &PodSandbox) -> Option<String> {
    let parent = pod.linux.as_ref().map_or("", |linux| linux.cgroup_parent.as_str());
    let parts =
        [("id", &*pod.id, LONGEST_ID), ("uid", &pod.uid, LONGEST_ID), ("cgroup", parent, LONGEST_PATH)];
    beyond("pod", &format!("{}/{}", pod.namespace, pod.name), &parts)
}

/// As [`NriSubject::beyond`].
pub(super) fn beyond_container(container: &Container) -> Option<String> {
    let path = container.linux.as_ref().map_or("", |linux| linux.cgroups_path.as_str());
    let parts = [
        ("id", &*container.id, LONGEST_ID),
        ("sandbox", &container.pod_sandbox_id, LONGEST_ID),
        ("cgroup", path, LONGEST_PATH),
    ];
    beyond("container", &container.name, &parts)
}

fn beyond(kind: &str, name: &str, parts: &[(&str, &str, usize)]) -> Option<String> {
    let (part, text, longest) = parts.iter().find(|(_, text, longest)| text.len() > *longest)?;
    let (name, length) = (printable_line(name), text.len());
    Some(format!(
        "{kind} {name} has the {part} {} of {length} bytes, where {longest} are the most",
        printable_line(text)
    ))
}

/// The pod with names that can be shown, and with labels that a rule can match.
pub(super) fn short_pod(mut pod: PodSandbox) -> PodSandbox {
    cut(&mut pod.name);
    cut(&mut pod.namespace);
    pod.labels = labels(&pod);
    pod
}

/// The container with a name that can be shown, and without unused parts: many may be queued.
pub(super) fn short_container(mut container: Container) -> Container {
    cut(&mut container.name);
    container.labels.clear();
    container.annotations.clear();
    container.env.retain(|variable| is_mark(variable) || cdi::uid_of_variable(variable).is_some());
    container.cdi_devices.retain(|device| cdi::uid_of_device(&device.name).is_some());
    container
}

/// A text of the runtime in one line, cut to a limit.
pub(super) fn printable_line(text: &str) -> String {
    printable_within(text, LONGEST_TEXT)
}

fn cut(name: &mut String) {
    if let Cow::Owned(short) = cut_at(name, LONGEST_NAME) {
        *name = short;
    }
}

/// Changes that answer a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NriAnswer {
    /// Resources of the new container.
    pub adjust: Option<LinuxResources>,
    /// Mounts of that container.
    pub mounts: Vec<Mount>,
    /// Changes of existing containers.
    pub updates: Vec<ContainerUpdate>,
}

/// One call.
#[derive(Debug)]
pub enum NriCall {
    /// The link is up. The list replaces everything known of this runtime.
    Synchronize {
        /// Which runtime.
        runtime: RuntimeVersion,
        /// Its pods.
        pods: Vec<PodSandbox>,
        /// Containers as the runtime has stored them; their cgroups may differ.
        containers: Vec<Container>,
        /// Updates are carried out.
        reply: Reply,
    },
    /// A container is about to be made.
    Create {
        /// Which.
        subject: Box<NriSubject>,
        /// Adjustment and updates are carried out before it is.
        reply: Reply,
    },
    /// A client of the runtime, mostly the kubelet, wants other resources for a container.
    Update {
        /// Which.
        subject: Box<NriSubject>,
        /// What was asked for.
        wanted: LinuxResources,
        /// Updates of this container win over what was asked for.
        reply: Reply,
    },
    /// A container has ended or is told to end.
    Stop {
        /// Which.
        subject: Box<NriSubject>,
        /// Updates of others are carried out.
        reply: Reply,
    },
    /// A container runs.
    Started(Box<NriSubject>),
    /// A container is gone.
    Removed(Box<NriSubject>),
    /// A pod is gone.
    PodRemoved(Box<PodSandbox>),
    /// The link is down, and why. Containers go on without calls until it is up again.
    Down(String),
}

/// Where the answer to a call goes.
#[derive(Debug)]
pub struct Reply {
    answer: oneshot::Sender<NriAnswer>,
    arrived: Instant,
}

/// An answer came after the runtime was told "no change".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLate;

impl Reply {
    /// A reply to a call that arrives now, and where it arrives.
    pub fn new() -> (Self, oneshot::Receiver<NriAnswer>) {
        Self::to(Instant::now())
    }

    /// A reply to a call that arrived at this time.
    pub(super) fn to(arrived: Instant) -> (Self, oneshot::Receiver<NriAnswer>) {
        let (answer, receiver) = oneshot::channel();
        (Self { answer, arrived }, receiver)
    }

    /// Arrival of the call's last bytes; the runtime's wait has begun before.
    pub fn arrived(&self) -> Instant {
        self.arrived
    }

    /// Answers.
    pub fn send(self, answer: NriAnswer) -> Result<(), TooLate> {
        self.answer.send(answer).map_err(|_unheard| TooLate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nri::api::{LinuxContainer, LinuxPodSandbox};

    #[test]
    fn impossibly_long_names_are_cut() {
        let long = "ä".repeat(100_000);
        let pod = PodSandbox { name: long.clone(), namespace: "n".repeat(253), ..PodSandbox::default() };
        let env = ["PATH=/bin", "DRA_CPUSET_a=1"].map(str::to_owned).into();
        let pod = PodSandbox { labels: [("app".to_owned(), long.clone())].into(), ..pod };
        let container = Container { name: long, env, ..Container::default() };
        let told = NriSubject::of_message(Some(pod), Some(container));
        let expected = format!("{}…", "ä".repeat(253));
        assert_eq!((&told.pod.name, &told.container.name), (&expected, &expected));
        assert_eq!((&told.pod.namespace, told.beyond()), (&"n".repeat(253), None));
        assert_eq!((told.pod.labels.len(), told.container.env), (0, vec!["DRA_CPUSET_a=1".to_owned()]));
    }

    #[test]
    fn ids_and_cgroups_are_not_cut_but_have_a_longest() {
        let of = |id: usize, path: usize| {
            let id = "\n".repeat(id);
            let cgroup_parent = "p".repeat(path);
            let pod = PodSandbox {
                id: id.clone(),
                uid: id.clone(),
                linux: Some(LinuxPodSandbox {
                    cgroup_parent: cgroup_parent.clone(),
                    ..LinuxPodSandbox::default()
                }),
                ..PodSandbox::default()
            };
            let container = Container {
                pod_sandbox_id: id.clone(),
                id,
                linux: Some(LinuxContainer { cgroups_path: cgroup_parent, ..LinuxContainer::default() }),
                ..Container::default()
            };
            [(pod, Container::default()), (PodSandbox::default(), container)]
                .map(|(pod, container)| NriSubject::of_message(Some(pod), Some(container)).beyond())
        };
        assert_eq!(of(128, 4096), [None, None]);
        for said in of(129, 0).into_iter().chain(of(100_000, 0)).chain(of(0, 4097)).map(Option::unwrap) {
            assert!(said.len() < 500 && !said.contains('\n'), "{said}");
        }
    }
}
