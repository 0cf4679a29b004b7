//! The pods of deploy/kubernetes, as the chart renders them: what a kubelet would have a runtime run.
//!
//! The one place of scenarios that knows the specification of the pod. A key of a container that is not
//! understood here is an error, so that no scenario runs less than what is shipped.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    api,
    cri::{Amounts, ContainerSpec, MountSpec},
    rights::RoleRule,
};

/// Where the machine has what pods have from a `ConfigMap`.
pub const CONFIG: &str = "/etc/numa-enforcer";

/// Where a kubelet looks for profiles of seccomp.
pub const SECCOMP: &str = "/var/lib/kubelet/seccomp";

/// Where the machine has the account of a pod.
pub const ACCOUNT: &str = "/var/lib/rig/account";

/// What is rendered with `cluster.publish` and `cluster.events`.
const PUBLISHING: &str = include_str!("../fixtures/chart/publishing.yaml");

/// What is rendered with `dra.enabled`.
const CLAIMS: &str = include_str!("../fixtures/chart/claims.yaml");

/// Says something to the cluster, and nothing to a runtime.
const OF_THE_CLUSTER: [&str; 7] = [
    "serviceAccountName",
    "enableServiceLinks",
    "priorityClassName",
    "affinity",
    "nodeSelector",
    "tolerations",
    "terminationGracePeriodSeconds",
];

/// The same of a container.
const OF_THE_KUBELET: [&str; 2] = ["imagePullPolicy", "terminationMessagePolicy"];

/// A pod of a preset.
#[derive(Debug, Clone)]
pub struct Preset {
    /// Name of its folder.
    pub name: &'static str,
    /// What runs to its end before the daemon, in this order.
    pub init: Vec<ContainerSpec>,
    /// The daemon.
    pub daemon: ContainerSpec,
    /// Port of its metrics.
    pub metrics: u16,
    /// Ports and paths that the kubelet asks.
    pub probes: Vec<(u16, String)>,
    /// Folders of the machine that have to be there, or that a kubelet makes.
    folders: Vec<String>,
}

impl Preset {
    /// It watches.
    pub fn observe() -> Result<Self> {
        Self::read("observe", include_str!("../../deploy/kubernetes/observe/daemon-set.yaml"))
    }

    /// It corrects.
    pub fn enforce() -> Result<Self> {
        Self::read("enforce", include_str!("../../deploy/kubernetes/enforce/daemon-set.yaml"))
    }

    /// It puts everything back.
    pub fn restore() -> Result<Self> {
        Self::read("restore", include_str!("../../deploy/kubernetes/restore/daemon-set.yaml"))
    }

    /// It corrects, publishes the state of its node and writes events.
    pub fn publishing() -> Result<Self> {
        Self::read("publishing", of_kind(PUBLISHING, "DaemonSet").next().context("no DaemonSet is rendered")?)
    }

    /// It corrects, offers the NUMA nodes as devices and prepares claims.
    pub fn claims() -> Result<Self> {
        Self::read("claims", of_kind(CLAIMS, "DaemonSet").next().context("no DaemonSet is rendered")?)
    }

    fn read(name: &'static str, daemon_set: &str) -> Result<Self> {
        Self::of(name, daemon_set).with_context(|| format!("read the DaemonSet of {name}"))
    }

    fn of(name: &'static str, daemon_set: &str) -> Result<Self> {
        let mut object: Value = serde_saphyr::from_str(daemon_set).context("no YAML")?;
        let pod: PodYaml = strict(object["spec"]["template"]["spec"].take(), &OF_THE_CLUSTER)?;
        let mut sources = BTreeMap::new();
        let mut folders = vec![CONFIG.to_owned()];
        for VolumeYaml { name, host_path, config_map } in pod.volumes {
            let path = match (host_path, config_map) {
                (Some(HostPathYaml { path, kind }), None) => {
                    folders.extend(kind.filter(|kind| kind.starts_with("Directory")).map(|_| path.clone()));
                    path
                }
                (None, Some(_)) => CONFIG.to_owned(),
                _ => bail!("volume {name} is of an unknown kind"),
            };
            sources.insert(name, path);
        }
        let init =
            pod.init_containers.into_iter().map(|one| Ok(container(one, &sources, pod.host_pid)?.spec));
        let init = init.collect::<Result<_>>()?;
        let [daemon] = <[Value; 1]>::try_from(pod.containers).ok().context("the pod has one container")?;
        let RenderedContainer { spec: mut daemon, ports, probes } =
            container(daemon, &sources, pod.host_pid)?;
        if pod.automount_service_account_token {
            daemon.mounts.push(MountSpec {
                container_path: api::ACCOUNT.to_owned(),
                host_path: ACCOUNT.to_owned(),
                is_read_only: true,
                follows_host: false,
            });
        }
        let port = |name: &str| ports.get(name).copied().with_context(|| format!("no port {name}"));
        let probes = probes.into_iter().map(|HttpGetYaml { path, port: name }| Ok((port(&name)?, path)));
        let probes = probes.collect::<Result<_>>()?;
        Ok(Self { name, init, daemon, metrics: port("metrics")?, probes, folders })
    }

