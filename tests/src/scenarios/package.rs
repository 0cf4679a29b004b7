//! The Debian package through its life: installed, upgraded, removed, purged.
//!
//! dpkg installs two packages that differ in their version. They are made as that of a release
//! (`xtask/src/dist/trial.rs`), of the product of this run. Control: as installed the daemon observes, and
//! leaves the declared workload alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::service::on_one_node;
use crate::{
    check::Checks,
    ids::Ids,
    process::{self, Output},
    product,
    systemd::{HogService, must, property, systemctl, write},
    wait,
};

/// Versions of the package; the product is the same.
const OLDER: &str = "/inject/older.deb";
const NEWER: &str = "/inject/newer.deb";

const PACKAGE: &str = "numa-enforcer";
const UNIT: &str = "numa-enforcer.service";
const PROGRAM: &str = "/usr/bin/numa-enforcer";
const CONFIG: &str = "/etc/numa-enforcer.toml";
const STATE: &str = "/run/numa-enforcer";
const JOURNAL: &str = "/run/numa-enforcer/journal";

/// The drop-in for enforce mode, where the package has it and where docs/deploy.md puts it.
const EXAMPLE: &str = "/usr/share/doc/numa-enforcer/examples/enforce.conf";
const DROP_INS: &str = "/etc/systemd/system/numa-enforcer.service.d";

/// The guest has no journal of systemd. Gone with the next boot, so that no file is in a listing.
const OUTPUT: (&str, &str) = (
    "/run/systemd/system/numa-enforcer.service.d/output.conf",
    "[Service]\nStandardOutput=append:/run/daemon.log\nStandardError=append:/run/daemon.log\n",
);

/// Packages of the guest are unpacked without a database. The one that ours depends on is essential, so that
/// every Debian has it.
const DATABASE: (&str, &str) = (
    "/var/lib/dpkg/status",
    "Package: init-system-helpers\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n\
     Maintainer: none\nDescription: none\n\n",
);

/// What dpkg itself writes.
const OF_DPKG: [&str; 2] = ["/var/lib/dpkg", "/var/log/dpkg.log"];

/// Memory of the service that is declared.
const MEBIBYTES: usize = 64;

/// Longest wait for something of the daemon, and longest time for dpkg: a bound on a hang.
const LIMIT: Duration = Duration::from_mins(5);

/// Files that are not of a mounted file system, with their sizes.
type Files = BTreeMap<PathBuf, u64>;

pub(super) fn comes_and_goes(checks: &mut Checks) -> Result<()> {
    let outcome = story(checks);
    if outcome.is_err() || !checks.passed() {
        println!("the daemon printed:\n{}", fs::read_to_string("/run/daemon.log").unwrap_or_default());
    }
    outcome
}

fn story(checks: &mut Checks) -> Result<()> {
    for (path, text) in [DATABASE, OUTPUT] {
        write(Path::new(path), text)?;
    }
    let placed = HogService::start("placed", MEBIBYTES)?;
    let before = MachineBefore { files: files()?, cpusets: cpusets(), cpus: placed.cpus_allowed()? };

    installed(checks, &before)?;
    let config = observes(checks, &placed, &before)?;
    let place = enforces(checks, &placed)?;
    upgraded(checks, &placed, &place, &config)?;
    stays_if_not_all_is_restored(checks, &placed)?;
    removed(checks, &placed, &before, &config)?;
    purged(checks, &before)
}

/// What the package must give back.
struct MachineBefore {
    files: Files,
    cpusets: BTreeSet<(PathBuf, String)>,
    cpus: Ids,
}

/// It installs, and nothing else happens.
fn installed(checks: &mut Checks, before: &MachineBefore) -> Result<()> {
    let output = dpkg(&["--install", OLDER])?;
    checks.equal("dpkg --install", Some(0), output.status);
    checks.holds("the older version is installed", package()?.contains("installed"), package()?);
    checks.equal("enabled", "disabled", systemctl(&["is-enabled", UNIT])?.stdout.trim());
    checks.equal("state after the installation", "inactive", &property(UNIT, "ActiveState")?);
    checks.holds("nothing has run", !Path::new(STATE).exists(), STATE);
    checks.equal("cpusets after the installation", &before.cpusets, &cpusets());
    Ok(())
}

/// As installed it observes. Returns the configuration as an administrator has edited it.
fn observes(checks: &mut Checks, placed: &HogService, before: &MachineBefore) -> Result<String> {
    let shipped = fs::read_to_string(CONFIG).with_context(|| format!("read {CONFIG}"))?;
    let edited = shipped.replacen("#interval = \"10s\"", "interval = \"2s\"", 1);
    ensure!(edited != shipped, "the configuration of the package suggests no interval");
    let declared = format!(
        "{edited}\n[[workload]]\nname = \"placed\"\ncgroup = \"{}\"\ncpus = 2\nmemory = \"64MiB\"\n",
        placed.cgroup.path()
    );
    fs::write(CONFIG, &declared).with_context(|| format!("write {CONFIG}"))?;

    let started = systemctl(&["enable", "--now", UNIT])?;
    checks.holds("it starts", started.status == Some(0), &started.stderr);
    answers(checks, "installed")?;
    after_turns(3)?;
    checks.equal("control: CPUs of the workload in observe mode", &before.cpus, &placed.cpus_allowed()?);
    Ok(declared)
}

