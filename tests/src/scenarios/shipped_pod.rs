//! The daemon as the pod that is shipped: its capabilities, its seccomp profile, a cgroup namespace of its
//! own on a hierarchy that is delegated by namespaces, and perf events as Debian sets them.
//!
//! Capabilities and profile are read from the files that are shipped; the container is made by containerd, as
//! a kubelet would have it made. The daemon corrects a declared workload, places a Guaranteed container,
//! keeps off the CPUs of that one, and never writes its own container. Control: the same container without
//! the capabilities finds the kernel side missing.

use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use rustix::thread::CapabilitySet;

use super::{
    pods::{LIMIT, MEBIBYTES, alone, plan},
    refused::bpf_sources,
    shipped::{DEBIANS, PARANOID, RUN_TIME, granted_by_pod, of_pod},
};
use crate::{
    cgroup::Cgroup,
    check::Checks,
    containerd::Containerd,
    cri::{Amounts, Container, Cri, Pod, Privileges, Program},
    ids::{self, Ids},
    process::{self, Running},
    product, wait,
};

const PROFILE: &str = include_str!("../../../deploy/seccomp/numa-enforcer.json");
const ENFORCE: &str = include_str!("../../../deploy/kubernetes/enforce/daemon-set.yaml");

/// Where the init container of the pod writes the profile.
const SECCOMP: &str = "/var/lib/kubelet/seccomp";
const CONFIG: &str = "/etc/numa-enforcer";

/// What is mounted into the pod: may it be written?
const FOLDERS: [(&str, bool); 6] = [
    (CONFIG, false),
    ("/sys/fs/cgroup", true),
    ("/run/numa-enforcer", true),
    ("/var/run/nri", true),
    ("/var/lib/kubelet", false),
    // Stands for the image.
    ("/inject", false),
];

const DAEMON: Program = Program {
    command: &[
        "/inject/numa-enforcer",
        "run",
        "--mode",
        "enforce",
        "--interval",
        "2s",
        "--config",
        "/etc/numa-enforcer/numa-enforcer.toml",
        "--metrics-listen",
        "127.0.0.1:9477",
    ],
    environment: &[],
    folder: None,
};

const DOCTOR: Program =
    Program { command: &["/inject/numa-enforcer", "doctor"], environment: &[], folder: None };

/// Threads that parse what others send, and keep nothing (docs/privileges.md).
const BARE: [&str; 5] = ["serve", "nri", "kubelet", "placement", "signals"];

pub(super) fn enforces(checks: &mut Checks) -> Result<()> {
    let mut printed = String::new();
    let outcome = story(checks, &mut printed);
    if outcome.is_err() || !checks.passed() {
        println!("containerd printed:\n{}\nthe daemon printed:\n{printed}", Containerd::printed());
    }
    outcome
}

fn story(checks: &mut Checks, printed: &mut String) -> Result<()> {
    prepare()?;
    let (containerd, cri) = Containerd::start()?;
    let away = Cgroup::with_cpuset("/declared/away", "0-7", "0-1")?;
    let _hog = Running::hog(&away, 64)?;
    let rule = format!("{}numa_nodes = \"1\"\n", product::rules(&[&away]));
    fs::write(format!("{CONFIG}/numa-enforcer.toml"), format!("{rule}\n[nri]\nplace = true\n"))
        .context("write the configuration")?;

    let capabilities = of_enforcing_pod()?;
    let capabilities: Vec<&str> = capabilities.iter().map(String::as_str).collect();
    let profile = format!("{SECCOMP}/numa-enforcer.json");
    let privileges = Privileges { capabilities: &capabilities, seccomp: &profile, folders: &FOLDERS };
    let amounts = Amounts::burstable(20, 256);
    control(checks, &cri, &amounts, &privileges)?;
    let pod = Pod::run(&cri, &plan("numa-enforcer", &amounts))?;
    let daemon = pod.start_as("numa-enforcer", &amounts, &DAEMON, &privileges)?;
    let outcome = while_it_runs(checks, &cri, &daemon, &away, &capabilities);
    *printed = daemon.printed().unwrap_or_default();
    outcome?;
    daemon.stop()?;
    pod.remove()?;
    containerd.stop()
}

