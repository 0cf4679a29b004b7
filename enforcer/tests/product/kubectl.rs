//! `kubectl numa` from outside: the program under the name of the plugin, a script in the place of kubectl,
//! and real daemons on loopback behind it.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::common::{Ended, finish, program, run};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Far above what anything here takes; what is not there by then does not come.
const PATIENCE: Duration = Duration::from_mins(1);

/// Plays kubectl: lists are files beside it, a forward leads to the port in a file, and notes its process.
const KUBECTL: &str = r#"#!/bin/sh
dir=$(dirname "$0")
[ -e "$dir/refusal" ] && { cat "$dir/refusal" >&2; exit 1; }
if [ "$1" = port-forward ]; then
  for word; do case $word in pods/*) pod=${word#pods/} ;; esac; done
  [ -e "$dir/$pod.port" ] || { echo "error: lost connection to pod" >&2; exit 1; }
  echo $$ >>"$dir/forwards"
  echo "Forwarding from 127.0.0.1:$(cat "$dir/$pod.port") -> 9479"
  exec sleep 600
fi
for word; do
  case $word in
  pods) exec cat "$dir/pods.json" ;;
  nodes)
    [ -e "$dir/nodes" ] && exec cat "$dir/nodes"
    echo 'Error from server (Forbidden): nodes is forbidden' >&2
    exit 1
    ;;
  pods/*)
    [ -e "$dir/pod-${word#pods/}.json" ] && exec cat "$dir/pod-${word#pods/}.json"
    echo "Error from server (NotFound): pods \"${word#pods/}\" not found" >&2
    exit 1
    ;;
  esac
done
"#;

/// A cluster of scripts and daemons.
struct Cluster {
    dir: TempDir,
    daemons: Vec<Child>,
    pods: Vec<Value>,
}

impl Cluster {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("kubectl");
        fs::write(&script, KUBECTL).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(env!("CARGO_BIN_EXE_numa-enforcer"), dir.path().join("kubectl-numa")).unwrap();
        symlink(env!("CARGO_BIN_EXE_numa-enforcer"), dir.path().join("kubectl_complete-numa")).unwrap();
        let new = Self { dir, daemons: Vec::new(), pods: Vec::new() };
        new.write("kubeconfig", "");
        new.write("pods.json", r#"{"items": []}"#);
        new
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    /// A node with a ready pod of a daemon, whose forward leads to `port`; to nowhere without one.
    fn node(&mut self, node: &str, port: Option<u16>) {
        let pod = format!("daemon-{node}");
        if let Some(port) = port {
            self.write(&format!("{pod}.port"), &port.to_string());
        }
        self.pods.push(json!({
            "metadata": {"name": pod, "namespace": "numa-enforcer"},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "d", "ports": [{"name": "reports", "containerPort": 9479}]}],
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }));
        self.write("pods.json", &json!({"kind": "List", "items": self.pods}).to_string());
    }

    /// A real daemon on loopback; returns the port for reports.
    fn daemon(&mut self, further: &str) -> u16 {
        let dir = self.dir.path().join(format!("daemon{}", self.daemons.len()));
        fs::create_dir(&dir).unwrap();
        let file = dir.join("config.toml");
        let socket = dir.join("control.sock");
        let text = format!(
            "interval = \"1h\"\n[control]\nsocket = \"{}\"\n[sample]\nbpf = false\n[nri]\nenabled = false\n{further}",
            socket.display()
        );
        fs::write(&file, text).unwrap();
        let mut command =
            program(&["run", "--metrics-listen", "127.0.0.1:0", "--reports-listen", "127.0.0.1:0"]);
        command.arg("--config").arg(&file).arg("--state-dir").arg(dir.join("state"));
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        self.daemons.push(child);
        let (send, receive) = mpsc::channel();
        let said = send.clone();
        // They read on: a full pipe would stop the daemon.
        thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).for_each(|line| drop(said.send(line)));
        });
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).for_each(|line| drop(send.send(line)));
        });
        let (mut port, mut turned) = (None, false);
        while port.is_none() || !turned {
            let line = receive.recv_timeout(PATIENCE).unwrap();
            let address =
                line.split_once("serving http://").and_then(|(_, rest)| rest.strip_suffix("/v1/audit"));
            port = port.or(address.map(|address| address.parse::<SocketAddr>().unwrap().port()));
            turned |= line.starts_with("turn 1: ");
        }
        port.unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.dir.path().join("kubectl-numa"));
        let (kubectl, kubeconfig) = (self.dir.path().join("kubectl"), self.dir.path().join("kubeconfig"));
        command.env_clear().arg("--kubectl").arg(kubectl).arg("--kubeconfig").arg(kubeconfig).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn ask(&self, arguments: &[&str]) -> Ended {
        finish(self.command(arguments))
    }

    fn json(&self, arguments: &[&str], code: i32) -> Value {
        let ended = self.ask(arguments);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        serde_json::from_str(&ended.stdout).unwrap()
    }

    /// Processes of the forwards so far.
    fn forwards(&self) -> Vec<Pid> {
        let text = fs::read_to_string(self.dir.path().join("forwards")).unwrap_or_default();
        text.lines().map(|line| Pid::from_raw(line.parse().unwrap()).unwrap()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &mut self.daemons {
            let _ended = child.kill();
            let _status = child.wait();
        }
    }
}

fn have_ended(processes: &[Pid]) -> bool {
    let until = Instant::now() + PATIENCE;
    while processes.iter().any(|process| test_kill_process(*process).is_ok()) {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// A port that answers every request with this.
fn answering(answer: impl Into<Vec<u8>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = answer.into();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            thread::spawn(move || {
                let mut request = [0; 4096];
                let _length = stream.read(&mut request);
                let _gone = stream.write_all(&answer);
            });
        }
    });
    port
}

fn of_json(value: &Value) -> Vec<u8> {
    let text = value.to_string();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into()
}

#[test]
fn nodes_that_answer_are_shown_beside_those_that_do_not() {
    let mut cluster = Cluster::new();
    let port = cluster.daemon("");
    cluster.node("works", Some(port));
    cluster.node("breaks", None);
    cluster.write("nodes", "node/bare\nnode/breaks\nnode/works\n");

    let audit = cluster.json(&["audit", "-o", "json"], 2);
    let names: Vec<_> =
        audit["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_str().unwrap()).collect();
    assert_eq!(names, ["bare", "breaks", "works"]);
    let [bare, breaks, works] = [0, 1, 2].map(|at| &audit["nodes"][at]);
    assert_eq!(bare["problem"], json!({"noDaemon": true, "reason": "no daemon runs on this node"}));
    assert_eq!(breaks["problem"]["noDaemon"], false);
    let reason = breaks["problem"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("numa-enforcer/daemon-breaks") && reason.contains("lost connection to pod"),
        "{reason}"
    );
    assert_eq!(works["problem"], Value::Null);
    assert_eq!(
        (&works["version"], &works["pod"]),
        (&env!("CARGO_PKG_VERSION").into(), &"daemon-works".into())
    );
    assert!(works["summary"]["total"].as_u64().unwrap() > 0);

    let table = cluster.ask(&["audit"]);
    assert_eq!((table.code, table.stderr.as_str()), (Some(2), ""), "{table:?}");
    for text in ["  works", "Did not answer\n  bare: no daemon runs", "\n\n3 nodes, 1 answered; "] {
        assert!(table.stdout.contains(text), "{text}: {}", table.stdout);
    }
    let status = cluster.json(&["status", "-o", "json"], 2);
    assert_eq!(status["nodes"][2]["status"]["latest"]["mode"], "observe");
    assert!(cluster.ask(&["status"]).stdout.contains("observe"));
    assert!(have_ended(&cluster.forwards()), "a forward goes on");

    // Without the right to list nodes, those with a daemon are shown.
    fs::remove_file(cluster.dir.path().join("nodes")).unwrap();
    let noted = cluster.ask(&["status"]);
    assert!(
        noted.stderr.starts_with("kubectl numa: listing nodes: Error from server (Forbidden)"),
        "{noted:?}"
    );
    assert!(noted.stderr.ends_with("nodes without a daemon are not shown\n"), "{noted:?}");
    assert!(!noted.stdout.contains("bare"), "{noted:?}");
}

#[test]
fn one_node_is_shown_as_the_local_commands_show_it() {
    let mut cluster = Cluster::new();
    let port = cluster.daemon("");
    cluster.node("works", Some(port));
    cluster.node("other", None);
    let audit = cluster.ask(&["audit", "--node", "works"]);
    assert!(matches!(audit.code, Some(0..=2)) && audit.stdout.contains("\nKernel "), "{audit:?}");
    let document = cluster.ask(&["audit", "--node", "works", "-o", "json"]);
    let document: Value = serde_json::from_str(&document.stdout).unwrap();
    assert!(document["topology"]["nodes"].is_array() && document["tool"]["name"] == "numa-enforcer");
    let status = cluster.ask(&["status", "--node", "works"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(status.stdout.starts_with("Mode      observe\n"), "{status:?}");
    let top = cluster.ask(&["top", "--node", "works", "--once"]);
    assert_eq!(top.code, Some(0), "{top:?}");
    assert!(top.stdout.starts_with("numa-enforcer top: daemon "), "{top:?}");

    let which = cluster.ask(&["top", "--once"]);
    assert_eq!(which.code, Some(64), "{which:?}");
    assert!(
        which.stderr.contains("which node? --node NAME is expected; there are: other, works\n"),
        "{which:?}"
    );
    for arguments in
        [&["audit", "--node", "absent"][..], &["status", "--node", "absent"], &["top", "--node", "absent"]]
    {
        let ended = cluster.ask(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(69), ""), "{ended:?}");
        let said = "kubectl numa: node absent: no daemon runs on it; daemons run on: other, works\n";
        assert_eq!(ended.stderr, said);
    }
    let broken = cluster.ask(&["status", "--node", "other"]);
    assert_eq!(broken.code, Some(2), "{broken:?}");
    assert!(
        broken.stderr.contains("node other: port-forward to numa-enforcer/daemon-other: error: lost"),
        "{broken:?}"
    );
    assert!(have_ended(&cluster.forwards()), "a forward goes on");
}

#[test]
fn pod_is_explained_by_the_daemon_of_its_node() {
    let mut cluster = Cluster::new();
    let port = cluster.daemon("");
    cluster.node("works", Some(port));
    let pod = |node: Value| {
        json!({
            "metadata": {"name": "web-1", "namespace": "shop"},
            "spec": {"nodeName": node, "containers": [{"name": "main"}, {"name": "late"}]},
            "status": {"containerStatuses": [{"name": "main", "containerID": "containerd://0123456789abcdef"}]},
        })
    };
    cluster.write("pod-web-1.json", &pod("works".into()).to_string());
    let explained = cluster.json(&["explain", "web-1", "-n", "shop", "-o", "json"], 2);
    assert_eq!((&explained["node"], &explained["namespace"]), (&"works".into(), &"shop".into()));
    assert_eq!(explained["containers"][0]["problem"], "no workload is called `0123456789abcdef`");
    assert_eq!(explained["containers"][1]["problem"], "it was not created yet");
    for (arguments, code, said) in [
        (&["explain", "web-2"][..], 2, "pods \"web-2\" not found"),
        (&["explain", "web-1", "-c", "x"], 2, "pod shop/web-1 has no container x; there are: main, late"),
    ] {
        let ended = cluster.ask(arguments);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stderr.contains(said), "{ended:?}");
    }
    cluster.write("pod-web-1.json", &pod("bare".into()).to_string());
    assert_eq!(cluster.ask(&["explain", "web-1"]).code, Some(69));
    cluster.write("pod-web-1.json", &pod(Value::Null).to_string());
    let unscheduled = cluster.ask(&["explain", "web-1"]);
    assert!(
        unscheduled.code == Some(2) && unscheduled.stderr.contains("is on no node yet"),
        "{unscheduled:?}"
    );
    // A name is never a flag, nor more than one word.
    let hostile = cluster.ask(&["explain", "--", "-x; touch \u{1b}[31m"]);
    assert!(hostile.code == Some(2) && !hostile.stderr.contains('\u{1b}'), "{hostile:?}");
}

#[test]
fn without_a_cluster_the_error_says_so() {
    let cluster = Cluster::new();
    let refused =
        "The connection to the server localhost:8080 was refused - did you specify the right host or port?";
    cluster.write(
        "refusal",
        &format!("E1127 14:51:23.893659 5560 memcache.go:265] \"Unhandled Error\"\n{refused}\n"),
    );
    let mut command = Command::new(cluster.dir.path().join("kubectl-numa"));
    command.env_clear().env("PATH", cluster.dir.path().display().to_string() + ":/usr/bin:/bin").arg("audit");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = finish(command);
    let said = format!(
        "kubectl numa: there is no kubeconfig (--kubeconfig FILE, KUBECONFIG, ~/.kube/config): listing pods \
         app.kubernetes.io/name=numa-enforcer in namespace numa-enforcer: {refused}\n"
    );
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr), (Some(2), "", said));

    cluster.write("refusal", "Unable to connect to the server: dial tcp 192.0.2.1:443: i/o timeout\n");
    for arguments in [&["audit"][..], &["status"], &["top", "--once"], &["explain", "x"]] {
        let ended = cluster.ask(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        assert!(
            ended
                .stderr
                .ends_with(": Unable to connect to the server: dial tcp 192.0.2.1:443: i/o timeout\n"),
            "{ended:?}"
        );
        assert!(!ended.stderr.contains("kubeconfig"), "{ended:?}");
    }
    fs::remove_file(cluster.dir.path().join("refusal")).unwrap();
    let none = cluster.ask(&["audit"]);
    assert_eq!(none.code, Some(69), "{none:?}");
    assert!(none.stderr.contains("no pod with the labels app.kubernetes.io/name=numa-enforcer"), "{none:?}");
    let mut command = Command::new(cluster.dir.path().join("kubectl-numa"));
    command.env_clear().args(["audit", "--kubectl", "/nonexistent/kubectl"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let absent = finish(command);
    let said = "kubectl numa: running kubectl (--kubectl PROGRAM names another one): /nonexistent/kubectl: No such file or \
                directory (os error 2)\n";
    assert_eq!((absent.code, absent.stderr.as_str()), (Some(2), said));
}

#[test]
fn plugin_and_daemon_name_one_version_and_commit() {
    let cluster = Cluster::new();
    let mut plugin = Command::new(cluster.dir.path().join("kubectl-numa"));
    plugin.env_clear().arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (plugin, daemon) = (finish(plugin), run(&["--version"]));
    let expected = daemon.stdout.replacen("numa-enforcer", "kubectl-numa", 1);
    assert!(expected.starts_with(concat!("kubectl-numa ", env!("CARGO_PKG_VERSION"))), "{expected}");
    assert_eq!((plugin.code, plugin.stdout, plugin.stderr.as_str()), (Some(0), expected, ""));
}

#[test]
fn answers_of_hostile_and_other_daemons_are_told_in_words() {
    let mut cluster = Cluster::new();
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n\u{1b}[2Jforged\u{7} answer without sense";
    let endless = {
        let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n".to_vec();
        answer.resize(20 << 20, b' ');
        answer
    };
    for (node, answer, said) in [
        ("garbled", text.as_bytes().to_vec(), "an answer that is not understood"),
        ("newer", of_json(&json!({"schemaVersion": 99})), "answers in schema version 99"),
        ("closed", Vec::new(), "the daemon ended the connection"),
        ("endless", endless, "length limit exceeded"),
        (
            "refusing",
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 13\r\n\r\nno \x1b[31mway \n".to_vec(),
            "the daemon answers: no ",
        ),
        ("odd", of_json(&json!({"schemaVersion": 1, "tool": []})), "an answer that is not understood"),
    ] {
        let port = answering(answer);
        cluster.node(node, Some(port));
        let ended = cluster.ask(&["audit", "--node", node]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{node}: {ended:?}");
        assert!(ended.stderr.contains(said), "{node}: {ended:?}");
        let printed = ended.stderr.trim_end();
        assert!(!printed.contains(|c: char| c.is_control()), "{node}: {ended:?}");
    }
    let all = cluster.ask(&["audit"]);
    assert_eq!(all.code, Some(2), "{all:?}");
    assert!(!all.stdout.contains(|c: char| c.is_control() && c != '\n'), "{all:?}");
    assert_eq!(all.stdout.matches("an answer that is not understood").count(), 2, "{all:?}");
    assert!(have_ended(&cluster.forwards()), "a forward goes on");
}

#[test]
fn daemon_with_a_token_is_asked_with_it() {
    let mut cluster = Cluster::new();
    let token = cluster.dir.path().join("token");
    fs::write(&token, "0123456789abcdef\n").unwrap();
    let port = cluster.daemon(&format!("[metrics]\ntoken_file = \"{}\"\n", token.display()));
    cluster.node("works", Some(port));
    let without = cluster.ask(&["status"]);
    assert_eq!(without.code, Some(2), "{without:?}");
    assert!(without.stdout.contains("works: the daemon answers: this takes the token"), "{without:?}");
    assert_eq!(cluster.ask(&["status", "--token-file", token.to_str().unwrap()]).code, Some(0));
    fs::write(&token, "a b\n").unwrap();
    assert_eq!(cluster.ask(&["status", "--token-file", token.to_str().unwrap()]).code, Some(64));
}

#[test]
fn signal_ends_the_forwards_too() {
    let mut cluster = Cluster::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    cluster.node("silent", Some(silent.local_addr().unwrap().port()));
    let mut child = cluster.command(&["status"]).process_group(0).spawn().unwrap();
    let until = Instant::now() + PATIENCE;
    while cluster.forwards().is_empty() {
        assert!(Instant::now() < until, "it never asks");
        thread::sleep(Duration::from_millis(20));
    }
    let forwards = cluster.forwards();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(have_ended(&forwards), "a forward goes on");
}

#[test]
fn help_of_the_plugin_is_one_screen_with_examples() {
    let cluster = Cluster::new();
    let plugin = Path::new("kubectl-numa");
    for arguments in
        [&["--help"][..], &["audit", "--help"], &["status", "--help"], &["explain", "-h"], &["top", "-h"]]
    {
        let mut command = Command::new(cluster.dir.path().join(plugin));
        command.env_clear().env("COLUMNS", "80").args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = finish(command);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        let (_, examples) = ended.stdout.split_once("Examples:\n").unwrap();
        assert!(examples.contains("  kubectl numa "), "{examples}");
        assert!(ended.stdout.lines().count() <= 50, "{arguments:?}: {}", ended.stdout);
        assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    }
    let mut command = Command::new(cluster.dir.path().join("kubectl_complete-numa"));
    command.env_clear().arg("ex").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    assert_eq!(finish(command).stdout, "explain\n:4\n");
    let wrong = cluster.ask(&["frobnicate"]);
    assert!(wrong.code == Some(64) && wrong.stderr.contains("Usage: kubectl numa "), "{wrong:?}");
}
