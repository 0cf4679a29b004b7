//! Kubernetes' own server for custom resources, with an etcd, in a folder that goes with it.

use std::{
    env, fs,
    io::{self, Write as _},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result, bail};
use hyper::{Method, Request};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    certificates::{self, ADMINISTRATOR, AUTHORITY, SERVER},
    tethered::TetheredChild,
};

/// Names the folder of the programs; `cargo xtask test` sets it.
const PROGRAMS: &str = "NUMA_TEST_CRD_API";
/// Where that folder is elsewhere, below the workspace, and the beginning of its name.
const RIG: &str = "target/rig";
const NAME: &str = "crd-api-";
/// Longest wait for readiness: it takes two seconds on a quiet machine.
const LIMIT: Duration = Duration::from_mins(2);
/// Time between two looks at readiness.
const LOOK: Duration = Duration::from_millis(50);
/// Starts before it is given up: another process may take a port that was free.
const TRIES: usize = 3;
/// Bytes of a log that an error shows.
const SHOWN: usize = 3000;

/// It has no cluster to sync informers of the core group with, and is never ready in that respect.
const READY: &str = "/readyz?exclude=informer-sync";

/// Admission that needs objects of the core group, which this server does not have.
const NO_ADMISSION: &str = "--disable-admission-plugins=NamespaceLifecycle,MutatingAdmissionWebhook,\
                            ValidatingAdmissionWebhook,MutatingAdmissionPolicy,ValidatingAdmissionPolicy";

/// An API server for custom resources; it and its etcd end on drop.
#[derive(Debug)]
pub struct ApiServer {
    server: Option<TetheredChild>,
    _etcd: TetheredChild,
    ports: Ports,
    programs: PathBuf,
    folder: TempDir,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    client: u16,
    peer: u16,
    secure: u16,
}

impl ApiServer {
    /// A server that is ready. `None` where its programs are missing: says so, and fails in CI.
    ///
    /// # Panics
    ///
    /// If it does not become ready, and without its programs in CI.
    pub fn start() -> Option<Self> {
        Self::start_as(&[])
    }

    /// The same with a certificate for further names and addresses.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    pub(crate) fn start_as(names: &[String]) -> Option<Self> {
        let Some(programs) = programs() else {
            let why = format!("no API server: {PROGRAMS} names no folder, and {RIG} has none");
            assert_ne!(env::var("CI").as_deref(), Ok("true"), "must not be skipped in CI: {why}");
            // Not by `println!`, which tests that pass keep to themselves.
            let _ = writeln!(io::stderr(), "skipped: {why}; `cargo xtask setup` makes one");
            return None;
        };
        let mut tries = (0..TRIES).map(|_| Self::try_start(&programs, names));
        let mut why = None;
        tries.find_map(|started| started.map_err(|error| why = Some(error)).ok()).or_else(|| {
            panic!("the API server does not start: {why:?}");
        })
    }

    fn try_start(programs: &Path, names: &[String]) -> Result<Self> {
        let folder = tempfile::tempdir().context("make a folder")?;
        certificates::write(folder.path(), names)?;
        let ports = Ports { client: free_port()?, peer: free_port()?, secure: free_port()? };
        fs::write(folder.path().join("none.yaml"), no_cluster().to_string()).context("write a kubeconfig")?;
        let kubeconfig = kubeconfig(folder.path(), ports.secure).to_string();
        fs::write(folder.path().join("kubeconfig"), kubeconfig).context("write the kubeconfig")?;
        let etcd = start_etcd(programs, folder.path(), ports)?;
        let mut server = Self { server: None, _etcd: etcd, ports, programs: programs.to_owned(), folder };
        server.try_resume()?;
        Ok(server)
    }

    /// Path of a kubeconfig that may do everything.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Its folder, with its certificates.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Settings of a client that may do everything, and that repeats no request.
    ///
    /// # Panics
    ///
    /// If the kubeconfig cannot be read.
    pub async fn config(&self) -> Config {
        config(self.folder.path()).await.expect("read the kubeconfig")
    }

    /// A client that may do everything, and that repeats no request.
    ///
    /// # Panics
    ///
    /// If it cannot be made.
    pub async fn client(&self) -> Client {
        Client::try_from(self.config().await).expect("make a client")
    }

    /// Kills the server; its etcd goes on, and objects stay.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Starts the server again at its port, and waits until it is ready.
    ///
    /// # Panics
    ///
    /// If it does not become ready.
    pub fn resume(&mut self) {
        self.try_resume().expect("start the API server again");
    }

    fn try_resume(&mut self) -> Result<()> {
        self.server = None;
        let server = start_server(&self.programs, self.folder.path(), self.ports)?;
        wait_until_ready(&server, self.folder.path())?;
        self.server = Some(server);
        Ok(())
    }
}

