//! `numa-enforcer scheduler serve`: the extender of a kube-scheduler in the same pod.
//!
//! Problem: kube-scheduler knows sums alone, and kubelets refuse pods whose CPUs, memory and devices are not
//! free together. Idea: kube-scheduler asks this program, which has a view of every node by the state that
//! the node's daemon publishes (`enforcer_cluster::extender`).
//!
//! Invariants: it listens on loopback alone unless clients show a certificate ([`port`]), because the
//! protocol knows no authentication: whichever program reaches it can hold places and bind pods. A call
//! before all lists are read, while the API server does not tell of changes, or while another replica leads,
//! is answered with 503, and kube-scheduler tries again.

mod call;
mod configuration;
mod events;
mod figures;
mod gate;
mod port;
mod readiness;
mod service;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    thread::available_parallelism,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use enforcer_cluster::{
    ApiConnection, Election, ElectionSettings, EventTally, ServerTls, TlsFiles, WatchLimits,
    extender::{OwnPod, SchedulerWake, SharedExtender, Synced, WatchFaults, watch_cluster},
};
use enforcer_core::cluster::extender::{Binder, ExtenderSettings, WorkSharing};
use enforcer_report::metrics::Metrics;
use enforcer_runtime::manifest::annotation_documents;
use thiserror::Error;
use tokio::{
    net::TcpListener,
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    time::interval,
};

pub use self::{
    configuration::{SchedulerSettings, attached_configuration, configuration},
    gate::{ServedGate, serve_gate},
};
use self::{
    figures::{EventFigures, Figures},
    port::Port,
    readiness::Readiness,
};
use crate::threads::at_once;

/// Most threads that compute the answers to one call.
const MOST_THREADS: usize = 8;

/// Time between two looks at what is worth a line of the log.
const LOOK: Duration = Duration::from_secs(2);

/// What to serve.
#[derive(Debug)]
pub struct ServedExtender {
    /// Address; on loopback without certificates.
    pub listen: SocketAddr,
    /// Certificates of a port for authenticated clients.
    pub tls: Option<TlsFiles>,
    /// The lease by which one of several replicas works.
    pub lease: Option<ElectionSettings>,
    /// Address of probes and metrics, which the kubelet and Prometheus have to reach.
    pub probes: Option<SocketAddr>,
    /// Account at the API server; that of the pod if there is none.
    pub kubeconfig: Option<PathBuf>,
    /// Settings of the decisions.
    pub settings: ExtenderSettings,
    /// Pod of this program, which changes when the scheduler is to try pods again.
    pub own_pod: Option<OwnPod>,
    /// Where the scheduler binds: time after the start for which pods may still be bound that were chosen
    /// before it.
    pub settles: Duration,
}

/// An address that other machines reach, without certificates.
#[derive(Debug, Error)]
#[error(
    "{0} is not on loopback, and the protocol knows no authentication: --tls-cert, --tls-key and --client-ca \
     let clients with a certificate in alone"
)]
pub struct OpenPort(SocketAddr);

/// Serves until a signal ends it.
///
/// # Errors
/// [`OpenPort`] if the address is not on loopback and there are no certificates. Others if it cannot be
/// bound, certificates cannot be used, or no API server is named.
pub fn serve(served: ServedExtender) -> anyhow::Result<()> {
    if served.tls.is_none() && !served.listen.ip().is_loopback() {
        return Err(OpenPort(served.listen).into());
    }
    let runtime = Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(serve_async(served))
}

