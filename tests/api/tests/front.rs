//! The front is one API for a pod: it checks the token, joins both servers, and goes away as one.

#![expect(clippy::unwrap_used, reason = "only tests are here")]

use enforcer_test_api::{ApiFront, accept, define};
use hyper::{Method, StatusCode};
use kube::{Client, Config};
use serde_json::{Value, json};

const NODE: &str = "/api/v1/nodes/a";
const PROBE: &str = "/apis/test.numa-enforcer.io/v1/probes/a";

fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "probes.test.numa-enforcer.io"},
        "spec": {
            "group": "test.numa-enforcer.io", "scope": "Cluster",
            "names": {"plural": "probes", "singular": "probe", "kind": "Probe"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

fn client_of(address: &str) -> (Config, Client) {
    let mut config = Config::new(address.parse().unwrap());
    config.default_retry = false;
    let client = Client::try_from(config.clone()).unwrap();
    (config, client)
}

#[tokio::test]
async fn pod_has_one_server_that_wants_its_token() {
    let Some(front) = ApiFront::start(&[]) else { return };
    let (_, open) = client_of(&format!("http://127.0.0.1:{}", front.open_port()));
    define(&open, &definition()).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "uid": "u"}});
    assert_eq!(accept(&open, Method::PATCH, NODE, Some(&node)).await.0, StatusCode::CREATED);
    let (_, account) = accept(&open, Method::GET, "/rig/account", None).await;

    // As a pod has it, and without a token.
    let (mut config, _) = client_of(&format!("https://127.0.0.1:{}", front.secure_port()));
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca.crt");
    std::fs::write(&authority, account["authority"].as_str().unwrap()).unwrap();
    config.root_cert_file = Some(authority);
    let stranger = Client::try_from(config.clone()).unwrap();
    config.auth_info.token = Some(account["token"].as_str().unwrap().to_owned().into());
    let pod = Client::try_from(config).unwrap();
    assert_eq!(accept(&stranger, Method::GET, NODE, None).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(accept(&pod, Method::GET, NODE, None).await.1["metadata"]["uid"], "u");
    let probe = json!({"apiVersion": "test.numa-enforcer.io/v1", "kind": "Probe", "metadata": {"name": "a"}});
    let apply = format!("{PROBE}?fieldManager=test");
    assert_eq!(accept(&pod, Method::PATCH, &apply, Some(&probe)).await.0, StatusCode::CREATED);
    let (_, requests) = accept(&open, Method::GET, "/rig/requests", None).await;
    let expected = json!([
        {"method": "GET", "path": NODE, "status": 401}, {"method": "GET", "path": NODE, "status": 200},
        {"method": "PATCH", "path": apply, "status": 201},
    ]);
    assert_eq!(requests, expected);

    assert_eq!(accept(&open, Method::POST, "/rig/kill", None).await.0, StatusCode::OK);
    for path in [NODE, PROBE] {
        let request = hyper::Request::get(path).body(kube::client::Body::empty()).unwrap();
        assert!(pod.send(request).await.is_err(), "{path} is answered");
    }
    assert_eq!(accept(&open, Method::POST, "/rig/resume", None).await.0, StatusCode::OK);
    for path in [NODE, PROBE] {
        assert_eq!(accept(&pod, Method::GET, path, None).await.0, StatusCode::OK, "{path}");
    }
    let configz = json!({"kubeletconfig": {}});
    assert_eq!(accept(&open, Method::PUT, "/rig/pages/configz", Some(&configz)).await.0, StatusCode::OK);
    assert_eq!(accept(&pod, Method::GET, "/configz", None).await, (StatusCode::OK, configz));
}
