//! How far the kernel is locked down: what even root may not do.
//!
//! `integrity` forbids nothing that is done here; under `confidentiality` BPF may not read the kernel's
//! memory (`LOCKDOWN_BPF_READ_KERNEL` in `include/linux/security.h`). Where the file is not there, the kernel
//! knows no lockdown or securityfs is not mounted.

use enforcer_core::parse::scalar;

use super::{HostPath, HostRoot};

/// The mode in which BPF may not read the kernel's memory.
const CONFIDENTIAL: &str = "confidentiality";

/// Mode of the lockdown, and the file that says so.
pub fn lockdown(host: &HostRoot) -> Option<(HostPath, String)> {
    let path = host.sys.join("kernel/security/lockdown");
    let mode = path.read_text().ok().and_then(|text| scalar::chosen(&text))?;
    Some((path, mode))
}

/// Why BPF may not read the kernel's memory, where it may not.
pub fn confidential(host: &HostRoot) -> Option<String> {
    let (path, mode) = lockdown(host)?;
    let reason = || format!("{} is {mode}: BPF may not read the kernel's memory", path.display());
    (mode == CONFIDENTIAL).then(reason)
}

/// Why something was refused, and that this may be the cause.
pub fn explained(host: &HostRoot, refusal: String) -> String {
    match confidential(host) {
        Some(reason) if refusal != reason => format!("{refusal}; {reason}"),
        _ => refusal,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_the_strictest_mode_keeps_memory_from_bpf() {
        for (text, mode, confidential_too) in [
            (Some("[none] integrity confidentiality\n"), Some("none"), false),
            (Some("none [integrity] confidentiality\n"), Some("integrity"), false),
            (Some("none integrity [confidentiality]\n"), Some("confidentiality"), true),
            (Some("nonsense\n"), None, false),
            (None, None, false),
        ] {
            let dir = tempfile::TempDir::new().unwrap();
            let folder = dir.path().join("sys/kernel/security");
            fs::create_dir_all(&folder).unwrap();
            if let Some(text) = text {
                fs::write(folder.join("lockdown"), text).unwrap();
            }
            let host = HostRoot::captured(dir.path());
            assert_eq!(lockdown(&host).map(|(_, mode)| mode).as_deref(), mode, "{text:?}");
            let reason = confidential(&host);
            assert_eq!(reason.is_some(), confidential_too, "{text:?}");
            let said = explained(&host, "EINVAL".into());
            let Some(reason) = reason else {
                assert_eq!(said, "EINVAL");
                continue;
            };
            assert_eq!(said, format!("EINVAL; {reason}"));
            assert_eq!(explained(&host, reason.clone()), reason, "once is enough");
        }
    }
}
