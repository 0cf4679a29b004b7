//! The kernel: its release, BTF, NUMA balancing.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use enforcer_core::parse::scalar;

use super::read;
use enforcer_act::scratch;
use enforcer_host::{HostPath, HostRoot, lockdown};
use enforcer_kernel::linux::Linux;
use enforcer_report::checks::Check;

/// Oldest supported release (docs/kernel-support.md names the tested ones).
const OLDEST: (u32, u32) = (5, 10);

pub(super) fn checks(host: &HostRoot) -> Vec<Check> {
    vec![
        release(read(host, "sys/kernel/osrelease")),
        btf(host.sys.join("kernel/btf/vmlinux").as_path()),
        locked(lockdown::lockdown(host), lockdown::confidential(host)),
        numa(host.sys.join("devices/system/node").as_path()),
        page_moves(Linux::probe()),
        balancing(&read(host, "sys/kernel/numa_balancing")),
        demotion(scratch::is_on(host)),
        reclaim(scratch::is_on(host), &host.cgroup),
        damos(host.sys.join("kernel/mm/damon/admin/kdamonds/nr_kdamonds").as_path()),
    ]
}

fn release(text: Result<String, String>) -> Check {
    let advice = "use kernel 5.10 or later";
    match text {
        Err(error) => Check::missing("kernel", error, advice),
        Ok(text) => {
            let release = text.trim();
            match scalar::release(release) {
                Some(version) if version >= OLDEST => Check::ok("kernel", release),
                Some(_) => Check::degraded("kernel", format!("{release} is older than 5.10"), advice),
                None => Check::degraded("kernel", format!("release `{release}` has no version"), advice),
            }
        }
    }
}

fn btf(path: &Path) -> Check {
    match btf_length(path) {
        Ok(length) => Check::ok("btf", format!("{}: {length} bytes", path.display())),
        Err(error) => Check::missing(
            "btf",
            format!("{}: {error}", path.display()),
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y; without it there is no task iterator and no hinting-fault hook",
        ),
    }
}

/// Length in bytes of a file of type information; an error where it does not begin as one does
/// (`struct btf_header`, include/uapi/linux/btf.h).
pub(super) fn btf_length(path: &Path) -> io::Result<u64> {
    const MAGIC: u16 = 0xeb9f;
    // A FIFO must not be opened: a captured tree may have one.
    let metadata = path.metadata()?;
    let mut magic = [0; 2];
    let read = if metadata.is_file() { File::open(path)?.read_exact(&mut magic) } else { Ok(()) };
    if read.is_err() || u16::from_ne_bytes(magic) != MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no BTF"));
    }
    Ok(metadata.len())
}

/// The kernel's lockdown.
fn locked(mode: Option<(HostPath, String)>, confidential: Option<String>) -> Check {
    let name = "lockdown";
    match (confidential, mode) {
        (Some(reason), _) => Check::degraded(
            name,
            reason,
            "hooks that need it are missing below; boot with lockdown=integrity where that is enough",
        ),
        (None, Some((path, mode))) => Check::ok(name, format!("{} is {mode}", path.display())),
        (None, None) => Check::ok(name, "none: /sys/kernel/security/lockdown is not there"),
    }
}

/// A kernel built without `CONFIG_NUMA` has no such directory.
fn numa(path: &Path) -> Check {
    match path.metadata() {
        Ok(_) => Check::ok("numa", format!("{} is there", path.display())),
        Err(error) => Check::degraded(
            "numa",
            format!("{}: {error}", path.display()),
            "nothing to align: the kernel was built without CONFIG_NUMA",
        ),
    }
}

/// Result of `move_pages(2)` without pages: `EPERM` if a seccomp filter refuses it, as the default profiles
/// of container runtimes do whatever the capabilities, and `ENOSYS` without `CONFIG_MIGRATION`.
fn page_moves(probe: io::Result<()>) -> Check {
    match probe {
        Ok(()) => Check::ok("move-pages", "move_pages(2) is allowed"),
        Err(error) => Check::missing(
            "move-pages",
            format!("move_pages(2): {error}"),
            "`run --mode enforce` cannot move pages: allow move_pages in the seccomp profile",
        ),
    }
}

/// `0` off, bit 0 balancing, bit 1 tiering (Documentation/admin-guide/sysctl/kernel.rst).
fn balancing(text: &Result<String, String>) -> Check {
    let name = "numa-balancing";
    match text.as_deref().map(str::trim) {
        Err(error) => Check::missing(
            name,
            error.as_str(),
            "the kernel was built without CONFIG_NUMA_BALANCING: traffic is estimated from run time and residency",
        ),
        Ok("0") => Check::degraded(
            name,
            "/proc/sys/kernel/numa_balancing: 0",
            "sysctl kernel.numa_balancing=1 gives hinting faults, which refine remote traffic; they cost a little",
        ),
        Ok(mode) if mode.parse::<u32>().is_ok() => {
            Check::ok(name, format!("/proc/sys/kernel/numa_balancing: {mode}"))
        }
        Ok(text) => Check::degraded(
            name,
            format!("/proc/sys/kernel/numa_balancing: `{text}` is not a number"),
            "report this kernel",
        ),
    }
}

