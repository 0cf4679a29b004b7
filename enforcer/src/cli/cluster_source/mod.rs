//! The cluster that a command is about: objects as kubectl prints them, a directory of captured machines, an
//! API server, or machines that are described.

mod captured;
mod nodes;

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use enforcer_cluster::{
    ApiConnection,
    objects::{ClusterObjects, list_devices, list_objects},
};
use enforcer_host::{read_within, written_text};
use tokio::runtime::Builder;

pub(super) use self::nodes::with_pods;
use super::{
    UsageError,
    args::{SyntheticCluster, SyntheticLine},
    terminal,
};

/// Largest list that is read.
const SIZE_LIMIT: u64 = 512 << 20;

/// Where the objects of a cluster are.
#[derive(Debug)]
pub(super) enum ClusterSource {
    /// A file of objects, standard input (`-`), or a directory of captured machines.
    Path(PathBuf),
    /// An API server, as the account of a kubeconfig.
    Kubeconfig(PathBuf),
    /// The API server of the pod that this process runs in.
    Pod,
    /// Equal machines that are described.
    Synthetic(Box<SyntheticLine>),
}

/// The objects of a cluster.
#[derive(Debug)]
pub(super) struct ReadCluster {
    pub(super) objects: ClusterObjects,
    /// Whether nodes of the source are missing because they could not be read.
    pub(super) lacks_nodes: bool,
}

impl ClusterSource {
    /// The source that these arguments name; `None` if they name none.
    pub(super) fn named(
        path: Option<PathBuf>,
        kubeconfig: Option<PathBuf>,
        synthetic: Option<SyntheticLine>,
    ) -> Result<Option<Self>, UsageError> {
        let both = |one: &str, other: &str| Err(UsageError(format!("{one} cannot be used with {other}")));
        match (path, kubeconfig, synthetic) {
            (Some(_), Some(_), _) => both("SOURCE", "--kubeconfig"),
            (Some(_), None, Some(_)) => both("SOURCE", "--synthetic"),
            (None, Some(_), Some(_)) => both("--kubeconfig", "--synthetic"),
            (Some(path), None, None) => Ok(Some(Self::Path(path))),
            (None, Some(path), None) => Ok(Some(Self::Kubeconfig(path))),
            (None, None, Some(line)) => Ok(Some(Self::Synthetic(Box::new(line)))),
            (None, None, None) => Ok(None),
        }
    }

    /// The cluster of kubectl: that of `KUBECONFIG`, or of the file in the home directory; in a pod its own.
    pub(super) fn default_cluster() -> Result<Self, UsageError> {
        let listed = env::var_os("KUBECONFIG");
        let mut paths = listed.iter().flat_map(env::split_paths).filter(|path| !path.as_os_str().is_empty());
        if let Some(path) = paths.next() {
            return Ok(Self::Kubeconfig(path));
        }
        let home = env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config"));
        if let Some(path) = home.filter(|path| path.exists()) {
            return Ok(Self::Kubeconfig(path));
        }
        if env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            return Ok(Self::Pod);
        }
        let said =
            "no cluster: name a SOURCE or --kubeconfig; there is neither KUBECONFIG nor ~/.kube/config";
        Err(UsageError(said.to_owned()))
    }

    /// May its content be another one when it is read again?
    pub(super) const fn changes(&self) -> bool {
        matches!(self, Self::Kubeconfig(_) | Self::Pod)
    }

    /// Is it standard input?
    pub(super) fn is_standard_input(&self) -> bool {
        matches!(self, Self::Path(path) if path.as_os_str() == "-")
    }

    /// Reads it, and names on standard error what is left out and what is assumed.
    pub(super) fn read(&self) -> anyhow::Result<ReadCluster> {
        self.read_with(false)
    }

    /// The same, and what claims for devices need.
    pub(super) fn read_with_devices(&self) -> anyhow::Result<ReadCluster> {
        self.read_with(true)
    }

    fn read_with(&self, devices: bool) -> anyhow::Result<ReadCluster> {
        let whole = |objects| ReadCluster { objects, lacks_nodes: false };
        let read = match self {
            Self::Path(path) if path.is_dir() => captured::read(path)?,
            Self::Path(path) => whole(listed(path)?),
            Self::Synthetic(line) => whole(described(line)?),
            Self::Kubeconfig(path) => whole(asked(Some(path), devices)?),
            Self::Pod => whole(asked(None, devices)?),
        };
        read.objects.left_out.iter().for_each(|line| terminal::note(&format!("left out: {line}")));
        Ok(read)
    }
}

fn listed(source: &Path) -> anyhow::Result<ClusterObjects> {
    let name = source.display();
    let text = if source.as_os_str() == "-" {
        read_within(&mut std::io::stdin().lock(), SIZE_LIMIT)
    } else {
        std::fs::File::open(source).and_then(|mut file| read_within(&mut file, SIZE_LIMIT))
    };
    let text = text.and_then(written_text).with_context(|| format!("reading {name}"))?;
    ClusterObjects::read(&text).map_err(|error| UsageError(format!("{name}: {error}")).into())
}

fn asked(kubeconfig: Option<&Path>, devices: bool) -> anyhow::Result<ClusterObjects> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let objects = runtime.block_on(async {
        let connection = match kubeconfig {
            Some(path) => ApiConnection::of_kubeconfig(path).await?,
            None => ApiConnection::in_cluster()?,
        };
        let mut objects = list_objects(&connection).await?;
        if devices {
            list_devices(&connection, &mut objects).await;
        }
        anyhow::Ok(objects)
    });
    let hint = "where kubectl reaches the cluster, `kubectl get numanodestates,nodes,pods -A -o json` gives a SOURCE";
    objects.map_err(|error| anyhow::anyhow!("{error:#}; {hint}"))
}

/// Machines `node-0001` and so on.
fn described(line: &SyntheticLine) -> anyhow::Result<ClusterObjects> {
    let SyntheticCluster { machines, kubelet } = *line.cluster.clone().unwrap_or_default();
    let machine = line.machine.clone().build();
    let reserved = kubelet.reserved_cpus(&machine);
    let online = machine.cpus.iter().map(|cpu| cpu.id).collect();
    if !reserved.is_subset(&online) {
        let absent = reserved.difference(&online);
        return Err(UsageError(format!("reserved-cpus: the machine has no CPUs {absent}")).into());
    }
    let (node, state) = kubelet.empty("", &machine).map_err(|fault| UsageError(fault.to_string()))?;
    let named = (1..=machines).map(|number| {
        let name = format!("node-{number:04}");
        let (mut node, mut state) = (node.clone(), state.clone());
        (node.name, state.name) = (name.clone(), name);
        (node, state)
    });
    Ok(ClusterObjects::of_nodes(named.collect(), Vec::new(), Vec::new()))
}
