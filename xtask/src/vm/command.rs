//! `cargo xtask vm`: one guest for a person.

use std::{fs, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};

use super::{
    Ending, Guest, Snapshot, Snapshots, inject_image,
    topology::{self, Topology},
};
use crate::{setup, workspace::Workspace};

/// A shell with job control on the job's terminal.
const SHELL: &str = "setsid sh -c 'stty -F /dev/ttyS1 sane; exec sh -l </dev/ttyS1 >/dev/ttyS1 2>&1'";

/// Arguments of `vm`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of a shipped topology, or path of a topology file
    #[arg(long, default_value = "2s")]
    topology: String,
    /// List the shipped topologies and stop
    #[arg(long)]
    list: bool,
    /// Appended to the kernel command line
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    kernel_args: String,
    /// Put this file at /inject (may be given several times)
    #[arg(long)]
    file: Vec<std::path::PathBuf>,
    /// Boot, even if there is a snapshot; make none
    #[arg(long)]
    no_snapshot: bool,
    /// Seconds that a COMMAND may take
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Command to run as root in the guest; without one, a shell
    #[arg(last = true)]
    command: Vec<String>,
}

/// Boots, and ends with the command's status.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<ExitCode> {
    if arguments.list {
        for name in topology::names(&workspace.topologies())? {
            println!("{name:14} {}", Topology::load(&workspace.topologies(), &name)?.description);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let topology = Topology::load(&workspace.topologies(), &arguments.topology)?;
    let rig = setup::rig(workspace)?;
    let scratch = workspace.scratch()?;
    let (folder, inject) = (scratch.path().join("files"), scratch.path().join("inject"));
    fs::create_dir(&folder)?;
    for file in &arguments.file {
        let name = file.file_name().with_context(|| format!("{} is no file", file.display()))?;
        fs::copy(file, folder.join(name)).with_context(|| format!("copy {}", file.display()))?;
    }
    inject_image(&folder, &inject)?;
    let interactive = arguments.command.is_empty();
    let job = if interactive { SHELL.to_owned() } else { arguments.command.join(" ") };
    let mut guest = Guest {
        rig: &rig,
        topology: &topology,
        kernel_arguments: &arguments.kernel_args,
        inject: &inject,
        job: &job,
        limit: Duration::from_secs(arguments.limit),
        snapshot: None,
    };
    if !arguments.no_snapshot {
        guest.snapshot = snapshot(&Snapshots::of(workspace, &rig)?, &guest);
    }
    if interactive {
        guest.interact()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = guest.run(&mut |line| println!("{line}"))?;
    if !matches!(report.ending, Ending::Exited(_)) && guest.snapshot.take().is_some() {
        eprintln!("once more, from a cold boot");
        report = guest.run(&mut |line| println!("{line}"))?;
    }
    match report.ending {
        Ending::Exited(status) => Ok(u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from)),
        Ending::Broken(why) | Ending::Stalled(why) => bail!("{why}; its console:\n{}", report.console),
    }
}

/// The snapshot for a guest, made on first use; without one the guest is booted.
fn snapshot(snapshots: &Snapshots, guest: &Guest) -> Option<Snapshot> {
    snapshots
        .find_or_make(guest)
        .inspect_err(|error| eprintln!("no snapshot, so the guest is booted: {error:#}"))
        .ok()
}
