//! The source of `top`'s figures: a running daemon, or this process itself.
//!
//! A daemon is always the better source: it has watched for longer, it decides, and a second look would
//! double the cost. So it is asked first each time, and our own look ends when it answers. Once it has
//! answered, a later silence is shown and waited out: figures of another source would look like a change of
//! the host. A daemon that does not answer, or not understandably, delays the first look only: then it is
//! asked only now and then.
//!
//! Our own look is a daemon's turn in observe mode, by the same engine, without an actuator. It stays below 2
//! % of a CPU: after a slow look the next one is later.

use std::{
    path::PathBuf,
    sync::mpsc::SyncSender,
    thread,
    time::{Duration, Instant},
};

use enforcer_core::policy::{Mode, Policy};
use numa_topology::degraded::Degraded;
use rustix::time::{ClockId, clock_gettime};

use super::super::client::{self, NoDaemon};
use crate::{
    engine::{Engine, HostSource as _, LiveSource, top_report},
    serve::api,
};
use enforcer_act::units::recorded_settings;
use enforcer_host::{HostRoot, cgroup::CgroupLayout};
use enforcer_kernel::clock;
use enforcer_observe::SamplerOptions;
use enforcer_report::top::{Feed, TopEvent, TopReport};
use enforcer_runtime::kubelet::watch::KubeletWatch;

/// A look takes at most one part of this many of the time until the next.
const PARTS: u32 = 50;
/// Longest time until the next look.
const LATEST: Duration = Duration::from_mins(1);
/// Time until a daemon that could not be asked is asked again.
const AGAIN: Duration = Duration::from_secs(30);

/// Source and interval.
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// A daemon's control socket; `None` to ask no daemon.
    pub(super) socket: Option<PathBuf>,
    /// Time between two looks.
    pub(super) interval: Duration,
}

/// Where figures come from.
pub(in crate::cli) trait TopSource {
    /// One look.
    fn next(&mut self) -> TopEvent;

    /// Time between two looks that was asked for.
    fn interval(&self) -> Duration;

    /// Time until the next look.
    fn wait(&self) -> Duration {
        self.interval()
    }

    /// Why a running daemon could not be asked, where another source stands in.
    fn in_vain(&self) -> Option<&str> {
        None
    }

    /// Sends looks until the receiver is gone.
    fn send_reports(mut self, sender: &SyncSender<TopEvent>)
    where
        Self: Sized,
    {
        loop {
            let begin = Instant::now();
            if sender.send(self.next()).is_err() {
                return;
            }
            thread::sleep(self.wait().saturating_sub(begin.elapsed()));
        }
    }
}

/// Both sources.
pub(super) struct Feeds {
    options: Options,
    /// A daemon has answered.
    answered: bool,
    /// When a daemon could not be asked, and why.
    in_vain: Option<(Instant, String)>,
    own: Option<LocalFeed>,
}

impl Feeds {
    pub(super) fn new(options: &Options) -> Self {
        Self { options: options.clone(), answered: false, in_vain: None, own: None }
    }
}

impl TopSource for Feeds {
    fn next(&mut self) -> TopEvent {
        let Some(socket) = &self.options.socket else { return self.take_report("not asking a daemon", None) };
        if let Some((asked, why)) = &self.in_vain
            && asked.elapsed() < AGAIN
        {
            let why = why.clone();
            return self.look_instead(why);
        }
        match client::glance::<TopReport>(socket, api::TOP) {
            Ok(report) => {
                (self.answered, self.in_vain, self.own) = (true, None, None);
                TopEvent::Report(Feed::Daemon, Box::new(report))
            }
            Err(error) if self.answered => TopEvent::Silent(format!("{error:#}")),
            Err(error) if error.is::<NoDaemon>() => {
                self.in_vain = None;
                self.take_report("no daemon", None)
            }
            Err(error) => {
                let why = format!("{error:#}");
                self.in_vain = Some((Instant::now(), why.clone()));
                self.look_instead(why)
            }
        }
    }

    fn interval(&self) -> Duration {
        self.options.interval
    }

    fn wait(&self) -> Duration {
        let interval = self.options.interval;
        let spent = self.own.as_ref().map_or(Duration::ZERO, |own| own.spent);
        interval.max(spent.saturating_mul(PARTS).min(LATEST))
    }

    fn in_vain(&self) -> Option<&str> {
        self.in_vain.as_ref().map(|(_asked, why)| why.as_str())
    }
}

impl Feeds {
    /// Our own look, because a daemon could not be asked.
    fn look_instead(&mut self, why: String) -> TopEvent {
        let effect = "top looks by itself, and knows nothing of the daemon's decisions";
        self.take_report("a daemon cannot be asked", Some(Degraded::new("daemon", why, effect)))
    }

    fn take_report(&mut self, because: &str, missing: Option<Degraded>) -> TopEvent {
        let report = match &mut self.own {
            Some(own) => own.take_report(),
            None => LocalFeed::new().and_then(|own| self.own.insert(own).take_report()),
        };
        match report {
            Ok(mut report) => {
                if let (Some(turn), Some(missing)) = (&mut report.turn, missing) {
                    turn.degraded.insert(0, missing);
                }
                let feed = Feed::Own { because: because.to_owned(), every: self.wait() };
                TopEvent::Report(feed, Box::new(report))
            }
            Err(error) => TopEvent::Silent(format!("{error:#}")),
        }
    }
}

/// An engine without an actuator.
struct LocalFeed {
    engine: Engine,
    /// CPU time of the latest look, without the attachment in the first one.
    spent: Duration,
    looked: bool,
}

impl LocalFeed {
    fn new() -> anyhow::Result<Self> {
        // No workload is declared, so there are no decisions.
        let policy = Policy { mode: Mode::Observe, ..Policy::default() };
        let host = HostRoot::live();
        let layout = CgroupLayout::read(&host)?;
        let mut source = LiveSource::new(host, layout, SamplerOptions::new(&policy.sample, true));
        // An earlier daemon may have set cpusets.
        source.set_by_us(recorded_settings(&policy.state_dir));
        let engine = Engine::new(Box::new(source.beside(KubeletWatch::first(&policy.kubelet))), policy);
        Ok(Self { engine, spent: Duration::ZERO, looked: false })
    }

    fn take_report(&mut self) -> anyhow::Result<TopReport> {
        let begin = cpu_time();
        let turn = self.engine.turn(clock::now_ns())?;
        let report = top_report(Some(&turn), &self.engine.decisions(), None);
        if self.looked {
            self.spent = cpu_time().saturating_sub(begin);
        }
        self.looked = true;
        Ok(report)
    }
}

/// CPU time of this thread, which does all the work of a look.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
