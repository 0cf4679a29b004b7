//! Arguments of `plan`.

use std::{path::PathBuf, time::Duration};

use enforcer_core::topology::synth::Machine;

use super::{TableOrJson, span};

const HELP: &str = "\
Files (docs/plan.md has all of it):
  PODS.yaml  manifests of Pods, Deployments, Jobs and so on; `-` is standard input. Or shorter:
               workloads: [{ name: db, cpus: 4, memory: 8GiB, policy: single-numa-node }]
  --devices  - { resource: vendor.com/gpu, id: gpu0, numa_nodes: 0 }
  --steps    - create: web.yaml  - resize: { kind: Pod, ... }  - delete: default/web-0

MACHINE is words in any order; what is left out is 1, memory is 16GiB of each node:
  sockets:N dies:N nodes:N l3:N cores:N threads:N memory:SIZE pmem:SIZE cxl:SIZE hbm:SIZE
  hugepages-2Mi:N isolated:CPUS e-cores:CPUS fast:CPUS

Exit codes: 0 all admitted (--rebalance: the host was seen), 1 some rejected, 2 failed, 64 usage

Examples:
  numa-enforcer plan web.yaml --synthetic 'sockets:2 cores:8 threads:2 memory:64GiB'
  kubectl get pods -o yaml | numa-enforcer plan - --root ./captured-host
  numa-enforcer plan --rebalance --sample 30s --config /etc/numa-enforcer.toml
  numa-enforcer plan --steps day.yaml -o json | jq '.steps[] | select(.admitted | not) | .reason'";

/// Arguments of `plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
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
