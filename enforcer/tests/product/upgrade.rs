//! Configurations of another version: what an earlier one accepted and this one refuses, and keys that this
//! one does not know yet. Each row of docs/upgrading.md about a refusal is a case.

use std::{fs, path::Path};

use crate::common::{Ended, run};

/// `run --check` on a configuration with these bytes.
fn checked(folder: &Path, config: &[u8]) -> Ended {
    let path = folder.join("config.toml");
    fs::write(&path, config).unwrap();
    run(&["run", "--check", "--config", path.to_str().unwrap()])
}

/// A configuration, and where in it and how it is refused.
const REFUSED: &[(&str, &str)] = &[
    (
        "interval_seconds = 10\n",
        ":1:1: unknown field `interval_seconds`, expected one of `mode`, `interval`,",
    ),
    (
        "[placement]\nengine = 'pools'\n[placement.hints]\nprofile = 'kubelet'\n",
        ":4:11: placement.hints.profile = \"kubelet\": it cannot be used with placement.engine, which is \"pools\"",
    ),
    (
        "[metrics]\nlisten = '127.0.0.1:9477'\nprobes = '127.0.0.1:9477'\n",
        ":3:10: metrics.probes = \"127.0.0.1:9477\": it cannot be used with metrics.listen",
    ),
    ("[placement.available]\ncpus = '4'\n", ":2:8: `4` is an amount, where CPUs are to be named"),
    ("[placement.available]\ncpus = ''\n", ":2:8: `` is neither CPUs"),
    (
        "[placement.reserved]\ncpus = '0'\n",
        ":2:8: placement.reserved.cpus = \"0\": a bare number is an amount",
    ),
    ("[[workload]]\nname = 'a'\ncgroup = '/'\n", ":3:10: `/` is not a glob over cgroup paths"),
    ("[[workload]]\nname = 'a'\ncgroup = '/a/'\n", ":3:10: `/a/` is not a glob over cgroup paths"),
    ("[[workload]]\nname = 'a'\ncgroup = '/a/../b'\n", ":3:10: `/a/../b` is not a glob over cgroup paths"),
    ("[[workload]]\nname = 'a'\ncgroup = '/a//b'\n", ":3:10: `/a//b` is not a glob over cgroup paths"),
    ("placement = []\n", ":1:13: a table is expected, as in `[placement]`"),
    ("nri = 1979-05-27\n", ":1:7: a table is expected, as in `[nri]`"),
    ("interval = { seconds = 10 }\n", ":1:12: a table, expected a length of time in quotes"),
    ("state_dir = '/'\n", ":1:13: state_dir = \"/\": a directory of its own is expected"),
    ("state_dir = \"/a\\u0000b\"\n", ":1:13: state_dir = \"/a\\0b\": "),
];

#[test]
fn settings_that_an_earlier_version_accepted_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    for (config, said) in REFUSED {
        let ended = checked(folder.path(), config.as_bytes());
        assert_eq!(ended.code, Some(64), "{config}: {}", ended.stderr);
        assert!(ended.stderr.contains(&format!("config.toml{said}")), "{config}: {}", ended.stderr);
    }
    let ended = checked(folder.path(), b"# \xff\n");
    assert!(ended.code == Some(64) && ended.stderr.contains("config.toml: not UTF-8"), "{}", ended.stderr);
    let ended = run(&["run", "--check", "--state-dir", "relative"]);
    assert!(
        ended.code == Some(64) && ended.stderr.contains("an absolute path is expected"),
        "{}",
        ended.stderr
    );
}

/// A key of a newer version may hold writes back: a daemon that passed over it would write.
#[test]
fn keys_of_a_newer_version_are_refused_at_every_depth() {
    let folder = tempfile::tempdir().unwrap();
    for (config, place) in [
        ("newer = true\n", "1:1"),
        ("[metrics]\nnewer = true\n", "2:1"),
        ("[placement.hints]\nnewer = true\n", "2:1"),
        ("[memory.widening]\nnewer = true\n", "2:1"),
        ("[[workload]]\nname = 'a'\ncgroup = '/a'\nnewer = true\n", "4:1"),
    ] {
        let ended = checked(folder.path(), config.as_bytes());
        let said = format!("config.toml:{place}: unknown field `newer`");
        assert_eq!(ended.code, Some(64), "{config}: {}", ended.stderr);
        assert!(ended.stderr.contains(&said), "{config}: {}", ended.stderr);
    }
}
