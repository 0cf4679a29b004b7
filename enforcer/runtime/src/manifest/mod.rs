//! Manifests: descriptions of pods, devices and steps, as the values that placement takes.
//!
//! | module | reads |
//! |---|---|
//! | [`source`] | a file or standard input, with its name for messages |
//! | `yaml`, `toml` | text as a `tree` with the place of each value |
//! | `kinds` | objects of Kubernetes: which make pods, and how many |
//! | `pod`, `container` | a pod's specification as a request |
//! | `workload` | our own short form |
//! | `devices`, `steps` | the files behind `--devices` and `--steps` |
//!
//! People write all of this, some of it strangers: each message names file, line and column, nothing is
//! expanded without bound, and no name is trusted.

mod annotations;
mod container;
mod devices;
mod kinds;
mod pod;
pub mod source;
mod steps;
mod toml;
mod tree;
mod workload;
mod yaml;

use std::{collections::BTreeMap, path::Path};

use enforcer_core::cluster::{device_claims::DeviceObjects, objects::PodClaim, plan::PlannedPod};
use numa_placement::{
    DeviceUnit, PodName,
    trial::{TrialAction, TrialStep},
};
use numa_topology::set::NodeSet;

pub use self::annotations::annotation_documents;
use self::{
    kinds::{ManifestPods, PODS_LIMIT},
    pod::ManifestPod,
    source::{InputError, ManifestProblem, ManifestSource, TextPlace},
    tree::TreeNode,
};

/// The pods of some files.
#[derive(Debug, Default)]
struct Manifests {
    pods: Vec<ManifestPod>,
    /// Objects that make no pods: `FILE:LINE: what`.
    ignored: Vec<String>,
}

/// Steps to try.
#[derive(Debug, Default)]
pub struct Steps {
    /// In order.
    pub steps: Vec<TrialStep>,
    /// Slices, classes, templates and claims.
    pub objects: DeviceObjects,
    /// Claims of created pods, by name of the pod.
    pub claims: BTreeMap<PodName, Vec<PodClaim>>,
    /// Objects that make no pods: `FILE:LINE: what`.
    pub ignored: Vec<String>,
}

/// Pods to place in a cluster.
#[derive(Debug, Default)]
pub struct ManifestedPods {
    /// In the order of the files.
    pub pods: Vec<PlannedPod>,
    /// Slices, classes, templates and claims.
    pub devices: DeviceObjects,
    /// Parts of pods that do not count here, and objects that make no pods.
    pub notes: Vec<String>,
}

/// The pods of the files, in their order, and the objects of `resource.k8s.io` of these and further files. No
/// pod at all is an error.
pub fn read_pods(manifests: &[&Path], devices: &[&Path]) -> Result<ManifestedPods, InputError> {
    let mut read = ManifestedPods::default();
    let mut ignored = Vec::new();
    for path in manifests.iter().chain(devices) {
        let source = ManifestSource::read(path)?;
        let known = std::mem::take(&mut read.devices);
        let (of_file, known) = Manifests::with_devices(&source, &documents(&source)?, Some(known))?;
        read.devices = known.unwrap_or_default();
        ignored.extend(of_file.ignored);
        for ManifestPod { request, scheduling, warnings } in of_file.pods {
            let counted = |warning: &&String| !warning.ends_with(container::CLAIMS_NOT_COUNTED);
            read.notes.extend(
                warnings.iter().filter(counted).map(|warning| format!("{}: {warning}", request.name)),
            );
            read.pods.push(PlannedPod { request, scheduling, counted: None });
        }
        if read.pods.len() > PODS_LIMIT {
            let problem = ManifestProblem::new(TextPlace::default(), format!("more than {PODS_LIMIT} pods"));
            return Err(source.error(&problem));
        }
    }
    if read.pods.is_empty() && !manifests.is_empty() {
        return Err(no_pod(manifests, None, &ignored));
    }
    read.notes.extend(ignored);
    Ok(read)
}

