//! `cargo xtask chart`: the Helm chart, and what is rendered from it and committed.
//!
//! deploy/helm/numa-enforcer is the one source of what is installed in a cluster. From it come the presets
//! for kustomize (deploy/kubernetes) and three renderings (tests/fixtures/chart): with every switch on, with
//! daemons that publish, and with daemons that prepare claims. `enforcer/tests/shipped/kubernetes` holds the
//! objects of the first against the types of the API; scenarios run the pods of the others.
//! `cargo xtask test chart` compares.

mod engine;
mod presets;
mod rendered;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use self::{
    engine::{HelmEngine, Rendering},
    presets::{PRESETS, differences, manifest, rendered as rendered_preset},
    rendered::RenderedObject,
};
use crate::{progress::ProgressStep, setup, workspace::Workspace};

/// Version of Kubernetes that committed objects are rendered for.
pub(crate) const KUBERNETES: &str = "1.36.0";

/// Values with every switch on.
const EVERYTHING: &str = "ci/everything-values.yaml";

/// Objects that are left out of the committed rendering of everything: copies of files of deploy.
const COPIES: [&str; 2] = ["PrometheusRule", "-dashboard-"];

/// Where the chart and what is rendered from it are.
pub(crate) struct Chart {
    folder: PathBuf,
    presets: PathBuf,
    everything: PathBuf,
    publishing: PathBuf,
    claims: PathBuf,
}

impl Chart {
    pub(crate) fn of(workspace: &Workspace) -> Self {
        let at = |path: &str| workspace.root().join(path);
        Self {
            folder: at("deploy/helm/numa-enforcer"),
            presets: at("deploy/kubernetes"),
            everything: at("tests/fixtures/chart/everything.yaml"),
            publishing: at("tests/fixtures/chart/publishing.yaml"),
            claims: at("tests/fixtures/chart/claims.yaml"),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Folder of a preset.
    pub(crate) fn preset(&self, name: &str) -> PathBuf {
        self.presets.join(name)
    }

    /// The committed rendering of every switch on.
    pub(crate) fn everything(&self) -> &Path {
        &self.everything
    }

    /// The committed rendering with daemons that publish.
    pub(crate) fn publishing(&self) -> &Path {
        &self.publishing
    }

    /// With daemons that publish and write events. The definition of the kind is a file of its own.
    pub(crate) fn render_publishing(&self, engine: &mut HelmEngine) -> Result<Vec<RenderedObject>> {
        let cluster = json!({"publish": true, "events": true, "definition": false});
        let values = json!({"mode": "enforce", "cluster": cluster, "rollOnConfigChange": false});
        RenderedObject::all(&self.render(engine, &values, KUBERNETES)?)
    }

    /// The committed rendering with daemons that prepare claims.
    pub(crate) fn claims(&self) -> &Path {
        &self.claims
    }

    /// With daemons that prepare claims, and publish nothing else.
    pub(crate) fn render_claims(&self, engine: &mut HelmEngine) -> Result<Vec<RenderedObject>> {
        let config = "[nri]\nplace = true\n";
        let dra = json!({"enabled": true});
        let values = json!({"mode": "enforce", "config": config, "dra": dra, "rollOnConfigChange": false});
        RenderedObject::all(&self.render(engine, &values, KUBERNETES)?)
    }

    /// With these values besides the defaults.
    pub(crate) fn render(&self, engine: &mut HelmEngine, values: &Value, kubernetes: &str) -> Result<String> {
        let (chart, release) = (self.folder(), presets::RELEASE);
        engine.render(&Rendering { chart, release, files: &[], values, kubernetes })
    }

    /// With every switch on.
    pub(crate) fn render_everything(&self, engine: &mut HelmEngine) -> Result<Vec<RenderedObject>> {
        let (path, values) = (self.folder.join(EVERYTHING), json!({}));
        let (chart, release, kubernetes) = (self.folder(), presets::RELEASE, KUBERNETES);
        let files = [path.as_path()];
        RenderedObject::all(&engine.render(&Rendering {
            chart,
            release,
            files: &files,
            values: &values,
            kubernetes,
        })?)
    }
}

/// Helm's engine, and the folder that it takes for its user's.
pub(crate) fn engine(workspace: &Workspace) -> Result<(HelmEngine, TempDir)> {
    let program = setup::helm(workspace)?;
    let scratch = workspace.scratch()?;
    Ok((HelmEngine::start(&program, scratch.path())?, scratch))
}

/// The committed text of a rendering.
pub(crate) fn kept(objects: &[RenderedObject]) -> String {
    let is_copy = |object: &&RenderedObject| {
        COPIES.iter().any(|copy| object.kind == *copy || object.name.contains(copy))
    };
    let mut text = String::new();
    for object in objects.iter().filter(|object| !is_copy(object)) {
        text.push_str("---\n");
        text.push_str(&object.text);
    }
    text
}

/// Lints the chart, and writes what is rendered from it.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let chart = Chart::of(workspace);
    let (mut engine, _scratch) = engine(workspace)?;
    let step = ProgressStep::begin("lint and render the chart");
    engine.lint(chart.folder())?;
    let mut changed = Vec::new();
    for preset in PRESETS {
        let folder = chart.preset(preset);
        let names = presets::write(&folder, &rendered_preset(&mut engine, &chart, preset)?)?;
        changed.extend(names.into_iter().map(|name| folder.join(name)));
    }
    let everything = kept(&chart.render_everything(&mut engine)?);
    let publishing = kept(&chart.render_publishing(&mut engine)?);
    let claims = kept(&chart.render_claims(&mut engine)?);
    for (path, text) in
        [(chart.everything(), everything), (chart.publishing(), publishing), (chart.claims(), claims)]
    {
        if fs::read_to_string(path).ok().as_ref() != Some(&text) {
            fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
            changed.push(path.to_owned());
        }
    }
    step.done();
    for path in &changed {
        println!("{}", path.strip_prefix(workspace.root()).unwrap_or(path).display());
    }
    println!("{} files changed", changed.len());
    Ok(())
}
