//! The control socket's answers: status, explanations, pause and resume, the log level.
//!
//! They read what turns and calls have published. They wait for a turn only to confirm that a pause has taken
//! hold, and hold no lock while they write. The peer's rights are determined when its connection is accepted,
//! and checked here for each request.

use std::{
    collections::{BTreeMap, BTreeSet},
    process,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Extension, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use enforcer_core::{
    audit::AuditedWorkload,
    declarations::DeclaredEntry,
    policy::Mode,
    turn::RefusalCause,
    workload::{CgroupPath, Origin},
};
use numa_placement::external::UNPLACED;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Latest,
    api::{self, LogLevelText, PauseAnswer, PauseRequest, Problem, ProblemCode},
    connections::PeerRights,
    find::{NameCandidate, find},
};
use crate::{
    engine::{Decisions, Gate, decisions::Remembered, top_report},
    log_level::LogLevel,
    version,
    wall_clock::unix_ms,
};
use enforcer_act::journal::{PauseRecord, RecordedPause};
use enforcer_host::{cgroup::ControllerRoot, processes::processes_in};
use enforcer_kernel::clock;
use enforcer_report::{
    decision::{
        DecisionState, DecisionSubject, DeclaredBy, EXPLANATION_SCHEMA_VERSION, Explanation, Processes,
    },
    interrupts,
    status::{LatestTurn, ManagedWorkload, Paused, STATUS_SCHEMA_VERSION, StatusReport},
    widening::WideningReport,
};

/// Largest body of a request.
const LARGEST: usize = 4096;
/// Longest wait for a turn's plan to finish, below the time limit of a connection.
const SETTLE: Duration = Duration::from_secs(5);

/// State that the answers read and change.
#[derive(Debug, Clone)]
pub struct ControlState {
    /// Pauses enforcement.
    pub gate: Gate,
    /// The latest decisions.
    pub decisions: Decisions,
    /// The latest turn.
    pub latest: Latest,
    /// The log.
    pub log: LogLevel,
    /// When the daemon started.
    pub started: Instant,
    /// Lists the processes of a workload.
    pub cgroups: ControllerRoot,
    /// Records a pause for the next daemon.
    pub record: PauseRecord,
}

/// The paths that change nothing.
pub(super) fn readers_of(control: Arc<ControlState>) -> Router {
    reading_routes().with_state(control)
}

fn reading_routes() -> Router<Arc<ControlState>> {
    Router::new().route(api::STATUS, get(status)).route(api::EXPLAIN, get(explain)).route(api::TOP, get(top))
}

/// The paths of the socket.
pub(super) fn router(control: ControlState) -> Router {
    reading_routes()
        .route(api::PAUSE, post(pause))
        .route(api::RESUME, post(resume))
        .route(api::LOG_LEVEL, get(log_level).put(set_log_level))
        .fallback(async || problem(ProblemCode::NotFound, "there is no such path; docs/control.md has all"))
        .method_not_allowed_fallback(async || problem(ProblemCode::NotFound, "the path has no such method"))
        .layer(axum::middleware::from_fn(readers))
        .layer(DefaultBodyLimit::max(LARGEST))
        .with_state(Arc::new(control))
}

type SharedControl = State<Arc<ControlState>>;

/// Refuses peers without the right to read.
async fn readers(request: axum::extract::Request, next: axum::middleware::Next) -> Response {
    match request.extensions().get::<PeerRights>() {
        Some(PeerRights::Read | PeerRights::Change) => next.run(request).await,
        _ => problem(ProblemCode::Forbidden, "only root and members of the socket's group may ask"),
    }
}

async fn status(State(control): SharedControl) -> Response {
    answer(&control.status())
}

async fn explain(State(control): SharedControl, uri: Uri) -> Response {
    let query = uri.query().unwrap_or_default();
    let asked = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "workload");
    let Some((_, workload)) = asked else {
        return problem(ProblemCode::BadRequest, "which workload? ?workload=NAME is expected");
    };
    let explanation = match control.explain(&workload) {
        Ok(explanation) => explanation,
        Err(problem) => return refuse(&problem),
    };
    if explanation.processes.is_some() {
        return answer(&explanation);
    }
    // This reads kernel files, so it runs apart from other requests.
    let cgroup = explanation.workload.cgroup.as_ref().map(|cgroup| control.cgroups.dir(cgroup));
    let listed =
        tokio::task::spawn_blocking(move || processes_in(cgroup?.as_path()).ok().map(Processes::of)).await;
    answer(&Explanation { processes: listed.ok().flatten(), ..explanation })
}

