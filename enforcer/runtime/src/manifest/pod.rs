//! A pod, or the template of many, as a request.
//!
//! Names, labels and annotations are passed on unchanged; the code that shows them escapes them.

use std::{borrow::Cow, collections::BTreeMap};

use enforcer_core::cluster::objects::{PodClaim, PodScheduling, Toleration};
use numa_placement::{
    ContainerRequest, PodName, PodRequest, Undescribed, annotations_of_interest, foreign::is_of_interest,
    qos_class,
};

use super::{annotations::annotation_documents, container, source::ManifestProblem, tree::TreeNode};

/// A pod that was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ManifestPod {
    /// Its request.
    pub request: PodRequest,
    /// What a scheduler looks at beside amounts.
    pub scheduling: PodScheduling,
    /// Parts of it that do not count here.
    pub warnings: Vec<String>,
}

impl ManifestPod {
    /// The same pod with another annotation, where it does not have that one.
    pub(super) fn annotated(mut self, key: &str, value: &str) -> Self {
        self.request.annotations.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        self
    }

    /// The same pod with another name.
    pub(super) fn named(&self, name: String) -> Self {
        let mut pod = self.clone();
        pod.request.name.name = name;
        pod
    }
}

/// Fields of a specification that a cluster counts and this program does not.
const NOT_COUNTED: [(&str, &str); 2] = [
    ("overhead", "the overhead of its runtime class is not counted"),
    ("resources", "its pod-level resources are not counted"),
];

/// The pod that `metadata` and `spec` describe.
pub(super) fn pod(
    name: PodName,
    metadata: Option<&TreeNode>,
    spec: &TreeNode,
) -> Result<ManifestPod, ManifestProblem> {
    let mut warnings = Vec::new();
    let labels = texts(metadata, "labels", &mut warnings)?;
    let annotations = texts(metadata, "annotations", &mut warnings)?;
    for (field, warning) in NOT_COUNTED {
        if spec.get(field).is_some() {
            warnings.push(warning.to_owned());
        }
    }
    let containers = container::containers(spec, &mut warnings)?;
    let mut scheduling = scheduling(spec)?;
    for (container, claim) in container::named_claims(spec)? {
        let named = scheduling.claims.iter_mut().find(|one| one.name == claim);
        if let Some(named) = named.filter(|one| !one.containers.contains(&container)) {
            named.containers.push(container);
        }
    }
    let mut pod = request(name, labels, annotations, containers, warnings);
    pod.request.undescribed = undescribed(spec)?;
    Ok(ManifestPod { scheduling, ..pod })
}

/// What of the pod its containers do not say.
fn undescribed(spec: &TreeNode) -> Result<Option<Undescribed>, ManifestProblem> {
    let priority_class = match spec.get("priorityClassName") {
        Some(name) => name.scalar("priorityClassName")?,
        None => Cow::Borrowed(""),
    };
    let has = |field: &str| spec.get(field).is_some_and(|part| !part.is_empty());
    Ok(Undescribed::of(&priority_class, has("resources"), has("resourceClaims")))
}

/// Most tolerations of a pod.
const TOLERATIONS: usize = 1_000;

fn scheduling(spec: &TreeNode) -> Result<PodScheduling, ManifestProblem> {
    let mut found = PodScheduling::default();
    if let Some(priority) = spec.get("priority") {
        let text = priority.scalar("priority")?;
        found.priority = text.parse().map_err(|_other| priority.not("priority", "a whole number"))?;
    }
    for node in spec.get("resourceClaims").map_or(Ok(&[][..]), |list| list.list("resourceClaims"))? {
        let text =
            |field: &str| node.get(field).map(|text| text.scalar(field).map(Cow::into_owned)).transpose();
        if found.claims.len() == TOLERATIONS {
            let problem = format!("a pod with more than {TOLERATIONS} claims");
            return Err(ManifestProblem::new(node.at, problem));
        }
        found.claims.push(PodClaim {
            name: text("name")?.unwrap_or_default(),
            claim: text("resourceClaimName")?,
            template: text("resourceClaimTemplateName")?,
            containers: Vec::new(),
        });
    }
    let Some(list) = spec.get("tolerations") else { return Ok(found) };
    for node in list.list("tolerations")? {
        let text = |field: &str| match node.get(field) {
            Some(value) => Ok(value.scalar(field)?.into_owned()),
            None => Ok(String::new()),
        };
        if found.tolerations.len() == TOLERATIONS {
            let problem = format!("a pod with more than {TOLERATIONS} tolerations");
            return Err(ManifestProblem::new(node.at, problem));
        }
        found.tolerations.push(Toleration {
            key: text("key")?,
            operator: text("operator")?,
            value: text("value")?,
            effect: text("effect")?,
        });
    }
    Ok(found)
}

