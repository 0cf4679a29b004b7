//! `numa-enforcer scheduler gate`: a node for gated pods, where the scheduler cannot be configured.
//!
//! Invariants: it serves probes and metrics, and takes no orders. No pod is changed before all lists are read
//! and the time is over in which a patch of a process that has ended may still land, while the API server
//! does not tell of changes, or while another replica leads. A replica that does not lead keeps its lists up
//! to date.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use enforcer_cluster::{
    ApiConnection, Election, ElectionSettings, EventTally, Leadership, WatchLimits,
    extender::{SharedExtender, Synced, WatchFaults, watch_cluster},
    gate::place_gated_pods,
};
use enforcer_core::cluster::{extender::ExtenderSettings, gate::GateSettings};
use enforcer_report::metrics::Metrics;
use enforcer_runtime::manifest::annotation_documents;
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::{
        mpsc,
        watch::{self, Receiver},
    },
};

use super::{
    bind, elect, events,
    figures::{EventFigures, Figures},
    give_back,
    port::Port,
    readiness::Readiness,
    service, tell,
};

/// What to serve.
#[derive(Debug)]
pub struct ServedGate {
    /// Address of probes and metrics.
    pub probes: SocketAddr,
    /// Account at the API server; that of the pod if there is none.
    pub kubeconfig: Option<PathBuf>,
    /// Settings of the answers of nodes.
    pub settings: ExtenderSettings,
    /// Settings of the gate.
    pub gate: GateSettings,
    /// The lease by which one of several replicas changes pods; `None` for one that is alone.
    pub lease: Option<ElectionSettings>,
    /// Time after the start, and after it began to lead, in which a patch of a former process may still land.
    pub settles: Duration,
}

/// Places gated pods until a signal ends it.
///
/// # Errors
/// If the address cannot be bound, or no API server is named.
pub fn serve_gate(served: ServedGate) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(serve_async(served))
}

async fn serve_async(served: ServedGate) -> anyhow::Result<()> {
    let ServedGate { probes, kubeconfig, settings, gate, lease, settles } = served;
    let mut terminate = signal(SignalKind::terminate()).context("catching SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("catching SIGINT")?;
    let connection = match &kubeconfig {
        Some(path) => ApiConnection::of_kubeconfig(path).await?,
        None => ApiConnection::in_cluster()?,
    };
    let (events, found) = mpsc::channel(events::QUEUE);
    let (tally, unwritten) = (Arc::new(EventTally::default()), watch::Sender::new(None));
    let shared = SharedExtender::new(settings, |request| {
        request.documents = annotation_documents(&request.annotations);
    });
    let shared = Arc::new(shared.with_events(events, Arc::clone(&tally)).with_gate(gate));
    let (synced, faults) = (watch::Sender::new(Synced::default()), WatchFaults::default());
    let [nodes, states, pods, _leases] = &faults.degraded;
    let mut election = lease.map(Election::new);
    let leadership = election.as_ref().map(Election::leadership);
    let readiness_of = |leadership, settles| Readiness {
        synced: synced.subscribe(),
        faults: [nodes, states, pods].map(watch::Sender::subscribe).into(),
        leadership,
        started: Instant::now(),
        settles,
    };
    // A replica that does not lead is ready: nothing is sent to it, and it can take over.
    let readiness = Arc::new(readiness_of(None, Duration::ZERO));
    let changes = readiness_of(leadership.clone(), settles);
    let told = faults.degraded.each_ref().map(watch::Sender::subscribe);
    let written = EventFigures { tally: Arc::clone(&tally), unwritten: unwritten.subscribe() };
    let beside = election.as_ref().map(Election::degraded).into_iter().collect();
    let figures = Arc::new(Figures::new(Arc::clone(&shared), readiness, told, written, beside));
    let scraped = Arc::clone(&figures);
    let metrics = Metrics::of_scheduler(move || scraped.report()).context("describing metrics")?;
    let listener = bind(probes).await?;
    let address = listener.local_addr().context("reading the bound address")?;
    tracing::info!("probes and metrics on http://{address}");
    let router = service::probes(Arc::clone(&figures), metrics);
    let may_change = || changes.refusal().is_none();
    tokio::select! {
        never = Port::plain(listener, router).serve() => match never {},
        () = watch_cluster(&connection, &shared, WatchLimits::default(), &synced, &faults) => {}
        () = Box::pin(events::write(&connection, found, &tally, &unwritten)) => {}
        () = tell(&figures) => {}
        () = place_gated_pods(&connection, &shared, &may_change) => {}
        () = elect(&mut election, &connection) => {}
        () = tell_leader(leadership) => {}
        _ = terminate.recv() => tracing::info!("ended by SIGTERM"),
        _ = interrupt.recv() => tracing::info!("ended by SIGINT"),
    }
    give_back(election, &connection).await;
    Ok(())
}

/// Writes to the log which replica leads.
async fn tell_leader(leadership: Option<Receiver<Leadership>>) {
    let Some(mut leadership) = leadership else { return std::future::pending().await };
    let mut told = None;
    loop {
        let now = leadership.borrow_and_update().clone();
        let now = (now.leads(), now.holder);
        if told.as_ref() != Some(&now) {
            let role = if now.0 { "leads" } else { "does not lead" };
            tracing::info!("this replica {role}; the lease is of {:?}", now.1);
            told = Some(now);
        }
        if leadership.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}
