//! What Helm itself says of the chart: lint, what it renders, which values it refuses.
//!
//! The presets for kustomize and three renderings are committed, and compared with what the chart renders
//! now.
//! Each comparison, and each value that is refused, counts one.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::{kustomize, tally::TestTally};
use crate::{
    chart::{self, Chart, HelmEngine, KUBERNETES, PRESETS, RenderedObject},
    command,
    progress::ProgressStep,
    setup,
    workspace::Workspace,
};

/// What a person does about a difference.
const ADVICE: &str = "run `cargo xtask chart` and look at what it changes";

/// Lines of an object that hold values of users.
const NODE_SELECTOR: &str = "nodeSelector:";
const AFFINITY: &str = "affinity:";

/// Checks and renders all of it, and counts each.
pub(super) fn run(workspace: &Workspace, tally: &mut TestTally) -> Result<()> {
    let step = ProgressStep::begin("chart");
    let chart = Chart::of(workspace);
    let (mut engine, _scratch) = chart::engine(workspace)?;
    tally.outcome("chart lint", engine.lint(chart.folder()));
    for preset in PRESETS {
        tally.outcome(&format!("chart preset {preset}"), preset_is_rendered(&mut engine, &chart, preset));
        let outcome = kustomize::preset_is_the_manifest(workspace, &mut engine, &chart, preset);
        tally.outcome(&format!("chart manifest {preset}"), outcome);
    }
    let everything = chart.render_everything(&mut engine)?;
    tally.outcome("chart everything", everything_is_rendered(&mut engine, &chart, &everything));
    tally.outcome("chart publishing", publishing_is_rendered(&mut engine, &chart));
    tally.outcome("chart claims", claims_are_rendered(&mut engine, &chart));
    tally.outcome("chart dashboards", dashboards_are_copies(workspace, &everything));
    tally.outcome("chart rules", rules_are_those_of_deploy(workspace, &everything));
    for (name, values, wanted, unwanted) in
        rendered_values().into_iter().chain(attached_values()).chain(claim_values())
    {
        let outcome = chart.render(&mut engine, &values, KUBERNETES);
        let outcome = outcome.and_then(|text| contains(&text, wanted, unwanted));
        tally.outcome(&format!("chart with {name}"), outcome);
    }
    tally.outcome("chart before 1.30", armor_is_an_annotation(&mut engine, &chart));
    for (version, values, said) in later_clusters() {
        let error = chart.render(&mut engine, &values, version).err().context("it is rendered");
        let outcome = error.and_then(|error| contains(&format!("{error:#}"), &[said], &[]));
        tally.outcome(&format!("chart on {version}"), outcome);
    }
    for (values, said) in refused_values().into_iter().chain(refused_claims()) {
        tally.outcome(&format!("chart refuses {values}"), is_refused(&mut engine, &chart, &values, said));
    }
    step.done();
    Ok(())
}

fn preset_is_rendered(engine: &mut HelmEngine, chart: &Chart, preset: &str) -> Result<()> {
    let folder = chart.preset(preset);
    let differing = chart::differences(&folder, &chart::rendered_preset(engine, chart, preset)?)?;
    ensure!(differing.is_empty(), "{}: {} differ; {ADVICE}", folder.display(), differing.join(", "));
    Ok(())
}

/// What is committed, and the same when it is rendered again.
fn everything_is_rendered(engine: &mut HelmEngine, chart: &Chart, objects: &[RenderedObject]) -> Result<()> {
    ensure!(objects == chart.render_everything(engine)?, "the same values are rendered differently");
    is_committed(objects, chart.everything())
}

/// The pod that scenarios run which publish.
fn publishing_is_rendered(engine: &mut HelmEngine, chart: &Chart) -> Result<()> {
    is_committed(&chart.render_publishing(engine)?, chart.publishing())
}

/// The pod that scenarios of claims run.
fn claims_are_rendered(engine: &mut HelmEngine, chart: &Chart) -> Result<()> {
    is_committed(&chart.render_claims(engine)?, chart.claims())
}

fn is_committed(objects: &[RenderedObject], path: &Path) -> Result<()> {
    let kept = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    ensure!(kept == chart::kept(objects), "{} differs; {ADVICE}", path.display());
    Ok(())
}

