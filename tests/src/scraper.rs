//! The real Prometheus in the guest, with the rules that are shipped, in a hurry.
//!
//! Quarters of an hour in production are seconds here: only these times in the rules' text are changed. It
//! listens inside the guest alone.

use std::{
    fmt::Write as _,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    http,
    process::{self, Running},
};

/// Where the guest finds it.
const PROGRAM: &str = "/inject/prometheus";

/// Where the guest finds the rules.
const RULES: &str = "/inject/rules";

/// Where the changed ones are, and its data.
const FOLDER: &str = "/tmp/prometheus";

/// Where it answers.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// Scraping and evaluating go by this, and so do the windows of the rules.
const CONFIG: &str = "\
global: {scrape_interval: 5s, scrape_timeout: 5s, evaluation_interval: 5s}
rule_files: [/tmp/prometheus/*.yml]
scrape_configs:
  - job_name: numa-enforcer
    honor_labels: true
    static_configs: [{targets: ['127.0.0.1:9477']}]
";

/// The server, which scrapes the daemon of a scenario.
#[derive(Debug)]
pub struct Prometheus {
    /// Killed when this is dropped.
    _process: Running,
}

impl Prometheus {
    /// Starts it; it answers some time later.
    pub fn start() -> Result<Self> {
        fs::create_dir_all(FOLDER).with_context(|| format!("create {FOLDER}"))?;
        for name in ["parameters.yml", "recording.yml", "alerts.yml"] {
            let path = Path::new(RULES).join(name);
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            fs::write(Path::new(FOLDER).join(name), hurried(&text))
                .with_context(|| format!("write {name}"))?;
        }
        let config = format!("{FOLDER}/config.yaml");
        fs::write(&config, CONFIG).with_context(|| format!("write {config}"))?;
        let mut command = Command::new(PROGRAM);
        command.arg(format!("--config.file={config}")).arg(format!("--storage.tsdb.path={FOLDER}/data"));
        command.arg(format!("--web.listen-address={ADDRESS}")).arg("--storage.tsdb.wal-segment-size=10MB");
        let log = process::log(&format!("{FOLDER}/log"))?;
        let process = Running::spawn(command.stdout(Stdio::null()).stderr(log))?;
        Ok(Self { _process: process })
    }

    /// Value of the first series that an expression has now; `None` without one.
    pub fn value(&self, expression: &str) -> Result<Option<f64>> {
        let answer = http::get(ADDRESS, &format!("/api/v1/query?query={}", encoded(expression)))?;
        let answer: Value = serde_json::from_str(&answer).context("read an answer of Prometheus")?;
        ensure!(answer["status"] == "success", "{expression}: {answer}");
        let Some(value) = answer.pointer("/data/result/0/value/1") else { return Ok(None) };
        let value = value.as_str().and_then(|value| value.parse().ok());
        value.map(Some).with_context(|| format!("{expression}: {answer}"))
    }

    /// What it said, for people.
    pub fn said() -> String {
        fs::read_to_string(format!("{FOLDER}/log")).unwrap_or_default()
    }
}

/// Rules that look at seconds: no window and no wait is longer. A turn in a guest has fewer observations.
fn hurried(rules: &str) -> String {
    let mut hurried = String::new();
    for line in rules.lines() {
        let line = match line.split_once("for: ") {
            Some((indent, _)) => format!("{indent}for: 10s"),
            None => line.replace("[5m]", "[30s]").replace("[10m]", "[30s]"),
        };
        let line = if line.trim() == "expr: vector(100)" { line.replace("100", "10") } else { line };
        hurried.push_str(&line);
        hurried.push('\n');
    }
    hurried
}

/// As part of a URL.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_one_parameter() {
        assert_eq!(encoded("a{b=\"c\"}"), "a%7Bb%3D%22c%22%7D");
    }

    #[test]
    fn windows_and_waits_of_the_rules_that_are_shipped_are_seconds() {
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus");
        let read = |name| hurried(&fs::read_to_string(rules.join(name)).unwrap());
        assert!(
            read("recording.yml").contains("samples:sum[30s])") && !read("recording.yml").contains("5m]")
        );
        assert!(
            read("alerts.yml").contains("        for: 10s\n") && !read("alerts.yml").contains("for: 15m")
        );
        assert!(read("parameters.yml").contains("samples:min\n        expr: vector(10)\n"));
    }
}
