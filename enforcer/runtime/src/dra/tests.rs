//! The two sockets as a kubelet uses them, over a real client of gRPC.

use std::{
    collections::HashMap,
    os::unix::net::UnixListener,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use enforcer_core::dra::PreparedDevice;
use prost::Message;
use tempfile::TempDir;
use tokio::{
    sync::{Barrier, watch},
    task::JoinHandle,
    time::timeout,
};
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::{
    messages::{
        ClaimMessage, ClaimsRequest, PluginIdentity, PrepareResponse, RegistrationStatus, UnprepareResponse,
        WatchResponse,
    },
    *,
};

/// Prepares claims with names that do not begin with `bad`.
#[derive(Debug)]
struct PlayedDriver {
    calls: Mutex<Vec<String>>,
    pair: Barrier,
}

impl PlayedDriver {
    fn note(&self, what: &str, claim: &KubeletClaim) {
        self.calls.lock().unwrap().push(format!("{what} {}/{} {}", claim.namespace, claim.name, claim.uid));
    }
}

impl ClaimCalls for PlayedDriver {
    fn prepare(&self, claim: KubeletClaim) -> BoxedAnswer<'_, Vec<PreparedDevice>> {
        Box::pin(async move {
            self.note("prepare", &claim);
            match claim.name.as_str() {
                // Each waits for the other one.
                "pair" => {
                    self.pair.wait().await;
                    Ok(Vec::new())
                }
                "broken" => panic!("as a fault of the driver"),
                "bad" => Err("numa1: 8 CPUs asked, 6 free".to_owned()),
                "silent" => Err(String::new()),
                _ => Ok(vec![PreparedDevice {
                    requests: vec!["place".to_owned()],
                    pool: "n1".to_owned(),
                    device: "ne-numa0".to_owned(),
                    cdi_ids: vec![format!("numa-enforcer.io/place=claim-{}", claim.uid)],
                    share_id: Some("share".to_owned()),
                }]),
            }
        })
    }

    fn unprepare(&self, claim: KubeletClaim) -> BoxedAnswer<'_, ()> {
        Box::pin(async move {
            self.note("unprepare", &claim);
            if claim.name == "bad" { Err("the disk is full".to_owned()) } else { Ok(()) }
        })
    }
}

/// A client as the kubelet is one: of the registry's socket the authority is the escaped path.
async fn client(socket: &Path, authority: &str) -> Grpc<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    let channel = endpoint.origin(format!("http://{authority}").parse().unwrap()).connect().await.unwrap();
    Grpc::new(channel)
}

async fn call<Q, A>(grpc: &mut Grpc<Channel>, method: &'static str, request: Q) -> Result<A, Status>
where
    Q: Message + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    grpc.ready().await.unwrap();
    let codec = ProstCodec::<Q, A>::default();
    let answer = grpc.unary(Request::new(request), PathAndQuery::from_static(method), codec).await?;
    Ok(answer.into_inner())
}

/// A service at a socket, until it is dropped.
struct Served {
    folder: TempDir,
    task: JoinHandle<()>,
}

impl Served {
    fn new(methods: Arc<dyn GrpcMethods>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let task = tokio::spawn(async move {
            serve(listener, methods).await.unwrap();
        });
        Self { folder, task }
    }

