//! What Prometheus itself says of deploy/prometheus, and of what the product gives it to read.
//!
//! The rules are checked, and their tests run, by Debian's promtool; so are the metrics of a daemon that
//! really runs here, in observe mode, and the file that `audit` writes for `node_exporter`. Each counts one.
//! Without promtool it fails: rules that were not evaluated are not tested.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::{daemon::Daemon, tally::TestTally};
use crate::{
    command,
    product::{self, BuildProfile},
    progress::ProgressStep,
    setup::{self, PrometheusTools},
    workspace::Workspace,
};

/// Checks and runs all of it, and counts each.
pub(super) fn run(workspace: &Workspace, tally: &mut TestTally) -> Result<()> {
    let prometheus = setup::prometheus(workspace)?;
    let step = ProgressStep::begin("alerts");
    let folder = workspace.root().join("deploy/prometheus");
    let rules = files(&folder)?;
    let (scrape, rules): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|path| path.file_name().is_some_and(|name| name == "scrape.yml"));
    tally.outcome("alerts check rules", promtool(&prometheus, &["check", "rules"], &rules));
    tally.outcome(
        "alerts check config",
        promtool(&prometheus, &["check", "config", "--syntax-only"], &scrape),
    );
    for test in files(&folder.join("tests"))? {
        let name = test.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        tally.outcome(&format!("alerts test {name}"), promtool(&prometheus, &["test", "rules"], &[test]));
    }
    let program = product::build(workspace, BuildProfile::Dev)?;
    let scratch = workspace.scratch()?;
    let audited = audited(&program, scratch.path());
    tally.outcome("alerts metrics of an audit", audited.and_then(|path| lint(&prometheus, &path)));
    let scraped = scraped(&program, scratch.path());
    tally.outcome("alerts metrics of a daemon", scraped.and_then(|path| lint(&prometheus, &path)));
    step.done();
    Ok(())
}

/// The YAML files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        files.extend(path.extension().is_some_and(|extension| extension == "yml").then_some(path));
    }
    ensure!(!files.is_empty(), "there is no file in {}", folder.display());
    files.sort();
    Ok(files)
}

fn promtool(prometheus: &PrometheusTools, arguments: &[&str], files: &[PathBuf]) -> Result<()> {
    command::quietly(prometheus.promtool().args(arguments).args(files)).map(drop)
}

/// What promtool thinks of names, types and help.
fn lint(prometheus: &PrometheusTools, metrics: &Path) -> Result<()> {
    let mut command = prometheus.promtool();
    let file = File::open(metrics).with_context(|| format!("open {}", metrics.display()))?;
    let output = command.args(["check", "metrics"]).stdin(file).output().context("run promtool")?;
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "promtool check metrics ({}):\n{said}", output.status);
    Ok(())
}

/// The file that `audit` writes for `node_exporter`.
fn audited(program: &Path, scratch: &Path) -> Result<PathBuf> {
    let path = scratch.join("audit.prom");
    let mut audit = Command::new(program);
    audit.args(["audit", "-o", "prometheus", "--write"]).arg(&path).stdin(Stdio::null());
    let output = audit.output().context("run an audit")?;
    let text =
        fs::read_to_string(&path).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    ensure!(text.contains("numa_enforcer_build_info{"), "the audit wrote no metrics:\n{text}");
    Ok(path)
}

/// What a daemon on this host serves, as a file.
fn scraped(program: &Path, scratch: &Path) -> Result<PathBuf> {
    let text = Daemon::start(program, scratch)?.get("/metrics")?;
    ensure!(text.contains("numa_enforcer_ticks_total 1\n"), "no turn is told of:\n{text}");
    let path = scratch.join("daemon.prom");
    fs::write(&path, text).context("keep the metrics")?;
    Ok(path)
}
