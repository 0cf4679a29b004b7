//! Pods and containers, from their cgroup to their removal.

use std::{
    collections::HashMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use anyhow::{Context, Result};

use super::{
    Amounts, ContainerSpec, Cri, Qos, RUNTIME,
    messages::{
        CONTAINER, CdiDevice, ContainerConfig, ContainerId, ContainerMetadata, ContainerStatusResponse,
        CreateContainerRequest, EXITED, ImageSpec, KeyValue, LinuxContainerConfig,
        LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, Mount, NODE,
        NamespaceOption, Nothing, POD, PRIVATE, PodSandboxConfig, PodSandboxId, PodSandboxMetadata,
        RunPodSandboxRequest, UpdateContainerResourcesRequest,
    },
};
use crate::{cgroup::Cgroup, ids, ids::Ids, memory, wait};

/// Image of every container (`xtask/src/setup/container_image.rs`).
const IMAGE: &str = "localhost/busybox:1";

/// Namespace of every pod.
pub const NAMESPACE: &str = "default";

/// Longest time until a container has said what it saw.
const LIMIT: Duration = Duration::from_mins(3);

/// The first thing it does is to look where it may run; then it becomes what it is to be. The shell itself
/// reads, so that no other process is in between.
const LOOK: &str = "while read -r line; do
    case $line in Pid:*|*_allowed_list:*) echo \"$line\";; esac
done < /proc/self/status
exec \"$@\"";

/// What a container is that only has to be there.
const SLEEP: Program =
    Program { command: &["sleep", "2147483647"], environment: &[], folder: None, cdi_devices: &[] };

/// What a pod is to be.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its annotations.
    pub annotations: &'a [(&'a str, &'a str)],
    /// What each of its containers asks for.
    pub containers: &'a [Amounts],
}

impl Plan<'_> {
    /// Uid of the pod.
    pub fn uid(&self) -> String {
        uid(self.name)
    }
}

/// What a container runs.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// The program and its arguments.
    pub command: &'a [&'a str],
    /// Variables of its environment.
    pub environment: &'a [(&'a str, &'a str)],
    /// A folder of this machine that it sees at the same place, and cannot write.
    pub folder: Option<&'a str>,
    /// Devices of the Container Device Interface that a kubelet passes on.
    pub cdi_devices: &'a [String],
}

/// A pod that runs.
#[derive(Debug)]
pub struct Pod<'a> {
    cri: &'a Cri,
    id: String,
    config: PodSandboxConfig,
    qos: Qos,
    /// Has systemd made its cgroup?
    in_slice: bool,
    /// Where its containers are.
    pub cgroup: Cgroup,
}

/// What pods differ in beside their plan.
struct SandboxKind {
    namespaces: NamespaceOption,
    /// Does systemd make its cgroup?
    in_slice: bool,
}

/// A container of a pod.
#[derive(Debug)]
pub struct Container<'a> {
    cri: &'a Cri,
    id: String,
    qos: Qos,
    log: String,
    /// Its own.
    pub cgroup: Cgroup,
}

/// What the first process of a container saw before it did anything else.
#[derive(Debug, PartialEq, Eq)]
pub struct FirstLook {
    /// Its number in its own namespace.
    pub pid: u32,
    /// CPUs that it may run on.
    pub cpus: Ids,
    /// Nodes that it may allocate on.
    pub mems: Ids,
}

impl<'a> Pod<'a> {
    /// Makes the cgroup as a kubelet does that manages cgroups by itself, and then the pod.
    pub fn run(cri: &'a Cri, plan: &Plan) -> Result<Self> {
        Self::run_with(cri, plan, namespaces())
    }

    /// The same for a pod with `hostPID`: containers have the process namespace of their pod.
    pub fn run_with_host_pid(cri: &'a Cri, plan: &Plan) -> Result<Self> {
        Self::run_with(cri, plan, NamespaceOption { pid: NODE, ..namespaces() })
    }

