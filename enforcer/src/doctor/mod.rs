//! Checks what works on this host: every requirement of another command is tried or read, and a missing one
//! comes with advice.
//!
//! The probes are functions from texts to [`Check`](enforcer_report::checks::Check)s, so that they can be
//! tested. They work without root and never change the host: write access is asked of `access(2)`, and eBPF
//! programs are detached at once.

mod bpf;
mod cgroups;
mod confinement;
mod dra;
mod hardware;
mod interrupts;
mod kernel;
mod kubelet;
#[cfg(feature = "bpf")]
mod needs;
mod privileges;
mod state;
mod traffic;

use std::{io, path::Path};

use enforcer_core::{interrupts::InterruptMode, parse::scalar, policy::Policy, sample::HostSettings};

use enforcer_host::HostRoot;
use enforcer_report::{
    checks::{DIAGNOSIS_SCHEMA_VERSION, Diagnosis},
    status::StatusReport,
};

/// Runs all checks. `ask` asks the running daemon, where a check needs it, and says why it has no answer.
pub fn examine(
    host: &HostRoot,
    policy: &Policy,
    state_dir: &Path,
    ask: impl FnOnce() -> Result<StatusReport, String>,
) -> Diagnosis {
    let version = read(host, "sys/kernel/osrelease").ok().and_then(|text| scalar::release(&text));
    let mut checks = privileges::checks(read(host, "self/status"), version);
    checks.extend(confinement::checks(host));
    checks.extend(kernel::checks(host));
    let hooks = bpf::checks(host);
    let balancing = read(host, "sys/kernel/numa_balancing").ok().and_then(|text| text.trim().parse().ok());
    let settings = HostSettings { numa_balancing: balancing, ..HostSettings::default() };
    let traffic = traffic::checks(&hooks, &settings);
    checks.extend(hooks.into_iter().chain(traffic));
    checks.extend(cgroups::checks(host));
    checks.extend(hardware::checks(host));
    checks.extend(kubelet::checks(&policy.kubelet));
    if policy.dra.enabled {
        checks.extend(dra::checks(host, policy, &ask()));
    }
    if policy.interrupts.mode == InterruptMode::Enforce {
        checks.push(interrupts::check(host));
    }
    checks.push(state::check(state_dir));
    Diagnosis { schema_version: DIAGNOSIS_SCHEMA_VERSION, checks }
}

/// A file below `/proc`, or its error.
fn read(host: &HostRoot, path: &str) -> Result<String, String> {
    host.proc.join(path).read_text().map_err(|error| error.to_string())
}

/// Whether this process may write there, without writing.
fn writable(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?)
}
