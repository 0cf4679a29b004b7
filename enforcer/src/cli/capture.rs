//! `numa-enforcer capture`: a copy of the files that the readers use, for another machine.
//!
//! It runs the readers of every other command and writes down what they read
//! ([`enforcer_host::recording`]), so `audit --root DIR` and `topology --root DIR` say the same as they
//! do here. Threads are added by hand: their reader does not go through `host`.

use std::{fs, io::Write, path::PathBuf};

use anyhow::{Context, ensure};
use enforcer_core::parse::task_stat::parse_task_stat;
use numa_topology::Topology;

use super::{Exit, args, root};
use enforcer_host::{
    HostPath, HostRoot, ReadError,
    cgroup::CgroupLayout,
    host_facts, present,
    recording::{CaptureSize, FileCapture},
    topology,
    workloads::{self, UserProcesses},
};
use enforcer_observe::{Sampler, SamplerOptions};

/// Threads that are copied, at most; each is two small files.
const THREAD_LIMIT: usize = 50_000;

/// What to copy, and where to.
pub(super) struct Options {
    host: HostRoot,
    directory: PathBuf,
}

impl TryFrom<args::Capture> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::Capture) -> anyhow::Result<Self> {
        Ok(Self { host: root::resolve(args.root.as_deref())?, directory: args.directory })
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Options { host, directory } = options;
    let entries = fs::read_dir(directory).map_err(|cause| ReadError { path: directory.clone(), cause });
    let taken = present(entries)?.is_some_and(|mut entries| entries.next().is_some());
    ensure!(!taken, "{}: not empty", directory.display());
    let processes = processes(host);
    let (result, recording) = FileCapture::of(host, |host| read_everything(host, &processes));
    result?;
    let written = recording.write(host, directory);
    let CaptureSize { files, bytes, left_out } =
        written.with_context(|| format!("writing to {}", directory.display()))?;
    writeln!(out, "{}: {files} files, {} KiB", directory.display(), bytes.div_ceil(1024))?;
    if left_out > 0 {
        writeln!(out, "{left_out} files left out: too large together, or outside of /sys and /proc")?;
    }
    Ok(Exit::Ok)
}

/// What `audit` and `topology` read. What is missing here is missing for them too, and they say so.
fn read_everything(host: &HostRoot, processes: &[String]) -> anyhow::Result<()> {
    let (topology, _) = topology::read_topology(host)?;
    match CgroupLayout::read(host) {
        Ok(layout) => read_cgroups(host, layout, &topology),
        Err(error) => {
            tracing::warn!(%error, "no cgroups in the capture");
            host_facts::read_host_without_cgroups(host);
        }
    }
    let mut threads = 0;
    for process in processes {
        threads += read_threads(&host.proc.join(process), THREAD_LIMIT - threads);
    }
    Ok(())
}

fn read_cgroups(host: &HostRoot, layout: CgroupLayout, topology: &Topology) {
    mark(&layout);
    host_facts::read_host(host, &layout);
    match workloads::read_workloads(host, &layout, &mut UserProcesses::default()) {
        Ok((workloads, _)) => {
            let files_only = SamplerOptions { bpf: false, counters: false, ..SamplerOptions::default() };
            Sampler::new(host, layout, topology, files_only).sample(&workloads, 0);
        }
        Err(error) => tracing::warn!(%error, "no workloads in the capture"),
    }
}

/// The files by which a hierarchy without mountinfo is known.
fn mark(layout: &CgroupLayout) {
    let roots =
        [Some(&layout.cpuset.path), layout.memory.as_ref().map(|root| &root.path), layout.unified.as_ref()];
    for root in roots.into_iter().flatten() {
        for file in ["cgroup.controllers", "cgroup.subtree_control", "cpuset.cpus.effective"] {
            // Absent on v1, and then it is no mark.
            let _ = root.join(file).read_optional();
        }
    }
}

/// Not recorded: `/proc` holds far more directories than processes.
fn processes(host: &HostRoot) -> Vec<String> {
    let names = host.proc.list_dir().ok().flatten().unwrap_or_default();
    names.into_iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit())).collect()
}

/// Kernel threads belong to no workload. A thread that ends meanwhile is not missed.
fn read_threads(process: &HostPath, limit: usize) -> usize {
    let Ok(Some(stat)) = process.join("stat").read_optional() else { return 0 };
    if parse_task_stat(&stat).is_ok_and(|stat| stat.kernel_thread) {
        return 0;
    }
    let task = process.join("task");
    let threads = task.list_dir().ok().flatten().unwrap_or_default();
    let read = threads.iter().take(limit).map(|thread| {
        let _ = ["stat", "status", "sched"].map(|file| task.join(thread).join(file).read_optional());
    });
    read.count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use enforcer_core::workload::Workload;

    use super::*;

    #[test]
    fn a_capture_of_this_host_can_be_read_and_names_nothing_private() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("copy");
        let options = Options { host: HostRoot::live(), directory: directory.clone() };
        let mut out = Vec::new();
        assert_eq!(run(&options, &mut out).unwrap(), Exit::Ok);
        assert!(String::from_utf8(out).unwrap().contains(" files, "));

        let copy = HostRoot::captured(&directory);
        let (machine, _) = topology::read_topology(&HostRoot::live()).unwrap();
        let (copied, _) = topology::read_topology(&copy).unwrap();
        assert_eq!(
            (copied.cpus, copied.distances, copied.llcs, copied.cpu_kinds, copied.devices),
            (machine.cpus, machine.distances, machine.llcs, machine.cpu_kinds, machine.devices)
        );
        let own = std::process::id();
        assert!(copy.proc.join(format!("{own}/task/{own}/status")).exists());
        for private in ["sys/kernel/hostname", "sys/kernel/random/boot_id"] {
            assert!(!copy.proc.join(private).exists(), "{private}");
        }
        assert!(!copy.proc.join(format!("{own}/cmdline")).exists());

        let error = run(&options, &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(error, format!("{}: not empty", directory.display()));
    }

    #[test]
    fn the_cgroups_of_a_capture_are_those_of_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let live = HostRoot::live();
        let ((layout, workloads), recording) = FileCapture::of(&live, |live| {
            let layout = CgroupLayout::read(live).unwrap();
            mark(&layout);
            let (workloads, _) =
                workloads::read_workloads(live, &layout, &mut UserProcesses::default()).unwrap();
            (layout, workloads)
        });
        recording.write(&live, dir.path()).unwrap();
        let copy = HostRoot::captured(dir.path());
        let copied = CgroupLayout::read(&copy).unwrap();
        assert_eq!(copied.cpuset.v2, layout.cpuset.v2);
        let place = |root: &HostRoot, path: &HostPath| {
            path.as_path().strip_prefix(root.cgroup.as_path()).unwrap().to_owned()
        };
        assert_eq!(place(&copy, &copied.cpuset.path), place(&live, &layout.cpuset.path));
        let (copied, _) = workloads::read_workloads(&copy, &copied, &mut UserProcesses::default()).unwrap();
        let names = |all: &[Workload]| all.iter().map(|w| w.cgroup.clone()).collect::<BTreeSet<_>>();
        assert!(names(&workloads).is_subset(&names(&copied)), "{workloads:?} {copied:?}");
    }
}
