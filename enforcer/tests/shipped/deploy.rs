//! What is in `deploy/systemd` and `deploy/deb` against what the product and its documentation say.
#![expect(clippy::print_stdout, reason = "what is skipped is said")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
};

use enforcer::serve::LONGEST_SILENCE;
use enforcer_core::policy::Policy;

const UNIT: &str = include_str!("../../../deploy/systemd/numa-enforcer.service");
const ENFORCE: &str = include_str!("../../../deploy/systemd/enforce.conf");
/// The configuration that the Debian package installs.
const PACKAGED: &str = include_str!("../../../deploy/deb/numa-enforcer.toml");
const PRIVILEGES: &str = include_str!("../../../docs/privileges.md");
const DEPLOY: &str = include_str!("../../../docs/deploy.md");

/// Values of each key of `[Service]`, in their order.
fn service(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut keys: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut section = "";
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            section = line;
        } else if section == "[Service]" {
            let (key, value) = line.split_once('=').unwrap();
            keys.entry(key).or_default().push(value);
        }
    }
    keys
}

fn capabilities(unit: &str) -> BTreeSet<&str> {
    service(unit)["CapabilityBoundingSet"].iter().flat_map(|value| value.split(' ')).collect()
}

/// Capabilities in the rows of docs/privileges.md with this last column.
fn documented(place: &str) -> BTreeSet<&'static str> {
    let rows = PRIVILEGES.lines().filter(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let named = cells.filter(|cells| cells.last() == Some(&place));
    named.flat_map(|cells| cells[0].split(", ").map(|name| name.trim_matches('`'))).collect()
}

#[test]
fn the_units_grant_the_capabilities_that_are_documented_and_no_others() {
    let (unit, enforce) = (capabilities(UNIT), capabilities(ENFORCE));
    assert_eq!(unit, documented("`numa-enforcer.service`"));
    assert_eq!(enforce, documented("`enforce.conf`"));
    assert!(!unit.is_empty() && !enforce.is_empty() && unit.is_disjoint(&enforce));
}

/// The filter of system calls is that of the unit, for all threads and for what the daemon starts; a drop-in
/// of ours widens it nowhere.
#[test]
fn the_unit_filters_system_calls_for_every_thread() {
    let unit = service(UNIT);
    assert_eq!(unit["SystemCallFilter"], ["@system-service bpf perf_event_open", "~@setuid @keyring"]);
    assert_eq!(
        unit["SystemCallErrorNumber"],
        ["EPERM"],
        "a refusal is an error that is reported, not an end"
    );
    assert_eq!(unit["SystemCallArchitectures"], ["native"]);
    assert_eq!(unit["NoNewPrivileges"], ["yes"]);
    assert_eq!(service(ENFORCE).get("SystemCallFilter"), None);
    for name in ["partition.conf", "damos.conf", "cold-pages.conf"] {
        assert_eq!(drop_in(name).get("SystemCallFilter"), None, "{name}");
    }
    assert!(PRIVILEGES.contains("`SystemCallFilter=`"), "docs/privileges.md says why it is there");
}

#[test]
fn the_unit_keeps_the_journal_where_the_configuration_has_it() {
    let keys = service(UNIT);
    let Policy { state_dir, mode, .. } = Policy::default();
    assert_eq!(keys["RuntimeDirectory"], [state_dir.strip_prefix("/run").unwrap().to_str().unwrap()]);
    assert_eq!(keys["RuntimeDirectoryPreserve"], ["yes"], "restore needs it after a stop");
    let start =
        format!("/usr/bin/numa-enforcer run --mode {mode} --config-if-present /etc/numa-enforcer.toml");
    assert_eq!(keys["ExecStart"], [start]);
    let last = *service(ENFORCE)["ExecStart"].last().unwrap();
    assert_eq!(last, "/usr/bin/numa-enforcer run --mode enforce --config /etc/numa-enforcer.toml");
    assert_eq!(keys["Type"], ["notify"]);
    assert_eq!(keys["ProtectControlGroups"], ["yes"]);
    assert_eq!(service(ENFORCE)["ProtectControlGroups"], ["no"]);
}

/// As it is, and with every line that it suggests.
#[test]
fn the_configuration_of_the_package_is_valid() {
    let is_key = |line: &str| line.starts_with(|c: char| c == '[' || c.is_ascii_lowercase());
    let lines =
        PACKAGED.lines().map(|line| line.strip_prefix('#').filter(|rest| is_key(rest)).unwrap_or(line));
    let suggested: Vec<_> = lines.collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("numa-enforcer.toml");
    for (text, workloads) in [(PACKAGED.to_owned(), 0), (suggested.join("\n"), 1)] {
        fs::write(&file, &text).unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_numa-enforcer"));
        let said = check.args(["run", "--check", "--config"]).arg(&file).output().unwrap();
        let line = String::from_utf8(said.stdout).unwrap();
        let declared = format!("{workloads} declared workload");
        assert!(said.status.success() && line.contains(&declared), "{line}\n{text}");
        let table: toml::Table = text.parse().unwrap();
        assert!(!table.contains_key("mode"), "the unit says the mode");
    }
}

