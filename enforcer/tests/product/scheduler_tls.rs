//! `scheduler serve` over TLS: which clients it answers, and certificates that are renewed.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use enforcer_test_api::{ApiStub, TestAuthority, TlsClient};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    common::run,
    scheduler::{LIMIT, STATES, Served, pod, put_node},
};

const NAME: &str = "numa-enforcer-attached-scheduler.numa-enforcer.svc";

/// The three files of an extender.
pub(crate) struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// A server and its clients of one authority.
    pub(crate) fn of(authority: &TestAuthority) -> Self {
        let files = Self { folder: tempfile::tempdir().unwrap() };
        files.renew(authority);
        files
    }

    fn renew(&self, authority: &TestAuthority) {
        let [certificate, key] = authority.server(NAME);
        fs::write(self.path("tls.crt"), certificate).unwrap();
        fs::write(self.path("tls.key"), key).unwrap();
        fs::write(self.path("ca.crt"), &authority.pem).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn arguments(&self) -> Vec<String> {
        let of = |name| self.path(name).to_str().unwrap().to_owned();
        let files = [("--tls-cert", "tls.crt"), ("--tls-key", "tls.key"), ("--client-ca", "ca.crt")];
        files.into_iter().flat_map(|(option, name)| [option.to_owned(), of(name)]).collect()
    }
}

/// Starts an extender with these certificates, and waits until it is ready.
fn start(stub: &ApiStub, files: &Certificates) -> Served {
    let arguments = files.arguments();
    let mut further: Vec<&str> = arguments.iter().map(String::as_str).collect();
    further.extend(["--probes", "127.0.0.1:0", "--filter-only", "--settles", "0s"]);
    let served = Served::start(stub, &further);
    served.becomes_ready();
    served
}

pub(crate) fn connect(
    served: &Served,
    authority: &TestAuthority,
    client: Option<&[String; 2]>,
) -> io::Result<TlsClient> {
    TlsClient::connect(served.address, &authority.pem, NAME, client, LIMIT)
}

/// Asks for a filter on a connection; status, head and body.
pub(crate) fn filter(client: &mut TlsClient) -> io::Result<(u16, String, String)> {
    client.ask("POST", "/v1/filter", &json!({"Pod": pod("p", 2), "NodeNames": ["a"]}).to_string())
}

/// Whether a new connection with this certificate is answered.
fn passes(served: &Served, authority: &TestAuthority, client: Option<&[String; 2]>) -> bool {
    match connect(served, authority, client).and_then(|mut client| filter(&mut client)) {
        Ok((status, _, text)) => {
            assert_eq!(status, 200, "{text}");
            true
        }
        Err(_refused) => false,
    }
}

#[test]
fn clients_of_the_authority_are_answered_and_no_others() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let (authority, other) = (TestAuthority::new("ours"), TestAuthority::new("other"));
    let served = start(&stub, &Certificates::of(&authority));
    let client = authority.client("kube-scheduler");
    let mut kept = connect(&served, &authority, Some(&client)).unwrap();
    for _ in 0..2 {
        assert_eq!(filter(&mut kept).unwrap().0, 200);
    }
    assert!(!passes(&served, &authority, None), "no certificate");
    assert!(!passes(&served, &authority, Some(&other.client("kube-scheduler"))), "another authority");
    assert!(!passes(&served, &other, Some(&client)), "this is how a test would see an untrusted server");
    let server = authority.server("other.svc");
    assert!(!passes(&served, &authority, Some(&server)), "a certificate of a server is none of a client");

    let mut plain = TcpStream::connect(served.address).unwrap();
    plain.set_read_timeout(Some(LIMIT)).unwrap();
    plain.write_all(b"POST /v1/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}").unwrap();
    let mut answer = Vec::new();
    // The server may reset the connection.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let mut long = connect(&served, &authority, Some(&client)).unwrap();
    // The server answers before it has read all of it, and may close then.
    let refused = long.ask("POST", "/v1/filter", &"x".repeat(5 << 20));
    assert!(refused.as_ref().is_err() || refused.unwrap().0 == 413);
    assert_eq!(filter(&mut kept).unwrap().0, 200);
}

#[test]
fn clients_that_never_end_their_handshake_keep_none_out() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let authority = TestAuthority::new("ours");
    let served = start(&stub, &Certificates::of(&authority));
    let client = authority.client("kube-scheduler");
    let silent = (0..10).find_map(|_| {
        let begun = Instant::now();
        let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(served.address).unwrap()).collect();
        // As after the first bytes of a handshake.
        (&silent[99]).write_all(&[0x16, 0x03, 0x01]).unwrap();
        assert!(passes(&served, &authority, Some(&client)));
        silent[0].set_read_timeout(Some(LIMIT)).unwrap();
        let made_room = (&silent[0]).read(&mut [0]);
        assert!(!is_open(&made_room), "{made_room:?}");
        silent[99].set_nonblocking(true).unwrap();
        let newest = (&silent[99]).read(&mut [0]);
        silent[99].set_nonblocking(false).unwrap();
        // After 5 s a handshake ends in any case, which says nothing about those that make room.
        let has_said = is_open(&newest) || begun.elapsed() < Duration::from_secs(5);
        assert!(!has_said || is_open(&newest), "{newest:?}");
        has_said.then_some(silent)
    });
    let silent = silent.expect("the oldest one makes room before its time ends");
    for stream in &silent {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        assert!(!is_open(&{ stream }.read(&mut [0])));
    }
}