/// systemd, the control socket and the doctor say that it works.
fn answers(checks: &mut Checks, when: &str) -> Result<()> {
    checks.comes_to_hold(format!("{when}: systemctl status tells of a turn"), LIMIT, || {
        let output = systemctl(&["status", UNIT])?;
        let works = output.stdout.contains("active (running)") && output.stdout.contains("Status: \"turn ");
        Ok((output.status == Some(0) && works, output.stdout))
    })?;
    for command in ["status", "doctor"] {
        let output = process::run(Command::new(PROGRAM).arg(command), LIMIT)?;
        let found = (output.status, &output.stderr);
        checks.holds(format!("{when}: {command} answers"), output.status == Some(0), found);
    }
    Ok(())
}

/// With the drop-in as the package has it, it confines the workload.
fn enforces(checks: &mut Checks, placed: &HogService) -> Result<(Ids, Ids)> {
    fs::create_dir_all(DROP_INS).with_context(|| format!("make {DROP_INS}"))?;
    fs::copy(EXAMPLE, format!("{DROP_INS}/enforce.conf")).with_context(|| format!("copy {EXAMPLE}"))?;
    must(&["daemon-reload"])?;
    must(&["restart", UNIT])?;
    let place = on_one_node(placed)?;
    checks.holds("AllowedCPUs is set", !placed.properties()?.0.is_empty(), placed.properties()?);
    Ok(place)
}

/// The newer version goes on where the older one was.
fn upgraded(checks: &mut Checks, placed: &HogService, place: &(Ids, Ids), config: &str) -> Result<()> {
    let (version, pid) = (package()?, property(UNIT, "MainPID")?);
    let output = dpkg(&["--install", NEWER])?;
    checks.equal("dpkg --install of the newer version", Some(0), output.status);
    checks.holds("the version has changed", package()? != version, (&version, package()?));
    checks.holds("another process", property(UNIT, "MainPID")? != pid, &pid);
    checks.equal("enabled after the upgrade", "enabled", systemctl(&["is-enabled", UNIT])?.stdout.trim());
    answers(checks, "upgraded")?;
    after_turns(3)?;
    checks.equal("the edited configuration", config, &fs::read_to_string(CONFIG)?);
    checks.equal(
        "the workload's place after the upgrade",
        place,
        &(placed.cpus_allowed()?, placed.mems_allowed()?),
    );
    let own = product::served_sum("numa_enforcer_workloads_by_owner", &[("owner", "numa-enforcer")]);
    checks.equal("workloads that the daemon owns", Some(1.0), own);
    let applied = product::served_sum("numa_enforcer_actions_total", &[("result", "applied")]);
    checks.equal("steps after the upgrade", Some(0.0), applied);
    Ok(())
}

/// A removal that cannot restore everything leaves the package, and the daemon as it was.
fn stays_if_not_all_is_restored(checks: &mut Checks, placed: &HogService) -> Result<()> {
    let journal = fs::read_to_string(JOURNAL).with_context(|| format!("read {JOURNAL}"))?;
    fs::write(JOURNAL, format!("no line of a journal\n{journal}")).context("damage the journal")?;
    let output = dpkg(&["--remove", PACKAGE])?;
    checks.holds("a damaged journal keeps the package", output.status != Some(0), output.status);
    let named = output.stderr.contains("the package is not removed");
    checks.holds("it is said", named, (&output.stdout, &output.stderr));
    checks.holds("it is still installed", package()?.contains("ok installed"), package()?);
    checks.equal("enabled after that", "enabled", systemctl(&["is-enabled", UNIT])?.stdout.trim());
    answers(checks, "not removed")?;
    on_one_node(placed)?;
    for file in fs::read_dir(STATE).with_context(|| format!("list {STATE}"))?.flatten() {
        if file.file_name().to_string_lossy().starts_with("journal.damaged") {
            fs::remove_file(file.path()).with_context(|| format!("remove {}", file.path().display()))?;
        }
    }
    Ok(())
}

