//! The unit that is shipped, hardened as it is, under a real systemd.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::service::on_one_node;
use crate::{
    check::Checks,
    http, product,
    systemd::{HogService, must, property, systemctl, write},
    wait,
};

const UNIT: &str = "numa-enforcer.service";

/// The files as they are shipped, and where docs/deploy.md puts them.
const FILES: [(&str, &str); 2] = [
    (
        "/etc/systemd/system/numa-enforcer.service",
        include_str!("../../../deploy/systemd/numa-enforcer.service"),
    ),
    (
        "/etc/systemd/system/numa-enforcer.service.d/enforce.conf",
        include_str!("../../../deploy/systemd/enforce.conf"),
    ),
];

/// What this machine is about. Short, so that several of them are seen.
const WATCHDOG: (&str, &str) =
    ("/etc/systemd/system/numa-enforcer.service.d/watchdog.conf", "[Service]\nWatchdogSec=30s\n");

/// Without a systemd journal the daemon's output would be lost.
const OUTPUT: (&str, &str) = (
    "/etc/systemd/system/numa-enforcer.service.d/output.conf",
    "[Service]\nStandardOutput=append:/run/daemon.log\nStandardError=append:/run/daemon.log\n",
);

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

const CONFIG: &str = "/etc/numa-enforcer.toml";

/// Memory of the service that is declared.
const MEBIBYTES: usize = 64;

/// Longest wait for something of the daemon: a bound on a hang.
const LIMIT: Duration = Duration::from_mins(3);

/// It starts, is alive, reloads, places a service through systemd, stops, and can be undone.
pub(super) fn as_shipped(checks: &mut Checks) -> Result<()> {
    let outcome = story(checks);
    if outcome.is_err() || !checks.passed() {
        println!("the daemon printed:\n{}", fs::read_to_string("/run/daemon.log").unwrap_or_default());
    }
    outcome
}

fn story(checks: &mut Checks) -> Result<()> {
    let placed = HogService::start("placed", MEBIBYTES)?;
    let before = placed.cpus_allowed()?;
    install(&format!(
        "interval = \"2s\"\n[[workload]]\nname = \"placed\"\ncgroup = \"{}\"\ncpus = 2\nmemory = \"64MiB\"\n",
        placed.cgroup.path()
    ))?;
    must(&["daemon-reload"])?;
    // Debian's own setting, which no guest has: with it the shipped capabilities get no perf event.
    fs::write(PARANOID, "3").with_context(|| format!("write to {PARANOID}"))?;
    let started = systemctl(&["start", UNIT])?;
    checks.holds("it says that it is ready", started.status == Some(0), &started.stderr);
    checks.equal("state", "active", &property(UNIT, "ActiveState")?);

    let (cpus, mems) = on_one_node(&placed)?;
    checks.holds(
        "AllowedCPUs of the service is set",
        !placed.properties()?.0.is_empty(),
        placed.properties()?,
    );
    let status = wait::until("a turn is told", LIMIT, || {
        Ok(Some(property(UNIT, "StatusText")?).filter(|status| status.starts_with("turn ")))
    });
    checks.holds("systemctl status tells of the latest turn", status.is_ok(), status.ok());

    let named = wait::until("the daemon's report names the setting", LIMIT, || {
        let report = http::get(([127, 0, 0, 1], 9477).into(), "/report.json").unwrap_or_default();
        Ok(report.contains("kernel.perf_event_paranoid is 3").then_some(()))
    });
    checks.holds("with perf events refused, the cause is named", named.is_ok(), &named);

    let mut last = property(UNIT, "WatchdogTimestampMonotonic")?;
    for time in 1..=2 {
        let fed = wait::until("the watchdog is fed", LIMIT, || {
            Ok(Some(property(UNIT, "WatchdogTimestampMonotonic")?).filter(|now| *now != last))
        });
        checks.holds(format!("time {time}: the watchdog is fed"), fed.is_ok(), &fed);
        last = fed.unwrap_or_default();
    }
    let pid = property(UNIT, "MainPID")?;
    let reloaded = systemctl(&["reload", UNIT])?;
    checks.holds("it reloads", reloaded.status == Some(0), &reloaded.stderr);
    // `systemctl` waits until the signal is sent, not until the daemon has reloaded.
    let active = wait::until("it has reloaded", LIMIT, || {
        Ok(Some(property(UNIT, "ActiveState")?).filter(|state| state == "active"))
    });
    checks.holds("it is active after a reload", active.is_ok(), &active);
    checks.equal("the same process", &pid, &property(UNIT, "MainPID")?);
    checks.equal("restarts", "0", &property(UNIT, "NRestarts")?);

    let begun = Instant::now();
    must(&["stop", UNIT])?;
    checks.note("seconds until it has stopped", &begun.elapsed().as_secs_f64());
    // That of a unit that has to be killed is `timeout`.
    checks.equal("result", "success", &property(UNIT, "Result")?);
    checks.equal("exit status", "0", &property(UNIT, "ExecMainStatus")?);
    checks.equal(
        "the service stays where it was placed",
        &(cpus, mems),
        &(placed.cpus_allowed()?, placed.mems_allowed()?),
    );

    let restored = product::run(&["restore"])?;
    checks.holds("restore succeeds", restored.status == Some(0), (&restored.stdout, &restored.stderr));
    checks.equal("CPUs after restore", &before, &placed.cpus_allowed()?);
    checks.equal("properties after restore", (String::new(), String::new()), placed.properties()?);
    Ok(())
}

/// Puts everything where docs/deploy.md says.
fn install(config: &str) -> Result<()> {
    fs::copy(product::PROGRAM, "/usr/bin/numa-enforcer").context("install the program")?;
    for (path, text) in FILES.into_iter().chain([WATCHDOG, OUTPUT, (CONFIG, config)]) {
        write(Path::new(path), text)?;
    }
    Ok(())
}
