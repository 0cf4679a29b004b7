//! `--root DIR`: the machine that a command reads.

use std::{fs, path::Path};

use anyhow::{Context, ensure};

use enforcer_host::HostRoot;

/// The running host, or the captured machine below `root`, which must look like one.
///
/// A root that is not there is a runtime error (2) and not a usage error (64): the request is well
/// formed, and the same request may succeed a moment later.
pub(super) fn resolve(root: Option<&Path>) -> anyhow::Result<HostRoot> {
    let Some(root) = root else { return Ok(HostRoot::live()) };
    let what = || format!("--root {}", root.display());
    let metadata = fs::metadata(root).with_context(what)?;
    ensure!(metadata.is_dir(), "{}: not a directory", what());
    let host = HostRoot::captured(root);
    let expected = host.sys.join("devices/system");
    fs::metadata(expected.as_path())
        .with_context(|| format!("{}: not a captured machine: {}", what(), expected.display()))?;
    Ok(host)
}