    fn run_with(cri: &'a Cri, plan: &Plan, namespaces: NamespaceOption) -> Result<Self> {
        let qos = Qos::of(plan.containers);
        let cgroup = Cgroup::create(&format!("{}/pod{}", qos.parent(), uid(plan.name)))?;
        bound(&cgroup, plan.containers)?;
        let parent = cgroup.path().to_owned();
        Self::run_in(cri, plan, cgroup, parent, SandboxKind { namespaces, in_slice: false })
    }

    /// The same where the kubelet and the runtime have systemd make cgroups: it makes the slice with the pod.
    pub fn run_in_slice(cri: &'a Cri, plan: &Plan) -> Result<Self> {
        let (slice, cgroup) = Qos::of(plan.containers).slice(&uid(plan.name));
        let kind = SandboxKind { namespaces: namespaces(), in_slice: true };
        Self::run_in(cri, plan, Cgroup::at(&cgroup), slice, kind)
    }

    fn run_in(
        cri: &'a Cri,
        plan: &Plan,
        cgroup: Cgroup,
        cgroup_parent: String,
        SandboxKind { namespaces, in_slice }: SandboxKind,
    ) -> Result<Self> {
        let (uid, qos) = (uid(plan.name), Qos::of(plan.containers));
        let metadata = PodSandboxMetadata {
            name: plan.name.to_owned(),
            uid: uid.clone(),
            namespace: NAMESPACE.to_owned(),
        };
        let sum = sum(plan.containers);
        let config = PodSandboxConfig {
            log_directory: format!("/var/log/pods/{NAMESPACE}_{}_{uid}", plan.name),
            labels: labels(&metadata, None),
            annotations: owned(plan.annotations),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent,
                security_context: Some(LinuxSandboxSecurityContext { namespace_options: Some(namespaces) }),
                resources: Some(sum.resources(0)),
            }),
            metadata: Some(metadata),
        };
        let request = RunPodSandboxRequest { config: Some(config.clone()) };
        let made: PodSandboxId = cri.call(RUNTIME, "RunPodSandbox", request)?;
        Ok(Self { cri, id: made.pod_sandbox_id, config, qos, in_slice, cgroup })
    }

    /// Makes a container that waits, and does not start it.
    pub fn create(&self, name: &str, amounts: &Amounts) -> Result<Container<'a>> {
        self.create_of(name, amounts, &SLEEP)
    }

    fn create_of(&self, name: &str, amounts: &Amounts, program: &Program) -> Result<Container<'a>> {
        let looking = ["/bin/sh", "-c", LOOK, "sh"].iter().chain(program.command);
        let config = ContainerConfig {
            image: Some(ImageSpec { image: IMAGE.to_owned() }),
            command: looking.map(ToString::to_string).collect(),
            envs: program.environment.iter().map(|&variable| variable.into()).collect(),
            mounts: program.folder.into_iter().map(Mount::from).collect(),
            cdi_devices: program.cdi_devices.iter().map(|id| CdiDevice { name: id.clone() }).collect(),
            ..ContainerConfig::default()
        };
        let security = LinuxContainerSecurityContext {
            namespace_options: Some(namespaces()),
            ..LinuxContainerSecurityContext::default()
        };
        self.create_as(name, amounts, config, security)
    }

    /// Makes a container of this image, and names it, its log and its resources as a kubelet does.
    fn create_as(
        &self,
        name: &str,
        amounts: &Amounts,
        image: ContainerConfig,
        security: LinuxContainerSecurityContext,
    ) -> Result<Container<'a>> {
        let folder = &self.config.log_directory;
        let log_path = format!("{name}/0.log");
        fs::create_dir_all(format!("{folder}/{name}")).context("make the folder of a container's log")?;
        let metadata = self.config.metadata.as_ref().context("a pod without a name")?;
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: name.to_owned() }),
            labels: labels(metadata, Some(name)),
            log_path: log_path.clone(),
            linux: Some(LinuxContainerConfig {
                resources: Some(amounts.resources(amounts.oom_score_adj(self.qos, capacity()?))),
                security_context: Some(security),
            }),
            ..image
        };
        let request = CreateContainerRequest {
            pod_sandbox_id: self.id.clone(),
            config: Some(config),
            sandbox_config: Some(self.config.clone()),
        };
        let ContainerId { container_id: id } = self.cri.call(RUNTIME, "CreateContainer", request)?;
        let name = if self.in_slice { format!("cri-containerd-{id}.scope") } else { id.clone() };
        let cgroup = self.cgroup.child(&name);
        Ok(Container { cri: self.cri, id, qos: self.qos, log: format!("{folder}/{log_path}"), cgroup })
    }

    /// Makes a container that waits, and starts it.
    pub fn start(&self, name: &str, amounts: &Amounts) -> Result<Container<'a>> {
        self.start_of(name, amounts, &SLEEP)
    }

    /// Makes a container that waits, with these devices of the Container Device Interface and variables of
    /// its environment, and starts it.
    pub fn start_with(
        &self,
        name: &str,
        amounts: &Amounts,
        cdi_devices: &[String],
        environment: &[(&str, &str)],
    ) -> Result<Container<'a>> {
        self.start_of(name, amounts, &Program { environment, cdi_devices, ..SLEEP })
    }

    /// Makes a container that runs this, and starts it.
    pub fn start_of(&self, name: &str, amounts: &Amounts, program: &Program) -> Result<Container<'a>> {
        let container = self.create_of(name, amounts, program)?;
        container.start()?;
        Ok(container)
    }

    /// Makes a container as its specification says, and starts it.
    pub fn start_spec(&self, spec: &ContainerSpec) -> Result<Container<'a>> {
        let image = ContainerConfig {
            image: Some(ImageSpec { image: spec.image.clone() }),
            args: spec.args.clone(),
            envs: spec
                .environment
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()).into())
                .collect(),
            mounts: spec.mounts(),
            ..ContainerConfig::default()
        };
        let container = self.create_as(&spec.name, &spec.amounts, image, spec.security())?;
        container.start()?;
        Ok(container)
    }

    /// The runtime's name of it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its uid.
    pub fn uid(&self) -> String {
        self.config.metadata.as_ref().map(|metadata| metadata.uid.clone()).unwrap_or_default()
    }

    /// Stops all that is in it, and removes it with its cgroup.
    pub fn remove(self) -> Result<()> {
        let stopped = wait::until("a pod is stopped", LIMIT, || match self.call("StopPodSandbox") {
            Err(error) if lost_its_shim(&error) => {
                println!("{error:#}; it is asked again");
                Ok(None)
            }
            answer => Ok(Some(answer)),
        })?;
        stopped?;
        self.call("RemovePodSandbox")?;
        self.cgroup.remove()
    }

    fn call(&self, method: &str) -> Result<()> {
        let _: Nothing = self.cri.call(RUNTIME, method, PodSandboxId { pod_sandbox_id: self.id.clone() })?;
        Ok(())
    }
}

