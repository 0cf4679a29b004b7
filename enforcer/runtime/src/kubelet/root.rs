//! Finds the running kubelet's directory where the configuration does not name it.
//!
//! A kubelet takes its directory from its command line only (`--root-dir`, cmd/kubelet/app/options). So the
//! process with that name is looked for. A directory that does not exist here, as in a pod that mounts it
//! elsewhere, is not used.
//!
//! Problem: each user can start a process of that name, and the daemon would move containers by the files in
//! the directory that it names. Idea: a kubelet mounts volumes, so it is root with `CAP_SYS_ADMIN`, and each
//! such process could do with the host what it wants anyway. That holds in a container too: kind runs a
//! kubelet in one.
//!
//! Invariants: a process counts only with uid 0 in each of its four ids (a set-user-ID program that a user
//! starts by a link of that name has the user's real id), with `CAP_SYS_ADMIN`, and in the daemon's user
//! namespace (a process has all capabilities in one that it made). One whose ids cannot be read does not
//! count.

use std::path::PathBuf;

use enforcer_core::policy::KubeletSettings;

use enforcer_host::HostPath;

/// Name of the process.
const KUBELET: &str = "kubelet";

/// Its option for the directory.
const OPTION: &str = "--root-dir";

/// Place of the socket below it.
const SOCKET: &str = "pod-resources/kubelet.sock";

/// The settings, with the directory and the socket of the kubelet that runs where they are the default ones.
pub(super) fn of_running(settings: &KubeletSettings, proc: &HostPath) -> KubeletSettings {
    let default = KubeletSettings::default();
    if settings.root_dir != default.root_dir {
        return settings.clone();
    }
    let Some(root_dir) = running(proc).filter(|dir| *dir != default.root_dir && dir.is_dir()) else {
        return settings.clone();
    };
    let is_default = settings.podresources == default.podresources;
    let podresources = if is_default { root_dir.join(SOCKET) } else { settings.podresources.clone() };
    KubeletSettings { root_dir, podresources, ..settings.clone() }
}

/// The directory that the command line of the kubelet names.
pub(super) fn running(proc: &HostPath) -> Option<PathBuf> {
    processes(proc).find_map(|process| named(&process.join("cmdline").read_text().ok()?))
}

/// Whether a kubelet runs, as far as this process can see.
pub(super) fn runs(proc: &HostPath) -> bool {
    processes(proc).next().is_some()
}

/// `CAP_SYS_ADMIN` (include/uapi/linux/capability.h).
const SYS_ADMIN: u64 = 1 << 21;