    async fn client(&self, authority: &str) -> Grpc<Channel> {
        client(&self.folder.path().join("s"), authority).await
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn claims(of: &[(&str, &str)]) -> ClaimsRequest {
    let claim = |(uid, name): &(&str, &str)| ClaimMessage {
        namespace: "ns".to_owned(),
        uid: (*uid).to_owned(),
        name: (*name).to_owned(),
    };
    ClaimsRequest { claims: of.iter().map(claim).collect() }
}

fn plugin() -> (Arc<PlayedDriver>, watch::Sender<DeviceHealthReport>, Served) {
    let (driver, health) =
        (Arc::new(PlayedDriver { calls: Mutex::default(), pair: Barrier::new(2) }), watch::Sender::default());
    let plugin = DraPlugin::new(driver.clone(), health.subscribe());
    (driver, health, Served::new(Arc::new(plugin)))
}

const PREPARE: &str = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources";
const UNPREPARE: &str = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources";

#[tokio::test]
async fn a_kubelet_registers_the_driver_by_the_escaped_path_of_its_socket() {
    let registration = PluginRegistration::new("numa-enforcer.io", "/plugins/numa-enforcer.io/dra.sock");
    let mut notices = registration.notices();
    assert_eq!(*notices.borrow_and_update(), RegistrationNotice::Unasked);
    let served = Served::new(Arc::new(registration));
    let escaped = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fnuma-enforcer.io@reg.sock";
    let mut kubelet = served.client(escaped).await;
    let identity: PluginIdentity =
        call(&mut kubelet, "/pluginregistration.Registration/GetInfo", ()).await.unwrap();
    assert_eq!((identity.kind.as_str(), identity.name.as_str()), ("DRAPlugin", "numa-enforcer.io"));
    assert_eq!(identity.endpoint, "/plugins/numa-enforcer.io/dra.sock");
    assert_eq!(identity.supported_versions[..2], ["v1.DRAPlugin", "v1beta1.DRAPlugin"]);
    assert_eq!(*notices.borrow_and_update(), RegistrationNotice::Asked);
    let long = "no ".repeat(10_000);
    for (status, expected) in [
        ((true, String::new()), RegistrationNotice::Registered),
        ((false, "bad".to_owned()), RegistrationNotice::Refused("bad".to_owned())),
        ((false, long.clone()), RegistrationNotice::Refused(long[..500].to_owned())),
    ] {
        let status = RegistrationStatus { plugin_registered: status.0, error: status.1 };
        let method = "/pluginregistration.Registration/NotifyRegistrationStatus";
        call::<_, ()>(&mut kubelet, method, status).await.unwrap();
        assert_eq!(*notices.borrow_and_update(), expected);
    }
}

#[tokio::test]
async fn each_claim_has_one_entry_and_its_own_error() {
    let (driver, _health, served) = plugin();
    let mut kubelet = served.client("localhost").await;
    let request = claims(&[("u1", "good"), ("u2", "bad"), ("u3", "silent"), ("u1", "good")]);
    let answer: PrepareResponse = call(&mut kubelet, PREPARE, request).await.unwrap();
    assert_eq!(answer.claims.len(), 3);
    let entry = |uid: &str| &answer.claims[uid];
    assert_eq!(entry("u1").error, "");
    let device = &entry("u1").devices[0];
    assert_eq!((device.request_names[0].as_str(), device.pool_name.as_str()), ("place", "n1"));
    assert_eq!((device.device_name.as_str(), device.share_id.as_deref()), ("ne-numa0", Some("share")));
    assert_eq!(device.cdi_device_ids, ["numa-enforcer.io/place=claim-u1"]);
    assert_eq!((entry("u2").devices.len(), entry("u2").error.as_str()), (0, "numa1: 8 CPUs asked, 6 free"));
    assert_ne!(entry("u3").error, "", "an empty error means success");
    let request = claims(&[("u1", "good"), ("u2", "bad")]);
    let answer: UnprepareResponse = call(&mut kubelet, UNPREPARE, request).await.unwrap();
    let errors: HashMap<_, _> =
        answer.claims.iter().map(|(uid, entry)| (uid.as_str(), entry.error.as_str())).collect();
    assert_eq!(errors, HashMap::from([("u1", ""), ("u2", "the disk is full")]));
    let calls = driver.calls.lock().unwrap().clone();
    assert!(calls.contains(&"prepare ns/good u1".to_owned()), "{calls:?}");
    assert_eq!(calls.len(), 5);
}

#[tokio::test]
async fn claims_of_one_call_are_prepared_side_by_side_and_a_fault_of_one_is_its_own() {
    let (_driver, _health, served) = plugin();
    let mut kubelet = served.client("localhost").await;
    let request = claims(&[("u1", "pair"), ("u2", "broken"), ("u3", "pair")]);
    let answer = call::<_, PrepareResponse>(&mut kubelet, PREPARE, request);
    let answer = timeout(Duration::from_mins(1), answer).await.expect("they wait for each other").unwrap();
    let errors = ["u1", "u2", "u3"].map(|uid| answer.claims[uid].error.as_str());
    assert_eq!(errors, ["", "the call for it ended early", ""]);
}

#[tokio::test]
async fn what_is_no_call_of_a_kubelet_is_refused_and_the_next_call_answered() {
    let (driver, _health, served) = plugin();
    let mut kubelet = served.client("localhost").await;
    let many: Vec<_> = (0..1_025).map(|_| ("u", "n")).collect();
    let too_many = call::<_, PrepareResponse>(&mut kubelet, PREPARE, claims(&many)).await.unwrap_err();
    assert_eq!((too_many.code(), too_many.message()), (Code::InvalidArgument, "more than 1024 claims"));
    let name = "x".repeat(2 << 20);
    let too_large = call::<_, PrepareResponse>(&mut kubelet, PREPARE, claims(&[("u", &name)])).await;
    assert_eq!(too_large.unwrap_err().code(), Code::OutOfRange);
    let no_message = call::<_, ()>(&mut kubelet, PREPARE, PluginIdentity::default()).await;
    assert!(no_message.is_ok(), "an empty message has no claims");
    let unknown = call::<_, ()>(&mut kubelet, "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/Other", ()).await;
    assert_eq!(unknown.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(*driver.calls.lock().unwrap(), Vec::<String>::new());
    let answer = call::<_, PrepareResponse>(&mut kubelet, PREPARE, claims(&[("u1", "good")])).await;
    assert_eq!(answer.unwrap().claims.len(), 1);
}

#[tokio::test]
async fn health_is_told_at_once_at_each_change_and_again() {
    let (_driver, health, served) = plugin();
    let mut kubelet = served.client("localhost").await;
    kubelet.ready().await.unwrap();
    let method = PathAndQuery::from_static("/v1alpha1.DRAResourceHealth/NodeWatchResources");
    let codec = ProstCodec::<(), WatchResponse>::default();
    let mut stream = kubelet.server_streaming(Request::new(()), method, codec).await.unwrap().into_inner();
    let mut next = async || {
        let message = timeout(Duration::from_mins(1), stream.message()).await.unwrap().unwrap().unwrap();
        message.devices
    };
    assert_eq!(next().await, []);
    let device = |name: &str, condition| (name.to_owned(), condition);
    health.send_replace(DeviceHealthReport {
        pool: "n1".to_owned(),
        devices: vec![
            device("ne-numa0", DeviceCondition::Healthy),
            device("ne-numa1", DeviceCondition::Unhealthy("é".repeat(1_000))),
        ],
    });
    let devices = next().await;
    assert_eq!(devices.iter().map(|device| device.health).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(devices[0].device.as_ref().unwrap().device_name, "ne-numa0");
    assert_eq!(devices[1].message, "é".repeat(512));
    assert!(devices[0].last_updated_time > 0 && devices[0].health_check_timeout_seconds > 0);
    assert_eq!(next().await.len(), 2, "the same again, before the kubelet takes it for unknown");
    drop(health);
    let end = timeout(Duration::from_mins(1), stream.message()).await.unwrap();
    assert_eq!(end.unwrap(), None);
}
