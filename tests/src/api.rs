//! The API of a cluster, which runs on the machine that runs this guest (`xtask/src/test/api_front.rs`).
//!
//! A scenario is everything in that cluster but the daemon: it makes the node, its pods and the account, says
//! what the kubelet answers, and kills the server. It does so at an address without TLS; pods have another
//! one, with TLS and a token.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::{http, process, wait};

/// Name of the node of this guest.
pub const NODE: &str = "node-1";

/// The machine that runs this guest, as QEMU's user network shows it, and the address of this guest there.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const OWN: &str = "10.0.2.15/24";

/// The network card, and its driver.
const CARD: &str = "eth0";
const DRIVER: &str = "virtio_net";

/// Variable with the ports of the API: of pods, and of the scenario.
const PORTS: &str = "RIG_API";

/// Where pods find the account of theirs.
pub const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Longest time of a command, and until the network is up.
const LIMIT: Duration = Duration::from_mins(1);

/// Media types of a write, and of a definition of a kind.
const APPLY: &str = "application/apply-patch+yaml";
const YAML: &str = "application/yaml";

/// An API that this guest reaches.
#[derive(Debug)]
pub struct Api {
    open: SocketAddr,
    /// Port of the address for pods.
    pub secure: u16,
}

/// A request of a pod, as the server has answered it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PodRequest {
    /// Verb of HTTP.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Status of the answer; `None` if the connection was closed instead.
    pub status: Option<u16>,
}

#[derive(Deserialize)]
struct Account {
    token: String,
    authority: String,
}

impl Api {
    /// Brings the network up.
    pub fn join() -> Result<Self> {
        let ports = env::var(PORTS).with_context(|| format!("{PORTS}, which names the API"))?;
        let (secure, open) = ports.split_once(',').with_context(|| format!("{PORTS}={ports}"))?;
        let (secure, open) = (secure.parse()?, SocketAddr::from((HOST, open.parse()?)));
        for words in [
            &["modprobe", DRIVER][..],
            &["ip", "address", "add", OWN, "dev", CARD],
            &["ip", "link", "set", CARD, "up"],
        ] {
            let output = process::run(Command::new(words[0]).args(&words[1..]), LIMIT)?;
            ensure!(output.status == Some(0), "{}: {}", words.join(" "), output.stderr);
        }
        let api = Self { open, secure };
        wait::until("the API answers", LIMIT, || api.account().map(Some))?;
        Ok(api)
    }

    /// Variables of every container that name the API, as a kubelet sets them.
    pub fn service_variables(&self) -> [(String, String); 2] {
        let variable = |name: &str, value: String| (format!("KUBERNETES_SERVICE_{name}"), value);
        [variable("HOST", HOST.to_string()), variable("PORT", self.secure.to_string())]
    }

    /// Creates a definition of a kind, and waits until the objects at `path` are served.
    pub fn define(&self, definition: &str, path: &str) -> Result<()> {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.must("POST", definitions, YAML, definition)?;
        wait::until("the kind is served", LIMIT, || Ok(self.object(path)?.map(drop)))
    }

    /// The object or the list at this path, if there is one.
    pub fn object(&self, path: &str) -> Result<Option<Value>> {
        match http::send(self.open, "GET", path, APPLY, "")? {
            (404, _) => Ok(None),
            (200, body) => serde_json::from_str(&body).map(Some).with_context(|| format!("read {path}")),
            (status, body) => bail!("get {path}: {status} {body}"),
        }
    }

    /// Objects of the list at this path.
    pub fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut list = self.object(path)?.with_context(|| format!("no list {path}"))?;
        serde_json::from_value(list["items"].take()).with_context(|| format!("read {path}"))
    }

    /// Creates an object or changes fields of it, as another program than the daemon.
    pub fn apply(&self, path: &str, object: &Value) -> Result<()> {
        let path = format!("{path}?fieldManager=rig&force=true");
        self.must("PATCH", &path, APPLY, &object.to_string()).map(drop)
    }

    /// Removes an object.
    pub fn delete(&self, path: &str) -> Result<()> {
        self.must("DELETE", path, APPLY, "").map(drop)
    }

    /// What the kubelet of the node answers with at this path.
    pub fn kubelet_answers(&self, path: &str, answer: &Value) -> Result<()> {
        self.must("PUT", &format!("/rig/pages{path}"), APPLY, &answer.to_string()).map(drop)
    }

    /// Kills the server (SIGKILL); until it is resumed, pods reach none.
    pub fn kill(&self) -> Result<()> {
        self.must("POST", "/rig/kill", APPLY, "").map(drop)
    }

    /// Starts the server again, which is ready then.
    pub fn resume(&self) -> Result<()> {
        self.must("POST", "/rig/resume", APPLY, "").map(drop)
    }

    /// Requests of pods so far.
    pub fn requests(&self) -> Result<Vec<PodRequest>> {
        Ok(serde_json::from_value(self.object("/rig/requests")?.context("no requests")?)?)
    }

    /// Writes the account of a pod into a folder, with the links of a volume that a kubelet fills.
    pub fn write_account(&self, folder: &Path, namespace: &str) -> Result<()> {
        let Account { token, authority } = self.account()?;
        let version = folder.join("..1");
        fs::create_dir_all(&version).with_context(|| format!("make {}", version.display()))?;
        for (name, text) in [("token", token.as_str()), ("ca.crt", &authority), ("namespace", namespace)] {
            fs::write(version.join(name), text).with_context(|| format!("write {name} of the account"))?;
            symlink(format!("..data/{name}"), folder.join(name)).with_context(|| format!("link {name}"))?;
        }
        symlink("..1", folder.join("..data")).context("link the version of the account")
    }

    fn account(&self) -> Result<Account> {
        Ok(serde_json::from_value(self.object("/rig/account")?.context("no account")?)?)
    }

    fn must(&self, method: &str, path: &str, media: &str, body: &str) -> Result<String> {
        let (status, answer) = http::send(self.open, method, path, media, body)?;
        ensure!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        Ok(answer)
    }
}
