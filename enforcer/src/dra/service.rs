//! What the driver does beside turns: it answers the kubelet, follows the machine, and publishes devices.
//!
//! Problem: the kubelet, the API server and the machine each come and go at their own times, and a claim must
//! not wait for one that it does not need. Idea: one thread with a runtime of its own, with a task for each.
//! The sockets are bound before the daemon gives up its privileges, so a kubelet that connects early waits in
//! the queue of the socket.
//!
//! Invariants: the kubelet finds the registration only after the service that it names listens. Devices are
//! published only after the claims are loaded. No task ends another; what one lacks is a degraded source.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fs,
    future::pending,
    io,
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use enforcer_cluster::{ApiConnection, Backoff, send_if_different};
use enforcer_core::{
    dra::{ClaimUid, DRIVER},
    policy::Policy,
};
use enforcer_host::HostRoot;
use enforcer_runtime::dra::{DraPlugin, GrpcMethods, PluginRegistration, RegistrationNotice, serve};
use numa_topology::{degraded::Degraded, set::CpuSet};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    conditions::{ClaimEvents, ClaimStatus, tell_of_claims},
    driver::{ClaimDriver, DriverCalls, DriverSettings},
    offer::DeviceOffer,
    orphans::ClaimsInUse,
    places::{ClaimPlaces, change},
    runtime_link::RuntimeWait,
    source::LateClaims,
    store::{ClaimStore, STATE_FILE},
    tally::ClaimTally,
};
use crate::{publish::NodeEvents, serve::ControlSocket};
use enforcer_act::actuator::read_boot_id;

/// First and longest time between two tries to reach the API server.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Time between two looks for what a claim has lost, and between two reads of one in doubt.
const MINUTE: Duration = Duration::from_mins(1);
/// Largest file of the kubelet's claims that is read, in bytes.
const MOST_STATE: u64 = 32 << 20;
/// Source of a driver that does not run.
const SOURCE: &str = "dra";
/// Effect.
const EFFECT: &str = "claims for NUMA nodes of this machine are not prepared";

/// The driver and its sockets.
pub(crate) struct DriverService {
    driver: Arc<ClaimDriver>,
    places: Arc<dyn ClaimPlaces>,
    offer: DeviceOffer,
    kubeconfig: Option<PathBuf>,
    /// Share of remote accesses from which on a claim is remote.
    remote_limit: f64,
    /// Whether the condition of claims is written.
    writes_conditions: bool,
    /// Where the kubelet keeps which claims it holds.
    kubelet_state: PathBuf,
    /// Where claims are read, once there is a connection.
    connection: watch::Sender<Option<Arc<ApiConnection>>>,
    /// Path of the service's socket.
    endpoint: String,
    /// Sockets of the service and of the registration.
    listeners: [Option<UnixListener>; 2],
}

/// The files of the driver's sockets, which are removed on drop: that of the registration first, so that the
/// kubelet ends its calls before the service does.
#[derive(Debug)]
pub(crate) struct DriverSocketFiles {
    _registry: ControlSocket,
    _service: ControlSocket,
}

/// A driver that has been opened.
pub(crate) struct OpenedDriver {
    /// What is to run.
    pub(crate) service: DriverService,
    /// Kept until the daemon ends.
    pub(crate) files: DriverSocketFiles,
    /// What is wrong with the files of claims.
    pub(crate) damage: Option<Degraded>,
}

/// Where the driver tells what it lacks.
pub(crate) struct DriverFaults {
    unregistered: watch::Sender<Option<Degraded>>,
    unpublished: watch::Sender<Option<Degraded>>,
    unwritten: watch::Sender<Option<Degraded>>,
}

/// Why there is no driver.
pub(crate) fn no_driver(reason: impl Into<String>) -> Degraded {
    Degraded::new(SOURCE, reason.into(), EFFECT)
}

