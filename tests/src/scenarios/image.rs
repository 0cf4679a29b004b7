//! The image of the product as the pods of the presets run it, one after another: observe, enforce, restore.
//!
//! The image is made as that of a release (`xtask/src/dist/trial.rs`), of the product of this run. The pods
//! are read from the files that are shipped (`preset.rs`), and made by containerd as a kubelet would have
//! them made, with a cgroup namespace of their own on a hierarchy that is delegated by namespaces, and perf
//! events as Debian sets them. In enforce mode the daemon corrects a declared workload, places a Guaranteed
//! container, keeps off the CPUs of that one, and never writes its own container. Restore puts everything
//! back.
//!
//! Controls: the observing pod leaves the declared workload alone, and a container without the capabilities
//! finds the kernel side missing.

use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use rustix::thread::CapabilitySet;

use super::{
    pods::{LIMIT, MEBIBYTES, alone, plan},
    refused::bpf_sources,
    shipped::{DEBIANS, PARANOID, RUN_TIME},
};
use crate::{
    cgroup::Cgroup,
    check::Checks,
    containerd::Containerd,
    cri::{Amounts, Container, ContainerSpec, Cri, Pod},
    http,
    ids::{self, Ids},
    kubelet::CpuState,
    preset::{self, Preset},
    process::{self, Running},
    product, wait,
};

const PROFILE: &str = include_str!("../../../deploy/seccomp/numa-enforcer.json");

/// The image, as the host has made it.
pub(super) const IMAGE: &str = "/inject/image.tar";

/// CPUs and memory nodes of the declared workload before it is corrected.
const EVERYWHERE: (&str, &str) = ("0-7", "0-1");

/// Turns after which anything that is tried again has been.
const TURNS: f64 = 3.0;

/// Threads that parse what others send, and keep nothing (docs/privileges.md).
const BARE: [&str; 5] = ["serve", "nri", "kubelet", "placement", "signals"];

pub(super) fn of_each_preset(checks: &mut Checks) -> Result<()> {
    told(checks, story)
}

/// Plays a scenario, and shows what runtime and daemon printed if it does not end well; the story hands over
/// what its daemon printed.
pub(super) fn told(
    checks: &mut Checks,
    story: impl FnOnce(&mut Checks, &mut String) -> Result<()>,
) -> Result<()> {
    let mut printed = String::new();
    let outcome = story(checks, &mut printed);
    if outcome.is_err() || !checks.passed() {
        println!("containerd printed:\n{}\nthe daemon printed:\n{printed}", Containerd::printed());
    }
    outcome
}

fn story(checks: &mut Checks, printed: &mut String) -> Result<()> {
    let presets = [Preset::observe()?, Preset::enforce()?, Preset::restore()?];
    prepare(&presets)?;
    let (containerd, cri) = Containerd::start()?;
    Containerd::import(&cri, IMAGE)?;
    let image = &presets[0].daemon.image;
    let images = cri.images()?;
    ensure!(images.contains(image), "the presets name {image}, and there are {images:?}");
    let away = Cgroup::with_cpuset("/declared/away", EVERYWHERE.0, EVERYWHERE.1)?;
    let _hog = Running::hog(&away, 64)?;
    let rule = format!("{}numa_nodes = \"1\"\n", product::rules(&[&away]));
    let config = format!("interval = \"2s\"\n{rule}\n[nri]\nplace = true\n");
    fs::write(format!("{}/numa-enforcer.toml", preset::CONFIG), config).context("write the configuration")?;

    for preset in &presets {
        let running = PresetPod::start(checks, &cri, preset)?;
        let outcome = while_it_runs(checks, &cri, preset, &running.daemon, &away);
        *printed = running.daemon.printed().unwrap_or_default();
        outcome?;
        running.end(checks, preset.name)?;
    }
    containerd.stop()
}