/// The folder of the programs, if there is one.
fn programs() -> Option<PathBuf> {
    if let Some(named) = env::var_os(PROGRAMS) {
        return Some(named.into());
    }
    let rig = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(RIG);
    let is_one = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NAME))
            && path.join("apiextensions-apiserver").is_file()
    };
    let made =
        |path: &PathBuf| path.metadata().and_then(|of| of.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    fs::read_dir(rig).ok()?.filter_map(|entry| Some(entry.ok()?.path())).filter(is_one).max_by_key(made)
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind a port")?;
    Ok(listener.local_addr().context("ask for its number")?.port())
}

/// The server asks a cluster for what it does not have itself; there is none.
fn no_cluster() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true}}],
        "users": [{"name": "u", "user": {"token": "none"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    })
}

fn kubeconfig(folder: &Path, port: u16) -> Value {
    let path = |name: &str| folder.join(name);
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority": path(AUTHORITY),
        }}],
        "users": [{"name": "u", "user": {
            "client-certificate": path(ADMINISTRATOR[0]), "client-key": path(ADMINISTRATOR[1]),
        }}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    })
}

fn start_etcd(programs: &Path, folder: &Path, ports: Ports) -> Result<TetheredChild> {
    let client = format!("http://127.0.0.1:{}", ports.client);
    // By its own loader: the machine's may be older.
    let arguments = [
        "--library-path".to_owned(),
        programs.join("lib").display().to_string(),
        programs.join("etcd").display().to_string(),
        format!("--data-dir={}", folder.join("etcd").display()),
        "--unsafe-no-fsync".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls=http://127.0.0.1:{}", ports.peer),
    ];
    TetheredChild::start(&programs.join("loader"), &arguments, &folder.join("etcd.log"))
}

fn start_server(programs: &Path, folder: &Path, ports: Ports) -> Result<TetheredChild> {
    let path = |name: &str| folder.join(name).display().to_string();
    let arguments = [
        format!("--etcd-servers=http://127.0.0.1:{}", ports.client),
        format!("--secure-port={}", ports.secure),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", path("certificates")),
        format!("--tls-cert-file={}", path(SERVER[0])),
        format!("--tls-private-key-file={}", path(SERVER[1])),
        format!("--client-ca-file={}", path(AUTHORITY)),
        "--authentication-skip-lookup".to_owned(),
        format!("--authentication-kubeconfig={}", path("none.yaml")),
        format!("--authorization-kubeconfig={}", path("none.yaml")),
        format!("--kubeconfig={}", path("none.yaml")),
        "--enable-priority-and-fairness=false".to_owned(),
        NO_ADMISSION.to_owned(),
    ];
    TetheredChild::start(&programs.join("apiextensions-apiserver"), &arguments, &folder.join("server.log"))
}

/// Waits on a thread of its own, because the caller may be in a runtime.
fn wait_until_ready(server: &TetheredChild, folder: &Path) -> Result<()> {
    let ready = thread::scope(|scope| {
        scope
            .spawn(|| {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_all().build().context("start a runtime")?;
                runtime.block_on(become_ready(server, folder))
            })
            .join()
    });
    let why = match ready {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => format!("{error:#}"),
        Err(_) => "the wait panicked".to_owned(),
    };
    let end = |name: &str| {
        let text = fs::read(folder.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(SHOWN)..]).into_owned()
    };
    bail!("{why}; etcd said last:\n{}\nthe server said last:\n{}", end("etcd.log"), end("server.log"))
}

async fn become_ready(server: &TetheredChild, folder: &Path) -> Result<()> {
    let client = Client::try_from(config(folder).await?).context("make a client")?;
    let until = Instant::now() + LIMIT;
    loop {
        let request = Request::builder().method(Method::GET).uri(READY).body(Body::empty());
        let why = match client.send(request.context("make a request")?).await {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(answer) => String::from_utf8_lossy(&answer.into_body().collect_bytes().await?).into_owned(),
            Err(error) => format!("{error:?}"),
        };
        if server.has_ended() {
            bail!("the server has ended");
        }
        if Instant::now() >= until {
            bail!("not ready within {} s: {why}", LIMIT.as_secs());
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn config(folder: &Path) -> Result<Config> {
    let file = Kubeconfig::read_from(folder.join("kubeconfig")).context("read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut config = config.context("understand the kubeconfig")?;
    // Requests are counted.
    config.default_retry = false;
    Ok(config)
}