/// One step per pod of the files, in their order; then those of the file of steps. No step at all is an
/// error.
pub fn read_steps(manifests: &[&Path], steps: Option<&Path>) -> Result<Steps, InputError> {
    let mut read = Steps::default();
    for path in manifests {
        let source = ManifestSource::read(path)?;
        let known = std::mem::take(&mut read.objects);
        let (of_file, known) = Manifests::with_devices(&source, &documents(&source)?, Some(known))?;
        read.objects = known.unwrap_or_default();
        for ManifestPod { request, scheduling, warnings } in of_file.pods {
            read.claims.insert(request.name.clone(), scheduling.claims);
            read.steps.push(TrialStep { action: TrialAction::Create(request), warnings });
        }
        read.ignored.extend(of_file.ignored);
        if read.steps.len() > PODS_LIMIT {
            return Err(source
                .error(&ManifestProblem::new(TextPlace::default(), format!("more than {PODS_LIMIT} pods"))));
        }
    }
    if let Some(path) = steps {
        let source = ManifestSource::read(path)?;
        let of_file = steps::steps(&source, &documents(&source)?)?;
        read.steps.extend(of_file.steps);
        read.claims.extend(of_file.claims);
        read.ignored.extend(of_file.ignored);
    }
    if read.steps.is_empty() {
        return Err(no_pod(manifests, steps, &read.ignored));
    }
    Ok(read)
}

fn no_pod(manifests: &[&Path], steps: Option<&Path>, ignored: &[String]) -> InputError {
    let names: Vec<String> =
        manifests.iter().copied().chain(steps).map(|path| path.display().to_string()).collect();
    let mut problem = "no pod to place".to_owned();
    for ignored in ignored.iter().take(3) {
        problem.push_str("; ");
        problem.push_str(ignored);
    }
    InputError::Invalid { place: names.join(", "), problem, excerpt: None }
}

/// The devices of a file, on a machine with these nodes; what it has as objects of `resource.k8s.io` is added
/// to these.
pub fn read_devices(
    path: &Path,
    nodes: &NodeSet,
    objects: &mut DeviceObjects,
) -> Result<Vec<DeviceUnit>, InputError> {
    let source = ManifestSource::read(path)?;
    let documents = documents(&source)?;
    if documents.iter().any(|document| document.get("kind").is_some()) {
        let known = std::mem::take(objects);
        let (_pods, known) = Manifests::with_devices(&source, &documents, Some(known))?;
        *objects = known.unwrap_or_default();
        return Ok(Vec::new());
    }
    devices::devices(&documents, nodes).map_err(|problem| source.error(&problem))
}

impl Steps {
    /// Leaves out the warnings that claims are not counted, because they are.
    pub fn count_claims(&mut self) {
        for step in &mut self.steps {
            step.warnings.retain(|warning| !warning.ends_with(container::CLAIMS_NOT_COUNTED));
        }
    }
}

impl Manifests {
    fn of(source: &ManifestSource) -> Result<Self, InputError> {
        Self::of_documents(source, &documents(source)?)
    }

    fn of_documents(source: &ManifestSource, documents: &[TreeNode]) -> Result<Self, InputError> {
        Self::with_devices(source, documents, None).map(|(read, _)| read)
    }

    /// The same, and what is added to objects of `resource.k8s.io`.
    fn with_devices(
        source: &ManifestSource,
        documents: &[TreeNode],
        devices: Option<DeviceObjects>,
    ) -> Result<(Self, Option<DeviceObjects>), InputError> {
        let mut made = ManifestPods::default();
        made.devices = devices;
        for document in documents {
            let is_workload_file = document.get("kind").is_none() && document.get(workload::LIST).is_some();
            let added =
                if is_workload_file { workload::add(&mut made, document) } else { made.add(document, None) };
            added.map_err(|problem| source.error(&problem))?;
        }
        let ignored = made.ignored.iter().map(|ignored| ignored.in_source(source)).collect();
        Ok((Self { pods: made.pods, ignored }, made.devices))
    }
}

fn documents(source: &ManifestSource) -> Result<Vec<TreeNode>, InputError> {
    let documents = if source.is_toml() {
        toml::document(source).map(|document| vec![document])
    } else {
        yaml::documents(source)
    };
    documents.map_err(|problem| source.error(&problem))
}

#[cfg(test)]
mod tests;