impl Container<'_> {
    /// Lets its process run.
    pub fn start(&self) -> Result<()> {
        self.call("StartContainer")
    }

    /// Changes what it may have.
    pub fn update(&self, amounts: &Amounts) -> Result<()> {
        let request = UpdateContainerResourcesRequest {
            container_id: self.id.clone(),
            linux: Some(amounts.resources(amounts.oom_score_adj(self.qos, capacity()?))),
        };
        let _: Nothing = self.cri.call(RUNTIME, "UpdateContainerResources", request)?;
        Ok(())
    }

    /// Kills its process: it has no handler for a signal that asks.
    pub fn stop(&self) -> Result<()> {
        self.cri.stop(&self.id, Duration::ZERO)
    }

    /// Asks it to end, and waits for that; returns its exit status.
    pub fn end(&self) -> Result<i32> {
        self.cri.stop(&self.id, LIMIT)?;
        self.exit_status()
    }

    /// Exit status of its process, when that has ended.
    pub fn exit_status(&self) -> Result<i32> {
        wait::until("the process of a container has ended", LIMIT, || {
            let request = ContainerId { container_id: self.id.clone() };
            let answer: ContainerStatusResponse = self.cri.call(RUNTIME, "ContainerStatus", request)?;
            Ok(answer.status.filter(|status| status.state == EXITED).map(|status| status.exit_code))
        })
    }

    /// Forgets it; it must have ended.
    pub fn remove(self) -> Result<()> {
        self.call("RemoveContainer")
    }

    /// The runtime's name of it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Number of its process on this machine.
    pub fn pid(&self) -> Result<u32> {
        let processes = self.cgroup.read("cgroup.procs")?;
        processes.lines().next().context("a container without a process")?.parse().context("cgroup.procs")
    }

    /// What its process saw first, when it has said so.
    pub fn first_look(&self) -> Result<FirstLook> {
        wait::until("the container says where it may run", LIMIT, || look(&self.printed()?))
    }

    /// Has it printed this line?
    pub fn has_said(&self, line: &str) -> Result<bool> {
        Ok(lines(&self.printed()?).any(|text| text == line))
    }

    /// Its log.
    pub fn printed(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("read {}", self.log))
    }

    fn call(&self, method: &str) -> Result<()> {
        let request = ContainerId { container_id: self.id.clone() };
        let _: Nothing = self.cri.call(RUNTIME, method, request)?;
        Ok(())
    }
}