async fn top(State(control): SharedControl) -> Response {
    let latest = control.latest.borrow().clone();
    answer(&top_report(latest.as_deref(), &control.decisions, control.gate.paused()))
}

async fn pause(
    State(control): SharedControl,
    Extension(access): Extension<PeerRights>,
    body: Bytes,
) -> Response {
    let request = if body.is_empty() { Ok(PauseRequest::default()) } else { read(&body) };
    let for_seconds = match (access, request) {
        (PeerRights::Change, Ok(PauseRequest { for_seconds })) => for_seconds,
        (PeerRights::Change, Err(problem)) => return refuse(&problem),
        _ => return may_not("pause"),
    };
    if for_seconds.is_some_and(|seconds| !(1..=api::LONGEST_PAUSE).contains(&seconds)) {
        return problem(ProblemCode::BadRequest, "a pause has 1 to 86400 seconds, or no end");
    }
    let was_paused = control.gate.paused().is_some();
    control.gate.close(for_seconds.map(Duration::from_secs));
    let paused = control.gate.paused();
    let mode = control.mode();
    tracing::warn!("{}{}", paused.map_or_else(String::new, Paused::line), beside(mode));
    let unrecorded = record(&control).await;
    let settled = control.gate.settled(SETTLE).await;
    answer(&PauseAnswer { paused, was_paused, mode, settled, unrecorded })
}

/// A note where a pause makes no difference.
fn beside(mode: Option<Mode>) -> &'static str {
    if mode == Some(Mode::Observe) { "; in observe mode nothing is written anyway" } else { "" }
}

async fn resume(State(control): SharedControl, Extension(access): Extension<PeerRights>) -> Response {
    if access != PeerRights::Change {
        return may_not("resume");
    }
    let was_paused = control.gate.open();
    let mode = control.mode();
    if was_paused {
        tracing::warn!("no longer paused{}", beside(mode));
    }
    let unrecorded = record(&control).await;
    answer(&PauseAnswer { paused: None, was_paused, mode, settled: true, unrecorded })
}

/// Records the pause for the next daemon; returns the error.
async fn record(control: &Arc<ControlState>) -> Option<String> {
    let control = Arc::clone(control);
    let now = move || {
        control.record.keep(|| {
            let Paused { for_seconds, left_seconds } = control.gate.paused()?;
            Some(RecordedPause::new(unix_ms(), for_seconds, left_seconds))
        })
    };
    // A stuck disk delays this answer only.
    let kept = tokio::task::spawn_blocking(now).await.map_err(|error| error.to_string());
    let error = kept.and_then(|kept| kept.map_err(|error| error.to_string())).err()?;
    tracing::error!("a daemon that is started again would not know whether it is paused: {error}");
    Some(error)
}

async fn log_level(State(control): SharedControl) -> Response {
    answer(&LogLevelText { level: control.log.current() })
}

async fn set_log_level(
    State(control): SharedControl,
    Extension(access): Extension<PeerRights>,
    body: Bytes,
) -> Response {
    if access != PeerRights::Change {
        return may_not("change the level of the log");
    }
    let level = match read::<LogLevelText>(&body) {
        Ok(LogLevelText { level }) => level,
        Err(problem) => return refuse(&problem),
    };
    match control.log.set(&level) {
        Ok(()) => answer(&LogLevelText { level: control.log.current() }),
        Err(error) => problem(ProblemCode::BadRequest, &error.to_string()),
    }
}

impl ControlState {
    /// The mode of the latest turn.
    fn mode(&self) -> Option<Mode> {
        self.latest.borrow().as_ref().map(|turn| turn.mode)
    }

