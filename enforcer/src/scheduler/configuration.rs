//! The configuration of the kube-scheduler that asks the extender.

use std::net::SocketAddr;

use enforcer_core::cluster::extender::Binder;
use serde_json::{Value, json};

/// What decides about the configuration.
#[derive(Debug, Clone)]
pub struct SchedulerSettings {
    /// Name by which pods choose the scheduler.
    pub scheduler_name: String,
    /// Namespace of its lease.
    pub namespace: String,
    /// Address of the extender.
    pub extender: SocketAddr,
    /// Which of the two binds.
    pub binder: Binder,
}

/// The object for `kube-scheduler --config`.
///
/// All nodes are scored: an extender that refuses every node of a sample would leave a pod without the
/// others. The extender is not ignorable, because without it kubelets refuse pods; and a binder that is
/// ignorable would be passed over.
pub fn configuration(settings: &SchedulerSettings) -> Value {
    let SchedulerSettings { scheduler_name, namespace, extender, binder } = settings;
    let mut verbs = json!({
        "urlPrefix": format!("http://{extender}/v1"), "filterVerb": "filter",
        "nodeCacheCapable": true, "ignorable": false, "httpTimeout": "5s",
    });
    if *binder == Binder::Extender {
        verbs["prioritizeVerb"] = json!("prioritize");
        verbs["weight"] = json!(13);
        verbs["bindVerb"] = json!("bind");
    }
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100, "podMaxBackoffSeconds": 5,
        "profiles": [{"schedulerName": scheduler_name}],
        "leaderElection": {
            "leaderElect": true, "resourceName": scheduler_name, "resourceNamespace": namespace,
        },
        "extenders": [verbs],
    })
}

/// What the configuration of a scheduler that the cluster has needs beside its own content.
///
/// That scheduler serves all pods, so it is asked for filter alone, and goes on without an answer after a
/// second. A binder would be passed over then, which kube-scheduler takes for success: there is never one.
/// The authority is named because without one kube-scheduler would take any certificate.
pub fn attached_configuration(extender: SocketAddr, server_name: &str, folder: &str) -> Value {
    let file = |name: &str| format!("{}/{name}", folder.trim_end_matches('/'));
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "extenders": [{
            "urlPrefix": format!("https://{extender}/v1"), "filterVerb": "filter",
            "nodeCacheCapable": true, "ignorable": true, "httpTimeout": "1s", "enableHTTPS": true,
            "tlsConfig": {
                "serverName": server_name, "caFile": file("ca.crt"),
                "certFile": file("tls.crt"), "keyFile": file("tls.key"),
            },
        }],
    })
}