/// The machine as Debian and systemd set it.
fn prepare() -> Result<()> {
    let mut delegated = Command::new("mount");
    delegated.args(["-t", "cgroup2", "-o", "remount,nsdelegate", "none", "/sys/fs/cgroup"]);
    let output = process::run(&mut delegated, Duration::from_secs(10))?;
    let mounts = fs::read_to_string("/proc/mounts").context("read the mounts")?;
    ensure!(mounts.contains("nsdelegate"), "delegate by namespaces: {}", output.stderr);
    fs::write(PARANOID, DEBIANS).with_context(|| format!("write {DEBIANS} to {PARANOID}"))?;
    for (folder, _) in FOLDERS {
        fs::create_dir_all(folder).with_context(|| format!("make {folder}"))?;
    }
    let output = product::run(&["install-seccomp", SECCOMP])?;
    ensure!(output.status == Some(0), "install the seccomp profile: {}", output.stderr);
    let path = format!("{SECCOMP}/numa-enforcer.json");
    let installed = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    ensure!(installed == PROFILE, "{path} is not the profile that is shipped");
    Ok(())
}

/// Capabilities of the daemon's container in enforce mode.
fn of_enforcing_pod() -> Result<Vec<String>> {
    let names = granted_by_pod(ENFORCE)?;
    ensure!(names.len() > of_pod()?.len(), "enforcing adds no capability");
    Ok(names)
}

/// Without the capabilities the same container finds nothing that takes them.
fn control(checks: &mut Checks, cri: &Cri, amounts: &Amounts, shipped: &Privileges) -> Result<()> {
    let pod = Pod::run(cri, &plan("control", amounts))?;
    let nothing = Privileges { capabilities: &[], ..*shipped };
    let container = pod.start_as("control", amounts, &DOCTOR, &nothing)?;
    checks.comes_to_hold("without capabilities the kernel side is missing", LIMIT, || {
        let printed = container.printed()?;
        Ok((printed.lines().any(|line| line.contains("missing") && line.contains("bpf")), printed))
    })?;
    // Nothing is beside the daemon that loads programs too: a runtime that is starved gives containers up.
    wait::until("the control has ended", LIMIT, || Ok(container.pid().is_err().then_some(())))?;
    pod.remove()
}

fn while_it_runs(
    checks: &mut Checks,
    cri: &Cri,
    daemon: &Container,
    away: &Cgroup,
    capabilities: &[&str],
) -> Result<()> {
    wait::until("the daemon serves a report", LIMIT, || Ok(product::served_audit()))?;
    let pid = daemon.pid()?;
    confined(checks, pid, capabilities)?;
    checks.comes_to_hold("the declared workload is on node 1", LIMIT, || {
        let cpuset = away.cpuset()?;
        Ok((cpuset.1 == "1", cpuset))
    })?;
    let report = product::served_audit().context("the report is served no longer")?;
    checks.equal("degraded sources of BPF", vec![RUN_TIME], bpf_sources(&report));
    let reason = report.reason(RUN_TIME);
    let named = reason.is_some_and(|reason| reason.contains("kernel.perf_event_paranoid is 3"));
    checks.holds("the setting is named as the cause", named, reason);

    let own = daemon.cgroup.cpuset()?;
    let before = allowed(pid)?;
    checks.comes_to_hold("the daemon is connected to the runtime", LIMIT, || {
        let up = product::served_sum("numa_enforcer_nri_up", &[]);
        Ok((up == Some(1.0), up))
    })?;
    let (guaranteed, container) = alone(cri, "guaranteed", &Amounts::guaranteed(2, MEBIBYTES))?;
    let exclusive = container.first_look()?.cpus;
    checks.equal("CPUs of the Guaranteed container", 2, exclusive.len());
    checks.holds("the daemon was on them before", !before.is_disjoint(&exclusive), (&before, &exclusive));
    checks.comes_to_hold("the daemon keeps off them", LIMIT, || {
        let now = allowed(pid)?;
        Ok((now.is_disjoint(&exclusive), now))
    })?;
    // Some turns later, so that anything that is tried again has been.
    let ticks = || Ok::<_, anyhow::Error>(product::served_sum("numa_enforcer_ticks_total", &[]));
    let end = wait::until("the daemon counts its turns", LIMIT, ticks)? + 3.0;
    wait::until("the daemon goes on", LIMIT, || Ok(ticks()?.filter(|ticks| *ticks >= end)))?;
    checks.equal("its own container's cpuset", own, daemon.cgroup.cpuset()?);
    let failed = product::served_sum("numa_enforcer_actions_total", &[("result", "failed")]);
    checks.equal("steps that failed", Some(0.0), failed);
    let applied = product::served_sum("numa_enforcer_actions_total", &[("result", "applied")]);
    checks.above("steps that were carried out", 0.5, applied);
    guaranteed.remove()
}

