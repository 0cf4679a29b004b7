//! `scheduler-burst`: a burst of pods by each arm, as a table and as JSON.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Parser;
use enforcer_burst::{
    Arm,
    burst::{self, Scenario},
    report::{ArmReport, table},
};
use serde_json::json;

/// A burst of pods on simulated nodes, and what their kubelets refuse
#[derive(Debug, Parser)]
struct Arguments {
    /// The product; without it only the arms that do not ask it
    #[arg(long)]
    product: Option<PathBuf>,
    /// Number of nodes
    #[arg(long, default_value_t = 20)]
    nodes: usize,
    /// Part of the CPUs that the pods take, in percent of what an exact packer reaches
    #[arg(long, default_value_t = 90)]
    percent: u64,
    /// Topology policy of the kubelets
    #[arg(long, default_value = "single-numa-node")]
    policy: String,
    /// Seed of all draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these arms
    #[arg(long)]
    arm: Vec<Arm>,
    /// Writes the reports to a file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Fails unless the product's arms have no refusal and run more pods than kube-scheduler alone, whose
    /// kubelets refuse some
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            for fault in faults {
                eprintln!("FAILED {fault}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<Vec<String>> {
    let Arguments { product, nodes, percent, policy, seed, arm, json: file, check } = arguments;
    let scenario = Scenario {
        nodes: *nodes,
        percent: *percent,
        policy: policy.clone(),
        seed: *seed,
        product: product.clone(),
    };
    let mut reports = Vec::new();
    for one in Arm::ALL {
        let is_wanted =
            if arm.is_empty() { product.is_some() || !one.asks_product() } else { arm.contains(&one) };
        if is_wanted {
            reports.push(burst::run(one, &scenario).with_context(|| format!("arm {}", one.as_str()))?);
        }
    }
    print!("{}", table(&scenario, &reports));
    if let Some(path) = file {
        let all: Vec<_> = reports.iter().map(ArmReport::to_json).collect();
        let object = json!({
            "nodes": nodes, "percent": percent, "policy": policy, "seed": seed, "arms": all,
        });
        fs::write(path, format!("{object:#}\n")).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(if *check { faults(&reports) } else { Vec::new() })
}

/// What is not as it has to be.
fn faults(reports: &[ArmReport]) -> Vec<String> {
    let Some(control) = reports.iter().find(|report| report.arm == Arm::Default) else {
        return vec!["the control did not run".to_owned()];
    };
    let mut faults = Vec::new();
    if control.refusals() == 0 {
        faults.push("kubelets refused no pod of kube-scheduler alone: nothing is shown".to_owned());
    }
    let ours: Vec<&ArmReport> = reports.iter().filter(|report| report.arm.asks_product()).collect();
    if ours.is_empty() {
        faults.push("no arm asked the product".to_owned());
    }
    for report in ours {
        let name = report.arm.as_str();
        if report.refusals() > 0 {
            faults.push(format!("{name}: kubelets refused pods: {:?}", report.refused));
        }
        if report.filter_us.len() < report.running {
            faults.push(format!(
                "{name}: {} pods run after {} calls",
                report.running,
                report.filter_us.len()
            ));
        }
        // A scheduler that places nothing is refused nothing. Kubelets that refuse pods until one fits may
        // be lucky.
        if report.running * 20 < control.running * 19 || report.bound != report.running {
            faults.push(format!(
                "{name}: {} pods run of {} that were bound; {} of kube-scheduler alone",
                report.running, report.bound, control.running
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(arm: Arm, running: usize, refused: u64) -> ArmReport {
        let mut report = ArmReport::new(arm, 4);
        (report.running, report.bound) = (running, running);
        report.filter_us = vec![1; 4];
        if refused > 0 {
            report.refused.insert("TopologyAffinityError".into(), refused);
        }
        report
    }

    #[test]
    fn check_wants_refusals_of_the_control_and_none_of_the_product() {
        let control = report(Arm::Default, 3, 9);
        assert_eq!(faults(&[control.clone(), report(Arm::Binder, 4, 0)]), Vec::<String>::new());
        for wrong in [
            vec![],
            vec![control.clone()],
            vec![report(Arm::Default, 3, 0), report(Arm::Binder, 4, 0)],
            vec![control.clone(), report(Arm::Binder, 4, 1)],
            vec![control.clone(), report(Arm::FilterOnly, 2, 0)],
            vec![control, ArmReport::new(Arm::Binder, 0)],
        ] {
            assert_eq!(faults(&wrong).len(), 1, "{wrong:?}");
        }
    }
}
