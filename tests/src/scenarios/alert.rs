//! Does a real Prometheus, with the alerts that are shipped, tell of remote accesses, and that they are over?

use std::{process, time::Duration};

use anyhow::{Context, Result};

use super::{correct::corrected, workloads};
use crate::{
    cgroup::Cgroup, check::Checks, hog::Hog, process::Running, product::Daemon, scraper::Prometheus, wait,
};

/// Longest wait for anything: a bound on a hang, not a promise. The host may be busy.
const LIMIT: Duration = Duration::from_mins(5);

/// Share of remote accesses of the machine, as the alert has it.
const SHARE: &str = "max(instance:numa_enforcer_remote_access:ratio5m)";

/// The alert.
const FIRING: &str = "count(ALERTS{alertname=\"CrossNumaAccessHigh\",alertstate=\"firing\"})";

/// Evaluations with a share after which the alert would have fired, were there anything to tell.
const ENOUGH: f64 = 10.0;

/// `CrossNumaAccessHigh` is silent beside a workload that is where it should be, fires for one that is not,
/// and resolves when that has been corrected.
pub(super) fn fires_and_resolves(checks: &mut Checks) -> Result<()> {
    // The server and the daemon are workloads of this machine too, and busy ones: their memory belongs to
    // their CPUs.
    Cgroup::with_cpuset("/work/watchers", "0-1", "0")?.adopt(process::id())?;
    let _home = workloads::home()?;
    let daemon = Daemon::start("observe", &[])?;
    let prometheus = Prometheus::start()?;
    silent_without(checks, &prometheus).with_context(Prometheus::said)?;

    let away_cgroup = Cgroup::with_cpuset("/work/away", "2-3", "0")?;
    let away = busy(&away_cgroup)?;
    let fires = wait::until("the alert fires", LIMIT, || prometheus.value(FIRING));
    checks.equal("alerts that fire while a workload is misaligned", Some(1.0), fires.ok());
    checks.above("share of remote accesses meanwhile", 0.2, prometheus.value(SHARE)?);
    daemon.end()?;

    let daemon = Daemon::start("enforce", &[&away_cgroup])?;
    corrected(&away_cgroup, &away)?;
    // The alert resolves because little is wrong any more, and not because the daemon is gone.
    let over = wait::until("the alert resolves", LIMIT, || {
        let share = prometheus.value(SHARE)?.filter(|share| *share < 0.2);
        Ok(share.filter(|_| matches!(prometheus.value(FIRING), Ok(None))))
    });
    checks.below("share of remote accesses when the alert has resolved", 0.2, over.ok());
    checks.equal("the daemon is scraped", Some(1.0), prometheus.value("up{job=\"numa-enforcer\"}")?);
    daemon.end().map(drop)
}

/// Accesses enough to outweigh all others of the machine.
fn busy(cgroup: &Cgroup) -> Result<Running> {
    let cgroup = cgroup.folder();
    Running::hog_of(&Hog { cgroup, mebibytes: 64, threads: 2, pause_ms: 2, mebibytes_per_second: 0 })
}

/// The control: the same daemon and rules, and no workload that is misaligned.
fn silent_without(checks: &mut Checks, prometheus: &Prometheus) -> Result<()> {
    let evaluated = "count_over_time(instance:numa_enforcer_remote_access:ratio5m[10m])";
    wait::until("Prometheus has evaluated a share several times", LIMIT, || {
        Ok(prometheus.value(evaluated)?.filter(|evaluations| *evaluations >= ENOUGH))
    })?;
    checks.below("share of remote accesses without a misaligned workload", 0.2, prometheus.value(SHARE)?);
    let told = prometheus.value("count(ALERTS{alertname=~\"CrossNumaAccess.*\"})")?;
    checks.equal("alerts without a misaligned workload, pending ones too", None, told);
    Ok(())
}
