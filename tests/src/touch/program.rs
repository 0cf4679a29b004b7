//! The program: joins its cgroup, holds its memory, says `ready`; touches from the first line on that it
//! reads, answers every further one with its counts, and ends with its input.

use std::{
    fs, hint,
    io::{self, BufRead, Write},
    path::PathBuf,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::{Counts, Plan, Touching};

/// Bytes between two touches: the smallest page.
const PAGE: usize = 4096;

/// A huge page: no memory shares one with other memory.
const HUGE_PAGE: usize = 2 << 20;

/// Stack of a thread.
const STACK: usize = 256 << 10;

/// Touches of one stint: several ticks of the kernel's clock, emulated or not.
const STINT: u64 = 1 << 18;

/// What the program does.
#[derive(Debug, Clone, clap::Args)]
pub struct Touch {
    /// Folder of the cgroup to join
    #[arg(long)]
    pub cgroup: PathBuf,
    /// Keep to pages of 4 KiB; else the kernel's setting decides
    #[arg(long)]
    pub small_pages: bool,
    /// A thread's plan as JSON
    #[arg(long = "thread", required = true, value_parser = plan)]
    pub threads: Vec<Plan>,
    /// Starts a child before it touches anything: the plan of each thread of it
    #[arg(long = "child", value_parser = plan)]
    pub child: Vec<Plan>,
}

fn plan(text: &str) -> Result<Plan, String> {
    let plan: Plan = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if plan.runs_on.is_empty() { Err("it runs on no CPU".into()) } else { Ok(plan) }
}

/// What one thread has done, for the others to read.
#[derive(Debug, Default)]
struct Tally {
    local: AtomicU64,
    remote: AtomicU64,
    moves: AtomicU64,
    kernel_moves: AtomicU64,
}

/// Memory and the node that it is on.
struct Held {
    /// With room to begin at a whole huge page.
    memory: Vec<u8>,
    /// Bytes that are used.
    size: usize,
    node: u32,
}

impl Touch {
    /// Returns when its input ends.
    pub fn run(&self) -> Result<()> {
        let procs = self.cgroup.join("cgroup.procs");
        fs::write(&procs, "0").with_context(|| format!("join {}", procs.display()))?;
        if self.small_pages {
            rustix::thread::disable_transparent_huge_pages(true).context("keep to small pages")?;
        }
        // This thread does nothing, but may not be where none of the others is.
        run_on(self.threads[0].runs_on[0])?;
        let tallies: Vec<Arc<Tally>> = self.threads.iter().map(|_| Arc::default()).collect();
        let gate = Arc::new(Barrier::new(self.threads.len() + 1));
        for (plan, tally) in self.threads.iter().cloned().zip(tallies.iter().cloned()) {
            let gate = Arc::clone(&gate);
            // Too small for a huge page, which would be memory that the plan does not know.
            let thread = thread::Builder::new().stack_size(STACK);
            thread.spawn(move || {
                let error = work(&plan, &tally, &gate);
                // Counts of half a program are not the truth.
                println!("{error:?}");
                std::process::exit(1);
            })?;
        }
        gate.wait();
        say("ready")?;
        let mut started = false;
        let mut child = None;
        for line in io::stdin().lock().lines() {
            line.context("read what to do")?;
            if !started {
                if !self.child.is_empty() {
                    child = Some(Touching::start_in(&self.cgroup, &self.child, &[], self.small_pages)?);
                }
                gate.wait();
                started = true;
            }
            let of_child = child.as_mut().map_or(Ok(Counts::default()), Touching::counts)?;
            let counts = tallies.iter().map(|tally| tally.counts()).fold(of_child, Counts::and);
            say(&serde_json::to_string(&counts)?)?;
        }
        Ok(())
    }
}

impl Tally {
    fn counts(&self) -> Counts {
        Counts {
            local: self.local.load(Relaxed),
            remote: self.remote.load(Relaxed),
            moves: self.moves.load(Relaxed),
            kernel_moves: self.kernel_moves.load(Relaxed),
        }
    }
}

fn say(line: &str) -> Result<()> {
    println!("{line}");
    io::stdout().flush().context("say how it goes")
}

/// Ends with an error or not at all.
fn work(plan: &Plan, tally: &Tally, gate: &Barrier) -> anyhow::Error {
    let worked = prepare(plan).and_then(|held| {
        let begun_with = kernel_moves()?;
        // All hold their memory and wait for the start.
        gate.wait();
        gate.wait();
        go_about(plan, held, tally, begun_with)
    });
    match worked {
        Err(error) => error,
        Ok(()) => anyhow::anyhow!("a thread came to its end"),
    }
}

/// Touches the memory from where it shall be, and goes to where the first stint is.
fn prepare(plan: &Plan) -> Result<Vec<Held>> {
    let mut held = Vec::new();
    for &(cpu, mebibytes) in &plan.holds {
        run_on(cpu)?;
        let node = node_of(cpu)?;
        let size = mebibytes << 20;
        let mut memory = Held { memory: vec![0_u8; size + HUGE_PAGE], size, node };
        memory.touch();
        held.push(memory);
    }
    run_on(plan.runs_on[0])?;
    Ok(held)
}

/// Stint after stint.
fn go_about(plan: &Plan, mut held: Vec<Held>, tally: &Tally, begun_with: u64) -> Result<()> {
    let mut stops = plan.runs_on.iter().copied().cycle();
    let mut cpu = stops.next().context("it runs on no CPU")?;
    let mut node = node_of(cpu)?;
    let mut left = plan.stints;
    loop {
        stint(&mut held, node, tally);
        if left == Some(0) {
            continue;
        }
        left = left.map(|left| left - 1);
        let next = stops.next().context("it runs on no CPU")?;
        if next != cpu {
            run_on(next)?;
            cpu = next;
            let came_from = std::mem::replace(&mut node, node_of(next)?);
            tally.kernel_moves.store(kernel_moves()? - begun_with, Relaxed);
            tally.moves.fetch_add(u64::from(came_from != node), Relaxed);
        }
    }
}

/// Whole rounds over the memory, of about one stint.
fn stint(held: &mut [Held], node: u32, tally: &Tally) {
    let pages: u64 = held.iter().map(Held::pages).sum();
    for _ in 0..STINT.div_ceil(pages.max(1)) {
        for memory in &mut *held {
            memory.touch();
            let count = if memory.node == node { &tally.local } else { &tally.remote };
            count.fetch_add(memory.pages(), Relaxed);
        }
        // So that a thread without memory uses its CPU as well.
        hint::spin_loop();
    }
}

impl Held {
    fn pages(&self) -> u64 {
        (self.size / PAGE) as u64
    }

    /// Writes to every page, from the first whole huge page on.
    fn touch(&mut self) {
        let first = self.memory.as_ptr().align_offset(HUGE_PAGE);
        for byte in self.memory[first..first + self.size].iter_mut().step_by(PAGE) {
            *byte = hint::black_box(byte.wrapping_add(1));
        }
    }
}

/// Puts this thread on one CPU.
fn run_on(cpu: u32) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).with_context(|| format!("run on CPU {cpu}"))
}

/// The node of a CPU: the `nodeN` in its folder.
fn node_of(cpu: u32) -> Result<u32> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
    let entries = fs::read_dir(&folder).with_context(|| folder.clone())?;
    let node = |name: &str| name.strip_prefix("node")?.parse().ok();
    let mut nodes = entries.flatten().filter_map(|entry| node(&entry.file_name().to_string_lossy()));
    nodes.next().with_context(|| format!("{folder} has no node"))
}

/// How often the kernel moved this thread to another CPU.
fn kernel_moves() -> Result<u64> {
    const PATH: &str = "/proc/thread-self/sched";
    let text = fs::read_to_string(PATH).context(PATH)?;
    let line = text.lines().find(|line| line.starts_with("se.nr_migrations"));
    let value =
        line.and_then(|line| line.split(':').nth(1)).with_context(|| format!("{PATH} without moves"))?;
    value.trim().parse().with_context(|| format!("{PATH}: {value:?}"))
}
