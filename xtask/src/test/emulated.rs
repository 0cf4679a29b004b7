//! The product for another architecture, emulated process by process: it says of captured machines what the
//! product of this machine says.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::tally::TestTally;
use crate::{
    architecture::Architecture,
    command,
    product::{self, BuildProfile},
    progress::ProgressStep,
    setup::{self, ProgramEmulator},
    workspace::Workspace,
};

/// What is emulated.
const FOREIGN: Architecture = Architecture::Arm64;

/// Captured machines: several nodes and sockets, memory without CPUs, Arm.
const MACHINES: [&str; 4] = [
    "48amd64-4pa2n6c-sparse",
    "fakeheteromemtiers",
    "128arm-2pa2n8cluster4co",
    "32em64t-2n8c+dax+nvme+mic+dimms",
];

/// Commands that look at a captured machine.
const LOOKS: [&[&str]; 4] =
    [&["audit"], &["audit", "-o", "json"], &["topology"], &["topology", "-o", "json"]];

/// Commands without a machine.
const WORDS: [&[&str]; 3] = [&["--version"], &["--help"], &["audit", "--help"]];

/// Builds both and counts each command on each machine.
pub(super) fn run(workspace: &Workspace, tally: &mut TestTally) -> Result<()> {
    setup::unpacker()?;
    let emulator = setup::emulator(workspace, FOREIGN)?;
    let own = product::build(workspace, BuildProfile::Dev)?;
    let foreign = product::build_foreign(workspace, FOREIGN, BuildProfile::Dev)?.product;
    let step = ProgressStep::begin(format!("emulated {}", FOREIGN.debian()));
    for words in WORDS {
        tally.outcome(&format!("emulated {}", words.join(" ")), is_alike(&own, &emulator, &foreign, words));
    }
    let scratch = workspace.scratch()?;
    for machine in MACHINES {
        let root = unpack(workspace, machine, scratch.path())?;
        let root = root.to_str().context("a folder whose name is not UTF-8")?;
        for look in LOOKS {
            let arguments = [look, &["--root", root]].concat();
            let name = format!("emulated {} of {machine}", look.join(" "));
            tally.outcome(&name, is_alike(&own, &emulator, &foreign, &arguments));
        }
    }
    step.done();
    Ok(())
}

/// Both print the same, and end with the same status.
fn is_alike(own: &Path, emulator: &ProgramEmulator, foreign: &Path, arguments: &[&str]) -> Result<()> {
    let own = said(&mut Command::new(own), arguments)?;
    let foreign = said(&mut emulator.program(foreign), arguments)?;
    ensure!(!own.1.is_empty(), "it prints nothing");
    ensure!(own.0 == foreign.0, "exit status {:?}, on this machine {:?}", foreign.0, own.0);
    let differing = own.1.lines().zip(foreign.1.lines()).find(|(one, other)| one != other);
    ensure!(own.1 == foreign.1, "another output; the first other line of both: {differing:?}");
    Ok(())
}

fn said(program: &mut Command, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let output = program.args(arguments).output().with_context(|| format!("run {program:?}"))?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Unpacks a captured machine; returns its root, the only folder of the archive.
fn unpack(workspace: &Workspace, machine: &str, scratch: &Path) -> Result<PathBuf> {
    let archive = workspace.root().join(format!("tests/fixtures/machines/{machine}.tar.bz2"));
    let place = scratch.join(machine);
    fs::create_dir(&place).with_context(|| format!("create {}", place.display()))?;
    command::quietly(Command::new("tar").arg("-xjf").arg(&archive).arg("-C").arg(&place))?;
    let mut entries = fs::read_dir(&place).with_context(|| format!("list {}", place.display()))?;
    let root = entries.next().with_context(|| format!("{} is empty", archive.display()))??;
    Ok(root.path())
}
