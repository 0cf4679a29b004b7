//! What the chart renders for claims of Dynamic Resource Allocation, against the driver.

use std::{fs, path::Path, process::Command};

use enforcer_core::dra::DRIVER;
use serde_json::{Value, json};

use super::preset::{everything, yaml};

/// The chart with `dra.enabled` and no other switch.
fn claims() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/chart/claims.yaml");
    let text = fs::read_to_string(path).unwrap();
    text.split("---\n").filter(|text| !text.is_empty()).map(yaml).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// Path of the node by path of the daemon, for volumes that the daemon may write.
fn written(objects: &[Value]) -> Vec<(String, String)> {
    let pod = &of_kind(objects, "DaemonSet")[0]["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().unwrap();
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap().iter();
    let writable = mounts.filter(|mount| mount["readOnly"] != json!(true));
    let paths = writable.filter_map(|mount| {
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        let of_node = volume["hostPath"]["path"].as_str()?;
        Some((mount["mountPath"].as_str().unwrap().to_owned(), of_node.to_owned()))
    });
    paths.collect()
}

#[test]
fn daemon_accepts_the_configuration_of_the_values() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("numa-enforcer.toml");
    for (name, objects) in [("claims", claims()), ("everything", everything())] {
        let maps = of_kind(&objects, "ConfigMap");
        let text = maps.iter().find_map(|map| map["data"]["numa-enforcer.toml"].as_str()).unwrap();
        assert!(text.contains("\n[dra]\nenabled = true\n"), "{name}: {text}");
        // The Secret is of the cluster.
        let text = text.lines().filter(|line| !line.starts_with("token_file")).collect::<Vec<_>>().join("\n");
        fs::write(&file, &text).unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_numa-enforcer"));
        check.args(["run", "--check", "--mode", "enforce", "--node-name", "n1", "--config"]).arg(&file);
        let output = check.output().unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "{name}: {stdout}{stderr}\n{text}");
        assert!(!stderr.contains("dra."), "{name}: a value has no effect: {stderr}");
    }
}

/// The kubelet and the container runtime get paths from the daemon.
#[test]
fn folders_of_claims_have_the_paths_of_the_node() {
    for (name, objects, root, cdi) in [
        ("claims", claims(), "/var/lib/kubelet", "/var/run/cdi"),
        ("everything", everything(), "/var/lib/k0s/kubelet", "/run/cdi"),
    ] {
        let written = written(&objects);
        for path in [format!("{root}/plugins/{DRIVER}"), format!("{root}/plugins_registry"), cdi.to_owned()] {
            assert!(written.contains(&(path.clone(), path.clone())), "{name}: {path}: {written:?}");
        }
    }
}

#[test]
fn classes_select_devices_of_the_driver_alone() {
    let objects = claims();
    let classes = of_kind(&objects, "DeviceClass");
    let names: Vec<_> = classes.iter().map(|class| class["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, [DRIVER.to_owned(), format!("{DRIVER}-dram"), format!("{DRIVER}-far")]);
    for class in classes {
        let selectors = class["spec"]["selectors"].as_array().unwrap();
        let text = selectors[0]["cel"]["expression"].as_str().unwrap();
        // An attribute of another driver's device aborts the whole expression.
        assert!(
            selectors.len() == 1 && text.starts_with(&format!("device.driver == \"{DRIVER}\"")),
            "{text}"
        );
        let attributes = text.split("device.attributes[").skip(1);
        for attribute in attributes {
            let name = attribute.strip_prefix(&format!("\"{DRIVER}\"].")).unwrap();
            assert!(name.starts_with("memoryKind == \"dram\"") || name.starts_with("cpuless"), "{text}");
        }
    }
}

#[test]
fn policy_keeps_devices_of_other_nodes_and_drivers() {
    let objects = claims();
    let [policy] = of_kind(&objects, "ValidatingAdmissionPolicy")[..] else { panic!("one policy") };
    let rules = &policy["spec"]["matchConstraints"]["resourceRules"];
    let writes = json!(["CREATE", "UPDATE", "DELETE"]);
    assert_eq!(
        *rules,
        json!([{"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"],
        "resources": ["resourceslices"], "operations": writes}])
    );
    let text = policy["spec"]["validations"][0]["expression"].as_str().unwrap();
    assert!(text.starts_with(&format!("variables.spec.driver == \"{DRIVER}\" && ")), "{text}");
    let [binding] = of_kind(&objects, "ValidatingAdmissionPolicyBinding")[..] else { panic!("one binding") };
    assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
    assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
}