/// A pod of these parts.
pub(super) fn request(
    name: PodName,
    labels: BTreeMap<String, String>,
    mut annotations: BTreeMap<String, String>,
    containers: Vec<ContainerRequest>,
    mut warnings: Vec<String>,
) -> ManifestPod {
    let qos = qos_class(&containers);
    // The daemon reads no more of them.
    let (kept, no_room) = annotations_of_interest(&annotations);
    annotations.retain(|key, _| !is_of_interest(key) || kept.contains_key(key));
    warnings.extend(no_room);
    let documents = annotation_documents(&annotations);
    let request = PodRequest { labels, annotations, documents, qos, ..PodRequest::new(name, containers) };
    ManifestPod { request, scheduling: PodScheduling::default(), warnings }
}

/// Bytes of text in a pod. A parsed annotation is several times as large as its text.
pub(super) fn text(pod: &PodRequest) -> usize {
    const READ: usize = 16;
    let map = |texts: &BTreeMap<String, String>| -> usize {
        texts.iter().map(|(key, text)| key.len() + text.len()).sum()
    };
    let read = pod.documents.keys().filter_map(|key| pod.annotations.get(key));
    let containers = pod
        .containers
        .iter()
        .map(|container| container.name.len() + container.devices.keys().map(String::len).sum::<usize>());
    pod.name.namespace.len()
        + pod.name.name.len()
        + map(&pod.labels)
        + map(&pod.annotations)
        + READ * read.map(String::len).sum::<usize>()
        + containers.sum::<usize>()
}

/// Labels or annotations. A cluster takes texts only; here numbers are taken as well, and reported.
pub(super) fn texts(
    metadata: Option<&TreeNode>,
    field: &str,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<String, String>, ManifestProblem> {
    let Some(node) = metadata.and_then(|metadata| metadata.get(field)) else { return Ok(BTreeMap::new()) };
    let mut texts = BTreeMap::new();
    for entry in node.map(field)? {
        let text = match entry.node.text(field) {
            Ok(text) => text.to_owned(),
            Err(_) if entry.node.is_null() => String::new(),
            Err(_not_text) => {
                let text = entry.node.scalar(&entry.key)?.into_owned();
                warnings.push(format!("{field}: {} is not quoted; a cluster refuses it", entry.key));
                text
            }
        };
        texts.insert(entry.key.clone(), text);
    }
    Ok(texts)
}

/// Namespace and name of an object's metadata; `default` where it has no namespace.
pub(super) fn name(object: &TreeNode) -> Result<PodName, ManifestProblem> {
    let metadata = object.must("an object", "metadata")?;
    let name = match (metadata.get("name"), metadata.get("generateName")) {
        (Some(name), _) => name.scalar("name")?.into_owned(),
        // What a cluster appends is random.
        (None, Some(prefix)) => format!("{}0", prefix.scalar("generateName")?),
        (None, None) => return Err(ManifestProblem::new(metadata.at, "metadata has no `name`")),
    };
    if name.is_empty() {
        return Err(ManifestProblem::new(metadata.at, "metadata.name: a name is expected"));
    }
    Ok(PodName::new(namespace(metadata)?, name))
}

fn namespace(metadata: &TreeNode) -> Result<String, ManifestProblem> {
    metadata
        .get("namespace")
        .map_or_else(|| Ok("default".to_owned()), |node| Ok(node.scalar("namespace")?.into_owned()))
}