/// Whether a server that sends nothing has left the connection open, by what a read of it gave.
fn is_open(read: &io::Result<usize>) -> bool {
    read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn handshake_that_began_before_a_renewal_ends_with_it() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let (authority, renewed) = (TestAuthority::new("ours"), TestAuthority::new("renewed"));
    let files = Certificates::of(&authority);
    let served = start(&stub, &files);
    let client = authority.client("kube-scheduler");
    // Where the first of the client's bytes reach the server, and the others wait.
    let relay = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = relay.local_addr().unwrap();
    let pem = authority.pem.clone();
    let asking = thread::spawn(move || {
        let mut asks = TlsClient::connect(address, &pem, NAME, Some(&client), LIMIT).unwrap();
        filter(&mut asks).map(|(status, _, _)| status)
    });
    let (ours, _) = relay.accept().unwrap();
    let server = TcpStream::connect(served.address).unwrap();
    let mut bytes = [0; 1 << 14];
    let read = (&ours).read(&mut bytes).unwrap();
    (&server).write_all(&bytes[..read]).unwrap();
    let read = (&server).read(&mut bytes).unwrap();
    assert!(read > 0, "the server has answered");
    (&ours).write_all(&bytes[..read]).unwrap();
    files.renew(&renewed);
    served.logs("uses renewed certificates");
    let (from, to) = (ours.try_clone().unwrap(), server.try_clone().unwrap());
    let forth = thread::spawn(move || {
        let _ = io::copy(&mut &from, &mut &to);
    });
    let _ = io::copy(&mut &server, &mut &ours);
    let _ = ours.shutdown(Shutdown::Both);
    let answered = asking.join().unwrap();
    assert!(answered.is_err(), "{answered:?}");
    forth.join().unwrap();
}

#[test]
fn renewed_certificates_are_used_and_damaged_ones_are_not() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let (authority, renewed) = (TestAuthority::new("ours"), TestAuthority::new("renewed"));
    let files = Certificates::of(&authority);
    let served = start(&stub, &files);
    let client = authority.client("kube-scheduler");
    let mut kept = connect(&served, &authority, Some(&client)).unwrap();
    assert_eq!(filter(&mut kept).unwrap().0, 200);
    let unusable = |kept: &mut TlsClient| {
        let (_, _, text) = kept.ask("GET", "/metrics", "").unwrap();
        let line =
            text.lines().find_map(|line| line.strip_prefix("numa_enforcer_scheduler_certificates_unusable "));
        line.unwrap().to_owned()
    };
    assert_eq!(unusable(&mut kept), "0");
    fs::write(files.path("tls.key"), "damaged").unwrap();
    served.logs("degraded: tls: ");
    assert_eq!(unusable(&mut kept), "1");
    assert!(passes(&served, &authority, Some(&client)), "the old ones stay in use");
    assert_eq!(filter(&mut kept).unwrap().0, 200);

    files.renew(&renewed);
    served.logs("no longer degraded: tls");
    let begun = Instant::now();
    while !passes(&served, &renewed, Some(&renewed.client("kube-scheduler"))) {
        assert!(begun.elapsed() < LIMIT);
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!passes(&served, &renewed, Some(&client)), "the old authority counts no more");
    assert!(filter(&mut kept).is_err(), "nor does a connection that it let in");
}

#[test]
fn files_that_cannot_be_used_end_the_start() {
    let authority = TestAuthority::new("ours");
    let files = Certificates::of(&authority);
    for alone in ["--tls-cert", "--tls-key", "--client-ca"] {
        assert_eq!(run(&["scheduler", "serve", alone, "/x"]).code, Some(64), "{alone}");
    }
    for lease in ["one", "a/b/c", "/b", "a/..", "a/b?c"] {
        let ended = run(&["scheduler", "serve", "--filter-only", "--lease", lease]);
        assert_eq!(ended.code, Some(64), "{lease}");
    }
    let binds = run(&["scheduler", "serve", "--lease", "numa/extender"]);
    assert_eq!(binds.code, Some(64), "{binds:?}");
    assert!(binds.stderr.contains("--filter-only"), "{binds:?}");
    fs::write(files.path("tls.key"), authority.client("other")[1].as_str()).unwrap();
    let kubeconfig = files.path("kubeconfig");
    let cluster = json!({"server": "http://127.0.0.1:1"});
    let object = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    });
    fs::write(&kubeconfig, object.to_string()).unwrap();
    let arguments = files.arguments();
    let mut all = vec!["scheduler", "serve", "--listen", "0.0.0.0:0"];
    all.extend(["--kubeconfig", kubeconfig.to_str().unwrap()]);
    all.extend(arguments.iter().map(String::as_str));
    let ended = run(&all);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("reading certificates") && ended.stderr.contains("tls.crt: "), "{ended:?}");
}
