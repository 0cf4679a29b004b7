//! The kubelet of a captured machine: its files, where they were added to the capture.
//!
//! Problem: a plan over captured machines wants what their kubelets have given away. `numa-enforcer capture`
//! copies no file of a kubelet, because they name pods. Idea: files below `var/lib/kubelet` of the capture,
//! copied there by an administrator, go through the reader of the daemon. What only the kubelet's socket
//! tells is taken from the files as far as they determine it; the rest makes the state inexact, by name.
//!
//! Invariant: nothing of this host is read: no process, no socket, no device plugin.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use enforcer_core::cluster::{
    described::DescribedKubelet,
    observed::{ListedContainerResources, ListedPodResources, NodeObservation, SourceRead, answers_of_files},
    state::InexactSource,
};
use enforcer_host::read_within;
use numa_topology::{Topology, set::CpuSet};

use super::{
    CPU_STATE, DEVICE_STATE, MEMORY_STATE, PodResourcesError,
    observe::{LookPace, observe},
    settings::{EffectiveKubelet, settings_of_document},
};

/// The kubelet's directory in a capture.
const DIRECTORY: &str = "var/lib/kubelet";
/// Its configuration there, as kubeadm calls it.
const CONFIGURATION: &str = "config.yaml";
/// Largest configuration that is read.
const CONFIGURATION_LIMIT: u64 = 1 << 20;

/// The kubelet of a captured machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedKubelet {
    /// Its settings; those that the capture does not have are the ones that were assumed.
    pub kubelet: DescribedKubelet,
    /// What of the settings is not known.
    pub inexact: Vec<InexactSource>,
    /// Its files; `None` if the capture has none, and the node is taken as empty.
    pub observation: Option<NodeObservation>,
    /// Whether the settings are assumed, because the capture has no configuration.
    pub is_assumed: bool,
}

/// Reads the files of a capture. `assumed` are the settings of a kubelet without a configuration there, and
/// the version of any, which no file tells.
///
/// # Errors
/// The configuration is there and cannot be used.
pub fn read_captured(
    root: &Path,
    machine: &Topology,
    assumed: &DescribedKubelet,
) -> Result<CapturedKubelet, String> {
    let dir = root.join(DIRECTORY);
    let (kubelet, inexact, is_assumed) =
        match configuration(&dir.join(CONFIGURATION), &assumed.profile.version)? {
            Some(settings) => {
                let EffectiveKubelet { profile, reservations, inexact } = settings;
                let max_pods = reservations.max_pods.unwrap_or(assumed.max_pods);
                (DescribedKubelet { profile, reserved_cpus: reservations.cpus, max_pods }, inexact, false)
            }
            None => (assumed.clone(), Vec::new(), true),
        };
    let paths = [dir.join(CPU_STATE), dir.join(MEMORY_STATE), dir.join("device-plugins").join(DEVICE_STATE)];
    let has_any = paths.iter().any(|path| path.symlink_metadata().is_ok());
    let observation = has_any.then(|| {
        // Without a list the kubelet chooses the reserved CPUs by their number, and tells its socket alone.
        let is_known =
            is_assumed || kubelet.reserved_cpus.is_some() || kubelet.profile.cpu_policy != "static";
        let reserved = is_known.then(|| kubelet.reserved_cpus(machine));
        observation(&paths, machine, &kubelet, reserved.as_ref())
    });
    Ok(CapturedKubelet { kubelet, inexact, observation, is_assumed })
}

fn configuration(path: &Path, version: &str) -> Result<Option<EffectiveKubelet>, String> {
    let failed = |cause: &dyn std::fmt::Display| format!("{}: {cause}", path.display());
    match path.symlink_metadata() {
        Ok(metadata) if !metadata.is_file() => return Err(failed(&"not a regular file")),
        Ok(_) => {}
        Err(_absent) => return Ok(None),
    }
    let bytes = fs::File::open(path).and_then(|file| read_within(file, CONFIGURATION_LIMIT));
    let bytes = bytes.map_err(|error| failed(&error))?;
    settings_of_document(&bytes, version).map(Some).map_err(|fault| failed(&fault))
}

fn observation(
    paths: &[PathBuf; 3],
    machine: &Topology,
    kubelet: &DescribedKubelet,
    reserved: Option<&CpuSet>,
) -> NodeObservation {
    // The copy does not change, so one look is enough, and no file is too young.
    let pace = LookPace { most: 1, pause: Duration::ZERO };
    let no_socket = || Err(PodResourcesError::Absent { path: PathBuf::new(), cause: String::new() });
    let mut observation = observe(paths, pace, machine, &kubelet.profile, no_socket);
    if let Some(offered) = reserved.and_then(|cpus| answers_of_files(machine, &observation, cpus)) {
        observation.offered = SourceRead::Read(offered);
        observation.listed = SourceRead::Read(listed(&observation));
    }
    observation
}