async fn serve_async(served: ServedExtender) -> anyhow::Result<()> {
    let ServedExtender { listen, tls, lease, probes, kubeconfig, settings, own_pod, settles } = served;
    let tls = tls.map(ServerTls::load).transpose().context("reading certificates")?;
    let mut terminate = signal(SignalKind::terminate()).context("catching SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("catching SIGINT")?;
    let connection = match &kubeconfig {
        Some(path) => ApiConnection::of_kubeconfig(path).await?,
        None => ApiConnection::in_cluster()?,
    };
    let connection = Arc::new(connection);
    let (impossible, found) = mpsc::channel(events::QUEUE);
    let (tally, unwritten) = (Arc::new(EventTally::default()), watch::Sender::new(None));
    let shared = SharedExtender::new(settings, |request| {
        request.documents = annotation_documents(&request.annotations);
    });
    let threads = available_parallelism().map_or(1, |threads| threads.get().min(MOST_THREADS));
    shared.lock().share_work(WorkSharing::new(threads, at_once));
    let shared = Arc::new(shared.with_events(impossible, Arc::clone(&tally)));
    let (synced, faults) = (watch::Sender::new(Synced::default()), WatchFaults::default());
    let [nodes, states, pods, _leases] = &faults.degraded;
    let mut election = lease.map(Election::new);
    let leadership = election.as_ref().map(Election::leadership);
    let readiness = Arc::new(Readiness {
        synced: synced.subscribe(),
        faults: [nodes, states, pods].map(watch::Sender::subscribe).into(),
        leadership: leadership.clone(),
        started: Instant::now(),
        settles: if settings.binder == Binder::Scheduler { settles } else { Duration::ZERO },
    });
    let told = faults.degraded.each_ref().map(watch::Sender::subscribe);
    let written = EventFigures { tally: Arc::clone(&tally), unwritten: unwritten.subscribe() };
    let (unusable, wake) = (watch::Sender::new(None), own_pod.map(SchedulerWake::new));
    let beside = [election.as_ref().map(Election::degraded), wake.as_ref().map(SchedulerWake::degraded)];
    let beside = beside.into_iter().flatten().collect();
    let figures = Figures::new(Arc::clone(&shared), Arc::clone(&readiness), told, written, beside);
    let figures = Arc::new(figures.with_certificates(unusable.subscribe()));
    let scraped = Arc::clone(&figures);
    let metrics = Metrics::of_scheduler(move || scraped.report()).context("describing metrics")?;
    let listener = bind(listen).await?;
    let address = listener.local_addr().context("reading the bound address")?;
    let router =
        service::router(Arc::clone(&figures), Arc::clone(&connection), metrics.clone(), settings.binder);
    let probes = match probes {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    if let Some(listener) = &probes {
        let address = listener.local_addr().context("reading the bound address")?;
        tracing::info!("probes and metrics on http://{address}");
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    tracing::info!("serving {scheme}://{address}/v1/filter for kube-scheduler");
    let probing = async {
        match probes {
            Some(listener) => {
                let router = service::probes(Arc::clone(&figures), metrics);
                match Port::plain(listener, router).serve().await {}
            }
            None => std::future::pending::<()>().await,
        }
    };
    let serving = Port { listener, router, tls, leadership, unusable, oldest_makes_room: false }.serve();
    let waking = async {
        match &wake {
            Some(wake) => match wake.run(&connection, &shared).await {},
            None => std::future::pending::<()>().await,
        }
    };
    tokio::select! {
        () = probing => {}
        never = serving => match never {},
        () = elect(&mut election, &connection) => {}
        () = waking => {}
        () = watch_cluster(&connection, &shared, WatchLimits::default(), &synced, &faults) => {}
        () = Box::pin(events::write(&connection, found, &tally, &unwritten)) => {}
        () = tell(&figures) => {}
        _ = terminate.recv() => tracing::info!("ended by SIGTERM"),
        _ = interrupt.recv() => tracing::info!("ended by SIGINT"),
    }
    give_back(election, &connection).await;
    Ok(())
}

/// Takes part in the election, if there is one; it does not end before its future is dropped.
async fn elect(election: &mut Option<Election>, connection: &ApiConnection) {
    match election {
        Some(election) => match election.run(connection).await {},
        None => std::future::pending().await,
    }
}

/// Ends the lead of a replica that may have it.
async fn give_back(election: Option<Election>, connection: &ApiConnection) {
    if let Some(election) = election
        && let Err(error) = election.release(connection).await
    {
        tracing::warn!("another replica has to wait for the end of the lease: {error}");
    }
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))
}

/// Writes to the log what changes.
async fn tell(figures: &Figures) {
    let mut looks = interval(LOOK);
    let (on, off) = match figures.shared.gate() {
        Some(_) => ("follows the cluster", "changes no pods"),
        None => ("answers calls", "answers no calls"),
    };
    let mut before = (Some(String::new()), vec![None; figures.all_faults().len()]);
    loop {
        looks.tick().await;
        let now = (figures.readiness.refusal(), figures.all_faults());
        if now.0.is_none() != before.0.is_none() {
            if let Some(obstacle) = &now.0 {
                tracing::info!("{off}: {obstacle}");
            } else {
                let nodes = figures.shared.lock().nodes_with_state();
                tracing::info!("{on}, with the states of {nodes} nodes");
            }
        }
        for (fault, was) in now.1.iter().zip(&before.1).filter(|(now, was)| now != was) {
            match (fault, was) {
                (Some(fault), _) => tracing::warn!("degraded: {fault}"),
                (None, Some(was)) => tracing::info!("no longer degraded: {}", was.source),
                (None, None) => {}
            }
        }
        before = now;
        for left_out in figures.shared.take_left_out() {
            tracing::warn!("left out: {left_out}");
        }
        figures.look();
    }
}
