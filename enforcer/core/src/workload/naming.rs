//! Identifies a workload by its cgroup path.
//!
//! Container runtimes, the kubelet, systemd and libvirt each name cgroups in their own way, and differently
//! for each cgroup driver (cgroupfs or systemd). Only the path is used: no runtime socket, no label. The
//! innermost pod takes precedence over everything around it (kind runs pods inside a docker container).
//! Without a pod: a virtual machine, then the innermost container, then the innermost unit.
//!
//! Names come from people and containers: the result is always printable and bounded.

use super::{CgroupPath, Origin, QosClass, Runtime, printable_within};

/// Maximum length of a displayed name in characters.
const NAME_LIMIT: usize = 120;

/// Identity of a workload by its cgroup path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The cgroup of the workload: the path itself, or an ancestor if that ancestor with all its descendants
    /// is one workload (a virtual machine).
    pub cgroup: CgroupPath,
    /// Display name.
    pub name: String,
    /// Origin.
    pub origin: Origin,
}

/// Identifies the workload of a cgroup path.
pub fn identify(path: &CgroupPath) -> Identity {
    let parts: Vec<&str> = path.relative().split('/').collect();
    let found = pod(&parts).or_else(|| virtual_machine(&parts)).or_else(|| container(&parts));
    let RecognizedCgroup { origin, label, depth } = found.or_else(|| unit(&parts)).unwrap_or_else(|| {
        RecognizedCgroup { origin: Origin::Cgroup, label: path.as_str().to_owned(), depth: parts.len() }
    });
    let (own, below) = parts.split_at(depth);
    if matches!(origin, Origin::VirtualMachine { .. }) {
        return Identity { cgroup: CgroupPath::new(&own.join("/")), name: bounded(&label), origin };
    }
    let name = if below.is_empty() { label } else { format!("{label}/{}", below.join("/")) };
    Identity { cgroup: path.clone(), name: bounded(&name), origin }
}

/// Unit of the system's own service manager that a cgroup belongs to. Only this manager makes slices at the
/// root, so the unit is the first name in the path that is not a slice. Names below it come from the unit's
/// processes: a user's service manager, a container.
pub fn system_unit(path: &CgroupPath) -> Option<&str> {
    let name = path.relative().split('/').find(|name| !name.ends_with(SLICE_SUFFIX))?;
    let is_unit = UNIT_SUFFIXES.iter().any(|suffix| name.len() > suffix.len() && name.ends_with(suffix));
    is_unit.then(|| unescaped_file_name(name))
}

fn bounded(text: &str) -> String {
    printable_within(text, NAME_LIMIT)
}

/// A workload recognised in the first `depth` names of a path.
struct RecognizedCgroup {
    origin: Origin,
    label: String,
    depth: usize,
}

// ---- Kubernetes

fn pod(parts: &[&str]) -> Option<RecognizedCgroup> {
    let (depth, (pod_uid, qos)) = (0..parts.len()).rev().find_map(|at| Some((at + 1, pod_at(parts, at)?)))?;
    let pod_name = format!("pod-{}", short(&pod_uid, 8));
    // containerd without its systemd driver below a kubelet with it: `SLICE:cri-containerd:ID`.
    let unsplit = parts[depth - 1].split_once(':').map(|(_, scope)| scope.replacen(':', "-", 1));
    let (inside, depth) = match (unsplit, parts.get(depth)) {
        (Some(inside), _) => (inside, depth),
        (None, Some(inside)) => ((*inside).to_owned(), depth + 1),
        (None, None) => {
            let origin = Origin::Pod { pod_uid, qos, container_id: None, runtime: None };
            return Some(RecognizedCgroup { origin, label: pod_name, depth });
        }
    };
    let (container_id, runtime) = match scoped(&inside) {
        Some((id, runtime)) => (Some(id), Some(runtime)),
        None if is_monitor(&inside) => (None, None),
        None => (Some(inside.clone()), None),
    };
    let label = match &container_id {
        Some(id) => format!("{pod_name}/{}", short(id, 12)),
        None => format!("{pod_name}/{inside}"),
    };
    Some(RecognizedCgroup { origin: Origin::Pod { pod_uid, qos, container_id, runtime }, label, depth })
}