/// The pods of the files under their uids: the files have no names.
fn listed(observation: &NodeObservation) -> Vec<ListedPodResources> {
    let Some(cpus) = observation.cpus.content() else { return Vec::new() };
    let memory = observation.memory.content();
    let pods = cpus.containers.iter().map(|(uid, containers)| {
        let containers = containers.iter().map(|(name, cpus)| ListedContainerResources {
            name: name.clone(),
            cpus: cpus.clone(),
            memory: memory.and_then(|of| of.containers.get(uid)?.get(name).cloned()).unwrap_or_default(),
            ..ListedContainerResources::default()
        });
        ListedPodResources { namespace: String::new(), name: uid.clone(), containers: containers.collect() }
    });
    pods.collect()
}

#[cfg(test)]
mod tests {
    use numa_topology::synth::Machine;

    use super::*;

    const CONFIGURATION: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         cpuManagerPolicy: static\ntopologyManagerPolicy: restricted\nreservedSystemCPUs: \"0,4\"\nmaxPods: 30\n";
    const CPUS: &str = r#"{"policyName":"static","defaultCpuSet":"0-1,4-5",
        "entries":{"u1":{"main":"2-3,6-7"}},"checksum":0}"#;
    const MEMORY: &str = r#"{"policyName":"None","machineState":{},"checksum":0}"#;

    fn capture(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join(DIRECTORY);
        fs::create_dir_all(&dir).unwrap();
        for (name, text) in files {
            fs::write(dir.join(name), text).unwrap();
        }
        root
    }

    fn read(files: &[(&str, &str)]) -> Result<CapturedKubelet, String> {
        let machine = "sockets:2 cores:2 threads:2".parse::<Machine>().unwrap().build();
        read_captured(capture(files).path(), &machine, &DescribedKubelet::default())
    }

    fn state_of(read: &CapturedKubelet) -> enforcer_core::cluster::state::NodeState {
        let machine = "sockets:2 cores:2 threads:2".parse::<Machine>().unwrap().build();
        let observation = read.observation.as_ref().unwrap();
        read.kubelet.objects("a", &machine, observation, &read.inexact).unwrap().1.state.unwrap()
    }

    #[test]
    fn files_of_a_capture_make_an_exact_state() {
        let all = [("config.yaml", CONFIGURATION), (CPU_STATE, CPUS), (MEMORY_STATE, MEMORY)];
        let read = read(&all).unwrap();
        assert!(!read.is_assumed);
        assert_eq!(
            (read.kubelet.max_pods, read.kubelet.profile.topology_policy.as_str()),
            (30, "restricted")
        );
        let state = state_of(&read);
        assert!(state.exact, "{:?}", state.inexact);
        assert_eq!(state.reserved_cpus.to_string(), "0,4");
        assert_eq!((state.pods.len(), state.pods[0].containers[0].cpus.to_string()), (1, "2-3,6-7".into()));
    }

    #[test]
    fn what_the_files_do_not_tell_makes_the_state_inexact() {
        let unlisted = CONFIGURATION.replace("reservedSystemCPUs: \"0,4\"", "kubeReserved: {cpu: 500m}");
        let found = read(&[("config.yaml", &unlisted), (CPU_STATE, CPUS), (MEMORY_STATE, MEMORY)]).unwrap();
        let sources: Vec<String> = state_of(&found).inexact.into_iter().map(|one| one.source).collect();
        assert_eq!(sources, ["kubelet:podresources"]);
        let found = read(&[("config.yaml", CONFIGURATION), (CPU_STATE, CPUS)]).unwrap();
        let sources: Vec<String> = state_of(&found).inexact.into_iter().map(|one| one.source).collect();
        assert!(sources.contains(&"kubelet:memory_manager_state".to_owned()), "{sources:?}");
    }

    #[test]
    fn capture_without_files_is_an_empty_node_of_the_assumed_kubelet() {
        let found = read(&[]).unwrap();
        assert_eq!((found.observation, found.is_assumed), (None, true));
        assert_eq!(found.kubelet, DescribedKubelet::default());
        let fault = read(&[("config.yaml", "kind: Other\n")]).unwrap_err();
        assert!(fault.contains("config.yaml: "), "{fault}");
    }
}
