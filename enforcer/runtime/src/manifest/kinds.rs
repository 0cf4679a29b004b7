//! Kinds of objects that make pods, and how many pods each makes on this host.
//!
//! Where a cluster would invent a name, pods are numbered: `web-0`, `web-1`. A `DaemonSet` makes one
//! pod, as there is one host. A job of Volcano makes the pods of its tasks, with the topology policy of each
//! as the annotation that Volcano gives them. A pod with the phase of an ended one holds
//! nothing and is skipped, like every other kind.

use enforcer_core::cluster::device_claims::DeviceObjects;
use numa_placement::{PodName, foreign::VOLCANO_POLICY};

use super::{
    pod::{self, ManifestPod},
    source::{ManifestProblem, TextPlace},
    tree::{ManifestValue, TreeNode, cut},
};

/// Most pods of one plan.
pub(super) const PODS_LIMIT: usize = 10_000;
/// Most bytes of text in the pods of one plan: ten thousand copies of one long annotation would not fit into
/// memory.
pub(super) const TEXT_LIMIT: usize = 64 << 20;

/// An object that makes no pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ignored {
    /// Where it is.
    pub at: TextPlace,
    /// Its kind, and why it makes no pod.
    pub what: String,
}

/// How an object's pods are found.
#[derive(Clone, Copy)]
enum Shape {
    /// The object is a pod.
    Single,
    /// `spec.template`, `spec.replicas` times.
    Replicas,
    /// `spec.template`, numbered from `spec.ordinals.start`.
    Ordinals,
    /// `spec.template`, once.
    PerHost,
    /// `spec.template`, as many as run at a time.
    Parallel,
    /// `spec.jobTemplate`, as a job.
    Scheduled,
    /// `spec.tasks`, each with a template, replicas and a topology policy: a job of Volcano.
    Tasks,
}

/// Kind, groups of its API version, shape.
const KINDS: [(&str, &[&str], Shape); 9] = [
    ("Pod", &[""], Shape::Single),
    ("ReplicationController", &[""], Shape::Replicas),
    ("Deployment", &["apps", "extensions"], Shape::Replicas),
    ("ReplicaSet", &["apps", "extensions"], Shape::Replicas),
    ("StatefulSet", &["apps"], Shape::Ordinals),
    ("DaemonSet", &["apps", "extensions"], Shape::PerHost),
    ("Job", &["batch"], Shape::Parallel),
    ("CronJob", &["batch"], Shape::Scheduled),
    ("Job", &["batch.volcano.sh"], Shape::Tasks),
];

/// Kinds that devices are claimed with.
const DEVICE_KINDS: [&str; 4] = ["ResourceSlice", "DeviceClass", "ResourceClaimTemplate", "ResourceClaim"];

/// Pods and ignored objects of some documents.
#[derive(Debug, Default)]
pub(super) struct ManifestPods {
    pub(super) pods: Vec<ManifestPod>,
    pub(super) ignored: Vec<Ignored>,
    /// Objects of `resource.k8s.io`; if it is not asked for them, they are ignored.
    pub(super) devices: Option<DeviceObjects>,
    text: usize,
}

impl ManifestPods {
    /// Adds an object's pods. `of` is the kind of list items without a kind.
    pub(super) fn add(&mut self, object: &TreeNode, of: Option<&str>) -> Result<(), ManifestProblem> {
        let kind = match (object.get("kind"), of) {
            (Some(kind), _) => kind.text("kind")?,
            (None, Some(kind)) => kind,
            (None, None) if matches!(object.value, ManifestValue::Map(_)) => {
                return Err(ManifestProblem::new(object.at, "an object without `kind`"));
            }
            (None, None) => return Err(object.not("a manifest", "an object")),
        };
        if let Some(items) = object.get("items").filter(|_| kind.ends_with("List")) {
            let of = kind.strip_suffix("List").filter(|of| !of.is_empty());
            // Lists in lists are no deeper than a document may be.
            return items.list("items")?.iter().try_for_each(|item| self.add(item, of));
        }
        let version = object.get("apiVersion").map(|version| version.text("apiVersion")).transpose()?;
        let group = version.map(|version| version.rsplit_once('/').map_or("", |(group, _)| group));
        let known = KINDS
            .iter()
            .find(|(name, groups, _)| *name == kind && group.is_none_or(|group| groups.contains(&group)));
        if let Some((.., shape)) = known {
            return self.make(object, kind, *shape);
        }
        let is_of_devices =
            group.is_none_or(|group| group == "resource.k8s.io") && DEVICE_KINDS.contains(&kind);
        if let Some(devices) = self.devices.as_mut().filter(|_| is_of_devices) {
            let mut json = object.to_json();
            json["kind"] = kind.into();
            return devices.add(&json).map_err(|problem| ManifestProblem::new(object.at, problem));
        }
        let of_group = group.filter(|group| !group.is_empty());
        let of_group = of_group.map(|group| format!(" of {}", cut(group))).unwrap_or_default();
        let name = object.find(&["metadata", "name"]).and_then(|name| name.text("name").ok());
        let name = name.map(|name| format!(" {}", cut(name))).unwrap_or_default();
        let what = format!("{}{of_group}{name}: a kind that makes no pods here", cut(kind));
        self.ignored.push(Ignored { at: object.at, what });
        Ok(())
    }