/// Uid and class of the pod that has `parts[at]` as its own cgroup.
fn pod_at(parts: &[&str], at: usize) -> Option<(String, QosClass)> {
    let name = parts[at].split(':').next()?;
    if let Some(stem) = name.strip_suffix(".slice") {
        // systemd driver: kubepods[-burstable|-besteffort]-podUID.slice, `_` for the uid's `-`.
        let (class, uid) = stem.rsplit_once("-pod")?;
        let (_, class) = class.rsplit_once("kubepods")?;
        return Some((pod_uid(uid)?.replace('_', "-"), qos(class.trim_start_matches('-'))?));
    }
    // cgroupfs driver: kubepods[/burstable|/besteffort]/podUID.
    let uid = pod_uid(name.strip_prefix("pod")?)?;
    match parts[..at] {
        [.., "kubepods"] => Some((uid.to_owned(), QosClass::Guaranteed)),
        [.., "kubepods", class] => Some((uid.to_owned(), qos(class)?)),
        _ => None,
    }
}

fn qos(class: &str) -> Option<QosClass> {
    match class {
        "" => Some(QosClass::Guaranteed),
        "burstable" => Some(QosClass::Burstable),
        "besteffort" => Some(QosClass::BestEffort),
        _ => None,
    }
}

/// Checks a pod uid as the API server or the kubelet (static pods: a hash) makes it.
fn pod_uid(text: &str) -> Option<&str> {
    let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    (!text.is_empty() && text.bytes().all(known)).then_some(text)
}

// ---- Containers

/// Prefixes of scope and directory names by container runtime.
const PREFIXES: [(&str, Runtime); 7] = [
    ("cri-containerd-", Runtime::Containerd),
    ("nerdctl-", Runtime::Containerd),
    ("crio-", Runtime::Crio),
    ("docker-", Runtime::Docker),
    ("libpod-payload-", Runtime::Podman),
    ("libpod-", Runtime::Podman),
    ("lxc.payload.", Runtime::Lxc),
];

/// Directories that hold one cgroup per container, by container runtime. `default` is containerd's default
/// namespace and also a common name: below it only a full container id counts.
const PARENTS: [(&str, Runtime); 10] = [
    ("docker", Runtime::Docker),
    ("buildkit", Runtime::Docker),
    ("ecs", Runtime::Docker),
    ("actions_job", Runtime::Docker),
    ("libpod_parent", Runtime::Podman),
    ("crio", Runtime::Crio),
    ("k8s.io", Runtime::Containerd),
    ("moby", Runtime::Docker),
    ("default", Runtime::Containerd),
    ("lxc", Runtime::Lxc),
];

fn container(parts: &[&str]) -> Option<RecognizedCgroup> {
    (0..parts.len()).rev().find_map(|at| {
        let name = parts[at];
        let (id, runtime) =
            scoped(name).or_else(|| machine(name)).or_else(|| directory(&parts[..at], name))?;
        let mut depth = at + 1;
        // Podman with crun puts the processes into a child cgroup of that name.
        if runtime == Runtime::Podman && parts.get(depth) == Some(&"container") {
            depth += 1;
        }
        let label = if is_full_id(&id) { short(&id, 12).to_owned() } else { id.clone() };
        Some(RecognizedCgroup { origin: Origin::Container { id, runtime }, label, depth })
    })
}

/// Container with its runtime in the name: `docker-ID.scope`, `libpod-ID`.
fn scoped(name: &str) -> Option<(String, Runtime)> {
    if is_monitor(name) || [".service", ".slice", ".socket", ".mount"].iter().any(|kind| name.ends_with(kind))
    {
        return None;
    }
    let (prefix, runtime) = *PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix))?;
    let id = name[prefix.len()..].trim_end_matches(".scope");
    (!id.is_empty()).then(|| (id.to_owned(), runtime))
}

/// Container with only its id as directory name.
fn directory(above: &[&str], name: &str) -> Option<(String, Runtime)> {
    let parent = *above.last()?;
    // ECS: /ecs/TASK/ID.
    let parent = if above.len() == 2 && above[0] == "ecs" { "ecs" } else { parent };
    let (_, runtime) = *PARENTS.iter().find(|(known, _)| *known == parent)?;
    let certain = match parent {
        "lxc" | "k8s.io" | "moby" => above.len() == 1,
        _ => is_full_id(name),
    };
    certain.then(|| (name.to_owned(), runtime))
}