    /// The daemon without the account of its pod.
    pub fn without_account(&self) -> ContainerSpec {
        let mut daemon = self.daemon.clone();
        daemon.mounts.retain(|mount| mount.host_path != ACCOUNT);
        daemon
    }

    /// Makes the folders of the machine that it mounts.
    pub fn make_folders(&self) -> Result<()> {
        self.folders.iter().try_for_each(|one| fs::create_dir_all(one).with_context(|| format!("make {one}")))
    }
}

/// Rules of all roles that the account of daemons has that publish.
pub fn rights() -> Result<Vec<RoleRule>> {
    rights_of(PUBLISHING)
}

/// Rules of all roles that the account of daemons has that prepare claims.
pub fn claim_rights() -> Result<Vec<RoleRule>> {
    rights_of(CLAIMS)
}

/// The configuration of daemons that prepare claims.
pub fn claim_config() -> Result<String> {
    let map = of_kind(CLAIMS, "ConfigMap").next().context("no ConfigMap is rendered")?;
    let object: Value = serde_saphyr::from_str(map).context("no YAML")?;
    Ok(object["data"]["numa-enforcer.toml"].as_str().context("no numa-enforcer.toml")?.to_owned())
}

fn rights_of(rendered: &'static str) -> Result<Vec<RoleRule>> {
    let mut rules = Vec::new();
    for role in of_kind(rendered, "ClusterRole").chain(of_kind(rendered, "Role")) {
        let mut object: Value = serde_saphyr::from_str(role).context("no YAML")?;
        rules.extend(serde_json::from_value::<Vec<RoleRule>>(object["rules"].take()).context("rules")?);
    }
    Ok(rules)
}

