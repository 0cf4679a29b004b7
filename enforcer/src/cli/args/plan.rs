//! Arguments of `plan`.

use std::{path::PathBuf, time::Duration};

use enforcer_core::topology::synth::Machine;

use super::{TableOrJson, span};

const HELP: &str = "\
Files:
  PODS.yaml    manifests: Pod, ReplicationController, Deployment, ReplicaSet, StatefulSet,
               DaemonSet, Job, CronJob and lists of them, in any number of documents; other
               kinds are named and ignored. Or a short form of our own:
                 workloads:
                   - { name: db, cpus: 4, memory: 8GiB, policy: single-numa-node }
               Pods of a Deployment are called web-0, web-1 and so on. `-` is standard input.
  --devices    - { resource: vendor.com/gpu, id: gpu0, numa_nodes: 0 }
               - { resource: vendor.com/nic, id: nic, numa_nodes: \"0-1\", count: 4 }
  --steps      - create: web.yaml            # a file, or a manifest in place
               - resize: { kind: Pod, ... }  # the same pod with other amounts
               - delete: default/web-0

--synthetic takes words in any order; what is left out is 1, memory is 16GiB:
  sockets:N dies:N (of a socket) nodes:N (of a die) l3:N cores:N (of a node) threads:N (of a core)
  memory:SIZE (of a node) pmem:SIZE cxl:SIZE hbm:SIZE (of a memory-only node beside each)
  hugepages-2Mi:N (of a node) isolated:CPUS e-cores:CPUS fast:CPUS (higher base frequency)

Exit codes:
  0   every pod was admitted, every step done; with --rebalance whenever the host could be seen
  1   some were rejected
  2   failed: a file or root that is not there, a machine that cannot be made out
  64  wrong usage: an unknown flag, a file that is not valid, no pod in any file

Examples:
  numa-enforcer plan web.yaml
  kubectl get pods -o yaml | numa-enforcer plan - --root ./captured-host
  numa-enforcer plan web.yaml --config policy.toml --devices devices.yaml --explain
  numa-enforcer plan web.yaml --synthetic 'sockets:2 nodes:2 cores:8 threads:2 memory:64GiB pmem:256GiB'
  numa-enforcer plan --rebalance --sample 30s --config /etc/numa-enforcer.toml
  numa-enforcer plan --steps day.yaml -o json | jq '.steps[] | select(.admitted | not) | .reason'";

/// Arguments of `plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer plan web.yaml
  numa-enforcer plan web.yaml --synthetic 'sockets:2 cores:8 threads:2 memory:64GiB'
  numa-enforcer plan --steps day.yaml -o json

Exit codes: 0 all admitted, 1 some rejected, 2 failed, 64 usage.",
after_long_help = HELP)]
pub struct Plan {
    /// Manifests or workload files, `-` for standard input; every pod is created, in their order.
    #[arg(value_name = "PODS.yaml", required_unless_present_any = ["steps", "rebalance"])]
    pub pods: Vec<PathBuf>,
    /// Then play these steps: create, resize, delete.
    #[arg(long, value_name = "FILE")]
    pub steps: Option<PathBuf>,
    /// Show which workloads that run on this host should be moved, with bytes, time and gain. Moves nobody.
    #[arg(
        long,
        conflicts_with_all = ["pods", "steps", "explain", "devices", "machine"],
    )]
    pub rebalance: bool,
    /// With `--rebalance`: watch for this long (500ms, 10s, 2m).
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "10s")]
    pub sample: Duration,
    /// How to show it.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: TableOrJson,
    /// Say of every place that was considered what spoke for or against it.
    #[arg(long)]
    pub explain: bool,
    /// Configuration file (TOML), as for `run`: its `[placement]` counts, and with `--rebalance` its workloads and
    /// `[rebalance]` [default: built in]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Devices and the NUMA nodes they are near.
    #[arg(long, value_name = "FILE")]
    pub devices: Option<PathBuf>,
    /// Place on a captured machine (see `capture`) instead of this host.
    #[arg(long, value_name = "DIR", group = "machine")]
    pub root: Option<PathBuf>,
    /// Place on the machine of a saved `topology -o json`.
    #[arg(long, value_name = "FILE", group = "machine")]
    pub topology: Option<PathBuf>,
    /// Place on a machine that is described in one line.
    #[arg(long, value_name = "MACHINE", group = "machine")]
    pub synthetic: Option<Machine>,
}