/// Did the container end while the runtime was about to kill it? Containerd closes its connection to the shim
/// once it knows of the end (`shimTask.delete` of its `runtime/v2`), and a kill in between gets that error of
/// the connection, not "not found". A kubelet tries again after any error; here every other error is a
/// failure, above all a plugin's.
fn lost_its_shim(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.to_string().contains("ttrpc: closed"))
}

/// What stands in a log of lines `TIME STREAM F TEXT`.
fn lines(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter_map(|line| line.splitn(4, ' ').nth(3))
}

/// Reads a log; nothing while a line is missing.
fn look(log: &str) -> Result<Option<FirstLook>> {
    let field = |name: &str| lines(log).find_map(|line| line.strip_prefix(name)).map(str::trim);
    let (Some(pid), Some(cpus), Some(mems)) =
        (field("Pid:"), field("Cpus_allowed_list:"), field("Mems_allowed_list:"))
    else {
        return Ok(None);
    };
    let pid = pid.parse().with_context(|| format!("number of a process: {pid:?}"))?;
    Ok(Some(FirstLook { pid, cpus: ids::parse(cpus)?, mems: ids::parse(mems)? }))
}

/// What the containers of a pod ask for together; without a limit when one has none.
fn sum(containers: &[Amounts]) -> Amounts {
    let total = |of: fn(&Amounts) -> i64| containers.iter().map(of).sum();
    let limit = |of: fn(&Amounts) -> i64| {
        if containers.iter().all(|one| of(one) > 0) { containers.iter().map(of).sum() } else { 0 }
    };
    Amounts {
        cpu_request: total(|one| one.cpu_request),
        cpu_limit: limit(|one| one.cpu_limit),
        memory_request: total(|one| one.memory_request),
        memory_limit: limit(|one| one.memory_limit),
        ..Amounts::default()
    }
}

/// Gives a pod's cgroup what its containers may have together.
fn bound(cgroup: &Cgroup, containers: &[Amounts]) -> Result<()> {
    let sum = sum(containers);
    cgroup.write("cpu.weight", &weight(sum.shares()).to_string())?;
    if let Some(quota) = sum.quota() {
        cgroup.write("cpu.max", &format!("{quota} 100000"))?;
    }
    if let Some(bytes) = sum.memory_bytes() {
        cgroup.write("memory.max", &bytes.to_string())?;
    }
    Ok(())
}