/// Is it the cgroup of a process that monitors a container from outside?
fn is_monitor(name: &str) -> bool {
    ["crio-conmon-", "libpod-conmon-", "lxc.monitor."].iter().any(|prefix| name.starts_with(prefix))
}

fn is_full_id(id: &str) -> bool {
    id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit())
}

// ---- Machines

/// A libvirt domain: `machine-qemu\x2d1\x2dNAME.scope`, or without systemd
/// `/machine/qemu-1-NAME.libvirt-qemu`.
fn virtual_machine(parts: &[&str]) -> Option<RecognizedCgroup> {
    parts.iter().enumerate().find_map(|(at, name)| {
        let scope = name.strip_prefix("machine-").and_then(|rest| rest.strip_suffix(".scope"));
        let stem = match scope {
            Some(escaped) => unescape(escaped),
            None => name.strip_suffix(".libvirt-qemu")?.to_owned(),
        };
        let domain = match numbered(&stem, "qemu-") {
            Some(domain) => domain.to_owned(),
            None if scope.is_none() => stem,
            None => return None,
        };
        let label = domain.clone();
        Some(RecognizedCgroup { origin: Origin::VirtualMachine { domain }, label, depth: at + 1 })
    })
}

/// A container registered with systemd-machined, or in systemd-nspawn's own unit.
fn machine(name: &str) -> Option<(String, Runtime)> {
    if let Some(instance) =
        name.strip_prefix("systemd-nspawn@").and_then(|rest| rest.strip_suffix(".service"))
    {
        return Some((unescape(instance), Runtime::Nspawn));
    }
    let machine = unescape(name.strip_prefix("machine-")?.strip_suffix(".scope")?);
    match numbered(&machine, "lxc-") {
        Some(domain) => Some((domain.to_owned(), Runtime::Lxc)),
        None => Some((machine, Runtime::Nspawn)),
    }
}

/// `NAME` of `KIND-NUMBER-NAME`, libvirt's machine names.
fn numbered<'a>(machine: &'a str, kind: &str) -> Option<&'a str> {
    let (number, name) = machine.strip_prefix(kind)?.split_once('-')?;
    (!name.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(name)
}

// ---- systemd

/// Suffixes of units that contain processes.
pub const UNIT_SUFFIXES: [&str; 5] = [".service", ".scope", ".mount", ".socket", ".swap"];

/// Suffix of slices.
pub const SLICE_SUFFIX: &str = ".slice";

/// Undoes `cg_escape` of systemd, which prefixes a name that could be a kernel file's with `_`.
fn unescaped_file_name(name: &str) -> &str {
    name.strip_prefix('_').unwrap_or(name)
}

/// The innermost systemd unit.
fn unit(parts: &[&str]) -> Option<RecognizedCgroup> {
    let is_unit = |name: &&str| {
        let mut kinds = UNIT_SUFFIXES.iter().chain(&[SLICE_SUFFIX]);
        kinds.any(|kind| name.len() > kind.len() && name.ends_with(kind))
    };
    let at = parts.iter().rposition(is_unit)?;
    let unit = unescaped_file_name(parts[at]).to_owned();
    Some(RecognizedCgroup { label: unit.clone(), origin: Origin::Unit { unit }, depth: at + 1 })
}

