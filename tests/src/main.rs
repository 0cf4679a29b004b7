//! The program inside the guest.
#![expect(clippy::print_stdout, reason = "its lines on standard output are its result")]

use std::{os::unix::process::CommandExt, process::Command, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use enforcer_tests::{
    check::Checks, hog, layers, measure, process, product, refuser, scenarios, server, touch,
};

#[derive(Parser)]
#[command(name = "scenario", about = "Runs scenarios of numa-enforcer inside a virtual machine")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the scenarios
    List {
        /// With topology, kernel arguments and time limit
        #[arg(long)]
        json: bool,
    },
    /// Run one scenario here and now, as root
    Run {
        /// Its name
        name: String,
        /// Print what its daemons have recorded, and its latest audit, as lines of `recording: HEX` and
        /// `audited: HEX`
        #[arg(long)]
        record: bool,
        /// Runs of each case, where it repeats them
        #[arg(long)]
        runs: Option<usize>,
    },
    /// Measure a program that succeeds, or ends with 1: runs it several times, prints the cost as JSON
    Measure {
        /// Runs that count
        #[arg(long, default_value_t = 15)]
        runs: usize,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// What it costs to read a file, in microseconds of a CPU: on a machine and in a guest, to compare these
    #[command(hide = true)]
    Readings,
    /// A process that holds and touches memory
    #[command(hide = true)]
    Hog(hog::Hog),
    /// A process that touches memory on nodes and from CPUs of choice, and counts it
    #[command(hide = true)]
    Touch(touch::Touch),
    /// A process that writes its memory once and reads a part of it
    #[command(hide = true)]
    Layers(layers::Layers),
    /// A process that fills memory for long, and says meanwhile that it is ready
    #[command(hide = true)]
    Serve(server::Server),
    /// Run a program without some capabilities
    #[command(hide = true)]
    Without {
        /// Their names without `CAP_`
        #[arg(value_delimiter = ',')]
        capabilities: Vec<String>,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Run a program with its BPF trampolines refused
    #[command(hide = true)]
    WithoutTrampolines {
        /// The program and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().verb {
        Verb::List { json: false } => {
            for scenario in scenarios::ALL {
                println!("{}", scenario.name);
            }
        }
        Verb::List { json: true } => println!("{}", serde_json::to_string_pretty(scenarios::ALL)?),
        Verb::Run { name, record, runs } => return run(&name, record, runs),
        Verb::Measure { runs, command } => {
            let (program, arguments) = command.split_first().context("no program")?;
            let cost = measure::cost(Command::new(program).args(arguments), runs, &[0, 1])?;
            println!("{}", serde_json::to_string(&cost)?);
        }
        Verb::Readings => println!("{:.2}", scenarios::reading_seconds()? * 1e6),
        Verb::Hog(hog) => hog.run()?,
        Verb::Touch(touch) => touch.run()?,
        Verb::Layers(layers) => layers.run()?,
        Verb::Serve(server) => server.run()?,
        Verb::Without { capabilities, command } => {
            process::drop_capabilities(&capabilities)?;
            let (program, arguments) = command.split_first().context("no program")?;
            return Err(Command::new(program).args(arguments).exec()).context("run the program");
        }
        Verb::WithoutTrampolines { command } => {
            let (program, arguments) = command.split_first().context("no program")?;
            let status = refuser::run(program, arguments)?;
            return Ok(u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Bytes of what is brought out in one line.
const LINE: usize = 512;

fn run(name: &str, record: bool, runs: Option<usize>) -> Result<ExitCode> {
    let scenario = scenarios::named(name).with_context(|| format!("no scenario {name}"))?;
    if record {
        product::record();
    }
    let mut checks = Checks::of(runs);
    if let Err(error) = (scenario.run)(&mut checks) {
        checks.broken(&error);
    }
    if record {
        bring_out("recording", &product::recording()?);
        bring_out("audited", &product::audited()?);
    }
    checks.equal("panics of the product", Vec::<String>::new(), product::panics());
    println!("verdict: {}", checks.verdict());
    Ok(if checks.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints bytes for the host, which reads no disk of the guest.
fn bring_out(what: &str, bytes: &[u8]) {
    for bytes in bytes.chunks(LINE) {
        print!("{what}: ");
        for byte in bytes {
            print!("{byte:02x}");
        }
        println!();
    }
}
