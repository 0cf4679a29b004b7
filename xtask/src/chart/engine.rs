//! Helm's engine in a process of its own: JSON-RPC 2.0, a line for each message, on its standard input and
//! output.
//!
//! Charts are rendered without a cluster, for a version of Kubernetes that is said. What is rendered depends
//! on the chart and its values alone.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

/// Version of the chart format's engine.
const HELM: &str = "v3";

/// Messages of other requests that may come before an answer, such as notifications.
const MOST_OTHERS: usize = 1000;

/// What a chart is rendered for.
pub(crate) struct Rendering<'a> {
    pub(crate) chart: &'a Path,
    /// Name of the release, and of its namespace.
    pub(crate) release: &'a str,
    /// Files of values; later ones win.
    pub(crate) files: &'a [&'a Path],
    /// Values that win over those of files.
    pub(crate) values: &'a Value,
    pub(crate) kubernetes: &'a str,
}

/// The engine; ended when it is dropped.
pub(crate) struct HelmEngine {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    latest: u64,
}

/// What `helm lint` found.
#[derive(Debug, Deserialize)]
struct LintReport {
    total_charts: usize,
    messages: Option<Vec<LintMessage>>,
    passed: bool,
}

#[derive(Debug, Deserialize)]
struct LintMessage {
    severity: String,
    path: String,
    message: String,
}

impl HelmEngine {
    /// Starts it. Nothing of the user's Helm is read: no plugins, no repositories, no cluster.
    pub(crate) fn start(program: &Path, scratch: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", scratch).env("KUBECONFIG", scratch.join("none"));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.with_context(|| format!("run {}", program.display()))?;
        let requests = child.stdin.take().context("the engine has no standard input")?;
        let answers = child.stdout.take().context("the engine has no standard output")?;
        let mut engine = Self { child, requests, answers: BufReader::new(answers), latest: 0 };
        engine.request(
            "initialize",
            &json!({
                "protocolVersion": "2024-11-05", "capabilities": {},
                "clientInfo": { "name": "xtask", "version": env!("CARGO_PKG_VERSION") },
            }),
        )?;
        engine.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(engine)
    }

    /// `helm lint --strict`: an error that names each message above a recommendation.
    pub(crate) fn lint(&mut self, chart: &Path) -> Result<()> {
        let arguments = json!({ "helm_version": HELM, "paths": [chart], "strict": true });
        let answer = self.tool("helm_lint", &arguments)?;
        let report: LintReport = serde_json::from_str(&answer).with_context(|| answer.clone())?;
        ensure!(report.total_charts == 1, "{} is not a chart: {answer}", chart.display());
        let said = report.messages.unwrap_or_default();
        let serious = said.iter().filter(|message| message.severity != "INFO");
        let serious: Vec<_> = serious
            .map(|LintMessage { severity, path, message }| format!("{severity} {path}: {message}"))
            .collect();
        ensure!(report.passed && serious.is_empty(), "helm lint:\n{}", serious.join("\n"));
        Ok(())
    }

    /// `helm template`: the objects as one text.
    pub(crate) fn render(&mut self, rendering: &Rendering) -> Result<String> {
        self.tool(
            "helm_template",
            &json!({
                "helm_version": HELM, "kube_version": rendering.kubernetes,
                "release_name": rendering.release, "namespace": rendering.release,
                "chart": rendering.chart, "values_files": rendering.files, "values": rendering.values,
            }),
        )
    }

    /// The text that a tool answers with.
    fn tool(&mut self, name: &str, arguments: &Value) -> Result<String> {
        let result = self.request("tools/call", &json!({ "name": name, "arguments": arguments }))?;
        let text = result["content"][0]["text"].as_str().with_context(|| format!("{name}: {result}"))?;
        ensure!(result["isError"] != true, "{}", text.trim_end());
        Ok(text.to_owned())
    }

    fn request(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.latest += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.latest, "method": method, "params": params }))?;
        for _ in 0..MOST_OTHERS {
            let mut line = String::new();
            let length = self.answers.read_line(&mut line).context("read from Helm's engine")?;
            ensure!(length > 0, "Helm's engine ended before it answered {method}");
            let answer: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
            if answer["id"] != self.latest {
                continue;
            }
            ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]);
            return Ok(answer["result"].clone());
        }
        bail!("Helm's engine does not answer {method}")
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        writeln!(self.requests, "{message}").context("write to Helm's engine")?;
        self.requests.flush().context("write to Helm's engine")
    }
}

impl Drop for HelmEngine {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