/// Undoes systemd's escaping of a name: `-` is `/`, `\xHH` a byte.
fn unescape(escaped: &str) -> String {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let code = match rest {
            [b'\\', b'x', high, low, ..] => hex(*high).zip(hex(*low)).map(|(h, l)| h << 4 | l),
            _ => None,
        };
        rest = if let Some(byte) = code {
            bytes.push(byte);
            &rest[4..]
        } else {
            bytes.push(if first == b'-' { b'/' } else { first });
            tail
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// The first `length` characters.
fn short(text: &str, length: usize) -> &str {
    text.char_indices().nth(length).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "3f4a5b6c7d8e9f00112233445566778899aabbccddeeff00112233445566aabb";
    const UID: &str = "0f2b9a31-6a1d-4c6e-9d43-5b2f7c1e8a90";
    const SYSTEMD_UID: &str = "0f2b9a31_6a1d_4c6e_9d43_5b2f7c1e8a90";

    /// `ID`, `UID` and `SUID` in the path stand for the constants.
    fn of(path: &str) -> Identity {
        identify(&CgroupPath::new(&path.replace("SUID", SYSTEMD_UID).replace("UID", UID).replace("ID", ID)))
    }

    #[test]
    fn pods_of_both_drivers_and_every_class() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        let containerd = Some(Runtime::Containerd);
        for (path, qos, container, runtime) in [
            ("/kubepods/podUID/ID", Guaranteed, true, None),
            ("/kubepods/burstable/podUID/ID", Burstable, true, None),
            ("/kubepods/besteffort/podUID/ID", BestEffort, true, None),
            ("/kubepods/besteffort/podUID", BestEffort, false, None),
            ("/kubelet/kubepods/burstable/podUID/ID", Burstable, true, None),
            ("/a/b/kubepods/podUID/crio-ID", Guaranteed, true, Some(Runtime::Crio)),
            ("/kubepods.slice/kubepods-podSUID.slice/cri-containerd-ID.scope", Guaranteed, true, containerd),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podSUID.slice/cri-containerd-ID.scope",
                Burstable,
                true,
                containerd,
            ),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podSUID.slice/crio-ID.scope",
                BestEffort,
                true,
                Some(Runtime::Crio),
            ),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podSUID.slice/crio-ID.scope/container",
                BestEffort,
                true,
                Some(Runtime::Crio),
            ),
            (
                "/kubepods.slice/kubepods-podSUID.slice/docker-ID.scope",
                Guaranteed,
                true,
                Some(Runtime::Docker),
            ),
            ("/kubepods.slice/kubepods-podSUID.slice", Guaranteed, false, None),
            (
                "/docker/ID/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-podSUID.slice/cri-containerd-ID.scope",
                Burstable,
                true,
                containerd,
            ),
            (
                "/system.slice/containerd.service/kubepods-burstable-podSUID.slice:cri-containerd:ID",
                Burstable,
                true,
                containerd,
            ),
        ] {
            let expected =
                Origin::Pod { pod_uid: UID.into(), qos, container_id: container.then(|| ID.into()), runtime };
            assert_eq!(of(path).origin, expected, "{path}");
        }
    }

    #[test]
    fn pods_have_short_names() {
        for (path, name) in [
            ("/kubepods/podUID/ID", "pod-0f2b9a31/3f4a5b6c7d8e"),
            ("/kubepods/podUID", "pod-0f2b9a31"),
            ("/kubepods/podUID/ID/init.scope", "pod-0f2b9a31/3f4a5b6c7d8e/init.scope"),
            (
                "/kubepods.slice/kubepods-podSUID.slice/crio-conmon-x.scope",
                "pod-0f2b9a31/crio-conmon-x.scope",
            ),
            ("/kubepods/burstable/pod8b2ffa7d3f9e4a5c/ID", "pod-8b2ffa7d/3f4a5b6c7d8e"),
        ] {
            assert_eq!(of(path).name, name, "{path}");
        }
    }

    #[test]
    fn containers_outside_kubernetes() {
        use Runtime::{Containerd, Crio, Docker, Lxc, Nspawn, Podman};
        for (path, id, runtime, name) in [
            ("/docker/ID", ID, Docker, "3f4a5b6c7d8e"),
            ("/docker/buildkit/ID", ID, Docker, "3f4a5b6c7d8e"),
            ("/system.slice/docker-ID.scope", ID, Docker, "3f4a5b6c7d8e"),
            (
                "/system.slice/docker-ID.scope/system.slice/a.service",
                ID,
                Docker,
                "3f4a5b6c7d8e/system.slice/a.service",
            ),
            ("/ecs/5f6e/ID", ID, Docker, "3f4a5b6c7d8e"),
            ("/machine.slice/libpod-ID.scope", ID, Podman, "3f4a5b6c7d8e"),
            ("/machine.slice/libpod-ID.scope/container", ID, Podman, "3f4a5b6c7d8e"),
            ("/libpod_parent/libpod-ID", ID, Podman, "3f4a5b6c7d8e"),
            (
                "/user.slice/user-1000.slice/user@1000.service/user.slice/user-libpod_pod_ID.slice/libpod-ID.scope/container",
                ID,
                Podman,
                "3f4a5b6c7d8e",
            ),
            ("/system.slice/x.service/libpod-payload-ID", ID, Podman, "3f4a5b6c7d8e"),
            ("/system.slice/nerdctl-ID.scope", ID, Containerd, "3f4a5b6c7d8e"),
            ("/default/ID", ID, Containerd, "3f4a5b6c7d8e"),
            ("/k8s.io/redis", "redis", Containerd, "redis"),
            ("/system.slice/cri-containerd-ID.scope", ID, Containerd, "3f4a5b6c7d8e"),
            ("/system.slice/crio-ID.scope", ID, Crio, "3f4a5b6c7d8e"),
            ("/lxc.payload.web/system.slice/nginx.service", "web", Lxc, "web/system.slice/nginx.service"),
            ("/lxc/web", "web", Lxc, "web"),
            ("/lxc.payload.web/docker/ID", ID, Docker, "3f4a5b6c7d8e"),
            ("/machine.slice/systemd-nspawn@deb\\x2d12.service/payload", "deb-12", Nspawn, "deb-12/payload"),
            ("/machine.slice/machine-deb.scope", "deb", Nspawn, "deb"),
            ("/machine.slice/machine-lxc\\x2d7\\x2dbox.scope", "box", Lxc, "box"),
        ] {
            let identity = of(path);
            assert_eq!(identity.origin, Origin::Container { id: id.into(), runtime }, "{path}");
            assert_eq!(identity.name, name, "{path}");
        }
    }

    #[test]
    fn a_virtual_machine_is_one_workload() {
        let scope = r"/machine.slice/machine-qemu\x2d12\x2ddb\x2dprimary.scope";
        for (path, cgroup, domain) in [
            (scope.to_owned(), scope, "db-primary"),
            (format!("{scope}/vcpu3"), scope, "db-primary"),
            (format!("{scope}/libvirt/emulator"), scope, "db-primary"),
            ("/machine/qemu-2-web.libvirt-qemu/vcpu0".into(), "/machine/qemu-2-web.libvirt-qemu", "web"),
            ("/machine/old.libvirt-qemu/emulator".into(), "/machine/old.libvirt-qemu", "old"),
        ] {
            let identity = of(&path);
            assert_eq!(identity.origin, Origin::VirtualMachine { domain: domain.into() }, "{path}");
            assert_eq!((identity.cgroup.as_str(), identity.name.as_str()), (cgroup, domain));
        }
    }

    #[test]
    fn the_unit_of_the_systems_manager_is_the_first_that_is_no_slice() {
        for (path, unit) in [
            ("/system.slice/system-getty.slice/getty@tty1.service", Some("getty@tty1.service")),
            ("/system.slice/_cpu.service/x.service", Some("cpu.service")),
            ("/user.slice/user-0.slice/user@0.service/app.slice/a.service", Some("user@0.service")),
            ("/init.scope", Some("init.scope")),
            ("/system.slice", None),
            ("/docker/x/init.scope", None),
            ("/.service", None),
            ("/", None),
        ] {
            assert_eq!(system_unit(&CgroupPath::new(path)), unit, "{path}");
        }
    }

    #[test]
    fn systemd_units() {
        for (path, unit, name) in [
            ("/init.scope", "init.scope", "init.scope"),
            ("/system.slice/cron.service", "cron.service", "cron.service"),
            (
                "/system.slice/system-getty.slice/getty@tty1.service",
                "getty@tty1.service",
                "getty@tty1.service",
            ),
            ("/user.slice/user-1000.slice/session-3.scope", "session-3.scope", "session-3.scope"),
            (
                r"/user.slice/user-0.slice/user@0.service/app.slice/app-a\x2db.service",
                r"app-a\x2db.service",
                r"app-a\x2db.service",
            ),
            (
                "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0",
                "slurmstepd.scope",
                "slurmstepd.scope/job_7/step_0/user/task_0",
            ),
            ("/system.slice", "system.slice", "system.slice"),
            ("/system.slice/docker.service", "docker.service", "docker.service"),
            (
                "/system.slice/crio-conmon-ID.scope",
                &format!("crio-conmon-{ID}.scope"),
                &format!("crio-conmon-{ID}.scope"),
            ),
            ("/machine.slice/libpod-conmon-x.scope", "libpod-conmon-x.scope", "libpod-conmon-x.scope"),
            ("/system.slice/docker-cleanup.service", "docker-cleanup.service", "docker-cleanup.service"),
            ("/system.slice/_cpu.service", "cpu.service", "cpu.service"),
            (
                "/kubepods.slice/kubepods-burstable.slice",
                "kubepods-burstable.slice",
                "kubepods-burstable.slice",
            ),
        ] {
            let identity = of(path);
            assert_eq!(identity.origin, Origin::Unit { unit: unit.into() }, "{path}");
            assert_eq!(
                (identity.name.as_str(), identity.cgroup.as_str()),
                (name, path.replace("ID", ID).as_str())
            );
        }
    }

    #[test]
    fn everything_else_is_a_plain_cgroup() {
        for path in [
            "/",
            "/batch/a",
            "/docker",
            "/docker/buildx",
            "/kubepods/burstable",
            "/pod123/x",
            "/default/web",
            "/kubepods/pod/x",
            "/kubepods/gold/podUID/ID",
            "/machine",
            "/.service",
            "/libpod-",
        ] {
            let identity = of(path);
            assert_eq!(identity.origin, Origin::Cgroup, "{path}");
            assert_eq!(identity.name, path.replace("UID", UID).replace("ID", ID));
        }
    }

    #[test]
    fn hostile_names_are_shown_escaped_and_cut() {
        assert_eq!(of("/a\nb\u{1b}[2J\u{202e}x").name, r"/a\nb\u{1b}[2J\u{202e}x");
        assert_eq!(CgroupPath::new("/a\nb").to_string(), r"/a\nb");
        let name = of(&format!("/{}", "é".repeat(255))).name;
        assert_eq!((name.chars().count(), name.ends_with('…')), (NAME_LIMIT + 1, true));
    }

    #[test]
    fn a_cgroup_is_within_itself_and_whatever_is_above_it() {
        let within = |path: &str, top: &str| CgroupPath::new(path).is_within(&CgroupPath::new(top));
        for top in ["/", "/a", "/a/b", "a/b/", "/a/b/c"] {
            assert!(within("/a/b/c", top), "{top}");
        }
        for top in ["/a/b/c/d", "/a/b/cc", "/a/b/", "/b"] {
            assert!(!within("/a/bb", top), "{top}");
        }
        assert!(within("/", "/") && !within("/", "/a"));
    }

    fn any_path() -> impl Strategy<Value = String> {
        let name = prop_oneof![
            any::<String>(),
            "(kubepods|burstable|docker|machine-|libpod-|crio-|pod|qemu|\\\\x2d|\\\\x|\\.scope|\\.slice|-|:|1|é){0,6}",
        ];
        proptest::collection::vec(name, 0..6).prop_map(|names| names.join("/"))
    }

    proptest! {
        #[test]
        fn every_path_has_a_printable_bounded_identity(text in any_path()) {
            let path = CgroupPath::new(&text);
            let identity = identify(&path);
            prop_assert!(!identity.name.chars().any(char::is_control));
            prop_assert!(identity.name.chars().count() <= NAME_LIMIT + 1);
            prop_assert!(path.as_str().starts_with(identity.cgroup.as_str()));
            prop_assert_eq!(&CgroupPath::new(path.as_str()), &path);
        }

        #[test]
        fn a_virtual_machine_absorbs_whatever_is_below_it(below in "[a-z0-9/]{0,20}") {
            let scope = r"/machine.slice/machine-qemu\x2d1\x2da.scope";
            prop_assert_eq!(identify(&CgroupPath::new(&format!("{scope}/{below}"))), identify(&CgroupPath::new(scope)));
        }
    }
}
