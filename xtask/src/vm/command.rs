//! `cargo xtask vm`: one guest for a person.

use std::{fs, path::Path, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};

use super::{
    Ending, Guest, Snapshot, Snapshots, inject_image,
    platform::GuestPlatform,
    topology::{self, GuestTopology},
};
use crate::{
    architecture::Architecture, containerd::ContainerdPackages, guest_parts::GuestParts, series::Series,
    setup, stdout, userland::Userland, workspace::Workspace,
};

/// A shell with job control on the job's terminal.
fn shell(terminal: &str) -> String {
    format!("setsid sh -c 'stty -F {terminal} sane; exec sh -l <{terminal} >{terminal} 2>&1'")
}

/// Arguments of `vm`.
#[derive(clap::Args)]
pub(crate) struct VmArguments {
    /// Name of a shipped topology, or path of a topology file
    #[arg(long, default_value = "2s")]
    topology: String,
    /// Architecture of processors and programs
    #[arg(long, value_enum, default_value_t = Architecture::Amd64)]
    arch: Architecture,
    /// Series of the kernel
    #[arg(long, default_value_t = Series::DEFAULT)]
    kernel: Series,
    /// With this line of containerd; start it by `containerd &`
    #[arg(long, value_name = "LINE")]
    containerd: Option<ContainerdPackages>,
    /// With systemd as process 1; booted each time
    #[arg(long, conflicts_with = "containerd")]
    systemd: bool,
    /// List the shipped topologies, the kernels and the lines of containerd, and stop
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
pub(crate) fn run(workspace: &Workspace, arguments: &VmArguments) -> Result<ExitCode> {
    if arguments.list {
        return stdout::lines(choices(&workspace.topologies())?).map(|()| ExitCode::SUCCESS);
    }
    let topology = GuestTopology::load(&workspace.topologies(), &arguments.topology)?;
    let userland = match arguments.containerd {
        Some(containerd) => Userland::Containers(containerd),
        None if arguments.systemd => Userland::Systemd,
        None => Userland::Plain,
    };
    let parts = GuestParts { architecture: arguments.arch, kernel: arguments.kernel, userland };
    let rig = setup::rig(workspace, parts)?;
    let scratch = workspace.scratch()?;
    let (folder, inject) = (scratch.path().join("files"), scratch.path().join("inject"));
    fs::create_dir(&folder)?;
    for file in &arguments.file {
        let name = file.file_name().with_context(|| format!("{} is no file", file.display()))?;
        fs::copy(file, folder.join(name)).with_context(|| format!("copy {}", file.display()))?;
    }
    inject_image(&folder, &inject)?;
    let interactive = arguments.command.is_empty();
    let terminal = GuestPlatform::of(arguments.arch).job_terminal;
    let job = if interactive { shell(terminal) } else { arguments.command.join(" ") };
    let mut guest = Guest {
        rig: &rig,
        topology: &topology,
        kernel_arguments: &arguments.kernel_args,
        inject: &inject,
        job: &job,
        limit: Duration::from_secs(arguments.limit),
        has_network: false,
        snapshot: None,
    };
    if !arguments.no_snapshot && parts.can_be_saved() {
        guest.snapshot = snapshot(&Snapshots::of(workspace, &rig.qemu)?, &guest);
    }
    if interactive {
        guest.interact()?;
        return Ok(ExitCode::SUCCESS);
    }
    // A job goes on when its output is not read.
    let mut on_line = |line: &str| drop(stdout::lines([line]));
    let mut report = guest.run(&mut on_line)?;
    if !matches!(report.ending, Ending::Exited(_)) && guest.snapshot.take().is_some() {
        eprintln!("once more, from a cold boot");
        report = guest.run(&mut on_line)?;
    }
    match report.ending {
        Ending::Exited(status) => Ok(u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from)),
        Ending::Broken(why) | Ending::Stalled(why) => bail!("{why}; its console:\n{}", report.console),
    }
}

/// What a guest can be made of: topologies, then kernels, then container runtimes.
fn choices(shipped: &Path) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for name in topology::names(shipped)? {
        lines.push(format!("{name:14} {}", GuestTopology::load(shipped, &name)?.description));
    }
    lines.extend(Series::all().map(|series| {
        let default = if series == Series::DEFAULT { ", the default" } else { "" };
        format!("kernel {series:7} {}{default}", series.about())
    }));
    lines.extend(ContainerdPackages::all().map(|containerd| {
        let default =
            if containerd == ContainerdPackages::DEFAULT { ", the default of scenarios" } else { "" };
        format!("containerd {containerd:3} {}{default}", containerd.about())
    }));
    Ok(lines)
}

/// The snapshot for a guest, made on first use; without one the guest is booted.
fn snapshot(snapshots: &Snapshots, guest: &Guest) -> Option<Snapshot> {
    snapshots
        .find_or_make(guest)
        .inspect_err(|error| eprintln!("no snapshot, so the guest is booted: {error:#}"))
        .ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        arguments: VmArguments,
    }

    #[test]
    fn a_kernel_is_chosen_by_name() {
        let kernel = |words: &[&str]| {
            let typed = Typed::try_parse_from([&["vm"], words].concat());
            typed.map(|typed| typed.arguments.kernel)
        };
        assert_eq!(kernel(&[]).unwrap(), Series::DEFAULT);
        assert_eq!(kernel(&["--kernel", "6.1", "--", "uname", "-r"]).unwrap().name(), "6.1");
        let refused = kernel(&["--kernel", "4.19"]).unwrap_err().to_string();
        assert!(refused.contains("4.19") && refused.contains("5.10"), "{refused}");
    }

    #[test]
    fn the_list_names_topologies_and_kernels() {
        let lines = choices(&Workspace::find().unwrap().topologies()).unwrap();
        for beginning in ["2s ", "hmat ", "kernel 5.10 ", "kernel 7.2 ", "containerd 1.7 ", "containerd 2 "] {
            assert!(lines.iter().any(|line| line.starts_with(beginning)), "{beginning}: {lines:?}");
        }
    }
}