    fn status(&self) -> StatusReport {
        let latest = self.latest.borrow().clone();
        let there = self.decisions.all().into_iter().filter(|one| !one.subject.ended);
        let mut workloads: Vec<ManagedWorkload> = there.filter_map(managed).collect();
        workloads.sort_by(|a, b| a.workload.name.cmp(&b.workload.name));
        StatusReport {
            schema_version: STATUS_SCHEMA_VERSION,
            version: version::VERSION.to_owned(),
            pid: process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            now_unix_ms: unix_ms(),
            log_level: self.log.current(),
            paused: self.gate.paused(),
            latest: latest.map(|turn| {
                let age_ns = clock::now_ns().saturating_sub(turn.begun_ns);
                let runtime = turn.runtime.as_ref();
                LatestTurn {
                    mode: turn.mode,
                    turns: turn.totals.ticks,
                    failed_turns: turn.totals.failed_ticks,
                    age_seconds: Duration::from_nanos(age_ns).as_secs(),
                    turn_seconds: turn.totals.last_tick_seconds,
                    config_good: turn.totals.config_good,
                    runtime: runtime.map(|runtime| runtime.link.clone()),
                    containers: runtime.map_or(0, |runtime| runtime.containers),
                    unplaced: runtime.map_or(0, |runtime| runtime.unplaced.len()),
                    claims: turn.claims.clone(),
                    widened: turn.widening.as_ref().map(WideningReport::workloads).unwrap_or_default(),
                    brake: turn.widening.as_ref().and_then(|widening| widening.brake.clone()),
                    summary: turn.audit.summary.clone(),
                    unmatched: unmatched(&turn.entries),
                    unmatched_below: unmatched_below(&turn.entries),
                    degraded: turn.audit.degraded.clone(),
                }
            }),
            workloads,
        }
    }

    fn explain(&self, wanted: &str) -> Result<Explanation, Problem> {
        let mut all = self.decisions.all();
        let latest = self.latest.borrow().clone();
        let entries = latest.as_ref().map_or(&[][..], |turn| &turn.entries);
        let entry_of: BTreeMap<&CgroupPath, &DeclaredEntry> = entries
            .iter()
            .flat_map(|entry| entry.workloads.iter().map(move |cgroup| (cgroup, entry)))
            .collect();
        let name_of = |cgroup: &CgroupPath| entry_of.get(cgroup).map(|entry| entry.name.clone());
        let known = |one: &Remembered| {
            // No entry lists ended workloads.
            let decided_by = || one.records.back()?.considered.asked.rule.clone();
            let rule = one.subject.cgroup.as_ref().and_then(name_of).or_else(decided_by);
            NameCandidate { subject: one.subject.clone(), rule, process: None }
        };
        let decided: BTreeSet<_> = all.iter().filter_map(|one| one.subject.cgroup.clone()).collect();
        let mut candidates: Vec<NameCandidate> = all.iter().map(known).collect();
        let seen = latest.iter().flat_map(|turn| &turn.audit.workloads);
        let (processes, others): (Vec<_>, Vec<_>) =
            seen.partition(|one| matches!(one.origin, Origin::Process { .. }));
        // There are no decisions about single processes.
        let others = others.into_iter().filter(|one| !decided.contains(&one.cgroup));
        candidates.extend(others.chain(processes).map(|one| {
            let (container_id, process) = match &one.origin {
                Origin::Pod { container_id, .. } => (container_id.clone(), None),
                Origin::Process { pid, .. } => (None, Some((*pid, one.origin.object(&one.cgroup)))),
                _ => (None, None),
            };
            let (name, cgroup) = (one.name.clone(), Some(one.cgroup.clone()));
            let rule = name_of(&one.cgroup).filter(|_| process.is_none());
            NameCandidate {
                subject: DecisionSubject { name, cgroup, container_id, ended: false },
                rule,
                process,
            }
        }));
        let at = find(wanted, &candidates).map_err(|problem| match problem.code {
            ProblemCode::UnknownWorkload => unmatched_entry(wanted, entries).unwrap_or(problem),
            _ => problem,
        })?;
        let (records, forgotten) = if at < all.len() {
            let one = all.swap_remove(at);
            (one.records.iter().map(|record| (**record).clone()).collect(), one.forgotten)
        } else {
            (Vec::new(), 0)
        };
        let NameCandidate { subject: workload, process, .. } = candidates.swap_remove(at);
        let cgroup = workload.cgroup.as_ref();
        let entry = cgroup.filter(|_| process.is_none()).and_then(|cgroup| entry_of.get(cgroup));
        let declared = entry
            .map(|DeclaredEntry { name, enforce, .. }| DeclaredBy { entry: name.clone(), enforce: *enforce });
        let audited = latest.as_ref().map_or(&[][..], |turn| &turn.audit.workloads);
        let pid = process.map(|(pid, _)| pid);
        let is_it = |one: &&AuditedWorkload| match one.origin {
            Origin::Process { pid: own, .. } => Some(own) == pid,
            _ => pid.is_none() && Some(&one.cgroup) == cgroup,
        };
        let owner = audited.iter().find(is_it);
        let owner = owner.and_then(|one| one.owner.clone());
        let concerned = latest.as_ref().and_then(|turn| turn.interrupts.as_ref()).into_iter();
        let concerned = concerned.flat_map(|report| &report.workloads);
        let own = concerned.filter(|one| pid.is_none() && Some(&one.cgroup) == cgroup);
        let interrupts = own.flat_map(interrupts::lines).collect();
        Ok(Explanation {
            schema_version: EXPLANATION_SCHEMA_VERSION,
            now_unix_ms: unix_ms(),
            workload,
            processes: pid.map(|pid| Processes::of(vec![pid])),
            declared,
            owner,
            interrupts,
            decisions: records,
            forgotten,
        })
    }
}