    fn make(&mut self, object: &TreeNode, kind: &str, shape: Shape) -> Result<(), ManifestProblem> {
        let name = pod::name(object)?;
        let spec = object.must(kind, "spec")?;
        let template = |spec: &TreeNode| -> Result<ManifestPod, ManifestProblem> {
            let template = spec.must(kind, "template")?;
            let pod_spec = template.must("the template", "spec")?;
            pod::pod(name.clone(), template.get("metadata"), pod_spec)
        };
        match shape {
            Shape::Single => {
                let phase = object.find(&["status", "phase"]).and_then(|phase| phase.text("phase").ok());
                if let Some(phase @ ("Succeeded" | "Failed")) = phase {
                    let what = format!("Pod {}: it has ended ({phase})", cut(&name.name));
                    self.ignored.push(Ignored { at: object.at, what });
                    return Ok(());
                }
                let pod = pod::pod(name, object.get("metadata"), spec)?;
                self.push(pod, object.at)
            }
            Shape::Replicas => {
                self.numbered(object, &name, &template(spec)?, 0, count(spec, "replicas")?.unwrap_or(1))
            }
            Shape::Ordinals => {
                let first = spec.get("ordinals").map(|ordinals| count(ordinals, "start")).transpose()?;
                let first = first.flatten().unwrap_or(0);
                self.numbered(object, &name, &template(spec)?, first, count(spec, "replicas")?.unwrap_or(1))
            }
            Shape::PerHost => self.numbered(object, &name, &template(spec)?, 0, 1),
            Shape::Parallel => self.numbered(object, &name, &template(spec)?, 0, at_a_time(spec)?),
            Shape::Scheduled => {
                let job = spec.must(kind, "jobTemplate")?.must("jobTemplate", "spec")?;
                self.numbered(object, &name, &template(job)?, 0, at_a_time(job)?)
            }
            Shape::Tasks => {
                for (index, task) in spec.must(kind, "tasks")?.list("tasks")?.iter().enumerate() {
                    let of_task = match task.get("name") {
                        Some(of_task) => of_task.scalar("name")?.into_owned(),
                        None => index.to_string(),
                    };
                    let name = PodName::new(name.namespace.clone(), format!("{}-{of_task}", name.name));
                    let mut pod = template(task)?;
                    if let Some(policy) = task.get("topologyPolicy") {
                        pod = pod.annotated(VOLCANO_POLICY, policy.text("topologyPolicy")?);
                    }
                    self.numbered(object, &name, &pod, 0, count(task, "replicas")?.unwrap_or(1))?;
                }
                Ok(())
            }
        }
    }

    fn numbered(
        &mut self,
        object: &TreeNode,
        name: &PodName,
        pod: &ManifestPod,
        first: u64,
        count: u64,
    ) -> Result<(), ManifestProblem> {
        if count == 0 {
            let what = format!("{}: it has no replicas", cut(&name.name));
            self.ignored.push(Ignored { at: object.at, what });
        }
        for number in first..first.saturating_add(count) {
            self.push(pod.named(format!("{}-{number}", name.name)), object.at)?;
        }
        Ok(())
    }

    pub(super) fn push(&mut self, pod: ManifestPod, at: TextPlace) -> Result<(), ManifestProblem> {
        if self.pods.len() >= PODS_LIMIT {
            return Err(ManifestProblem::new(at, format!("more than {PODS_LIMIT} pods")));
        }
        self.text = self.text.saturating_add(pod::text(&pod.request));
        if self.text > TEXT_LIMIT {
            return Err(ManifestProblem::new(at, too_long()));
        }
        self.pods.push(pod);
        Ok(())
    }
}

/// The problem that pods have more text than one plan may hold.
pub(super) fn too_long() -> String {
    format!("the names, labels and annotations of all pods are longer than {TEXT_LIMIT} bytes")
}

/// Pods of a job that run at the same time.
fn at_a_time(job: &TreeNode) -> Result<u64, ManifestProblem> {
    if job.get("suspend").is_some_and(|suspend| suspend.value == ManifestValue::Bool(true)) {
        return Ok(0);
    }
    let parallelism = count(job, "parallelism")?.unwrap_or(1);
    Ok(count(job, "completions")?.map_or(parallelism, |completions| completions.min(parallelism)))
}

fn count(node: &TreeNode, key: &str) -> Result<Option<u64>, ManifestProblem> {
    node.get(key).map(|count| count.count(key)).transpose()
}