/// The machine as Debian, systemd and a kubelet set it.
pub(super) fn prepare(presets: &[Preset]) -> Result<()> {
    mount(&["-t", "cgroup2", "-o", "remount,nsdelegate", "none", "/sys/fs/cgroup"])?;
    let mounts = fs::read_to_string("/proc/mounts").context("read the mounts")?;
    ensure!(mounts.contains("nsdelegate"), "the hierarchy is not delegated by namespaces: {mounts}");
    mount(&["--make-rshared", "/"])?;
    fs::write(PARANOID, DEBIANS).with_context(|| format!("write {DEBIANS} to {PARANOID}"))?;
    presets.iter().try_for_each(Preset::make_folders)?;
    CpuState { policy: "none", ..CpuState::default() }.write()
}

fn mount(arguments: &[&str]) -> Result<()> {
    let output = process::run(Command::new("mount").args(arguments), Duration::from_secs(10))?;
    ensure!(output.status == Some(0), "mount {}: {}", arguments.join(" "), output.stderr);
    Ok(())
}

/// A pod of a preset, of which the daemon runs.
pub(super) struct PresetPod<'a> {
    pub(super) pod: Pod<'a>,
    pub(super) daemon: Container<'a>,
}

impl<'a> PresetPod<'a> {
    /// Runs its containers as a kubelet does: each of `initContainers` to its end, then the daemon.
    pub(super) fn start(checks: &mut Checks, cri: &'a Cri, preset: &Preset) -> Result<Self> {
        let name = preset.name;
        let pod = Pod::run_with_host_pid(cri, &plan("numa-enforcer", &preset.daemon.amounts))?;
        for spec in &preset.init {
            let container = pod.start_spec(spec)?;
            let (status, printed) = (container.exit_status()?, container.printed()?);
            checks.holds(format!("{name}: {} succeeds", spec.name), status == 0, (status, printed));
            container.remove()?;
        }
        let path = format!("{}/numa-enforcer.json", preset::SECCOMP);
        let profile = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        checks.holds(format!("{name}: the seccomp profile is that of deploy"), profile == PROFILE, path);
        let daemon = pod.start_spec(&preset.daemon)?;
        Ok(Self { pod, daemon })
    }

    /// Ends it as a kubelet does.
    pub(super) fn end(self, checks: &mut Checks, name: &str) -> Result<()> {
        checks.equal(format!("{name}: exit status of the daemon"), 0, self.daemon.end()?);
        self.pod.remove()
    }
}

/// What a kubelet and Prometheus ask is answered, and the mode is that of the preset.
fn while_it_runs(
    checks: &mut Checks,
    cri: &Cri,
    preset: &Preset,
    daemon: &Container,
    away: &Cgroup,
) -> Result<()> {
    let Preset { name, probes, metrics, .. } = preset;
    for (port, path) in probes {
        checks.comes_to_hold(format!("{name}: {path} is answered"), LIMIT, || {
            let answer = http::get(([127, 0, 0, 1], *port).into(), path);
            Ok((answer.is_ok(), answer))
        })?;
    }
    let enforces = *name == "enforce";
    let scraped = http::get(([127, 0, 0, 1], *metrics).into(), "/metrics")?;
    let enforcing = http::metric(&scraped, "numa_enforcer_enforcing", &[]);
    checks.equal(format!("{name}: numa_enforcer_enforcing"), Some(f64::from(u8::from(enforces))), enforcing);
    confined(checks, daemon.pid()?, preset)?;
    if enforces {
        control(checks, cri, &preset.daemon)?;
        return while_it_enforces(checks, cri, daemon, away);
    }
    // In observe mode the control, in restore mode what `restore` has put back.
    after_turns()?;
    let cpuset = away.cpuset()?;
    let is_everywhere = (cpuset.0.as_str(), cpuset.1.as_str()) == EVERYWHERE;
    checks.holds(format!("{name}: the declared workload may be everywhere"), is_everywhere, cpuset);
    Ok(())
}

