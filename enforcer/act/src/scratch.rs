//! Does the kernel's own demotion take pages to where the cpuset does not allow them?
//!
//! Linux 6.12 does not look at cpusets when reclaim demotes; later kernels do, and distributions take changes
//! over, so no version says. It is tried: a scratch cgroup that allows one node, a child in it that touches
//! some memory, and a request to reclaim half of it. What is on another node then answers the question.
//!
//! Only where demotion is on already: nothing here switches it on. The cgroup and the child are gone
//! afterwards, whatever happens. No other cgroup is touched.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use enforcer_core::parse::numa_stat::parse_numa_stat_v2;
use numa_topology::id::NodeId;

use enforcer_host::{HostPath, HostRoot};

/// Memory of the child.
pub const HELD: usize = 8 << 20;
/// Name of the hidden command that holds it.
pub const COMMAND: &str = "hold-memory";
const ASKED: &str = "4M";

/// The switch of the kernel's demotion.
pub fn switch(host: &HostRoot) -> HostPath {
    host.sys.join("kernel/mm/numa/demotion_enabled")
}

/// Is it on?
pub fn is_on(host: &HostRoot) -> bool {
    let text = switch(host).read_text();
    text.is_ok_and(|text| matches!(text.trim(), "true" | "1"))
}

/// Bytes that reclaim takes outside of a cpuset of this node; the error names operation, path and cause.
pub fn bytes_outside(mount: &HostPath, node: NodeId) -> Result<u64, String> {
    let scratch = ScratchDir::new(mount)?;
    let reclaim = scratch.0.join("memory.reclaim");
    if !reclaim.exists() {
        return Err(format!("{} is not there", reclaim.display()));
    }
    scratch.write("cpuset.mems", &node.to_string())?;
    let child =
        Command::new("/proc/self/exe").arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = Reaped(child.map_err(|error| format!("running {COMMAND}: {error}"))?);
    scratch.write("cgroup.procs", &child.0.id().to_string())?;
    child.touch().map_err(|error| format!("{COMMAND}: {error}"))?;
    // Less than was asked for is an error, and no matter.
    let _less = scratch.write("memory.reclaim", ASKED);
    let path = scratch.0.join("memory.numa_stat");
    let text = path.read_text().map_err(|error| error.to_string())?;
    let by_node = parse_numa_stat_v2(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let outside = by_node.iter().filter(|(on, _)| **on != node);
    Ok(outside.fold(0, |sum, (_, bytes)| sum.saturating_add(bytes.anon)))
}

/// Holds memory as soon as a line comes, and until there are no more.
pub fn hold(lines: &mut dyn Read, out: &mut dyn Write) -> io::Result<()> {
    let mut reader = BufReader::new(lines);
    reader.read_line(&mut String::new())?;
    let mut memory = vec![0u8; HELD];
    for byte in memory.iter_mut().step_by(4096) {
        *byte = std::hint::black_box(1);
    }
    writeln!(out, "held")?;
    out.flush()?;
    reader.read_line(&mut String::new())?;
    drop(std::hint::black_box(memory));
    Ok(())
}

/// A cgroup that is removed again.
struct ScratchDir(HostPath);

impl ScratchDir {
    fn new(mount: &HostPath) -> Result<Self, String> {
        let path = mount.join(format!("numa-enforcer-scratch-{}", std::process::id()));
        fs::create_dir(path.as_path()).map_err(|error| format!("creating {}: {error}", path.display()))?;
        Ok(Self(path))
    }

    fn write(&self, file: &str, value: &str) -> Result<(), String> {
        let path = self.0.join(file);
        fs::write(path.as_path(), value)
            .map_err(|error| format!("writing {value:?} to {}: {error}", path.display()))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // The kernel takes a moment to let go of a child that has ended.
        for _ in 0..20 {
            if fs::remove_dir(self.0.as_path()).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        tracing::warn!("{} could not be removed", self.0.display());
    }
}

/// A child that has ended when this is dropped.
struct Reaped(Child);

impl Reaped {
    /// Has it touch its memory, and waits for that.
    fn touch(&mut self) -> io::Result<()> {
        let pipes = self.0.stdin.as_mut().zip(self.0.stdout.as_mut());
        let (stdin, stdout) = pipes.ok_or_else(|| io::Error::other("no pipes"))?;
        stdin.write_all(b"\n")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line.trim() == "held" { Ok(()) } else { Err(io::Error::other(format!("it said {line:?}"))) }
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_held_after_the_first_line() {
        let mut out = Vec::new();
        hold(&mut &b"\n"[..], &mut out).unwrap();
        assert_eq!(out, b"held\n");
    }

    #[test]
    fn a_host_that_says_nothing_of_demotion_has_it_off() {
        let dir = tempfile::tempdir().unwrap();
        let host = HostRoot::captured(dir.path());
        assert!(!is_on(&host));
        let numa = dir.path().join("sys/kernel/mm/numa");
        fs::create_dir_all(&numa).unwrap();
        for (text, on) in [("true\n", true), ("false\n", false), ("1\n", true)] {
            fs::write(numa.join("demotion_enabled"), text).unwrap();
            assert_eq!(is_on(&host), on, "{text:?}");
        }
    }

    #[test]
    fn a_kernel_that_cannot_be_asked_to_reclaim_is_not_said_to_keep_to_cpusets() {
        let dir = tempfile::tempdir().unwrap();
        let error = bytes_outside(&HostRoot::live().at(dir.path()), NodeId(0)).unwrap_err();
        assert!(error.contains("memory.reclaim is not there"), "{error}");
    }

    #[test]
    fn where_no_cgroup_can_be_made_the_error_says_so() {
        let error = bytes_outside(&HostRoot::live().at("/nonexistent"), NodeId(0)).unwrap_err();
        assert!(error.contains("creating /nonexistent/numa-enforcer-scratch-"), "{error}");
    }
}