/// `numa/demotion_enabled`. Only a trial shows whether it keeps to cpusets; the daemon runs it at its start.
fn demotion(on: bool) -> Check {
    let name = "kernel-demotion";
    if on {
        Check::degraded(
            name,
            "/sys/kernel/mm/numa/demotion_enabled is on: reclaim takes pages to slower memory, on Linux 6.12 past cpusets",
            "`run --mode enforce` tries at its start whether it keeps to cpusets, and reports it",
        )
    } else {
        Check::ok(name, "off: reclaim takes nothing to slower memory")
    }
}

/// Whether `memory.demotion.backend = "reclaim"` can be used. A cgroup below the root has the file, the root
/// has none.
fn reclaim(on: bool, cgroups: &HostPath) -> Check {
    let (name, advice) = (
        "demotion-reclaim",
        "only for `memory.demotion.backend = \"reclaim\"`: cold pages go by move_pages(2) instead",
    );
    let names = cgroups.list_dir().ok().flatten().unwrap_or_default();
    let file = names.iter().map(|name| cgroups.join(name).join("memory.reclaim")).find(HostPath::exists);
    match file {
        None => Check::absent(name, "no cgroup has memory.reclaim: Linux 5.19, cgroup v2", advice),
        Some(_) if !on => Check::absent(name, "the kernel's demotion is off", advice),
        Some(file) => Check::ok(name, format!("{}; `run` tries whether it keeps to cpusets", file.display())),
    }
}

/// Whether `memory.demotion.backend = "damos"` can be used. Only a write shows whether the kernel has
/// `migrate_cold`.
fn damos(count: &Path) -> Check {
    let (name, advice) = (
        "demotion-damos",
        "only for `memory.demotion.backend = \"damos\"`: cold pages go by move_pages(2) instead",
    );
    match super::writable(count) {
        Ok(()) => Check::ok(name, format!("{}; `run` tries whether it can migrate", count.display())),
        Err(error) => Check::absent(name, format!("{}: {error}", count.display()), advice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use enforcer_report::checks::Status;

    #[test]
    fn releases_are_compared_as_numbers() {
        for (text, status) in [
            ("6.12.107-cloud-amd64\n", Status::Ok),
            ("5.10.0\n", Status::Ok),
            ("10.0-rc1\n", Status::Ok),
            ("5.9.16\n", Status::Degraded),
            ("4.19.0\n", Status::Degraded),
            ("linux\n", Status::Degraded),
            ("", Status::Degraded),
        ] {
            assert_eq!(release(Ok(text.into())).status, status, "{text}");
        }
        assert_eq!(release(Err("gone".into())).status, Status::Missing);
    }

    #[test]
    fn type_information_without_its_magic_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vmlinux");
        assert_eq!(btf(&path).status, Status::Missing);
        for (bytes, status) in [
            (&[][..], Status::Missing),
            (b"\x9f", Status::Missing),
            (b"garbage", Status::Missing),
            (&0xeb9f_u16.to_ne_bytes(), Status::Ok),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let check = btf(&path);
            assert_eq!(check.status, status, "{bytes:?}");
            assert!(check.detail.contains("vmlinux: "), "{}", check.detail);
        }
        assert_eq!(btf(dir.path()).status, Status::Missing, "a directory");
    }

    #[test]
    fn a_backend_that_cannot_be_used_is_absent_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let cgroups = dir.path();
        let of = |on| reclaim(on, &HostRoot::live().at(cgroups));
        assert_eq!(of(true).status, Status::Absent);
        std::fs::create_dir(cgroups.join("a.slice")).unwrap();
        std::fs::write(cgroups.join("a.slice/memory.reclaim"), "").unwrap();
        assert_eq!(of(true).status, Status::Ok);
        let off = of(false);
        assert_eq!((off.status, off.detail.as_str()), (Status::Absent, "the kernel's demotion is off"));
        let count = cgroups.join("nr_kdamonds");
        assert_eq!(damos(&count).status, Status::Absent);
        std::fs::write(&count, "0").unwrap();
        assert_eq!(damos(&count).status, Status::Ok);
    }

    #[test]
    fn only_a_lockdown_that_keeps_memory_from_bpf_is_degraded() {
        let mode = |mode: &str| Some((HostRoot::live().at("/l"), mode.to_owned()));
        assert_eq!(locked(mode("integrity"), None).status, Status::Ok);
        assert_eq!(locked(None, None).status, Status::Ok);
        let strict = locked(mode("confidentiality"), Some("/l is confidentiality".into()));
        assert_eq!((strict.status, strict.detail.as_str()), (Status::Degraded, "/l is confidentiality"));
    }

    #[test]
    fn balancing_off_is_degraded_and_absent_is_missing() {
        for (text, status) in [
            (Ok("1\n"), Status::Ok),
            (Ok("2\n"), Status::Ok),
            (Ok("0\n"), Status::Degraded),
            (Ok("yes\n"), Status::Degraded),
            (Err("gone"), Status::Missing),
        ] {
            assert_eq!(balancing(&text.map(Into::into).map_err(Into::into)).status, status, "{text:?}");
        }
    }
}
