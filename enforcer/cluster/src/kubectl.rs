//! One run of kubectl: arguments and limits.

use std::{
    ffi::OsString,
    io::{self, Read as _},
    process::Command,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    child::Children,
    error::KubectlError,
    forward::PortForward,
    pods::{DaemonPod, WorkloadPod, daemon_pods, node_names, workload_pod},
};

/// Longest wait for an answer of the API server.
const LIMIT: Duration = Duration::from_secs(30);
/// The same, as kubectl is told: it then says itself what did not answer.
const LIMIT_OF_REQUEST: &str = "--request-timeout=20s";
/// Largest answer: some thousand pods of a DaemonSet.
const LARGEST: u64 = 64 << 20;
/// Time for the last words of a run that has failed.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// How kubectl is run.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: OsString,
    flags: Vec<OsString>,
    children: Children,
}

impl Kubectl {
    /// The program, and flags for each run of it.
    pub fn new(program: OsString, flags: Vec<OsString>) -> Self {
        Self { program, flags, children: Children::default() }
    }

    /// Pods of daemons in `namespace` with these labels.
    pub fn daemon_pods(&self, namespace: &str, selector: &str) -> Result<Vec<DaemonPod>, KubectlError> {
        let operation = format!("listing pods {selector} in namespace {namespace}");
        let namespace = format!("--namespace={namespace}");
        let selector = format!("--selector={selector}");
        let text = self.get(&operation, &["pods", "--output=json", &namespace, &selector])?;
        daemon_pods(&text).map_err(|cause| not_understood(&operation, &cause))
    }

    /// Names of the cluster's nodes that run Linux.
    pub fn nodes(&self) -> Result<Vec<String>, KubectlError> {
        let text =
            self.get("listing nodes", &["nodes", "--output=name", "--selector=kubernetes.io/os=linux"])?;
        Ok(node_names(&text))
    }

    /// One pod; without a namespace, in that of the context.
    pub fn pod(&self, namespace: Option<&str>, name: &str) -> Result<WorkloadPod, KubectlError> {
        let operation = format!("getting the pod {name}");
        let namespace = namespace.map(|namespace| format!("--namespace={namespace}"));
        // The slash keeps a name from being a flag.
        let pod = format!("pods/{name}");
        let arguments: Vec<&str> =
            [pod.as_str(), "--output=json"].into_iter().chain(namespace.as_deref()).collect();
        let text = self.get(&operation, &arguments)?;
        workload_pod(&text).map_err(|cause| not_understood(&operation, &cause))
    }

    /// A way to `port` on the loopback addresses of a pod.
    pub fn forward(&self, pod: &DaemonPod, port: u16) -> Result<PortForward, KubectlError> {
        let mut command = self.command("port-forward");
        command.arg(format!("--namespace={}", pod.namespace)).arg("--address=127.0.0.1");
        command.arg(format!("pods/{}", pod.name)).arg(format!(":{port}"));
        let operation = format!("port-forward to {}/{}", pod.namespace, pod.name);
        let (child, stdout) = self.children.start(&mut command).map_err(|cause| self.not_started(cause))?;
        PortForward::open(operation, child, stdout)
    }

    /// Ends all runs, and lets no other one start.
    pub fn end_all(&self) {
        self.children.end_all();
    }

    fn get(&self, operation: &str, arguments: &[&str]) -> Result<Vec<u8>, KubectlError> {
        let operation = || operation.to_owned();
        let mut command = self.command("get");
        command.arg(LIMIT_OF_REQUEST).args(arguments);
        let deadline = Instant::now() + LIMIT;
        let (child, stdout) = self.children.start(&mut command).map_err(|cause| self.not_started(cause))?;
        let (send, receive) = mpsc::channel();
        let reading = move || {
            let mut text = Vec::new();
            let read = stdout.take(LARGEST + 1).read_to_end(&mut text).map(|_length| text);
            // The receiver is gone when the time was over.
            let _ = send.send(read);
        };
        thread::Builder::new()
            .name("answer".into())
            .spawn(reading)
            .map_err(|cause| self.not_started(cause))?;
        let late = || KubectlError::Late { operation: operation(), limit: LIMIT };
        let read = receive.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let text = read.map_err(|_elapsed| late())?.map_err(|cause| self.not_started(cause))?;
        if text.len() as u64 > LARGEST {
            return Err(KubectlError::TooLong { operation: operation(), most: LARGEST });
        }
        let status = child.wait_until(deadline).map_err(|cause| self.not_started(cause))?.ok_or_else(late)?;
        if status.success() {
            return Ok(text);
        }
        let said = child.said(Instant::now() + LAST_WORDS);
        let said = if said.is_empty() { format!("kubectl: {status}") } else { said };
        Err(KubectlError::Failed { operation: operation(), said })
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(subcommand).args(&self.flags);
        command
    }

    fn not_started(&self, cause: io::Error) -> KubectlError {
        KubectlError::Start { program: self.program.to_string_lossy().into_owned(), cause }
    }
}

fn not_understood(operation: &str, cause: &serde_json::Error) -> KubectlError {
    KubectlError::NotUnderstood { operation: operation.to_owned(), cause: cause.to_string() }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use tempfile::TempDir;

    use super::*;

    /// A program that plays kubectl.
    fn playing(script: &str) -> (Kubectl, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("kubectl");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        (Kubectl::new(program.into(), vec!["--context=c".into()]), dir)
    }

    #[test]
    fn arguments_are_words_of_their_own_and_flags_come_with_each_run() {
        let (kubectl, _dir) = playing("printf '%s|' \"$@\" >&2; exit 1");
        let said = kubectl.pod(Some("a b"), "-x; y").unwrap_err().to_string();
        assert_eq!(
            said,
            "getting the pod -x; y: get|--context=c|--request-timeout=20s|pods/-x; y|--output=json|--namespace=a b|"
        );
        let said = kubectl.pod(None, "web").unwrap_err().to_string();
        assert!(said.ends_with("|pods/web|--output=json|"), "{said}");
    }

    #[test]
    fn failures_are_told_in_words() {
        for (script, said) in [
            ("echo 'error: no way' >&2; exit 1", "listing nodes: error: no way"),
            ("exit 7", "listing nodes: kubectl: exit status: 7"),
            ("echo a >&2; echo b >&2; exit 1", "listing nodes: a; b"),
        ] {
            let (kubectl, _dir) = playing(script);
            assert_eq!(kubectl.nodes().unwrap_err().to_string(), said);
        }
        let absent = Kubectl::new("/nonexistent/kubectl".into(), Vec::new());
        let said = absent.nodes().unwrap_err().to_string();
        assert!(said.contains("another one): /nonexistent/kubectl: No such file"), "{said}");
        let (kubectl, _dir) = playing("echo '<html>'");
        let said = kubectl.daemon_pods("n", "a=b").unwrap_err().to_string();
        assert!(
            said.starts_with("listing pods a=b in namespace n: an answer that is not understood"),
            "{said}"
        );
    }

    #[test]
    fn answers_without_end_are_cut_off() {
        let (kubectl, _dir) = playing("exec cat /dev/zero");
        let said = kubectl.nodes().unwrap_err().to_string();
        assert_eq!(said, "listing nodes: the answer has more than 67108864 bytes");
    }
}