impl DriverFaults {
    /// The faults, and where they are read.
    pub(crate) fn channel() -> (Self, Vec<watch::Receiver<Option<Degraded>>>) {
        let (unregistered, no_kubelet) = watch::channel(None);
        let (unpublished, no_devices) = watch::channel(None);
        let (unwritten, no_files) = watch::channel(None);
        let missing = vec![no_kubelet, no_devices, no_files];
        (Self { unregistered, unpublished, unwritten }, missing)
    }
}

impl DriverService {
    /// Loads the claims, has `places` hold them, and binds the sockets. Another daemon that serves the claims
    /// is waited for so long.
    ///
    /// # Errors
    /// If the claims cannot be read, or a socket cannot be bound.
    pub(crate) fn open(
        host: &HostRoot,
        policy: &Policy,
        node: String,
        places: Arc<dyn ClaimPlaces>,
        steers_interrupts: Arc<AtomicBool>,
        patience: Duration,
    ) -> Result<OpenedDriver, String> {
        let Policy { dra, kubelet, state_dir, cluster, .. } = policy;
        let store = ClaimStore {
            state: state_dir.join(STATE_FILE),
            cdi: dra.cdi_dir.clone(),
            compatible: dra.kubevirt_variable,
            metadata: dra
                .device_metadata
                .then(|| kubelet.root_dir.join("plugins").join(DRIVER).join("metadata")),
        };
        let boot_id = read_boot_id(host).ok_or("the id of this boot cannot be read")?;
        let supply = places.supply().ok_or("the machine is not known")?;
        let taken =
            store.take_over((&node, &boot_id), &supply, patience).map_err(|error| error.to_string())?;
        let damage = taken.damage.map(|damage| {
            Degraded::new(
                "dra:state",
                damage,
                "earlier claims keep their CPUs; \
                 their containers run on shared ones until the API server has been asked for the claims",
            )
        });
        let settings = settings_of(policy, steers_interrupts);
        let (connection, connected) = watch::channel(None);
        let source = Arc::new(LateClaims(connected));
        let driver = Arc::new(
            ClaimDriver::new(settings, store, source, Arc::clone(&places), taken.ledger)
                .with_unwritten(taken.is_unwritten)
                .with_lock(taken.lock)
                .with_runtime_wait(RuntimeWait::of(dra)),
        );
        let bind = |path: PathBuf| ControlSocket::bind(&path).map_err(|error| error.to_string());
        let mut service = bind(kubelet.root_dir.join("plugins").join(DRIVER).join("dra.sock"))?;
        // The name has an `@` for the sake of the authority that the kubelet sends: see the registration.
        let mut registry =
            bind(kubelet.root_dir.join("plugins_registry").join(format!("{DRIVER}@reg.sock")))?;
        let endpoint = service.path().to_string_lossy().into_owned();
        let listeners = [service.take(), registry.take()];
        let files = DriverSocketFiles { _registry: registry, _service: service };
        let (offer, kubeconfig) = (DeviceOffer::new(dra, node), cluster.kubeconfig.clone());
        let remote_limit = policy.thresholds.remote_traffic_warning;
        let kubelet_state = kubelet.root_dir.join("dra_manager_state");
        let service = Self {
            driver,
            places,
            offer,
            kubeconfig,
            remote_limit,
            writes_conditions: dra.claim_conditions,
            kubelet_state,
            connection,
            endpoint,
            listeners,
        };
        Ok(OpenedDriver { service, files, damage })
    }

    /// Counts of its calls.
    pub(crate) fn tally(&self) -> Arc<ClaimTally> {
        self.driver.tally()
    }

