//! `scheduler-load`: what the product's scheduler costs, one object of JSON for each measurement.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::{path::PathBuf, process::ExitCode, time::Instant};

use anyhow::Result;
use clap::{Parser, Subcommand};
use enforcer_burst::{
    endurance::{self, EnduranceReport, EnduranceRun},
    load,
};
use enforcer_core::cluster::extender::Binder;
use serde_json::{Value, json};

/// What the product's scheduler costs under load
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    part: LoadPart,
}

/// Parts of the measurements.
#[derive(Debug, Subcommand)]
enum LoadPart {
    /// Calls for all nodes; memory; the time until it is ready
    Latency {
        /// The product
        program: PathBuf,
        /// Number of nodes
        #[arg(long, default_value_t = 500)]
        nodes: usize,
        /// Fills each node with pods that have no CPUs of their own, too
        #[arg(long)]
        small_pods: bool,
        /// Number of calls of each kind
        #[arg(long, default_value_t = 300)]
        calls: usize,
    },
    /// Pods per second
    Throughput {
        /// The product
        program: PathBuf,
        /// Number of nodes
        #[arg(long, default_value_t = 500)]
        nodes: usize,
        /// Number of pods
        #[arg(long, default_value_t = 5_000)]
        pods: usize,
        /// Lets the driver bind
        #[arg(long)]
        filter_only: bool,
    },
    /// Very many pods against the decisions alone; fails after a refusal
    Endurance {
        /// Number of pods
        #[arg(long, default_value_t = 1_000_000)]
        pods: u64,
        /// Number of nodes
        #[arg(long, default_value_t = 20)]
        nodes: usize,
        /// Lets the driver bind
        #[arg(long)]
        filter_only: bool,
        /// Seed of all draws
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().part) {
        Ok((report, is_good)) => {
            println!("{report}");
            if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(part: LoadPart) -> Result<(Value, bool)> {
    Ok(match part {
        LoadPart::Latency { program, nodes, small_pods, calls } => {
            (load::latency(&program, nodes, small_pods, calls)?, true)
        }
        LoadPart::Throughput { program, nodes, pods, filter_only } => {
            (load::throughput(&program, nodes, pods, filter_only)?, true)
        }
        LoadPart::Endurance { pods, nodes, filter_only, seed } => {
            let binder = if filter_only { Binder::Scheduler } else { Binder::Extender };
            let began = Instant::now();
            let report = endurance::run(EnduranceRun { pods, nodes, binder, seed })?;
            let EnduranceReport { bound, admitted, refused, filters, .. } = &report;
            let object = json!({
                "nodes": nodes, "filterOnly": filter_only, "seed": seed, "bound": bound,
                "admitted": admitted, "refused": refused, "filters": filters,
                "withoutNode": report.without_node, "bindingsRefused": report.unbound,
                "mispredicted": report.mispredicted, "mostAtATime": report.most_at_a_time,
                "seconds": began.elapsed().as_secs_f64(),
            });
            (object, refused.is_empty())
        }
    })
}
