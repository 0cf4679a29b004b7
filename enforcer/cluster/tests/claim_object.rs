//! Claims of Dynamic Resource Allocation, read from a stub that fails as it is told.

use std::time::Duration;

use enforcer_cluster::{ApiConnection, ApiError, ClaimReadError};
use enforcer_test_api::{ApiServer, ApiStub, Fault, StubKind};
use serde_json::{Value, json};

const CLAIM: StubKind = StubKind {
    group: "resource.k8s.io",
    version: "v1",
    plural: "resourceclaims",
    kind: "ResourceClaim",
    namespaced: true,
};
const PATH: &str = "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims/web";

fn claim(uid: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": "web", "uid": uid}, "status": {"allocation": {}}})
}

async fn read(connection: &ApiConnection, uid: &str) -> Result<Value, ClaimReadError> {
    connection.resource_claim(("shop", "web"), uid).await
}

#[tokio::test]
async fn claim_is_read_by_name_and_counts_with_its_uid_alone() {
    let stub = ApiStub::start(&[CLAIM]);
    let connection = ApiConnection::new(stub.config()).unwrap();
    stub.put(PATH, claim("u1"));
    let found = read(&connection, "u1").await.unwrap();
    assert_eq!((&found["metadata"]["uid"], &found["status"]), (&json!("u1"), &json!({"allocation": {}})));
    let replaced = read(&connection, "u0").await.unwrap_err();
    assert_eq!((replaced.is_gone(), replaced.is_passing()), (true, false));
    assert_eq!(
        replaced.to_string(),
        format!("get {PATH}: the claim was replaced: uid u0 is asked for, and the API server has u1")
    );
    stub.remove(PATH);
    let absent = read(&connection, "u1").await.unwrap_err();
    assert_eq!((absent.is_gone(), absent.is_passing()), (true, false));
    assert_eq!(absent.to_string(), format!("get {PATH}: not found: the claim was deleted"));
}

#[tokio::test]
async fn refusals_say_what_is_missing_and_whether_another_try_helps() {
    let stub = ApiStub::start(&[CLAIM]);
    let connection = ApiConnection::new(stub.config()).unwrap();
    stub.put(PATH, claim("u1"));
    stub.fail_reads([Fault::status(403, "Forbidden")]);
    let forbidden = read(&connection, "u1").await.unwrap_err();
    assert_eq!((forbidden.is_gone(), forbidden.is_passing()), (false, false));
    assert_eq!(
        forbidden.to_string(),
        format!(
            "get {PATH}: not permitted: a role needs the verb get on resourceclaims of group \
             \"resource.k8s.io\""
        )
    );
    for fault in
        [Fault::status(503, "ServiceUnavailable"), Fault::too_many(Duration::from_secs(1)), Fault::Drop]
    {
        stub.fail_reads([fault]);
        let busy = read(&connection, "u1").await.unwrap_err();
        assert!(busy.is_passing() && !busy.is_gone(), "{busy}");
    }
    assert!(read(&connection, "u1").await.is_ok());
    let older = ApiStub::start(&[]);
    let error = read(&ApiConnection::new(older.config()).unwrap(), "u1").await.unwrap_err();
    assert!(matches!(error, ClaimReadError::NotServed { .. }) && !error.is_gone(), "{error}");
}

#[tokio::test]
async fn answers_are_bounded_in_size_and_no_other_path_is_asked_for() {
    let stub = ApiStub::start(&[CLAIM]);
    let connection = ApiConnection::new(stub.config()).unwrap();
    let mut large = claim("u1");
    large["metadata"]["annotations"] = json!({"a": "x".repeat(5 << 20)});
    stub.put(PATH, large);
    let error = read(&connection, "u1").await.unwrap_err();
    assert!(matches!(error, ClaimReadError::Api(ApiError::Broken { .. })), "{error}");
    let odd = ApiStub::start(&[]);
    odd.page(PATH, json!({"metadata": {"name": "web"}}));
    let error = read(&ApiConnection::new(odd.config()).unwrap(), "u1").await.unwrap_err();
    assert!(matches!(error, ClaimReadError::NoClaim { .. }) && !error.is_gone(), "{error}");
    let asked = stub.requests().len();
    for (namespace, name) in [("shop", ".."), ("shop", "a/b"), ("..", "web"), ("shop", ""), ("shop", "a?b=c")]
    {
        let error = connection.resource_claim((namespace, name), "u1").await.unwrap_err();
        assert!(matches!(error, ClaimReadError::NoName(_)), "{error}");
    }
    assert_eq!(stub.requests().len(), asked);
}

#[tokio::test]
async fn server_that_does_not_answer_is_given_up_after_a_time() {
    let stub = ApiStub::start(&[CLAIM]);
    let connection = ApiConnection::new(stub.config()).unwrap();
    stub.put(PATH, claim("u1"));
    stub.fail_reads([Fault::Slow(Duration::from_mins(2))]);
    let error = read(&connection, "u1").await.unwrap_err();
    assert!(error.is_passing(), "{error}");
    assert_eq!(error.to_string(), format!("get {PATH}: no answer of the API server within 5 s"));
}

#[tokio::test]
async fn kubernetes_own_server_without_the_kind_is_told_from_one_without_the_claim() {
    let Some(server) = ApiServer::start() else { return };
    let connection = ApiConnection::new(server.config().await).unwrap();
    let error = read(&connection, "u1").await.unwrap_err();
    assert!(matches!(error, ClaimReadError::NotServed { .. }), "{error}");
    let client = server.client().await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "resourceclaims.resource.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"},
        },
        "spec": {
            "group": CLAIM.group, "scope": "Namespaced",
            "names": {"plural": CLAIM.plural, "singular": "resourceclaim", "kind": CLAIM.kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    enforcer_test_api::define(&client, &definition).await;
    let error = read(&connection, "u1").await.unwrap_err();
    assert!(matches!(error, ClaimReadError::Absent { .. }), "{error}");
}

#[tokio::test]
async fn devices_are_written_into_the_status_alone() {
    let stub = ApiStub::start(&[CLAIM]);
    let connection = ApiConnection::new(stub.config()).unwrap();
    stub.put(PATH, claim("u1"));
    let devices = json!([{"driver": "numa-enforcer.io", "pool": "n1", "device": "ne-numa0"}]);
    connection.write_claim_devices(("shop", "web"), "u1", devices.clone()).await.unwrap();
    let written = stub.object(PATH).unwrap();
    assert_eq!(written["status"], json!({"allocation": {}, "devices": devices}));
    let (_, request) = stub.requests().pop().unwrap();
    assert!(request.contains("/web/status"), "{request}");
    let other = connection.write_claim_devices(("shop", "../web"), "u1", json!([])).await.unwrap_err();
    assert!(matches!(other, ClaimReadError::NoName(_)), "{other}");
    stub.fail_writes([Fault::status(403, "Forbidden")]);
    let forbidden = connection.write_claim_devices(("shop", "web"), "u1", json!([])).await.unwrap_err();
    assert!(forbidden.to_string().contains("not permitted"), "{forbidden}");
}