fn dashboards_are_copies(workspace: &Workspace, objects: &[RenderedObject]) -> Result<()> {
    let folder = workspace.root().join("deploy/grafana");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let end = format!("-dashboard-{stem}");
        let map = objects.iter().find(|object| object.kind == "ConfigMap" && object.name.ends_with(&end));
        let files = map.with_context(|| format!("no ConfigMap of {stem}"))?.files()?;
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        ensure!(files == [(format!("numa-enforcer-{stem}.json"), text)], "{stem} is another text");
        names.push(stem);
    }
    ensure!(!names.is_empty(), "there is no dashboard in {}", folder.display());
    Ok(())
}

/// Each rule of deploy/prometheus is in the object; promtool accepts them, and thresholds are those of the
/// values.
fn rules_are_those_of_deploy(workspace: &Workspace, objects: &[RenderedObject]) -> Result<()> {
    let object =
        objects.iter().find(|object| object.kind == "PrometheusRule").context("no PrometheusRule")?;
    let (_, spec) = object.text.split_once("\nspec:\n").context("no spec")?;
    let lines: Vec<_> = spec.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
    let rules = lines.join("\n") + "\n";
    for name in ["parameters.yml", "recording.yml", "alerts.yml"] {
        let path = workspace.root().join("deploy/prometheus").join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let titles = text.lines().filter_map(|line| {
            let line = line.trim_start().trim_start_matches("- ");
            line.starts_with("record: ")
                .then_some(line)
                .or_else(|| line.starts_with("alert: ").then_some(line))
        });
        let missing: Vec<_> = titles.filter(|title| !rules.contains(*title)).collect();
        ensure!(missing.is_empty(), "{name}: the object has no {}", missing.join(", "));
    }
    let record = "record: numa_enforcer:remote_access_warning:ratio";
    let is_threshold = |pair: &[&str]| pair[0].trim() == "- expr: vector(0.3)" && pair[1].trim() == record;
    ensure!(lines.windows(2).any(is_threshold), "a threshold is not that of the values:\n{rules}");
    ensure!(rules.contains("runbook_url: https://example.org/runbook#numaenforcerdown\n"), "no runbook_url");
    let scratch = workspace.scratch()?;
    let file = scratch.path().join("rules.yml");
    fs::write(&file, rules).context("write the rules")?;
    let mut promtool = setup::prometheus(workspace)?.promtool();
    command::quietly(promtool.args(["check", "rules"]).arg(&file)).map(drop)
}

fn contains(text: &str, wanted: &[&str], unwanted: &[&str]) -> Result<()> {
    let missing: Vec<_> = wanted.iter().filter(|part| !text.contains(**part)).collect();
    ensure!(missing.is_empty(), "{missing:?} are not in:\n{text}");
    let there: Vec<_> = unwanted.iter().filter(|part| text.contains(**part)).collect();
    ensure!(there.is_empty(), "{there:?} are in:\n{text}");
    Ok(())
}

/// Clusters before 1.30 do not know the field `appArmorProfile` and refuse it.
fn armor_is_an_annotation(engine: &mut HelmEngine, chart: &Chart) -> Result<()> {
    let annotation =
        |container: &str| format!("container.apparmor.security.beta.kubernetes.io/{container}: unconfined");
    for (mode, containers) in
        [("enforce", &["numa-enforcer"][..]), ("restore", &["restore"]), ("observe", &[])]
    {
        let text = chart.render(engine, &json!({ "mode": mode }), "1.29.4")?;
        ensure!(!text.contains("appArmorProfile"), "{mode}:\n{text}");
        for container in ["numa-enforcer", "restore"] {
            let expected = containers.contains(&container);
            ensure!(text.contains(&annotation(container)) == expected, "{mode}, {container}:\n{text}");
        }
    }
    Ok(())
}

/// A version that is too old, values that need a later one, and what the refusal says.
fn later_clusters() -> [(&'static str, Value, &'static str); 2] {
    let gate = json!({ "enabled": true, "policy": { "enabled": true } });
    [
        (
            "1.33.9",
            claims(&json!({})),
            "dra.enabled: resource.k8s.io/v1 needs Kubernetes 1.34, and this is v1.33.9",
        ),
        (
            "1.35.2",
            json!({ "cluster": { "publish": true }, "scheduler": { "gate": gate } }),
            "scheduler.gate.policy: MutatingAdmissionPolicy needs Kubernetes 1.36, and this is v1.35.2",
        ),
    ]
}