/// What a maintainer script runs, with programs that note their arguments in place of its own; `restore` is
/// the exit code of `numa-enforcer restore`.
fn maintained(script: &str, arguments: &[&str], keep: bool, restore: u8) -> (bool, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    for (name, code) in [("numa-enforcer", restore), ("systemctl", 0)] {
        let program = folder.path().join(name);
        fs::write(&program, format!("#!/bin/sh\necho {name} \"$@\" >> \"$LOG\"\nexit {code}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let script = Path::new("../deploy/deb").join(script);
    let mut command = Command::new("sh");
    command.arg(script).args(arguments).env_clear().env("PATH", path).env("LOG", &log);
    if keep {
        command.env("NUMA_ENFORCER_KEEP", "1");
    }
    let status = command.output().unwrap().status;
    let lines = fs::read_to_string(&log).unwrap_or_default();
    // Only a host with systemd is asked for its units, and a host may have a configuration.
    let lines = lines.lines().filter(|line| !line.starts_with("systemctl daemon-reload"));
    (status.success(), lines.map(|line| line.split(" --config").next().unwrap_or(line).to_owned()).collect())
}

#[test]
fn removing_the_package_restores_unless_it_is_told_to_keep() {
    let restores = |lines: &[String]| lines.iter().filter(|line| *line == "numa-enforcer restore").count();
    let (done, lines) = maintained("prerm", &["remove"], false, 0);
    assert!(done && restores(&lines) == 1, "{lines:?}");
    let (done, lines) = maintained("prerm", &["remove"], false, 2);
    assert!(!done && restores(&lines) == 1, "a package with something left to restore stays: {lines:?}");
    let (done, lines) = maintained("prerm", &["remove"], true, 2);
    assert!(done && restores(&lines) == 0, "{lines:?}");
    let (done, lines) = maintained("prerm", &["upgrade", "2.0.0-1"], false, 2);
    assert!(done && lines.is_empty(), "an upgrade goes on from the journal: {lines:?}");
}

#[test]
fn installing_the_package_starts_and_enables_nothing() {
    let (done, lines) = maintained("postinst", &["configure", ""], false, 0);
    assert!(done && lines.is_empty(), "{lines:?}");
    let (done, lines) = maintained("postinst", &["configure", "0.1.0-1"], false, 0);
    let expected = ["systemctl try-restart numa-enforcer.service"];
    assert!(done && (lines.is_empty() || lines == expected), "only what runs already: {lines:?}");
    let (done, lines) = maintained("postrm", &["purge"], false, 0);
    assert!(done && lines.is_empty(), "{lines:?}");
}

/// Blocks of this kind of docs/deploy.md, by the name of the file in the paragraph before.
fn drop_in(name: &str) -> BTreeMap<&'static str, Vec<&'static str>> {
    let (_, rest) = DEPLOY.split_once(&format!("`{name}`:\n\n```ini\n")).unwrap();
    service(rest.split_once("```").unwrap().0)
}

#[test]
fn what_needs_a_drop_in_has_one_that_grants_it() {
    let admin = vec!["CAP_SYS_ADMIN"];
    for name in ["partition.conf", "damos.conf"] {
        assert_eq!(drop_in(name)["CapabilityBoundingSet"], admin, "{name}");
    }
    for name in ["damos.conf", "cold-pages.conf"] {
        // The unit has all of /sys read-only.
        assert!(drop_in(name)["ReadWritePaths"][0].starts_with("-/sys/kernel/mm/damon"), "{name}");
        assert_eq!(service(UNIT)["ProtectKernelTunables"], ["yes"]);
    }
    assert_eq!(documented("a [drop-in](deploy.md#drop-ins-for-more)"), BTreeSet::from(["CAP_SYS_ADMIN"]));
}

/// Liveness over HTTP and the unit's watchdog use the same limit for a turn.
#[test]
fn the_watchdog_of_the_unit_waits_as_long_as_live_does() {
    let minutes = LONGEST_SILENCE.as_secs() / 60;
    assert_eq!(service(UNIT)["WatchdogSec"], [format!("{minutes}min")]);
    assert_eq!(LONGEST_SILENCE.as_secs() % 60, 0);
    assert!(DEPLOY.contains(&format!("`WatchdogSec={minutes}min`")));
}

/// The figure behind `text` in docs/deploy.md.
fn recorded(text: &str) -> f64 {
    let (_, rest) = DEPLOY.split_once(text).unwrap_or_else(|| panic!("docs/deploy.md has no `{text}`"));
    rest.trim_start_matches([' ', '|']).split([' ', '|']).next().unwrap().parse().unwrap()
}

/// Only where there is a systemd.
#[test]
fn the_exposure_of_the_units_is_not_above_what_is_recorded() {
    let root = tempfile::tempdir().unwrap();
    let units = root.path().join("etc/systemd/system");
    fs::create_dir_all(units.join("numa-enforcer.service.d")).unwrap();
    fs::write(units.join("numa-enforcer.service"), UNIT).unwrap();
    let Some(observe) = exposure(root.path()) else { return };
    fs::write(units.join("numa-enforcer.service.d/enforce.conf"), ENFORCE).unwrap();
    let enforce = exposure(root.path()).unwrap();
    assert!(observe <= recorded("| observe |"), "{observe}");
    assert!(enforce <= recorded("| enforce |"), "{enforce}");
    assert!(observe < enforce, "what is protected in observe mode counts: {observe} {enforce}");
}

/// What `systemd-analyze security` says of the unit below a root; `None`, with the reason printed, without
/// one that can.
fn exposure(root: &Path) -> Option<f64> {
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=true", "--no-pager", "--root"]).arg(root);
    let output = match analyze.arg("numa-enforcer.service").env("LC_ALL", "C").output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: systemd-analyze: {error}");
            return None;
        }
    };
    let (text, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Before 250 it knows no --offline.
    if !output.status.success() && complaints.contains("unrecognized option") {
        println!("skipped: {complaints}");
        return None;
    }
    let (_, rest) =
        text.split_once("numa-enforcer.service: ").unwrap_or_else(|| panic!("{text}{complaints}"));
    Some(rest.split(' ').next().unwrap().parse().unwrap())
}