/// Shares on the scale of weights (Kubernetes' `CPUSharesToCPUWeight`).
const fn weight(shares: i64) -> i64 {
    1 + (shares - 2) * 9999 / 262_142
}

/// A name of the form that Kubernetes gives, always the same for a pod of this name.
fn uid(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let hash = hasher.finish();
    format!(
        "{:08x}-{:04x}-4000-8000-{hash:012x}",
        hash >> 32,
        hash >> 16 & 0xffff,
        hash = hash & 0xffff_ffff_ffff
    )
}

impl From<(&str, &str)> for KeyValue {
    fn from((key, value): (&str, &str)) -> Self {
        Self { key: key.to_owned(), value: value.to_owned() }
    }
}

impl From<&str> for Mount {
    fn from(folder: &str) -> Self {
        let path = || folder.to_owned();
        Self { container_path: path(), host_path: path(), readonly: true, propagation: PRIVATE }
    }
}

/// A network that exists, and processes that see each other only in a container.
pub(super) fn namespaces() -> NamespaceOption {
    NamespaceOption { network: NODE, pid: CONTAINER, ipc: POD }
}

/// Labels with which a kubelet marks the pod and container of an object.
fn labels(pod: &PodSandboxMetadata, container: Option<&str>) -> HashMap<String, String> {
    let mut labels = owned(&[
        ("io.kubernetes.pod.name", &pod.name),
        ("io.kubernetes.pod.namespace", &pod.namespace),
        ("io.kubernetes.pod.uid", &pod.uid),
    ]);
    labels.extend(owned(container.map(|name| ("io.kubernetes.container.name", name)).as_slice()));
    labels
}

fn owned(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// MiB of this machine.
fn capacity() -> Result<i64> {
    i64::try_from(memory::total_mebibytes()?).context("memory of this machine")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_shim_is_asked_about_again() {
        let error = |cause: &str| anyhow::anyhow!("failed to kill container \"a\": {cause}: unknown");
        assert!(lost_its_shim(&error("ttrpc: closed").context("StopPodSandbox over CRI")));
        assert!(!lost_its_shim(&error("context deadline exceeded").context("StopPodSandbox over CRI")));
    }

    #[test]
    fn a_log_tells_what_was_seen_once_it_is_whole() {
        let line = |text: &str| format!("2026-01-01T00:00:00.000000001Z stdout F {text}\n");
        let log = ["Pid:\t1", "Cpus_allowed_list:\t0-1", "Mems_allowed_list:\t1"].map(line);
        assert_eq!(look(&log[..2].concat()).unwrap(), None);
        let seen = look(&log.concat()).unwrap().unwrap();
        assert_eq!(seen, FirstLook { pid: 1, cpus: Ids::from([0, 1]), mems: Ids::from([1]) });
        assert!(look(&log.concat().replace("0-1", "all")).is_err());
    }

    #[test]
    fn a_pod_has_a_limit_only_if_all_of_its_containers_have_one() {
        let (fixed, some) = (Amounts::guaranteed(2, 64), Amounts::burstable(500, 16));
        assert_eq!(sum(&[fixed.clone(), fixed.clone()]), Amounts::guaranteed(4, 128));
        let mixed = sum(&[fixed, some]);
        assert_eq!((mixed.cpu_request, mixed.quota(), mixed.memory_bytes()), (2500, None, None));
    }

    #[test]
    fn names_of_pods_are_of_the_usual_form_and_differ() {
        let (one, other) = (uid("one"), uid("other"));
        let lengths: Vec<_> = one.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_ne!(one, other);
        assert_eq!(one, uid("one"));
    }

    #[test]
    fn shares_become_weights_as_in_kubernetes() {
        assert_eq!([2, 512, 1024, 262_144].map(weight), [1, 20, 39, 10_000]);
    }
}