/// Values with claims, and these besides.
fn claims(more: &Value) -> Value {
    let config = "[nri]\nplace = true";
    let mut values = json!({ "mode": "enforce", "config": config, "dra": { "enabled": true } });
    for (key, value) in more.as_object().into_iter().flatten() {
        match (&mut values[key], value) {
            (Value::Object(section), Value::Object(value)) => section.extend(value.clone()),
            (place, value) => *place = value.clone(),
        }
    }
    values
}

/// The name of values, the values, what the text has with them, and what it has not.
type RenderedValues = (&'static str, Value, &'static [&'static str], &'static [&'static str]);

/// The extender for the scheduler that a cluster has.
fn attached_values() -> Vec<RenderedValues> {
    vec![
        (
            "certificates of Helm",
            json!({ "cluster": { "publish": true }, "scheduler": { "attached": { "enabled": true } } }),
            &[
                "name: numa-enforcer-attached-scheduler-tls\n",
                "name: numa-enforcer-attached-scheduler-client\n",
                "  ca.crt: LS0t",
                "  tls.key: LS0t",
                "secret: {secretName: numa-enforcer-attached-scheduler-tls,",
                "sleep: {seconds: 15}",
            ],
            &["kind: PodDisruptionBudget", "pods/binding", "clusterIP:", "tls.key: \n"],
        ),
        (
            "certificates of another program",
            json!({ "cluster": { "publish": true }, "scheduler": { "attached": { "enabled": true, "secretName": "numa-tls" } } }),
            &["secret: {secretName: numa-tls,"],
            &["kind: Secret\n"],
        ),
    ]
}

/// Claims for NUMA nodes.
fn claim_values() -> Vec<RenderedValues> {
    const ROOT: &str = "/var/lib/k0s/kubelet";
    let kubelet = format!("[nri]\nplace = true\n[kubelet]\nroot_dir = \"{ROOT}\"");
    vec![
        (
            "claims",
            claims(&json!({})),
            &[
                "automountServiceAccountToken: true",
                "- --node-name\n            - $(NODE_NAME)\n",
                "    place = true\n    \n    # Of the values of the chart:\n    [dra]\n    enabled = true\n",
                "resources: [resourceclaims]\n    verbs: [get]",
                "resources: [nodes]\n    verbs: [get]",
                "name: numa-enforcer.io-far\n",
                "port: 6443",
            ],
            &[
                "--publish-as",
                "numanodestates",
                "resources: [pods]",
                "coordination.k8s.io",
                "port: 10250",
                "dedicated_cpus",
                "[kubelet]",
            ],
        ),
        (
            "claims of nodes that publish",
            claims(&json!({ "cluster": { "publish": true } })),
            &["--publish-as", "resourceslices", "numanodestates", "port: 10250", "[leases]"],
            &["--node-name"],
        ),
        (
            "claims and another kubelet",
            claims(&json!({ "kubelet": { "rootDir": ROOT } })),
            &[
                "mountPath: /var/lib/k0s/kubelet, readOnly: true",
                "mountPath: /var/lib/k0s/kubelet/plugins_registry}",
                "    [kubelet]\n    root_dir = \"/var/lib/k0s/kubelet\"\n    podresources = \
                 \"/var/lib/k0s/kubelet/pod-resources/kubelet.sock\"\n    \n    [dra]\n",
            ],
            &["mountPath: /var/lib/kubelet"],
        ),
        (
            "claims and a kubelet of the configuration",
            claims(&json!({ "kubelet": { "rootDir": ROOT }, "config": kubelet })),
            &["mountPath: /var/lib/k0s/kubelet/plugins/numa-enforcer.io}"],
            &["podresources"],
        ),
        (
            "claims and classes of another release",
            claims(&json!({ "dra": { "deviceClasses": false } })),
            &["[resourceslices]"],
            &["kind: DeviceClass"],
        ),
        (
            "claims that are given up",
            claims(&json!({ "mode": "restore" })),
            &["automountServiceAccountToken: false", "args: [\"restore\","],
            &["[dra]", "--node-name", "plugins_registry", "kind: ClusterRole", "kind: DeviceClass"],
        ),
    ]
}

/// All others.
fn rendered_values() -> Vec<RenderedValues> {
    vec![
        (
            "no value",
            json!({}),
            &[
                "prometheus.io/scrape",
                "checksum/config",
                "localhostProfile: numa-enforcer.json",
                NODE_SELECTOR,
            ],
            &[
                "kind: Namespace",
                "kind: Role",
                "kind: ClusterRole",
                "reports",
                "kind: Service\n",
                "monitoring.coreos.com",
                "appArmorProfile",
                "seLinuxOptions",
            ],
        ),
        (
            "nonRoot",
            json!({ "nonRoot": true }),
            &["runAsUser: 65532", "runAsNonRoot: true", "type: RuntimeDefault"],
            &[
                "runAsUser: 0",
                "add: [",
                "initContainers:",
                "mountPath: /var/run/nri",
                "path: /run/numa-enforcer",
            ],
        ),
        (
            "a filter of the nodes' own",
            json!({ "seccomp": { "install": false, "localhostProfile": "profiles/numa.json" } }),
            &["localhostProfile: profiles/numa.json"],
            &["initContainers:", "/seccomp"],
        ),
        (
            "a filter below another folder",
            json!({ "seccomp": { "localhostProfile": "profiles/numa-enforcer.json" } }),
            &["\"/seccomp/profiles\"", "localhostProfile: profiles/numa-enforcer.json"],
            &[],
        ),
        (
            "a digest",
            json!({ "image": { "tag": "1", "digest": format!("sha256:{:064}", 7) } }),
            &["image: ghcr.io/numa-enforcer/numa-enforcer@sha256:000"],
            &["numa-enforcer:1"],
        ),
        (
            "no constraint of nodes, no account, no policy, no socket",
            json!({
                "nodeSelector": { "kubernetes.io/os": null }, "affinity": { "nodeAffinity": null },
                "serviceAccount": { "create": false }, "networkPolicy": { "enabled": false },
                "nri": { "enabled": false }, "tolerations": [], "priorityClassName": "",
            }),
            &["serviceAccountName: default"],
            &[
                NODE_SELECTOR,
                AFFINITY,
                "kind: ServiceAccount",
                "kind: NetworkPolicy",
                "/var/run/nri",
                "priorityClassName",
                "tolerations",
            ],
        ),
        (
            "no peer that may read metrics",
            json!({ "networkPolicy": { "from": [] } }),
            &["ingress: []", "egress: []"],
            &["app.kubernetes.io/name: prometheus"],
        ),
        (
            "the plugin of kubectl",
            json!({ "kubectlPlugin": { "enabled": true } }),
            &["\"127.0.0.1:9479\"", "name: reports", "pods/portforward", "kind: ClusterRole\n"],
            &["kind: RoleBinding", "kind: ClusterRoleBinding"],
        ),
        (
            "a monitor",
            json!({ "podMonitor": { "enabled": true } }),
            &["kind: PodMonitor", "honorLabels: true"],
            &["prometheus.io/scrape", "kind: ServiceMonitor", "kind: Service\n"],
        ),
    ]
}

/// Values, and what the refusal says.
fn refused_values() -> Vec<(Value, &'static str)> {
    vec![
        (json!({ "mod": "enforce" }), "additional properties 'mod' not allowed"),
        (json!({ "mode": "enfroce" }), "at '/mode'"),
        (json!({ "mode": "enforce", "nonRoot": true }), "nonRoot: mode enforce writes cpusets"),
        (json!({ "nonRoot": true, "extraCapabilities": ["SYS_ADMIN"] }), "extraCapabilities: "),
        (json!({ "config": { "mode": "enforce" } }), "at '/config'"),
        (json!({ "image": { "digest": "latest" } }), "at '/image/digest'"),
        (json!({ "image": { "repository": "numa-enforcer@sha256:1" } }), "at '/image/repository'"),
        (json!({ "extraCapabilities": ["CAP_sys_admin"] }), "at '/extraCapabilities/0'"),
        (json!({ "kubelet": { "rootDir": "var/lib/kubelet" } }), "at '/kubelet/rootDir'"),
        (json!({ "stateDir": "/run/a b" }), "at '/stateDir'"),
        (json!({ "metrics": { "port": 0 } }), "at '/metrics/port'"),
        (json!({ "metrics": { "address": "localhost" } }), "at '/metrics/address'"),
        (json!({ "metrics": { "port": 9478 } }), "probes.port: must differ from metrics.port"),
        (
            json!({ "kubectlPlugin": { "enabled": true, "port": 9478 } }),
            "kubectlPlugin.port: must differ from metrics.port and probes.port",
        ),
        (json!({ "kubectlPlugin": { "subjects": [{ "name": "a" }] } }), "at '/kubectlPlugin/subjects/0'"),
        (json!({ "metrics": { "token": { "secretName": "t" } } }), "config must have `token_file"),
        (json!({ "resources": { "limits": { "memory": "256MB" } } }), "at '/resources/limits/memory'"),
        (json!({ "probes": { "liveness": { "periodSeconds": 0 } } }), "at '/probes/liveness/periodSeconds'"),
        (
            json!({ "mode": "restore", "updateStrategy": { "rollingUpdate": { "maxSurge": 1 } } }),
            "maxSurge: the mode restore",
        ),
        (json!({ "seccomp": { "localhostProfile": "../x" } }), "at '/seccomp/localhostProfile'"),
        (
            json!({ "seccomp": { "localhostProfile": "x.json" } }),
            "the init container writes numa-enforcer.json",
        ),
        (json!({ "appArmor": { "type": "Localhost" } }), "appArmor.localhostProfile: "),
        (json!({ "tolerations": [{ "effect": "NoExecution" }] }), "at '/tolerations/0/effect'"),
        (json!({ "networkPolicy": { "from": [{}] } }), "at '/networkPolicy/from/0'"),
        (json!({ "nodeSelector": { "a": true } }), "at '/nodeSelector/a'"),
        (
            json!({ "prometheusRule": { "enabled": true, "thresholds": { "numa_enforcer:x:ratio": 1 } } }),
            "numa_enforcer:x:ratio is none of numa_enforcer:remote_access_warning:ratio",
        ),
        (json!({ "cluster": { "extender": true } }), "additional properties 'extender' not allowed"),
        (json!({ "cluster": { "publish": true, "alsoPublish": ["nfd"] } }), "at '/cluster/alsoPublish/0'"),
        (
            json!({ "cluster": { "events": true } }),
            "cluster.events: the account reaches the API server with cluster.publish alone",
        ),
        (
            json!({ "cluster": { "featureFile": true } }),
            "cluster.featureFile: the labels are made of the state that cluster.publish publishes",
        ),
        (
            json!({ "cluster": { "alsoPublish": ["nrt"] } }),
            "cluster.alsoPublish: the objects are made of the state that cluster.publish publishes",
        ),
        (
            json!({ "scheduler": { "gate": { "enabled": true } } }),
            "scheduler: nodes are chosen by the states that cluster.publish publishes",
        ),
        (
            json!({ "nonRoot": true, "cluster": { "publish": true } }),
            "cluster.publish: a daemon that is not root does not see the kubelet's files",
        ),
    ]
}

/// The same with claims.
fn refused_claims() -> Vec<(Value, &'static str)> {
    vec![
        (json!({ "dra": { "enabled": true } }), "dra.enabled: mode observe writes nothing"),
        (claims(&json!({ "config": "" })), "config must have `place = true` below [nri]"),
        (claims(&json!({ "nri": { "enabled": false } })), "leave nri.enabled on"),
        (
            claims(&json!({ "config": "[nri]\nplace = true\n[dra]\nenabled = true" })),
            "config: [dra] is made of the values below dra",
        ),
        (json!({ "config": "[[dra.node]]\nid = 0" }), "config: [dra] is made of the values below dra"),
        (
            claims(&json!({ "dra": { "accounting": "dedicated" } })),
            "dra.dedicatedCpus: accounting dedicated needs the CPUs",
        ),
        (
            claims(&json!({
                "kubelet": { "rootDir": "/data/kubelet" }, "config": "[nri]\nplace = true\n[kubelet]\n",
            })),
            "[kubelet] must have root_dir = \"/data/kubelet\"",
        ),
        (claims(&json!({ "dra": { "exclusivePercent": 101 } })), "at '/dra/exclusivePercent'"),
        (claims(&json!({ "dra": { "dedicatedCpus": "8-" } })), "at '/dra/dedicatedCpus'"),
        (claims(&json!({ "dra": { "fallback": "nodes" } })), "at '/dra/fallback'"),
        (claims(&json!({ "dra": { "reserveMemory": "1 GiB" } })), "at '/dra/reserveMemory'"),
        (claims(&json!({ "dra": { "nodes": [{ "id": 0 }] } })), "at '/dra/nodes/0'"),
    ]
}

fn is_refused(engine: &mut HelmEngine, chart: &Chart, values: &Value, said: &str) -> Result<()> {
    match chart.render(engine, values, KUBERNETES) {
        Ok(_) => bail!("it is rendered"),
        Err(error) => {
            let error = format!("{error:#}");
            ensure!(error.contains(said), "the refusal does not say {said:?}:\n{error}");
            Ok(())
        }
    }
}