/// It has what is shipped and nothing else.
fn confined(checks: &mut Checks, pid: u32, capabilities: &[&str]) -> Result<()> {
    let own = |path: String| fs::read_link(&path).with_context(|| path.clone());
    let (its, ours) = (own(format!("/proc/{pid}/ns/cgroup"))?, own("/proc/self/ns/cgroup".to_owned())?);
    checks.holds("it has a cgroup namespace of its own", its != ours, (&its, &ours));
    let status = status(&format!("/proc/{pid}/status"))?;
    let value = |name: &str| status.get(name).map(String::as_str);
    checks.equal("Seccomp", Some("2"), value("Seccomp"));
    checks.equal("NoNewPrivs", Some("1"), value("NoNewPrivs"));
    checks.equal(
        "capabilities that it can ever have",
        Some(mask(capabilities)?),
        value("CapBnd").map(str::to_owned),
    );
    let kept = mask(&["DAC_OVERRIDE", "SYS_NICE", "SYS_PTRACE"])?;
    checks.comes_to_hold("what it keeps", LIMIT, || {
        let now = effective(&format!("/proc/{pid}/status"))?;
        Ok((now == kept, now))
    })?;
    let mut bare = BTreeMap::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).context("its threads")?.flatten() {
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        if BARE.contains(&name.trim()) {
            let path = thread.path().join("status").display().to_string();
            bare.insert(name.trim().to_owned(), effective(&path)?);
        }
    }
    let nothing = mask(&[])?;
    checks.holds("threads that parse", bare.len() == BARE.len(), bare.keys().collect::<Vec<_>>());
    checks.holds("they keep nothing", bare.values().all(|kept| *kept == nothing), &bare);
    Ok(())
}

/// As the kernel writes a set of capabilities.
fn mask(names: &[&str]) -> Result<String> {
    let mut set = CapabilitySet::empty();
    for name in names {
        set |= CapabilitySet::from_name(name).with_context(|| format!("no capability {name}"))?;
    }
    Ok(format!("{:016x}", set.bits()))
}

fn effective(path: &str) -> Result<String> {
    status(path)?.remove("CapEff").with_context(|| format!("{path} has no CapEff"))
}

fn status(path: &str) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(Path::new(path)).with_context(|| format!("read {path}"))?;
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    Ok(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
}

/// CPUs that any of its threads may run on.
fn allowed(pid: u32) -> Result<Ids> {
    let mut all = Ids::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).context("its threads")?.flatten() {
        // One that ends meanwhile runs nowhere.
        let Ok(status) = status(&thread.path().join("status").display().to_string()) else { continue };
        all.extend(ids::parse(status.get("Cpus_allowed_list").context("no list of CPUs")?)?);
    }
    Ok(all)
}
