//! Rows for hosts that lack something.

use std::{fs, fs::Permissions};

use enforcer_core::{
    audit::Summary,
    policy::{DraSettings, KubeletSettings},
};
use enforcer_report::{checks::Status, status::STATUS_SCHEMA_VERSION};
use numa_topology::degraded::Degraded;

use super::*;

fn short(checks: &[Check]) -> Vec<(&str, Status)> {
    checks.iter().map(|check| (check.name.as_str(), check.status)).collect()
}

fn answer(mode: Mode, runtime: Option<RuntimeLink>, degraded: &[&str]) -> StatusReport {
    let degraded = degraded.iter().map(|source| Degraded::new(*source, "why".to_owned(), "what")).collect();
    StatusReport {
        schema_version: STATUS_SCHEMA_VERSION,
        version: String::new(),
        pid: 7,
        uptime_seconds: 1,
        now_unix_ms: 1,
        log_level: String::new(),
        paused: None,
        latest: Some(LatestTurn {
            mode,
            turns: 1,
            failed_turns: 0,
            age_seconds: 1,
            turn_seconds: None,
            config_good: true,
            runtime,
            containers: 0,
            unplaced: 0,
            claims: None,
            widened: Vec::new(),
            brake: None,
            summary: Summary::default(),
            unmatched: Vec::new(),
            unmatched_below: Vec::new(),
            degraded,
        }),
        workloads: Vec::new(),
    }
}

#[test]
fn daemon_says_its_mode_its_link_and_what_its_driver_lacks() {
    let up = || Some(RuntimeLink::Up { name: "containerd".into(), version: "v2.1.0".into() });
    let good = daemon(Mode::Enforce, &Ok(answer(Mode::Enforce, up(), &["bpf:hardware", "drain"])));
    assert_eq!(short(&good), [("dra-daemon", Status::Ok), ("dra-nri", Status::Ok)]);
    assert_eq!(good[1].detail, "connected to containerd v2.1.0");

    let observes = daemon(Mode::Enforce, &Ok(answer(Mode::Observe, up(), &[])));
    assert_eq!(observes[0].status, Status::Missing, "flags win over the configuration");
    let down = Some(RuntimeLink::Down { reason: "no socket".into() });
    let lacks = daemon(Mode::Enforce, &Ok(answer(Mode::Enforce, down, &["dra:slices", "dra"])));
    assert_eq!(short(&lacks), [("dra-daemon", Status::Degraded), ("dra-nri", Status::Missing)]);
    assert_eq!(lacks[0].detail, "dra:slices: why; dra: why");
    let untried = daemon(Mode::Enforce, &Ok(answer(Mode::Enforce, None, &[])));
    assert_eq!(untried[1].status, Status::Missing);

    let none = daemon(Mode::Observe, &Err("no daemon runs here".into()));
    assert_eq!(short(&none), [("dra-daemon", Status::Degraded)]);
    assert_eq!(none[0].detail, "no daemon runs here; mode of the configuration: observe");
}

fn policy(root_dir: &Path, cdi_dir: &Path) -> Policy {
    let kubelet = KubeletSettings { root_dir: root_dir.to_owned(), ..KubeletSettings::default() };
    let dra = DraSettings { cdi_dir: cdi_dir.to_owned(), ..DraSettings::default() };
    Policy { kubelet, dra, ..Policy::default() }
}

#[test]
fn directories_have_to_be_those_of_the_kubelet_and_writable() {
    let root = tempfile::tempdir().unwrap();
    let kubelet = root.path().join("kubelet");
    let policy = policy(&kubelet, &root.path().join("cdi"));
    fs::create_dir(&kubelet).unwrap();
    let rows = directories(&policy, &kubelet);
    assert_eq!(
        short(&rows),
        [("dra-registry", Status::Missing), ("dra-plugin", Status::Ok), ("dra-cdi", Status::Ok)],
        "the kubelet makes the first one, the daemon the others"
    );
    let registry = kubelet.join("plugins_registry");
    fs::create_dir(&registry).unwrap();
    assert_eq!(directories(&policy, &kubelet)[0].status, Status::Ok);
    fs::set_permissions(&registry, Permissions::from_mode(0o777)).unwrap();
    let open = &directories(&policy, &kubelet)[0];
    assert!(open.status == Status::Missing && open.detail.contains("mode 0777"), "{open:?}");
    fs::write(root.path().join("cdi"), "").unwrap();
    assert_eq!(directories(&policy, &kubelet)[2].status, Status::Missing, "a file is in its place");
    let other = directories(&policy, &root.path().join("other"));
    assert_eq!(short(&other), [("dra-registry", Status::Missing)]);
}

#[test]
fn paths_of_sockets_have_an_end() {
    let root = tempfile::tempdir().unwrap();
    let name = "numa-enforcer.io@reg.sock";
    let longest = LONGEST_SOCKET_PATH - root.path().as_os_str().len() - name.len() - 2;
    for (length, status) in [(longest, Status::Ok), (longest + 1, Status::Missing)] {
        let dir = root.path().join("x".repeat(length));
        fs::create_dir(&dir).unwrap();
        assert_eq!(of_socket("dra-registry", &dir, name).status, status, "{length}");
    }
}