    /// Answers, follows and publishes until the daemon ends.
    pub(crate) async fn run(self, faults: DriverFaults, events: Option<NodeEvents>) {
        let mut tasks: JoinSet<io::Result<Infallible>> = JoinSet::new();
        let registration = PluginRegistration::new(DRIVER, &self.endpoint);
        let notices = registration.notices();
        let (health, reports) = watch::channel(self.driver.health(&self.offer.devices(&*self.places)));
        let plugin = DraPlugin::new(Arc::new(DriverCalls(Arc::clone(&self.driver))), reports);
        let methods = [Arc::new(plugin) as Arc<dyn GrpcMethods>, Arc::new(registration) as _];
        for (socket, methods) in self.listeners.into_iter().zip(methods) {
            if let Some(socket) = socket {
                tasks.spawn(serve(socket, methods));
            }
        }
        let DriverFaults { unregistered, unpublished, unwritten } = faults;
        tasks.spawn(follow_kubelet(notices, unregistered, self.driver.tally()));
        let (driver, places) = (Arc::clone(&self.driver), Arc::clone(&self.places));
        let (offer, shape) = (self.offer.clone(), self.offer.shape_changes());
        tasks.spawn(follow_machine((driver, places), shape, unwritten, move |driver, places| {
            health.send_replace(driver.health(&offer.devices(places)));
        }));
        tasks.spawn(read_unconfirmed(Arc::clone(&self.driver), Arc::clone(&self.places)));
        tasks.spawn(release_orphans(Arc::clone(&self.driver), Arc::clone(&self.places), self.kubelet_state));
        if self.writes_conditions || events.is_some() {
            let of = (Arc::clone(&self.driver), Arc::clone(&self.places));
            let status =
                self.writes_conditions.then(|| Box::new(self.connection.subscribe()) as Box<dyn ClaimStatus>);
            let events = events.map(|events| Box::new(move |event| events.send(event)) as ClaimEvents);
            tasks.spawn(tell_of_claims(of, (status, events), self.remote_limit));
        }
        let publishing = Publishing {
            offer: self.offer.clone(),
            kubeconfig: self.kubeconfig.clone(),
            places: Arc::clone(&self.places),
            connection: self.connection.clone(),
            tally: self.driver.tally(),
        };
        tasks.spawn(async move { Ok(publishing.keep_up(&unpublished).await) });
        while let Some(ended) = tasks.join_next().await {
            if let Ok(Err(error)) = ended {
                tracing::error!("the DRA driver lost a part: {error}");
            }
        }
    }
}

fn settings_of(policy: &Policy, steers_interrupts: Arc<AtomicBool>) -> DriverSettings {
    let dra = &policy.dra;
    DriverSettings {
        driver: DRIVER.to_owned(),
        missing: dra.without_amounts,
        share_exclusive: dra.share_exclusive,
        steers_interrupts,
    }
}

/// Tells whether the kubelet knows the driver.
async fn follow_kubelet(
    mut notices: watch::Receiver<RegistrationNotice>,
    unregistered: watch::Sender<Option<Degraded>>,
    tally: Arc<ClaimTally>,
) -> io::Result<Infallible> {
    loop {
        tally.set_registered(matches!(&*notices.borrow(), RegistrationNotice::Registered));
        let fault = match &*notices.borrow_and_update() {
            RegistrationNotice::Registered | RegistrationNotice::Asked => None,
            RegistrationNotice::Unasked => Some("the kubelet has not asked for the driver yet".to_owned()),
            RegistrationNotice::Refused(why) => Some(format!("the kubelet refuses the driver: {why}")),
        };
        let fault = fault.map(|reason| Degraded::new("dra:registration", reason, EFFECT));
        send_if_different(&unregistered, fault);
        change(&mut notices).await;
    }
}

