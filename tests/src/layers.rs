//! A workload that writes all of its memory once and from then on reads a part of it, again and again.
//!
//! The part that is read is hot, the rest is cold, although all of it was written once: a detector that goes
//! by writes gets this wrong. All of it is one mapping, so a detector that goes by mappings gets it wrong
//! too. The part that is read can be changed.

use std::{
    fs, hint,
    io::{BufRead, BufReader, Write},
    ops::Range,
    path::PathBuf,
    process::{ChildStdin, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{cgroup::Cgroup, memory, process::Running};

/// Bytes of the smallest page.
const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
/// Between two rounds over what is hot.
const PAUSE: Duration = Duration::from_millis(10);

/// What the program does.
#[derive(Debug, Clone, clap::Args)]
pub struct Layers {
    /// Folder of the cgroup to join
    #[arg(long)]
    cgroup: PathBuf,
    /// Memory
    #[arg(long)]
    mebibytes: usize,
}

impl Layers {
    /// Reads lines `BEGIN END`, in MiB: what is read from then on. Ends with its standard input.
    pub fn run(&self) -> Result<()> {
        let procs = self.cgroup.join("cgroup.procs");
        fs::write(&procs, "0").with_context(|| format!("join {}", procs.display()))?;
        let mut memory = vec![0_u8; self.mebibytes * MIB + 2 * MIB];
        let first = memory.as_ptr().align_offset(2 * MIB);
        for byte in memory.iter_mut().step_by(PAGE) {
            *byte = 1;
        }
        println!("{:x}", memory.as_ptr() as usize + first);
        std::io::stdout().flush().context("say that it is ready")?;
        let hot = [const { AtomicUsize::new(0) }; 2];
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                loop {
                    let [begin, end] = [0, 1].map(|index| hot[index].load(Ordering::Acquire));
                    if begin == usize::MAX {
                        return;
                    }
                    let range = first + begin * MIB..first + end * MIB;
                    for byte in memory.get(range).unwrap_or_default().iter().step_by(PAGE) {
                        hint::black_box(byte);
                        // Only what is really loaded counts.
                        hint::black_box(byte.checked_add(1));
                    }
                    thread::sleep(PAUSE);
                }
            });
            for line in std::io::stdin().lock().lines() {
                let line = line.context("read a line")?;
                let parts: Option<Vec<usize>> = line.split(' ').map(|part| part.parse().ok()).collect();
                let Some([begin, end]) = parts.as_deref() else {
                    bail!("`BEGIN END` expected, found {line:?}")
                };
                // Empty in between, so that no round goes over both.
                hot[1].store(0, Ordering::Release);
                hot[0].store(*begin, Ordering::Release);
                hot[1].store(*end, Ordering::Release);
            }
            hot[0].store(usize::MAX, Ordering::Release);
            drop(reader.join());
            Ok(())
        })
    }
}

/// The program, as a scenario sees it.
#[derive(Debug)]
pub struct Layered {
    process: Running,
    lines: ChildStdin,
    start: u64,
}

impl Layered {
    /// Starts it in a cgroup and waits until its memory is there; nothing of it is hot.
    pub fn start(cgroup: &Cgroup, mebibytes: usize) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("own path")?);
        command.args(["layers", "--mebibytes", &mebibytes.to_string(), "--cgroup"]).arg(cgroup.folder());
        let (process, lines, stdout) = Running::with_pipes(command.stderr(Stdio::inherit()))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("wait for its memory")?;
        let start =
            u64::from_str_radix(line.trim(), 16).with_context(|| format!("an address, not {line:?}"))?;
        Ok(Self { process, lines, start })
    }

    /// From now on these MiB are read, and no others.
    pub fn read(&mut self, mebibytes: Range<usize>) -> Result<()> {
        writeln!(self.lines, "{} {}", mebibytes.start, mebibytes.end).context("say what is hot")
    }

    /// MiB of these MiB that are on a node, by `/proc/PID/pagemap`.
    pub fn mebibytes_on(&self, node: u32, mebibytes: Range<usize>) -> Result<f64> {
        let [begin, end] = [mebibytes.start, mebibytes.end].map(|at| self.start + (at * MIB) as u64);
        let pages = memory::pages_by_node(self.process.pid(), begin..end)?.get(&node).copied().unwrap_or(0);
        Ok(f64::from(pages) / 256.0)
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}
