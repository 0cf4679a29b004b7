//! The API that the guest of a scenario reaches on this host: Kubernetes' own server for custom resources,
//! and a stub for other kinds, behind one address (`tests/api`, `ApiFront`).
//!
//! It runs here and not in the guest: emulated, that server takes a minute to start.
//!
//! Invariant: it ends with its value, and with this program, because its standard input ends then.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use super::matrix::Play;
use crate::{product, setup, workspace::Workspace};

/// Names the folder of the server's programs.
pub(super) const CRD_API: &str = "NUMA_TEST_CRD_API";

/// What the certificate is for: this host as a guest sees it, and the node of scenarios
/// (`tests/src/api.rs`), whose kubelet it plays.
const NAMES: [&str; 2] = ["10.0.2.2", "node-1"];

/// Variable of a scenario's environment with the ports: of TLS, and of what a scenario does to it.
const PORTS: &str = "RIG_API";

/// The programs of the API.
pub(super) struct ApiPrograms {
    front: PathBuf,
    crd_api: PathBuf,
}

impl ApiPrograms {
    /// Builds and fetches them if a play needs them.
    pub(super) fn of(workspace: &Workspace, plays: &[Play]) -> Result<Option<Self>> {
        plays.iter().any(|play| play.scenario.needs_api).then(|| Self::make(workspace)).transpose()
    }

    fn make(workspace: &Workspace) -> Result<Self> {
        let crd_api = setup::crd_api(workspace).context("the API server for custom resources")?;
        let crd_api = crd_api.folder().canonicalize().context("find the API server")?;
        Ok(Self { front: product::build_api_front(workspace)?, crd_api })
    }

    /// Starts an API, which is ready, of programs that may not have been made.
    pub(super) fn start_of(made: &Result<Option<Self>>) -> Result<RunningApi> {
        let programs = made.as_ref().map_err(|error| anyhow!("no API: {error:#}"))?;
        let programs = programs.as_ref().context("no play was said to need an API")?;
        RunningApi::start(&programs.front, &programs.crd_api)
    }
}

/// A running API.
pub(super) struct RunningApi {
    child: Child,
    stdin: Option<ChildStdin>,
    ports: FrontPorts,
}

#[derive(Deserialize)]
struct FrontPorts {
    secure: u16,
    open: u16,
}

impl RunningApi {
    fn start(front: &Path, crd_api: &Path) -> Result<Self> {
        let mut command = Command::new(front);
        command.args(NAMES).env(CRD_API, crd_api).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("run {}", front.display()))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let mut api = Self { child, stdin, ports: FrontPorts { secure: 0, open: 0 } };
        let mut line = String::new();
        BufReader::new(stdout.context("no standard output")?).read_line(&mut line)?;
        api.ports = serde_json::from_str(&line).context("the API did not say which ports it has")?;
        Ok(api)
    }

    /// The assignment of a shell that tells a scenario of it.
    pub(super) fn variable(&self) -> String {
        format!("{PORTS}={},{}", self.ports.secure, self.ports.open)
    }
}

impl Drop for RunningApi {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // Fails only if it has ended already.
        let _ = self.child.wait();
    }
}
