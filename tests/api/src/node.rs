//! A node of a cluster without Kubernetes: a process of the kubelet's name, files as the kubelet writes them,
//! and a stub of an API server that has the node's object.
//!
//! A daemon on this host reads the kubelet's part as of a real one, and publishes to the stub. Only a kubelet
//! that is root is believed, so its settings are known to tests that run as root alone.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stub::{ApiStub, StubKind};

/// Where states are.
const STATES: StubKind = StubKind {
    group: "numa-enforcer.io",
    version: "v1alpha1",
    plural: "numanodestates",
    kind: "NumaNodeState",
    namespaced: false,
};

/// A node, its kubelet, and the server. The process ends with it.
#[derive(Debug)]
pub struct StubbedNode {
    /// The server.
    pub stub: ApiStub,
    kubelet: Child,
    dir: TempDir,
}

impl Drop for StubbedNode {
    fn drop(&mut self) {
        self.end_kubelet();
    }
}

impl StubbedNode {
    /// Name of the node: one that waits some hundredths of a second before the first write.
    pub const NAME: &str = "node-1597";
    /// Path of its state.
    pub const STATE: &str = "/apis/numa-enforcer.io/v1alpha1/numanodestates/node-1597";
    /// Path of its object.
    pub const OBJECT: &str = "/api/v1/nodes/node-1597";

    /// A node with topology policy `restricted`. Its object is that of an earlier process of the kubelet.
    ///
    /// # Panics
    /// If files or the process cannot be made.
    pub fn start() -> Self {
        let stub = ApiStub::start(&[STATES]);
        let dir = TempDir::with_prefix("numa-enforcer-").expect("a folder");
        let root = dir.path().join("kubelet-root");
        fs::create_dir(&root).expect("a folder of the kubelet");
        let program = dir.path().join("kubelet");
        // `read` is a part of the shell, so that no other process is left behind.
        fs::write(&program, "#!/bin/sh\nread -r line\n").expect("a program");
        fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("an executable program");
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "one",
            "clusters": [{"name": "one", "cluster": {"server": stub.url()}}],
            "users": [{"name": "one", "user": {"token": "secret"}}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        });
        fs::write(dir.path().join("kubeconfig"), kubeconfig.to_string()).expect("a kubeconfig");
        let kubelet = kubelet(dir.path(), "restricted");
        let node = Self { stub, kubelet, dir };
        node.report("2000-01-01T00:00:00Z");
        node
    }

    /// Folder for files of the node.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Ends the kubelet, and starts one with this policy of its topology manager.
    pub fn restart_kubelet(&mut self, topology_policy: &str) {
        self.end_kubelet();
        self.kubelet = kubelet(self.dir.path(), topology_policy);
    }

    /// Lines of the configuration of a daemon that publishes.
    pub fn lines(&self) -> String {
        let (dir, name) = (self.dir.path().display(), Self::NAME);
        format!(
            "[cluster]\npublish = true\nnode_name = \"{name}\"\nkubeconfig = \"{dir}/kubeconfig\"\n\
             [kubelet]\nroot_dir = \"{dir}/kubelet-root\"\npodresources = \"{dir}/kubelet-root/none.sock\"\n"
        )
    }

    /// Writes the node's object as a kubelet that does so at this time.
    pub fn report(&self, time: &str) {
        let capacity = json!({"cpu": "4", "vendor.com/gpu": "2"});
        let ready = json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]);
        let version = json!({"kubeletVersion": "v1.36.2"});
        let status = json!({"capacity": capacity, "conditions": ready, "nodeInfo": version});
        self.stub.put(Self::OBJECT, json!({"metadata": {"uid": "node-uid"}, "status": status}));
    }

    /// The published state, if there is one.
    pub fn state(&self) -> Option<Value> {
        Some(self.stub.object(Self::STATE)?["state"].clone())
    }

    /// Writes the CPU manager's file as the kubelet does: as a whole, under another name first.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write_cpus(&self, default: &str, entries: &Value) {
        let root = self.dir.path().join("kubelet-root");
        let text =
            json!({"policyName": "static", "defaultCpuSet": default, "entries": entries, "checksum": 0});
        fs::write(root.join("new"), text.to_string()).expect("a new state file");
        fs::rename(root.join("new"), root.join("cpu_manager_state")).expect("a renamed state file");
    }

    fn end_kubelet(&mut self) {
        // Both fail if it has ended.
        let _ = self.kubelet.kill();
        let _ = self.kubelet.wait();
    }
}

/// Starts a process of the kubelet's name with a configuration in this folder.
fn kubelet(dir: &Path, topology_policy: &str) -> Child {
    let file: PathBuf = dir.join("kubelet.yaml");
    let configuration = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         cpuManagerPolicy: static\ntopologyManagerPolicy: {topology_policy}\n"
    );
    fs::write(&file, configuration).expect("a configuration of the kubelet");
    Command::new("/bin/sh")
        .arg("-c")
        .arg("exec \"$0\" --config \"$1\" --root-dir \"$2\"")
        .args([dir.join("kubelet"), file, dir.join("kubelet-root")])
        .stdin(Stdio::piped())
        .spawn()
        .expect("a process of the kubelet's name")
}
