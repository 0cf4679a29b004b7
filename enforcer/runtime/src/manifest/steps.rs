//! The file behind `--steps`: what happens, one after another.
//!
//! ```yaml
//! - create: web.yaml                 # a file, relative to this one; or a manifest in place
//! - resize: { kind: Pod, metadata: { name: web }, spec: { containers: [...] } }
//! - warm: default/web                # its cold start ends; also a manifest, or a file
//! - delete: default/web              # or a manifest, or a file
//! ```
//!
//! A manifest of several pods is a step for each of them.

use std::path::{Path, PathBuf};

use numa_placement::{
    PodName,
    trial::{TrialAction, TrialStep},
};

use super::{
    Manifests, Steps,
    kinds::{Ignored, PODS_LIMIT, TEXT_LIMIT, too_long},
    pod::{self, ManifestPod},
    source::{InputError, ManifestProblem, ManifestSource},
    tree::{ManifestValue, TreeNode, cut},
};

/// What a step is called.
const ACTIONS: [&str; 4] = ["create", "delete", "resize", "warm"];

/// The steps of a file, with the claims of created pods, and what of it makes none.
pub(super) fn steps(source: &ManifestSource, documents: &[TreeNode]) -> Result<Steps, InputError> {
    let mut read = Steps::default();
    let mut text = 0usize;
    for document in documents {
        let problem = |problem: ManifestProblem| source.error(&problem);
        let list = match &document.value {
            ManifestValue::Map(_) => {
                document.only("a file of steps", &["steps"]).map_err(problem)?;
                document.must("a file of steps", "steps").map_err(problem)?
            }
            _ => document,
        };
        for node in list.list("a file of steps").map_err(problem)? {
            let made = step(source, node)?;
            for TrialStep { action, .. } in &made.steps {
                if let TrialAction::Create(pod) | TrialAction::Resize(pod) = action {
                    text = text.saturating_add(pod::text(pod));
                }
            }
            if text > TEXT_LIMIT {
                return Err(source.error(&ManifestProblem::new(node.at, too_long())));
            }
            read.steps.extend(made.steps);
            read.claims.extend(made.claims);
            read.ignored.extend(made.ignored);
            if read.steps.len() > PODS_LIMIT {
                return Err(
                    source.error(&ManifestProblem::new(node.at, format!("more than {PODS_LIMIT} steps")))
                );
            }
        }
    }
    Ok(read)
}

fn step(source: &ManifestSource, node: &TreeNode) -> Result<Steps, InputError> {
    let problem = |problem: ManifestProblem| source.error(&problem);
    node.only("a step", &ACTIONS).map_err(problem)?;
    let entries = node.map("a step").map_err(problem)?;
    let [entry] = entries else {
        let expected = ACTIONS.join(", ");
        return Err(problem(ManifestProblem::new(node.at, format!("a step is exactly one of {expected}"))));
    };
    let named = |name: PodName| {
        let action = if entry.key == "warm" { TrialAction::Warm(name) } else { TrialAction::Delete(name) };
        TrialStep { action, warnings: Vec::new() }
    };
    if let ("delete" | "warm", ManifestValue::Text(text)) = (entry.key.as_str(), &entry.node.value)
        && !is_file(text)
    {
        let name = pod_name(text, &entry.node).map_err(problem)?;
        return Ok(Steps { steps: vec![named(name)], ..Steps::default() });
    }
    let manifests = manifests(source, &entry.node)?;
    let mut read = Steps { ignored: manifests.ignored, ..Steps::default() };
    let mut step = |ManifestPod { request, scheduling, warnings }: ManifestPod| match entry.key.as_str() {
        "create" => {
            read.claims.insert(request.name.clone(), scheduling.claims);
            TrialStep { action: TrialAction::Create(request), warnings }
        }
        "resize" => TrialStep { action: TrialAction::Resize(request), warnings },
        _ => named(request.name),
    };
    let steps = manifests.pods.into_iter().map(&mut step).collect();
    Ok(Steps { steps, ..read })
}

/// The pods of a manifest that is there in place, or in a file beside.
fn manifests(source: &ManifestSource, node: &TreeNode) -> Result<Manifests, InputError> {
    match &node.value {
        ManifestValue::Text(text) if text.contains('\n') => {
            let name = format!("{} (text at line {})", source.name, node.at.line);
            Manifests::of(&ManifestSource { name, text: text.clone() })
        }
        ManifestValue::Text(path) => Manifests::of(&ManifestSource::read(&beside(&source.name, path))?),
        ManifestValue::Map(_) => Manifests::of_documents(source, std::slice::from_ref(node)),
        _ => Err(source.error(&node.not("a step", "a manifest or the path of a file"))),
    }
}

fn beside(steps: &str, path: &str) -> PathBuf {
    // Standard input has no directory but the current one.
    Path::new(steps).parent().unwrap_or(Path::new("")).join(path)
}

/// A pod may have such a name as well; its author then gives its manifest.
fn is_file(text: &str) -> bool {
    let extension = Path::new(text).extension().and_then(|extension| extension.to_str());
    text.contains('\n')
        || extension.is_some_and(|extension| ["yaml", "yml", "json", "toml"].contains(&extension))
}

/// `namespace/name`, or a name in the namespace `default`.
fn pod_name(text: &str, node: &TreeNode) -> Result<PodName, ManifestProblem> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        return Err(ManifestProblem::new(node.at, format!("`{}` is not namespace/name of a pod", cut(text))));
    }
    Ok(PodName::new(namespace, name))
}

impl Ignored {
    /// The same with the name of its file.
    pub(super) fn in_source(&self, source: &ManifestSource) -> String {
        format!("{}:{}: {}, ignored", source.name, self.at.line, self.what)
    }
}
