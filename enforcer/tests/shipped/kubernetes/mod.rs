//! What is in `deploy/kubernetes` against the types that are generated from the API's own schema: every
//! preset, as `kubectl apply -k` would send it, and what the chart renders with every switch on.
//!
//! Reading an object into its type finds what is missing and what has the wrong type. A field that the type
//! does not know is passed over when it is read, and so is not there when the object is written again: that
//! is how a misspelt one is found.

mod chart;
mod claims;
mod definition;
mod preset;

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::cluster::gate::PlacedMark;
use k8s_openapi::{
    api::{
        admissionregistration::{
            v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
            v1alpha1::{MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding},
        },
        apps::v1::{DaemonSet, Deployment},
        core::v1::{ConfigMap, Namespace, ResourceQuota, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
        resource::v1beta1::DeviceClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    serde::{Serialize, de::DeserializeOwned},
};
use preset::{everything, objects};
use serde_json::{Value, json};

/// What the pods may call.
const PROFILE: &str = include_str!("../../../../deploy/seccomp/numa-enforcer.json");

const PRESETS: [&str; 3] = ["observe", "enforce", "restore"];

/// Most bytes of a `ConfigMap` (`MaxSecretSize` of the API server counts for both).
const LARGEST_MAP: usize = 1 << 20;

/// What is wrong with an object by its own type; the error says of which kind it is.
fn complaints(object: &Value) -> Vec<String> {
    let kind = format!("{}/{}", object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    match kind.as_str() {
        "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" => {
            complaints_of::<ValidatingAdmissionPolicy>(object)
        }
        "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding" => {
            complaints_of::<ValidatingAdmissionPolicyBinding>(object)
        }
        // The types are older than version 1 of these, which has the same fields.
        "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" => {
            complaints_of::<MutatingAdmissionPolicy>(&as_version(object, "v1alpha1"))
        }
        "admissionregistration.k8s.io/v1/MutatingAdmissionPolicyBinding" => {
            complaints_of::<MutatingAdmissionPolicyBinding>(&as_version(object, "v1alpha1"))
        }
        "resource.k8s.io/v1/DeviceClass" => complaints_of::<DeviceClass>(&as_version(object, "v1beta1")),
        "apiextensions.k8s.io/v1/CustomResourceDefinition" => {
            complaints_of::<CustomResourceDefinition>(object)
        }
        "apps/v1/DaemonSet" => complaints_of::<DaemonSet>(object),
        "apps/v1/Deployment" => complaints_of::<Deployment>(object),
        "networking.k8s.io/v1/NetworkPolicy" => complaints_of::<NetworkPolicy>(object),
        "policy/v1/PodDisruptionBudget" => complaints_of::<PodDisruptionBudget>(object),
        "rbac.authorization.k8s.io/v1/ClusterRole" => complaints_of::<ClusterRole>(object),
        "rbac.authorization.k8s.io/v1/ClusterRoleBinding" => complaints_of::<ClusterRoleBinding>(object),
        "rbac.authorization.k8s.io/v1/Role" => complaints_of::<Role>(object),
        "rbac.authorization.k8s.io/v1/RoleBinding" => complaints_of::<RoleBinding>(object),
        "v1/ConfigMap" => complaints_of::<ConfigMap>(object),
        "v1/Namespace" => complaints_of::<Namespace>(object),
        "v1/ResourceQuota" => complaints_of::<ResourceQuota>(object),
        "v1/Service" => complaints_of::<Service>(object),
        "v1/ServiceAccount" => complaints_of::<ServiceAccount>(object),
        _ => vec![format!("{kind} is not a kind that this test knows")],
    }
}

fn as_version(object: &Value, version: &str) -> Value {
    let (group, _) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let mut older = object.clone();
    older["apiVersion"] = json!(format!("{group}/{version}"));
    older
}

/// What the pods of a preset are.
fn pod(preset: &str) -> Value {
    let daemon_set = objects(preset).into_iter().find(|object| object["kind"] == "DaemonSet").unwrap();
    daemon_set["spec"]["template"]["spec"].clone()
}

fn complaints_of<T: DeserializeOwned + Serialize>(object: &Value) -> Vec<String> {
    match serde_json::from_value::<T>(object.clone()) {
        Ok(typed) => lost(object, Some(&serde_json::to_value(typed).unwrap()), ""),
        Err(error) => vec![error.to_string()],
    }
}

/// What is in `written` and not in `kept`, by path.
fn lost(written: &Value, kept: Option<&Value>, path: &str) -> Vec<String> {
    match (written, kept) {
        (Value::Object(fields), Some(Value::Object(kept))) => fields
            .iter()
            .flat_map(|(name, value)| lost(value, kept.get(name), &format!("{path}.{name}")))
            .collect(),
        (Value::Array(items), Some(Value::Array(kept))) => items
            .iter()
            .enumerate()
            .flat_map(|(at, item)| lost(item, kept.get(at), &format!("{path}[{at}]")))
            .collect(),
        (written, Some(kept)) if written == kept => Vec::new(),
        // A schema has numbers of any type.
        (Value::Number(written), Some(Value::Number(kept))) if written.as_f64() == kept.as_f64() => {
            Vec::new()
        }
        (written, Some(kept)) => vec![format!("{path}: {written} is read as {kept}")],
        (_, None) => vec![format!("{path} is not known")],
    }
}

#[test]
fn every_object_of_every_preset_is_what_the_api_knows() {
    for preset in PRESETS {
        let objects = objects(preset);
        let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        let expected = ["Namespace", "NetworkPolicy", "ServiceAccount", "DaemonSet", "ConfigMap"];
        assert_eq!(kinds, expected, "{preset}");
        for object in &objects {
            assert_eq!(complaints(object), Vec::<String>::new(), "{preset}: {}", object["kind"]);
        }
    }
}

/// Kinds of others than the API's are left to those that define them.
#[test]
fn every_object_with_every_switch_on_is_what_the_api_knows() {
    let foreign = ["monitoring.coreos.com/", "security.openshift.io/"];
    let is_foreign = |object: &Value| {
        foreign.iter().any(|group| object["apiVersion"].as_str().unwrap().starts_with(group))
    };
    let (foreign, own): (Vec<_>, Vec<_>) = everything().into_iter().partition(is_foreign);
    for object in &own {
        assert_eq!(complaints(object), Vec::<String>::new(), "{}", object["kind"]);
    }
    let kinds = |objects: &[Value]| -> BTreeSet<String> {
        objects.iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
    };
    let expected = [
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "CustomResourceDefinition",
        "DaemonSet",
        "Deployment",
        "DeviceClass",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "Namespace",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "ResourceQuota",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];
    assert_eq!(kinds(&own), expected.map(str::to_owned).into());
    let expected = ["PodMonitor", "SecurityContextConstraints", "ServiceMonitor"];
    assert_eq!(kinds(&foreign), expected.map(str::to_owned).into());
}

/// The control: the same objects with one thing wrong.
#[test]
fn what_the_api_does_not_know_is_found_by_its_path() {
    let daemon_set = || objects("observe").into_iter().find(|object| object["kind"] == "DaemonSet").unwrap();
    let container = "/spec/template/spec/containers/0";
    for (pointer, value, complaint) in [
        ("/spec/template/spec", json!({"hostPid": true}), ".spec.template.spec.hostPid is not known"),
        (
            container,
            json!({"readinessprobe": {}}),
            ".spec.template.spec.containers[0].readinessprobe is not known",
        ),
        (container, json!({"args": "run"}), "invalid type: string \"run\", expected a sequence"),
        (container, json!({"securityContext": {"runAsUser": "0"}}), "invalid type: string \"0\""),
        ("", json!({"apiVersion": "apps/v1beta1"}), "apps/v1beta1/DaemonSet is not a kind"),
    ] {
        let mut object = daemon_set();
        let place = object.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
        place.extend(value.as_object().unwrap().clone());
        let found = complaints(&object);
        assert!(found.len() == 1 && found[0].contains(complaint), "{value}: {found:?}");
    }
}

#[test]
fn what_a_preset_refers_to_is_in_it() {
    for preset in PRESETS {
        let objects = objects(preset);
        let named = |kind: &str| -> BTreeSet<String> {
            let of_kind = objects.iter().filter(|object| object["kind"] == kind);
            of_kind.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        let daemon_set = objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
        let pod = &daemon_set["spec"]["template"]["spec"];
        assert!(named("ServiceAccount").contains(pod["serviceAccountName"].as_str().unwrap()), "{preset}");
        let volumes: BTreeMap<_, _> = pod["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|volume| (volume["name"].as_str().unwrap(), volume))
            .collect();
        let maps = volumes.values().filter_map(|volume| volume["configMap"]["name"].as_str());
        assert_eq!(maps.map(str::to_owned).collect::<BTreeSet<_>>(), named("ConfigMap"), "{preset}");
        let containers = ["initContainers", "containers"].map(|list| pod[list].as_array().unwrap());
        let mounts = containers.into_iter().flatten().flat_map(|one| one["volumeMounts"].as_array().unwrap());
        let mounted: BTreeSet<_> = mounts.map(|mount| mount["name"].as_str().unwrap()).collect();
        assert_eq!(mounted, volumes.into_keys().collect(), "{preset}: mounts and volumes");
        for map in objects.iter().filter(|object| object["kind"] == "ConfigMap") {
            assert!(map["data"].to_string().len() < LARGEST_MAP, "{preset}: {}", map["metadata"]["name"]);
        }
    }
}

/// A stolen token gives the rights of the account: without publishing and claims, none.
#[test]
fn a_token_is_mounted_where_the_daemon_asks_the_api_server_alone() {
    for preset in PRESETS {
        assert_eq!(pod(preset)["automountServiceAccountToken"], false, "{preset}");
    }
    let all = everything();
    let of_kind = |kind: &'static str| all.iter().filter(move |object| object["kind"] == kind);
    let pod = &of_kind("DaemonSet").next().unwrap()["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], true);
    let account = pod["serviceAccountName"].as_str().unwrap();
    let bound = of_kind("ClusterRoleBinding").find(|one| one["subjects"][0]["name"] == account).unwrap();
    let role =
        of_kind("ClusterRole").find(|role| role["metadata"]["name"] == bound["roleRef"]["name"]).unwrap();
    let rules = role["rules"].as_array().unwrap().iter().map(|rule| (&rule["resources"], &rule["verbs"]));
    let expected = [
        (json!(["numanodestates"]), json!(["get", "create", "patch"])),
        (json!(["noderesourcetopologies"]), json!(["get", "create", "patch"])),
        (json!(["numatopologies"]), json!(["get", "create", "patch"])),
        (json!(["events"]), json!(["create", "patch"])),
        (json!(["resourceslices"]), json!(["get", "list", "watch", "create", "update", "delete"])),
        (json!(["resourceclaims"]), json!(["get"])),
        // With conditions of claims alone.
        (json!(["resourceclaims/status"]), json!(["patch"])),
        (json!(["resourceclaims/driver"]), json!(["associated-node:patch"])),
        (json!(["nodes"]), json!(["get"])),
        (json!(["pods"]), json!(["list", "watch"])),
        (json!(["nodes/configz"]), json!(["get"])),
    ];
    assert!(rules.eq(expected.iter().map(|(resources, verbs)| (resources, verbs))), "{role}");
    let own = of_kind("Role").find(|role| role["metadata"]["name"] == bound["roleRef"]["name"]).unwrap();
    let lease = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "patch"]}]);
    assert_eq!(own["rules"], lease, "in the namespace of the daemons alone");
    let of_account = format!(":{account}\"");
    let policies = of_kind("ValidatingAdmissionPolicy").filter(|policy| {
        policy["spec"]["matchConditions"][0]["expression"].as_str().unwrap().ends_with(&of_account)
    });
    assert_eq!(policies.count(), 2, "one for what is published, one for devices");
}

/// The mark of a placed pod holds a place on a node: no other account may write it.
#[test]
fn policy_keeps_the_mark_of_placed_pods_for_the_gate() {
    let all = everything();
    let of_kind = |kind: &'static str| all.iter().filter(move |object| object["kind"] == kind);
    let is_gate = |one: &&Value| one["metadata"]["name"].as_str().unwrap().ends_with("-gate");
    let gate = of_kind("Deployment").find(is_gate).unwrap();
    let account = &gate["spec"]["template"]["spec"]["serviceAccountName"];
    let policy = of_kind("ValidatingAdmissionPolicy").find(is_gate).unwrap();
    let spec = &policy["spec"];
    let rule = &spec["matchConstraints"]["resourceRules"][0];
    assert_eq!(
        (&rule["resources"], &rule["operations"]),
        (&json!(["pods", "pods/status"]), &json!(["CREATE", "UPDATE"]))
    );
    let conditions = spec["matchConditions"].as_array().unwrap();
    let namespace = gate["metadata"]["namespace"].as_str().unwrap();
    let other = format!(
        "request.userInfo.username != \"system:serviceaccount:{namespace}:{}\"",
        account.as_str().unwrap()
    );
    assert!(conditions.len() == 1 && conditions[0]["expression"] == other, "{conditions:?}");
    for (variable, object) in [("mark", "object"), ("before", "oldObject")] {
        let variables = spec["variables"].as_array().unwrap();
        let text =
            variables.iter().find(|one| one["name"] == variable).unwrap()["expression"].as_str().unwrap();
        let value = format!("? {object}.metadata.annotations[\"{}\"] : \"\"", PlacedMark::ANNOTATION);
        assert!(text.ends_with(&value), "{text}");
    }
    assert_eq!(spec["validations"][0]["expression"], "variables.mark == variables.before");
    assert_eq!(spec["failurePolicy"], "Fail");
    let binding = of_kind("ValidatingAdmissionPolicyBinding").find(is_gate).unwrap();
    assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
    assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
    assert_eq!(binding["spec"]["matchResources"], Value::Null, "in all namespaces, for all pods");
}

#[test]
fn the_presets_differ_in_what_enforcing_takes() {
    let containers = ["observe", "enforce"].map(|preset| {
        let container = pod(preset)["containers"][0].clone();
        assert_eq!(container["args"][2], preset);
        container
    });
    let capabilities = containers.each_ref().map(|container| {
        let added = container["securityContext"]["capabilities"]["add"].as_array().unwrap();
        added.iter().map(|name| name.as_str().unwrap()).collect::<BTreeSet<_>>()
    });
    let only_enforce: Vec<_> = capabilities[1].difference(&capabilities[0]).copied().collect();
    assert_eq!(only_enforce, ["DAC_OVERRIDE", "SYS_NICE", "SYS_PTRACE"]);
    let writable = containers.each_ref().map(|container| {
        let mounts = container["volumeMounts"].as_array().unwrap();
        mounts.iter().find(|mount| mount["name"] == "cgroup").unwrap()["readOnly"] == json!(false)
    });
    assert_eq!(writable, [false, true]);
}

/// The one filter that holds for every thread of the daemon: what no part of it calls is refused, above all
/// what reaches into other processes, namespaces or devices, and what the kernel has had most holes in.
#[test]
fn the_profile_allows_what_the_daemon_calls_and_nothing_that_reaches_further() {
    let profile: Value = serde_json::from_str(PROFILE).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let [rule] = profile["syscalls"].as_array().unwrap().as_slice() else {
        panic!("one rule, with one action")
    };
    assert_eq!((&rule["action"], rule.get("args")), (&json!("SCMP_ACT_ALLOW"), None));
    let names: Vec<_> = rule["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(names.is_sorted(), "one is found at a glance");
    let allowed: BTreeSet<_> = names.into_iter().collect();
    for refused in [
        "add_key",
        "chroot",
        "delete_module",
        "finit_module",
        "fsopen",
        "init_module",
        "io_uring_setup",
        "kexec_load",
        "keyctl",
        "mknod",
        "mount",
        "move_mount",
        "open_by_handle_at",
        "pidfd_getfd",
        "pivot_root",
        "process_vm_readv",
        "process_vm_writev",
        "ptrace",
        "reboot",
        "setns",
        "settimeofday",
        "setuid",
        "swapon",
        "umount2",
        "unshare",
        "userfaultfd",
    ] {
        assert!(!allowed.contains(refused), "{refused}");
    }
    for called in ["bpf", "move_pages", "openat2", "perf_event_open", "sched_setaffinity", "capset"] {
        assert!(allowed.contains(called), "{called}");
    }
}

#[test]
fn what_was_changed_is_put_back_before_a_daemon_that_only_watches() {
    let (restoring, observing) = (pod("restore"), pod("observe"));
    assert_eq!(restoring["containers"], observing["containers"]);
    let before = restoring["initContainers"].as_array().unwrap();
    assert_eq!(before[0], observing["initContainers"][0], "the profile has to be there");
    let [_, restore] = before.as_slice() else { panic!("{before:?}") };
    assert_eq!(restore["image"], observing["containers"][0]["image"]);
    let state = |container: &Value| {
        let mounts = container["volumeMounts"].as_array().unwrap();
        mounts.iter().find(|mount| mount["name"] == "state").unwrap()["mountPath"].clone()
    };
    assert_eq!(state(restore), state(&pod("enforce")["containers"][0]));
    assert_eq!(restore["args"], json!(["restore", "--state-dir", state(restore)]));
    let granted = |container: &Value| {
        let added = container["securityContext"]["capabilities"]["add"].as_array().unwrap();
        added.iter().map(|name| name.as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let (enforcing, observing) = (&pod("enforce")["containers"][0], &observing["containers"][0]);
    let kept: BTreeSet<_> = granted(enforcing).difference(&granted(observing)).cloned().collect();
    assert_eq!(granted(restore), kept, "it gives back what enforcing has written, and starts no programs");
    let mounts = restore["volumeMounts"].as_array().unwrap();
    let cgroup = mounts.iter().find(|mount| mount["mountPath"] == "/sys/fs/cgroup").unwrap();
    assert_eq!(cgroup.get("readOnly"), None, "it writes there");
    // What the kubelet wants now, and what scopes remember.
    for path in ["/var/lib/kubelet", "/run/systemd/private", "/host/proc/irq"] {
        assert!(mounts.iter().any(|mount| mount["mountPath"] == path), "{path}: {mounts:?}");
    }
    let volumes = restoring["volumes"].as_array().unwrap();
    let systemd = volumes.iter().find(|volume| volume["name"] == "systemd").unwrap();
    let expected = json!({"name": "systemd", "hostPath": {"path": "/run/systemd/private"}});
    assert_eq!(*systemd, expected, "a type would keep the pod from nodes without systemd");
}

/// A copy of a volume's mount in the daemon's namespace keeps the volume busy: its device cannot be detached.
#[test]
fn unmounts_of_the_kubelet_reach_the_daemon() {
    for preset in PRESETS {
        let pod = pod(preset);
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let kubelet = mounts.iter().find(|mount| mount["mountPath"] == "/var/lib/kubelet").unwrap();
        assert_eq!(kubelet["mountPropagation"], "HostToContainer", "{preset}");
        // Nothing is mounted below the others; cgroup v1 has its controllers there, which stay mounted.
        let paths =
            pod["volumes"].as_array().unwrap().iter().filter_map(|one| one["hostPath"]["path"].as_str());
        let mut expected = vec![
            "/var/lib/kubelet/seccomp",
            "/sys/fs/cgroup",
            "/run/numa-enforcer",
            "/var/run/nri",
            "/var/lib/kubelet",
        ];
        if preset == "restore" {
            expected.push("/run/systemd/private");
        }
        // What was set of interrupts is put back, whatever the configuration says by now.
        if preset != "observe" {
            expected.push("/proc/irq");
        }
        assert_eq!(paths.collect::<Vec<_>>(), expected, "{preset}: is anything mounted below a new one?");
    }
}

/// Readers of metrics must not decide whether the daemon lives, and other pods must not read them.
#[test]
fn probes_have_a_port_of_their_own_that_no_policy_opens() {
    for preset in PRESETS {
        let container = pod(preset)["containers"][0].clone();
        let ports = container["ports"].as_array().unwrap();
        let number = |name: &str| {
            ports.iter().find(|port| port["name"] == name).unwrap()["containerPort"].as_u64().unwrap()
        };
        assert_ne!(number("probes"), number("metrics"));
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            assert_eq!(container[probe]["httpGet"]["port"], "probes", "{preset}: {probe}");
        }
        let args = container["args"].as_array().unwrap();
        let at = args.iter().position(|arg| arg == "--probes-listen").unwrap();
        assert_eq!(args[at + 1], json!(format!("0.0.0.0:{}", number("probes"))), "{preset}");
        let policy = objects(preset).into_iter().find(|object| object["kind"] == "NetworkPolicy").unwrap();
        let labels = &policy["spec"]["podSelector"]["matchLabels"];
        let daemon_set = objects(preset).into_iter().find(|object| object["kind"] == "DaemonSet").unwrap();
        assert_eq!(*labels, daemon_set["spec"]["template"]["metadata"]["labels"], "{preset}");
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]), "{preset}");
        let open: Vec<&Value> = policy["spec"]["ingress"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|rule| rule["ports"].as_array().unwrap())
            .map(|port| &port["port"])
            .collect();
        assert_eq!(open, ["metrics"], "{preset}");
    }
}

/// No other image is pulled: the daemon's own puts the profile there and restores.
#[test]
fn every_container_has_the_daemons_image_by_its_whole_name() {
    for preset in PRESETS {
        let pod = pod(preset);
        let image = pod["containers"][0]["image"].as_str().unwrap();
        assert!(image.split('/').next().unwrap().contains('.'), "{image}: CRI-O refuses short names");
        for container in pod["initContainers"].as_array().unwrap() {
            assert_eq!(container["image"], image, "{preset}: {}", container["name"]);
        }
        let profile = &pod["initContainers"][0];
        assert_eq!(profile["args"], json!(["install-seccomp", "/seccomp"]));
        let mounts = profile["volumeMounts"].as_array().unwrap();
        assert_eq!(*mounts, [json!({"name": "seccomp", "mountPath": "/seccomp"})]);
    }
}