/// Without the capabilities the same container finds nothing that takes them.
fn control(checks: &mut Checks, cri: &Cri, daemon: &ContainerSpec) -> Result<()> {
    let spec = ContainerSpec {
        name: "control".to_owned(),
        args: vec!["doctor".to_owned()],
        capabilities: Vec::new(),
        ..daemon.clone()
    };
    let pod = Pod::run_with_host_pid(cri, &plan("control", &spec.amounts))?;
    let container = pod.start_spec(&spec)?;
    container.exit_status()?;
    let printed = container.printed()?;
    let is_missing = printed.lines().any(|line| line.contains("missing") && line.contains("bpf"));
    checks.holds("without capabilities the kernel side is missing", is_missing, printed);
    pod.remove()
}

fn while_it_enforces(checks: &mut Checks, cri: &Cri, daemon: &Container, away: &Cgroup) -> Result<()> {
    let pid = daemon.pid()?;
    checks.comes_to_hold("the declared workload is on node 1", LIMIT, || {
        let cpuset = away.cpuset()?;
        Ok((cpuset.1 == "1", cpuset))
    })?;
    let turn = product::latest_turn()?.context("no turn is told of")?;
    checks.equal("degraded sources of BPF", vec![RUN_TIME], bpf_sources(&turn));
    let reason = turn.reason(RUN_TIME);
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
    after_turns()?;
    checks.equal("its own container's cpuset", own, daemon.cgroup.cpuset()?);
    let failed = product::served_sum("numa_enforcer_actions_total", &[("result", "failed")]);
    checks.equal("steps that failed", Some(0.0), failed);
    let applied = product::served_sum("numa_enforcer_actions_total", &[("result", "applied")]);
    checks.above("steps that were carried out", 0.5, applied);
    guaranteed.remove()
}

/// Some turns later.
pub(super) fn after_turns() -> Result<()> {
    let ticks = || Ok::<_, anyhow::Error>(product::served_sum("numa_enforcer_ticks_total", &[]));
    let end = wait::until("the daemon counts its turns", LIMIT, ticks)? + TURNS;
    wait::until("the daemon goes on", LIMIT, || Ok(ticks()?.filter(|ticks| *ticks >= end)))?;
    Ok(())
}

/// It has what is shipped and nothing else.
fn confined(checks: &mut Checks, pid: u32, preset: &Preset) -> Result<()> {
    let name = preset.name;
    let granted: Vec<&str> = preset.daemon.capabilities.iter().map(String::as_str).collect();
    let own = |path: String| fs::read_link(&path).with_context(|| path.clone());
    let (its, ours) = (own(format!("/proc/{pid}/ns/cgroup"))?, own("/proc/self/ns/cgroup".to_owned())?);
    checks.holds(format!("{name}: it has a cgroup namespace of its own"), its != ours, (&its, &ours));
    let (its, ours) = (own(format!("/proc/{pid}/ns/pid"))?, own("/proc/self/ns/pid".to_owned())?);
    checks.equal(format!("{name}: its process namespace is that of the machine"), ours, its);
    let status = status(&format!("/proc/{pid}/status"))?;
    let value = |name: &str| status.get(name).map(String::as_str);
    checks.equal(format!("{name}: Seccomp"), Some("2"), value("Seccomp"));
    checks.equal(format!("{name}: NoNewPrivs"), Some("1"), value("NoNewPrivs"));
    checks.equal(
        format!("{name}: capabilities that it can ever have"),
        Some(mask(&granted)?),
        value("CapBnd").map(str::to_owned),
    );
    let given_up = |capability: &&str| !["BPF", "PERFMON", "SYS_RESOURCE"].contains(capability);
    let kept = mask(&granted.iter().copied().filter(given_up).collect::<Vec<_>>())?;
    checks.comes_to_hold(format!("{name}: what it keeps"), LIMIT, || {
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
    checks.holds(
        format!("{name}: threads that parse"),
        bare.len() == BARE.len(),
        bare.keys().collect::<Vec<_>>(),
    );
    checks.holds(format!("{name}: they keep nothing"), bare.values().all(|kept| *kept == nothing), &bare);
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