/// Objects of a kind of a rendering.
fn of_kind(rendered: &'static str, kind: &str) -> impl Iterator<Item = &'static str> {
    let line = format!("kind: {kind}");
    rendered.split("\n---\n").filter(move |text| text.lines().any(|one| one == line))
}

/// A container, and what is asked of it.
struct RenderedContainer {
    spec: ContainerSpec,
    ports: BTreeMap<String, u16>,
    probes: Vec<HttpGetYaml>,
}

fn container(value: Value, sources: &BTreeMap<String, String>, host_pid: bool) -> Result<RenderedContainer> {
    let yaml: ContainerYaml = strict(value, &OF_THE_KUBELET)?;
    let security = yaml.security_context;
    ensure!(!security.privileged.unwrap_or_default(), "{} is privileged", yaml.name);
    ensure!(security.capabilities.drop == ["ALL"], "{} keeps capabilities of the runtime", yaml.name);
    let seccomp = match security.seccomp_profile {
        ProfileYaml { kind, localhost_profile: Some(file) } if kind == "Localhost" => {
            Some(format!("{SECCOMP}/{file}"))
        }
        ProfileYaml { kind, localhost_profile: None } if kind == "RuntimeDefault" => None,
        other => bail!("{}: seccomp {other:?}", yaml.name),
    };
    let unconfined = match security.app_armor_profile {
        None => false,
        Some(ProfileYaml { kind, localhost_profile: None }) if kind == "Unconfined" => true,
        Some(other) => bail!("{}: AppArmor {other:?}", yaml.name),
    };
    let mut mounts = Vec::new();
    for mount in yaml.volume_mounts {
        let host_path = sources.get(&mount.name).with_context(|| format!("no volume {}", mount.name))?;
        mounts.push(MountSpec {
            container_path: mount.mount_path,
            host_path: host_path.clone(),
            is_read_only: mount.read_only,
            follows_host: match mount.mount_propagation.as_deref() {
                None => false,
                Some("HostToContainer") => true,
                Some(other) => bail!("{}: propagation {other}", mount.name),
            },
        });
    }
    let mut environment = Vec::new();
    for EnvYaml { name, value_from: FromYaml { field_ref: FieldYaml { field_path } } } in yaml.env {
        ensure!(field_path == "spec.nodeName", "{name} is of {field_path}");
        environment.push((name, api::NODE.to_owned()));
    }
    let probes = [yaml.startup_probe, yaml.readiness_probe, yaml.liveness_probe];
    Ok(RenderedContainer {
        spec: ContainerSpec {
            name: yaml.name,
            image: yaml.image,
            args: yaml.args.iter().map(|arg| with_variables(arg, &environment)).collect(),
            environment,
            amounts: yaml.resources.amounts()?,
            user: security.run_as_user,
            capabilities: security.capabilities.add,
            no_new_privileges: !security.allow_privilege_escalation,
            read_only_root: security.read_only_root_filesystem,
            host_pid,
            seccomp,
            unconfined,
            mounts,
        },
        ports: yaml.ports.into_iter().map(|port| (port.name, port.container_port)).collect(),
        probes: probes.into_iter().flatten().map(|probe| probe.http_get).collect(),
    })
}

/// A text with the values of variables, as a kubelet puts them into it.
fn with_variables(text: &str, environment: &[(String, String)]) -> String {
    let with = |text: String, (name, value): &(String, String)| text.replace(&format!("$({name})"), value);
    environment.iter().fold(text.to_owned(), with)
}

/// Reads an object; every key but these has to be known.
fn strict<T: DeserializeOwned>(mut value: Value, passed_over: &[&str]) -> Result<T> {
    let object = value.as_object_mut().context("no object")?;
    for key in passed_over {
        object.remove(*key);
    }
    Ok(serde_json::from_value(value)?)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodYaml {
    #[serde(rename = "hostPID")]
    host_pid: bool,
    automount_service_account_token: bool,
    init_containers: Vec<Value>,
    containers: Vec<Value>,
    volumes: Vec<VolumeYaml>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VolumeYaml {
    name: String,
    host_path: Option<HostPathYaml>,
    config_map: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostPathYaml {
    path: String,
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ContainerYaml {
    name: String,
    image: String,
    args: Vec<String>,
    #[serde(default)]
    env: Vec<EnvYaml>,
    #[serde(default)]
    ports: Vec<PortYaml>,
    startup_probe: Option<ProbeYaml>,
    readiness_probe: Option<ProbeYaml>,
    liveness_probe: Option<ProbeYaml>,
    resources: ResourcesYaml,
    security_context: SecurityYaml,
    volume_mounts: Vec<VolumeMountYaml>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PortYaml {
    name: String,
    container_port: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EnvYaml {
    name: String,
    value_from: FromYaml,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FromYaml {
    field_ref: FieldYaml,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FieldYaml {
    field_path: String,
}

/// How often the kubelet asks and how long it waits is for the kubelet.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProbeYaml {
    http_get: HttpGetYaml,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpGetYaml {
    path: String,
    port: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResourcesYaml {
    limits: QuantitiesYaml,
    requests: QuantitiesYaml,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct QuantitiesYaml {
    cpu: Option<String>,
    memory: Option<String>,
}

impl ResourcesYaml {
    fn amounts(&self) -> Result<Amounts> {
        let number = |quantity: &Option<String>, unit: &str| -> Result<i64> {
            let Some(quantity) = quantity else { return Ok(0) };
            let number =
                quantity.strip_suffix(unit).with_context(|| format!("{quantity} is not in {unit}"))?;
            number.parse().with_context(|| format!("quantity {quantity}"))
        };
        Ok(Amounts {
            cpu_request: number(&self.requests.cpu, "m")?,
            cpu_limit: number(&self.limits.cpu, "m")?,
            memory_request: number(&self.requests.memory, "Mi")?,
            memory_limit: number(&self.limits.memory, "Mi")?,
            ..Amounts::default()
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SecurityYaml {
    run_as_user: i64,
    privileged: Option<bool>,
    allow_privilege_escalation: bool,
    read_only_root_filesystem: bool,
    capabilities: CapabilitiesYaml,
    seccomp_profile: ProfileYaml,
    app_armor_profile: Option<ProfileYaml>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CapabilitiesYaml {
    drop: Vec<String>,
    #[serde(default)]
    add: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProfileYaml {
    #[serde(rename = "type")]
    kind: String,
    localhost_profile: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VolumeMountYaml {
    name: String,
    mount_path: String,
    #[serde(default)]
    read_only: bool,
    mount_propagation: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_read_as_they_are_rendered() {
        let presets = [Preset::observe(), Preset::enforce(), Preset::restore()].map(Result::unwrap);
        let [observe, enforce, restore] = &presets;
        let names = |preset: &Preset| -> Vec<_> { preset.init.iter().map(|one| one.name.clone()).collect() };
        assert_eq!(names(observe), ["seccomp-profile"]);
        assert_eq!(names(restore), ["seccomp-profile", "restore"]);
        for preset in &presets {
            assert_eq!(preset.daemon.args[0], "run");
            assert!(
                preset.daemon.read_only_root && preset.daemon.no_new_privileges && preset.daemon.host_pid
            );
            assert_eq!(preset.daemon.seccomp.as_deref(), Some("/var/lib/kubelet/seccomp/numa-enforcer.json"));
            assert_eq!(preset.init[0].seccomp, None);
            assert!(preset.init[0].capabilities.is_empty());
            let paths: Vec<_> = preset.probes.iter().map(|(_, path)| path.as_str()).collect();
            assert_eq!(paths, ["/ready", "/ready", "/live"]);
        }
        assert_eq!(observe.daemon.capabilities, ["BPF", "PERFMON", "SYS_RESOURCE"]);
        assert!(enforce.daemon.capabilities.len() > observe.daemon.capabilities.len());
        let cgroup = |preset: &Preset| {
            let mut mounts = preset.daemon.mounts.iter();
            mounts.find(|mount| mount.host_path == "/sys/fs/cgroup").cloned().unwrap()
        };
        assert!(cgroup(observe).is_read_only && !cgroup(enforce).is_read_only);
    }

    #[test]
    fn pod_that_publishes_has_its_node_and_its_account() {
        let (publishing, enforce) = (Preset::publishing().unwrap(), Preset::enforce().unwrap());
        assert_eq!(publishing.daemon.environment, [("NODE_NAME".to_owned(), api::NODE.to_owned())]);
        let new = &publishing.daemon.args[enforce.daemon.args.len()..];
        assert_eq!(new, ["--publish-as", api::NODE, "--events"]);
        let mounts = &publishing.daemon.mounts;
        assert_eq!(mounts.last().map(|mount| mount.container_path.as_str()), Some(api::ACCOUNT));
        assert_eq!(mounts[..mounts.len() - 1], enforce.daemon.mounts);
        assert_eq!(publishing.without_account().mounts, enforce.daemon.mounts);
        assert_eq!(enforce.daemon.environment, []);
    }

    #[test]
    fn pod_that_prepares_claims_has_its_folders_at_the_paths_of_the_node() {
        let (claims, enforce) = (Preset::claims().unwrap(), Preset::enforce().unwrap());
        assert_eq!(claims.daemon.args[enforce.daemon.args.len()..], ["--node-name", api::NODE]);
        let mounts = claims.without_account().mounts;
        let new: Vec<&MountSpec> =
            mounts.iter().filter(|mount| !enforce.daemon.mounts.contains(mount)).collect();
        let expected =
            ["plugins/numa-enforcer.io", "plugins_registry"].map(|name| format!("/var/lib/kubelet/{name}"));
        let paths = new.iter().map(|mount| &mount.container_path);
        assert!(paths.eq(expected.iter().chain([&"/var/run/cdi".to_owned()])), "{new:?}");
        assert!(
            new.iter().all(|mount| mount.host_path == mount.container_path && !mount.is_read_only),
            "{new:?}"
        );
        let at = |path: &str| mounts.iter().position(|mount| mount.container_path == path).unwrap();
        let is_before = at("/var/lib/kubelet") < at(&new[0].container_path);
        assert!(is_before, "the folder is mounted before what is in it");
        assert!(claim_config().unwrap().contains("\n[dra]\nenabled = true\n"));
        assert_eq!((claim_rights().unwrap().len(), rights().unwrap().len()), (3, 6));
    }

    #[test]
    fn unknown_keys_of_a_container_are_refused() {
        let text = include_str!("../../deploy/kubernetes/observe/daemon-set.yaml");
        let changed = text.replace(
            "readOnlyRootFilesystem: true",
            "readOnlyRootFilesystem: true\n            procMount: Unmasked",
        );
        let error = format!("{:#}", Preset::of("observe", &changed).unwrap_err());
        assert!(error.contains("procMount"), "{error}");
    }
}