/// Everything that was set is put back; the configuration stays.
fn removed(checks: &mut Checks, placed: &HogService, before: &MachineBefore, config: &str) -> Result<()> {
    let output = dpkg(&["--remove", PACKAGE])?;
    checks.holds("dpkg --remove", output.status == Some(0), (output.status, &output.stdout, &output.stderr));
    checks.holds("its configuration is left", package()?.contains("config-files"), package()?);
    checks.holds("the program is gone", !Path::new(PROGRAM).exists(), PROGRAM);
    checks.equal(
        "the daemon has ended",
        ("inactive", "0"),
        (&property(UNIT, "ActiveState")?, &property(UNIT, "MainPID")?),
    );
    checks.equal("CPUs after the removal", &before.cpus, &placed.cpus_allowed()?);
    checks.equal("properties after the removal", (String::new(), String::new()), placed.properties()?);
    checks.equal("cpusets after the removal", &before.cpusets, &cpusets());
    checks.equal("configuration after the removal", config, &fs::read_to_string(CONFIG)?);
    Ok(())
}

/// But for the administrator's drop-ins and the state directory, the machine has the files that it had.
fn purged(checks: &mut Checks, before: &MachineBefore) -> Result<()> {
    let of_output = Path::new(OUTPUT.0).parent().context("a drop-in in no folder")?;
    for folder in [Path::new(DROP_INS), of_output] {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    let output = dpkg(&["--purge", PACKAGE])?;
    checks.holds("dpkg --purge", output.status == Some(0), (output.status, &output.stdout, &output.stderr));
    let (now, mut changed) = (files()?, BTreeSet::new());
    for path in before.files.keys().chain(now.keys()) {
        if before.files.get(path) != now.get(path) {
            changed.insert(path);
        }
    }
    checks.equal("files that differ after the purge", BTreeSet::new(), changed);
    let left = below(Path::new("/run"), |_| true)?;
    let is_ours = |path: &&PathBuf| path.to_string_lossy().contains(PACKAGE) && !path.starts_with(STATE);
    let elsewhere: Vec<_> = left.keys().filter(is_ours).collect();
    checks.holds("below /run the state directory alone is left", elsewhere.is_empty(), &elsewhere);
    checks.equal("the unit is unknown", "not-found", &property(UNIT, "LoadState")?);
    Ok(())
}

/// dpkg with these arguments, without a terminal.
fn dpkg(arguments: &[&str]) -> Result<Output> {
    let mut dpkg = Command::new("/usr/bin/dpkg");
    dpkg.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    let output = process::run(&mut dpkg, LIMIT)?;
    println!("dpkg {}: {:?}\n{}{}", arguments.join(" "), output.status, output.stdout, output.stderr);
    Ok(output)
}

/// State and version of the package, by dpkg.
fn package() -> Result<String> {
    let mut query = Command::new("/usr/bin/dpkg-query");
    let output = process::run(query.args(["-W", "-f", "${Status} ${Version}", PACKAGE]), LIMIT)?;
    ensure!(output.status == Some(0), "dpkg-query: {}", output.stderr);
    Ok(output.stdout)
}

/// Waits until the daemon that runs has taken so many turns.
fn after_turns(turns: u32) -> Result<()> {
    wait::until("the daemon takes its turns", LIMIT, || {
        let ticks = product::served_sum("numa_enforcer_ticks_total", &[]);
        Ok(ticks.filter(|ticks| *ticks >= f64::from(turns)).map(drop))
    })
}

/// Everything on the file system of the root, but what dpkg notes about packages.
fn files() -> Result<Files> {
    below(Path::new("/"), |path| !OF_DPKG.iter().any(|own| path.starts_with(own)))
}

/// Everything on the file system of a folder that is wanted.
fn below(top: &Path, is_wanted: impl Fn(&Path) -> bool) -> Result<Files> {
    let device = fs::metadata(top).with_context(|| format!("look at {}", top.display()))?.dev();
    let (mut files, mut folders) = (Files::new(), vec![top.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            // Below /run something may have gone meanwhile.
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if metadata.dev() != device || !is_wanted(&path) {
                continue;
            }
            if metadata.is_dir() {
                files.insert(path.clone(), 0);
                folders.push(path);
            } else {
                files.insert(path, metadata.len());
            }
        }
    }
    Ok(files)
}

/// What is written to cpusets of the hierarchy: file and value.
fn cpusets() -> BTreeSet<(PathBuf, String)> {
    let (mut written, mut folders) = (BTreeSet::new(), vec![PathBuf::from("/sys/fs/cgroup")]);
    while let Some(folder) = folders.pop() {
        for name in ["cpuset.cpus", "cpuset.mems"] {
            let path = folder.join(name);
            // The root has none, nor has a cgroup without the controller.
            let value = fs::read_to_string(&path).unwrap_or_default();
            if !value.trim().is_empty() {
                written.insert((path, value.trim().to_owned()));
            }
        }
        // A cgroup may end meanwhile.
        let children = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            children.filter(|one| one.file_type().is_ok_and(|kind| kind.is_dir())).map(|one| one.path()),
        );
    }
    written
}