/// Directories of processes that are a kubelet.
pub(super) fn processes(proc: &HostPath) -> impl Iterator<Item = HostPath> {
    let names = proc.read_dir().unwrap_or_default().into_iter().map(|(name, _)| name);
    let pids = names.filter(|name| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
    pids.map(|pid| proc.join(pid))
        .filter(|process| process.join("comm").read_text().is_ok_and(|comm| comm.trim() == KUBELET))
        .filter(|process| is_privileged(process) && has_user_namespace_of(process, &proc.join("self")))
}

/// Is it root in each of its ids, as this process sees them, and may it mount?
fn is_privileged(process: &HostPath) -> bool {
    let Ok(status) = process.join("status").read_text() else { return false };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let is_root = |ids: &str| ids.split_ascii_whitespace().eq(["0"; 4]);
    let may_mount = |caps: &str| u64::from_str_radix(caps.trim(), 16).is_ok_and(|caps| caps & SYS_ADMIN != 0);
    field("Uid").is_some_and(is_root) && field("CapEff").is_some_and(may_mount)
}

/// Are both in one user namespace? Where the kernel does not say by the links, which takes
/// `CAP_SYS_PTRACE`, the maps of ids are compared.
fn has_user_namespace_of(process: &HostPath, ours: &HostPath) -> bool {
    let namespaces = [process, ours].map(|one| one.join("ns/user").read_link());
    if let [Some(theirs), Some(ours)] = namespaces {
        return theirs == ours;
    }
    let maps = [process, ours].map(|one| one.join("uid_map").read_text().ok());
    !matches!(maps, [Some(theirs), Some(ours)] if theirs != ours)
}

/// The directory on a command line with zero-terminated words; the last option counts.
pub(super) fn named(command_line: &str) -> Option<PathBuf> {
    let words: Vec<&str> = command_line.split('\0').collect();
    let next = words.iter().skip(1).chain([&""]);
    let found = words.iter().zip(next).filter_map(|(word, next)| {
        let value = word.strip_prefix(OPTION)?;
        if value.is_empty() { Some(*next) } else { value.strip_prefix('=') }
    });
    found.last().map(PathBuf::from).filter(|dir| dir.is_absolute())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use enforcer_host::HostRoot;

    #[test]
    fn the_directory_is_read_off_the_command_line() {
        for (words, expected) in [
            (&["kubelet"][..], None),
            (&["kubelet", "--root-dir=/data/kubelet"], Some("/data/kubelet")),
            (&["kubelet", "--v=2", "--root-dir", "/data/kubelet", "--x"], Some("/data/kubelet")),
            (&["kubelet", "--root-dir=/a", "--root-dir=/b"], Some("/b")),
            (&["kubelet", "--root-dir"], None),
            (&["kubelet", "--root-dir=relative"], None),
            (&["kubelet", "--root-directory=/a"], None),
        ] {
            let line = words.join("\0") + "\0";
            assert_eq!(named(&line), expected.map(PathBuf::from), "{words:?}");
        }
    }

    /// Files of `/proc` with one process, which is a kubelet, and the directory that it names.
    struct ProcOfKubelet {
        root: tempfile::TempDir,
        dir: PathBuf,
    }

    const ROOT: &str = "Name:\tkubelet\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n";

    impl ProcOfKubelet {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let dir = root.path().join("data");
            for made in ["77/ns", "self/ns", "data"] {
                fs::create_dir_all(root.path().join(made)).unwrap();
            }
            let found = Self { root, dir };
            found.write("comm", "kubelet\n");
            found.write("cmdline", &format!("/usr/bin/kubelet\0--root-dir={}\0", found.dir.display()));
            found.write("status", ROOT);
            found
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.root.path().join("77").join(name), text).unwrap();
        }

        fn of_running(&self, settings: &KubeletSettings) -> KubeletSettings {
            of_running(settings, &HostRoot::live().at(self.root.path()))
        }

        fn is_used(&self) -> bool {
            let default = KubeletSettings::default();
            let proc = HostRoot::live().at(self.root.path());
            let is_used = self.of_running(&default).root_dir == self.dir;
            assert_eq!(is_used, self.of_running(&default) != default);
            assert_eq!((running(&proc).is_some(), runs(&proc)), (is_used, is_used));
            is_used
        }
    }

    #[test]
    fn a_configuration_wins_and_a_directory_that_is_not_there_is_not_taken() {
        let kubelet = ProcOfKubelet::new();
        let (default, dir) = (KubeletSettings::default(), &kubelet.dir);
        let found = kubelet.of_running(&default);
        assert_eq!((&found.root_dir, &found.podresources), (dir, &dir.join(SOCKET)));
        let configured = KubeletSettings { root_dir: "/elsewhere".into(), ..default.clone() };
        assert_eq!(kubelet.of_running(&configured), configured);
        fs::remove_dir(dir).unwrap();
        assert_eq!(kubelet.of_running(&default), default);
        fs::create_dir(dir).unwrap();
        kubelet.write("comm", "kubectl\n");
        assert!(!kubelet.is_used());
    }

    #[test]
    fn a_process_of_another_user_or_of_an_ordinary_container_is_no_kubelet() {
        let kubelet = ProcOfKubelet::new();
        for (what, status, is_used) in [
            ("root", ROOT.to_owned(), true),
            (
                "root of a kind node: a process of another pid namespace",
                format!("{ROOT}NSpid:\t77\t9\n"),
                true,
            ),
            ("a user", ROOT.replace("0\t0\t0\t0", "1000\t1000\t1000\t1000"), false),
            ("a set-user-ID program of a user", ROOT.replace("0\t0\t0\t0", "1000\t0\t0\t0"), false),
            ("root with a file system id of a user", ROOT.replace("0\t0\t0\t0", "0\t0\t0\t1000"), false),
            ("root of an ordinary container", ROOT.replace("000001ffffffffff", "00000000a80425fb"), false),
            ("without capabilities", ROOT.replace("CapEff", "CapPrm"), false),
            ("nothing", String::new(), false),
        ] {
            kubelet.write("status", &status);
            assert_eq!(kubelet.is_used(), is_used, "{what}");
        }
        fs::remove_file(kubelet.root.path().join("77/status")).unwrap();
        assert!(!kubelet.is_used(), "its ids cannot be read");
    }

    #[test]
    fn a_process_of_another_user_namespace_is_no_kubelet() {
        let kubelet = ProcOfKubelet::new();
        let link = |process: &str, to: &str| {
            let link = kubelet.root.path().join(process).join("ns/user");
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(to, link).unwrap();
        };
        let map = |process: &str, text: &str| {
            fs::write(kubelet.root.path().join(process).join("uid_map"), text).unwrap();
        };
        map("self", "0 0 4294967295\n");
        map("77", "0 0 4294967295\n");
        assert!(kubelet.is_used());
        map("77", "0 0 1\n");
        assert!(!kubelet.is_used(), "the map of another namespace");
        link("self", "user:[1]");
        link("77", "user:[1]");
        assert!(kubelet.is_used(), "the links say more than the maps");
        link("77", "user:[2]");
        map("77", "0 0 4294967295\n");
        assert!(!kubelet.is_used());
    }
}