/// Names of entries that match no workload.
fn unmatched(entries: &[DeclaredEntry]) -> Vec<String> {
    entries.iter().filter(|entry| entry.workloads.is_empty()).map(|entry| entry.name.clone()).collect()
}

/// The first few of these with the cgroups below them.
fn unmatched_below(entries: &[DeclaredEntry]) -> Vec<String> {
    let told =
        entries.iter().filter_map(|entry| Some(format!("{:?}: {}", entry.name, entry.below.as_ref()?)));
    told.take(MOST_BELOW).collect()
}

/// Most entries with their cgroups below.
const MOST_BELOW: usize = 5;

/// The problem for a name that means an entry without a running workload.
fn unmatched_entry(wanted: &str, entries: &[DeclaredEntry]) -> Option<Problem> {
    let entry = entries.iter().find(|entry| entry.name == wanted && entry.workloads.is_empty())?;
    let below = entry.below.as_ref().map(|below| format!(": {below}")).unwrap_or_default();
    let message = format!("[[workload]] {wanted:?} matches nothing that runs now{below}");
    Some(Problem { code: ProblemCode::UnknownWorkload, message, candidates: Vec::new() })
}

/// A workload with its latest own decision and later or earlier changes; `None` if it is no longer
/// controlled.
fn managed(one: Remembered) -> Option<ManagedWorkload> {
    if one.own().is_some_and(|own| own.state == DecisionState::Released) {
        return None;
    }
    let own = one.records.iter().rev().find(|record| record.state != DecisionState::Changed);
    let latest = own.or(one.records.back())?;
    let given = one.records.iter().rev().find_map(|record| record.considered.placement.clone());
    // Its cpuset is another writer's.
    let placement = given.filter(|_| latest.cause != Some(RefusalCause::Drift));
    // A workload without a place, on the CPUs that are left, counts as in place, too.
    let left_over = placement.as_ref().is_some_and(|given| given.engine == UNPLACED);
    let state = match latest.state {
        DecisionState::InPlace if left_over => DecisionState::Unplaced,
        state => state,
    };
    Some(ManagedWorkload {
        state,
        since_unix_ms: latest.first_unix_ms,
        reason: latest.reason.clone(),
        placement,
        workload: one.subject,
    })
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| Problem {
        code: ProblemCode::BadRequest,
        message: error.to_string(),
        candidates: Vec::new(),
    })
}

fn answer<T: Serialize>(value: &T) -> Response {
    json(StatusCode::OK, value)
}

fn may_not(what: &str) -> Response {
    problem(ProblemCode::Forbidden, &format!("only root and the daemon's own user may {what}"))
}

fn problem(code: ProblemCode, message: &str) -> Response {
    refuse(&Problem { code, message: message.to_owned(), candidates: Vec::new() })
}

fn refuse(problem: &Problem) -> Response {
    let status = match problem.code {
        ProblemCode::BadRequest => StatusCode::BAD_REQUEST,
        ProblemCode::Forbidden => StatusCode::FORBIDDEN,
        ProblemCode::NotFound | ProblemCode::UnknownWorkload => StatusCode::NOT_FOUND,
        ProblemCode::AmbiguousWorkload => StatusCode::CONFLICT,
        ProblemCode::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    };
    json(status, problem)
}

fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match enforcer_report::json::in_one_line(value) {
        Ok(text) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests;
