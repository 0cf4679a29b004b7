use serde_json::{Value, json};

use super::*;
use enforcer_core::cluster::extender::{AnswerGroup, FilterAnswer};

fn pod() -> Value {
    json!({
        "metadata": {"name": "a", "namespace": "d", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
    })
}

fn reply(request: &Value, answer: &FilterAnswer) -> Value {
    let text = request.to_string();
    let request = ExtenderRequest::read(text.as_bytes()).unwrap();
    serde_json::from_str(&request.filter_reply(answer)).unwrap()
}

#[test]
fn filter_is_answered_in_the_form_of_the_request() {
    let answer = FilterAnswer { passed: vec![1], refused: vec![(0, AnswerGroup::Memory)] };
    let names = json!({"Pod": pod(), "Nodes": null, "NodeNames": ["n1", "n2", "n3"]});
    let failed = json!({"n1": "NUMA: memory"});
    let expected = json!({"NodeNames": ["n2"], "FailedAndUnresolvableNodes": failed, "Error": ""});
    assert_eq!(reply(&names, &answer), expected);
    let node = |name: &str| json!({"metadata": {"name": name, "labels": {"a": "b"}}, "status": {"later": 1}});
    let nodes = json!({"Pod": pod(), "Nodes": {"metadata": {}, "items": [node("n1"), node("n2")]}, "NodeNames": null});
    let expected =
        json!({"Nodes": {"items": [node("n2")]}, "FailedAndUnresolvableNodes": failed, "Error": ""});
    assert_eq!(reply(&nodes, &answer), expected);
}

#[test]
fn odd_requests_are_read_or_refused() {
    let read = |value: &Value| {
        let text = value.to_string();
        ExtenderRequest::read(text.as_bytes())
            .map(|request| request.nodes.len())
            .map_err(|error| error.to_string())
    };
    for (request, nodes) in [
        (json!({"Pod": pod(), "NodeNames": []}), 0),
        (json!({"Pod": pod(), "Nodes": null, "NodeNames": null}), 0),
        (json!({"Pod": pod(), "Nodes": {"items": null}}), 0),
        (json!({"Pod": pod(), "NodeNames": ["n"], "Later": {"a": [1]}}), 1),
        (json!({"Pod": pod(), "NodeNames": vec!["n"; 5_000]}), 5_000),
    ] {
        assert_eq!(read(&request), Ok(nodes), "{request}");
    }
    for (request, expected) in [
        (json!({"NodeNames": []}), "missing field `Pod`"),
        (json!({"Pod": {"metadata": 1}, "NodeNames": []}), "pod: "),
        (json!({"Pod": {"metadata": {"name": "a", "namespace": "d"}}, "NodeNames": []}), "it has no uid"),
        (json!({"pod": pod(), "nodenames": ["n"]}), "missing field `Pod`"),
        (json!({"Pod": pod(), "NodeNames": "n"}), "invalid type"),
        (json!({"Pod": pod(), "Nodes": {"items": [{"spec": {}}]}}), "missing field `metadata`"),
        (json!({"Pod": pod(), "NodeNames": vec!["n"; 50_001]}), "50001 nodes"),
    ] {
        let error = read(&request).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    assert!(ExtenderRequest::read(b"").is_err());
    assert!(ExtenderRequest::read(&[0xff; 9]).is_err());
}

#[test]
fn a_name_is_the_same_with_escapes_and_without() {
    let plain = json!({"Pod": pod(), "NodeNames": ["n1", "n2"]}).to_string();
    for text in [plain.replace("n2", "\\u006e2"), plain] {
        let request = ExtenderRequest::read(text.as_bytes()).unwrap();
        assert_eq!(request.names(), ["n1", "n2"], "{text}");
    }
}

#[test]
fn scores_and_bindings_have_the_form_of_the_protocol() {
    let text = json!({"Pod": pod(), "NodeNames": ["n1", "n2"]}).to_string();
    let request = ExtenderRequest::read(text.as_bytes()).unwrap();
    assert_eq!(request.priorities(&[7, 0]), r#"[{"Host":"n1","Score":7},{"Host":"n2","Score":0}]"#);
    let text = r#"{"PodName":"a","PodNamespace":"d","PodUID":"u","Node":"n2"}"#;
    let expected = BindRequest {
        pod_name: "a".into(),
        pod_namespace: "d".into(),
        pod_uid: "u".into(),
        node: "n2".into(),
    };
    assert_eq!(BindRequest::read(text.as_bytes()).unwrap(), expected);
    assert!(BindRequest::read(br#"{"PodName":"a"}"#).is_err());
    let without = text.replace("\"u\"", "\"\"");
    assert!(BindRequest::read(without.as_bytes()).unwrap_err().to_string().contains("it has no uid"));
    for name in ["a/binding?dryRun=All&x=", "a b", "", "A"] {
        let text = json!({"PodName": name, "PodNamespace": "d", "PodUID": "u", "Node": "n"}).to_string();
        let error = BindRequest::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("no name of an object"), "{error}");
    }
    assert_eq!(
        (bind_reply("").as_str(), bind_reply("no").as_str()),
        (r#"{"Error":""}"#, r#"{"Error":"no"}"#)
    );
}