/// Has the claims follow what the machine has for them; `changed` is called after each change of either, of
/// the `shape` of devices, and when the health of devices changes by time alone.
pub(super) async fn follow_machine<T: Send + Sync>(
    (driver, places): (Arc<ClaimDriver>, Arc<dyn ClaimPlaces>),
    mut shape: watch::Receiver<T>,
    unwritten: watch::Sender<Option<Degraded>>,
    changed: impl Fn(&ClaimDriver, &dyn ClaimPlaces) + Send,
) -> io::Result<Infallible> {
    let (mut machine, mut claims) = (places.changes(), driver.changes());
    machine.mark_changed();
    let mut had_runtime = false;
    loop {
        tokio::select! {
            () = change(&mut machine) => {
                let fault = driver.observe_machine(CpuSet::new()).await.err().map(|reason| {
                    Degraded::new("dra:state", reason, "after a restart some claims would have other CPUs")
                });
                send_if_different(&unwritten, fault);
                let has_runtime = places.has_runtime();
                if has_runtime != std::mem::replace(&mut had_runtime, has_runtime) {
                    if has_runtime { driver.containers_known() } else { driver.runtime_lost() }
                }
            }
            () = change(&mut claims) => {}
            () = change(&mut shape) => {}
            () = until(driver.health_due()) => {}
        }
        changed(&driver, &*places);
    }
}

/// Waits until then, for ever without a time.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

/// Reads claims again that containers of other pods name, and those of which only a file is left, each once a
/// minute until it is in no doubt, and sooner while the API server has not answered.
pub(super) async fn read_unconfirmed(
    driver: Arc<ClaimDriver>,
    places: Arc<dyn ClaimPlaces>,
) -> io::Result<Infallible> {
    let mut changes = places.changes();
    let mut read = BTreeMap::<ClaimUid, Instant>::new();
    loop {
        changes.borrow_and_update();
        read.retain(|_, at| at.elapsed() < MINUTE);
        let mut doubtful = places.unconfirmed();
        doubtful.extend(driver.recovered());
        for claim in &doubtful {
            if !read.contains_key(claim) && driver.read_again(claim).await {
                read.insert(claim.clone(), Instant::now());
            }
        }
        tokio::select! {
            () = change(&mut changes) => {}
            () = sleep(MINUTE), if !doubtful.is_empty() => {}
        }
    }
}

/// Gives up claims that neither a container, nor the kubelet, nor the API server has any more. Where the
/// kubelet's file cannot be read, or the containers are not known, no claim is an orphan.
async fn release_orphans(
    driver: Arc<ClaimDriver>,
    places: Arc<dyn ClaimPlaces>,
    kubelet_state: PathBuf,
) -> io::Result<Infallible> {
    loop {
        sleep(MINUTE).await;
        let is_bounded = fs::metadata(&kubelet_state).is_ok_and(|found| found.len() <= MOST_STATE);
        let state = if is_bounded { fs::read_to_string(&kubelet_state).ok() } else { None };
        let Some(state) = state.filter(|_| places.has_runtime()) else { continue };
        let used = ClaimsInUse { by_containers: places.named(), by_kubelet: driver.named_in(&state) };
        match driver.release_orphans(&used).await {
            Ok(released) => {
                for claim in released {
                    tracing::warn!("claim {} is given up: nothing has it any more", claim.full_name());
                }
            }
            Err(error) => tracing::warn!("claims that nothing has any more are not given up: {error}"),
        }
    }
}

/// Publishes the devices over one connection, which reads claims too.
struct Publishing {
    offer: DeviceOffer,
    kubeconfig: Option<PathBuf>,
    places: Arc<dyn ClaimPlaces>,
    connection: watch::Sender<Option<Arc<ApiConnection>>>,
    tally: Arc<ClaimTally>,
}

impl Publishing {
    async fn keep_up(&self, unpublished: &watch::Sender<Option<Degraded>>) -> Infallible {
        let mut retry = Backoff::new(RETRY);
        loop {
            match ApiConnection::of_account(self.kubeconfig.as_deref()).await {
                Ok(connection) => {
                    let connection = Arc::new(connection);
                    self.connection.send_replace(Some(Arc::clone(&connection)));
                    return self
                        .offer
                        .keep_published(connection, &self.places, unpublished, &self.tally)
                        .await;
                }
                Err(error) => {
                    let effect = "claims cannot be read, and the scheduler sees no devices of this node";
                    send_if_different(
                        unpublished,
                        Some(Degraded::new("dra:cluster", error.to_string(), effect)),
                    );
                    sleep(retry.next_wait()).await;
                }
            }
        }
    }
}
