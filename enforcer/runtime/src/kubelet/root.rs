//! Finds the running kubelet's directory where the configuration does not name it.
//!
//! A kubelet takes its directory from its command line only (`--root-dir`, cmd/kubelet/app/options). So the
//! process with that name is looked for. A directory that does not exist here, as in a pod that mounts it
//! elsewhere, is not used.

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

/// Directories of processes with that name.
fn processes(proc: &HostPath) -> impl Iterator<Item = HostPath> {
    let names = proc.read_dir().unwrap_or_default().into_iter().map(|(name, _)| name);
    let pids = names.filter(|name| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
    pids.map(|pid| proc.join(pid))
        .filter(|process| process.join("comm").read_text().is_ok_and(|comm| comm.trim() == KUBELET))
}

/// The directory on a command line with zero-terminated words; the last option counts.
fn named(command_line: &str) -> Option<PathBuf> {
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

    #[test]
    fn a_configuration_wins_and_a_directory_that_is_not_there_is_not_taken() {
        let root = tempfile::tempdir().unwrap();
        let (proc, dir) = (HostRoot::live().at(root.path()), root.path().join("data"));
        let write = |name: &str, text: &str| fs::write(root.path().join("77").join(name), text).unwrap();
        fs::create_dir(root.path().join("77")).unwrap();
        write("comm", "kubelet\n");
        write("cmdline", &format!("/usr/bin/kubelet\0--root-dir={}\0", dir.display()));
        let default = KubeletSettings::default();
        assert_eq!(of_running(&default, &proc), default);
        fs::create_dir(&dir).unwrap();
        let found = of_running(&default, &proc);
        assert_eq!((&found.root_dir, &found.podresources), (&dir, &dir.join(SOCKET)));
        let configured = KubeletSettings { root_dir: "/elsewhere".into(), ..default.clone() };
        assert_eq!(of_running(&configured, &proc), configured);
        write("comm", "kubectl\n");
        assert_eq!(of_running(&default, &proc), default);
    }
}
