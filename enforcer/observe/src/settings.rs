//! Host-wide settings that change the meaning of other figures. A missing file is `None`: the kernel lacks
//! the feature.

use enforcer_core::{parse::scalar, sample::HostSettings};
use numa_topology::degraded::DegradedTally;

use enforcer_host::{HostPath, HostRoot};

/// Reads the settings.
pub(super) fn read_settings(host: &HostRoot, degraded: &mut DegradedTally) -> HostSettings {
    let mut text = |path: &HostPath| match path.read_optional() {
        Ok(text) => text,
        Err(error) => {
            degraded.add("setting", path.display(), error, "a host-wide setting is unknown");
            None
        }
    };
    let number = |text: Option<String>| u32::try_from(scalar::unsigned(&text?).ok()?).ok();
    HostSettings {
        numa_balancing: number(text(&host.proc.join("sys/kernel/numa_balancing"))),
        transparent_hugepage: text(&host.sys.join("kernel/mm/transparent_hugepage/enabled"))
            .as_deref()
            .and_then(scalar::chosen),
        zone_reclaim_mode: number(text(&host.proc.join("sys/vm/zone_reclaim_mode"))),
        demotion_enabled: text(&host.sys.join("kernel/mm/numa/demotion_enabled")).as_deref().and_then(truth),
        cpuset_moves_pages: text(&host.proc.join("sys/kernel/osrelease"))
            .as_deref()
            .and_then(scalar::release)
            .map(|release| release >= MIGRATES),
    }
}

/// The first release in which cgroup v2 sets `CS_MEMORY_MIGRATE` (`cpuset_css_alloc` of
/// kernel/cgroup/cpuset.c).
const MIGRATES: (u32, u32) = (5, 15);

fn truth(word: &str) -> Option<bool> {
    match word.trim() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn reads_the_files_of_a_tree() {
        let dir = tempfile::TempDir::new().unwrap();
        for (path, text) in [
            ("proc/sys/kernel/numa_balancing", "3\n"),
            ("proc/sys/vm/zone_reclaim_mode", "nonsense\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/kernel/mm/numa/demotion_enabled", "false\n"),
            ("proc/sys/kernel/osrelease", "5.10.0-30-amd64\n"),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut degraded = DegradedTally::default();
        let expected = HostSettings {
            numa_balancing: Some(3),
            transparent_hugepage: Some("madvise".into()),
            zone_reclaim_mode: None,
            demotion_enabled: Some(false),
            cpuset_moves_pages: Some(false),
        };
        assert_eq!(read_settings(&HostRoot::captured(dir.path()), &mut degraded), expected);
        assert!(degraded.into_entries().is_empty());
    }

    #[test]
    fn cpusets_of_v2_move_pages_since_5_15() {
        for (text, moves) in [
            ("5.14.21", Some(false)),
            ("5.15.0-rc1+\n", Some(true)),
            ("6.1", Some(true)),
            ("10.0.1", Some(true)),
            ("4", None),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(scalar::release(text).map(|release| release >= MIGRATES), moves, "{text}");
        }
    }

    #[test]
    fn a_host_without_them_has_none() {
        let mut degraded = DegradedTally::default();
        let nowhere = HostRoot::captured(std::path::Path::new("/nonexistent"));
        assert_eq!(read_settings(&nowhere, &mut degraded), HostSettings::default());
        assert!(degraded.into_entries().is_empty());
    }
}
