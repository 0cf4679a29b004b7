//! The task iterator against `/proc`: how much cheaper is a snapshot of every thread?
//!
//! At 1,000 and at 10,000 threads that this program makes. All sides run in turn, several times in one
//! process; what is quoted are ratios of medians. The `/proc` side is given every advantage: it reads the
//! files that hold the same fields into one buffer and parses nothing. Without `sched`, it has no NUMA
//! balancer's view and no exact run time.
//!
//! Needs root. Without the feature `bpf` there is nothing to compare.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]

#[cfg(not(feature = "bpf"))]
fn main() {
    println!("tasks: not measured, bpf is not built in");
}

#[cfg(feature = "bpf")]
fn main() -> anyhow::Result<()> {
    use enforcer_kernel::bpf::{CgroupAxis, TaskIterator};

    // cargo test runs benches too, to see that they start; it does not pass --bench.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?.parse()?;
    let nodes = std::fs::read_to_string("/sys/devices/system/node/possible")?.parse()?;
    let iterator = TaskIterator::open(CgroupAxis::Unified, possible, &nodes)?;
    let mut sleepers = 0;
    for threads in [1_000, 10_000] {
        compare::add_threads(threads - sleepers)?;
        sleepers = threads;
        compare::print(|| Ok(iterator.read()?.len()))?;
    }
    Ok(())
}

#[cfg(feature = "bpf")]
mod compare {
    use std::{
        fs::{self, File},
        io::Read as _,
        path::Path,
        thread,
        time::{Duration, Instant},
    };

    use anyhow::{Context as _, Result};

    /// Snapshots of each kind.
    const ROUNDS: usize = 11;

    /// Makes threads that sleep until the program ends.
    pub(super) fn add_threads(count: usize) -> Result<()> {
        for _ in 0..count {
            let sleeper = || thread::sleep(Duration::from_hours(1));
            thread::Builder::new().stack_size(64 * 1024).spawn(sleeper).context("start a thread")?;
        }
        Ok(())
    }

    /// Measures all and prints one line.
    pub(super) fn print(mut iterator: impl FnMut() -> Result<usize>) -> Result<()> {
        let (mut by_iterator, mut two_files, mut all_files) = (Vec::new(), Vec::new(), Vec::new());
        let (mut listed, mut in_proc) = (0, 0);
        for _ in 0..ROUNDS {
            listed = timed(&mut by_iterator, &mut iterator)?;
            in_proc = timed(&mut two_files, &mut || read_proc(&["stat", "status"]))?;
            timed(&mut all_files, &mut || read_proc(&["stat", "status", "sched"]))?;
        }
        let (iterator_ms, two_ms, all_ms) = (median(by_iterator), median(two_files), median(all_files));
        println!(
            "tasks: iterator {iterator_ms:.2} ms for {listed} threads, of {in_proc} in /proc stat and status {two_ms:.2} \
             ms (ratio {:.1}), with sched {all_ms:.2} ms (ratio {:.1}); medians of {ROUNDS}",
            two_ms / iterator_ms,
            all_ms / iterator_ms
        );
        Ok(())
    }

    fn timed(into: &mut Vec<f64>, snapshot: &mut impl FnMut() -> Result<usize>) -> Result<usize> {
        let start = Instant::now();
        let count = snapshot()?;
        into.push(start.elapsed().as_secs_f64() * 1000.0);
        Ok(count)
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    /// Reads these files of every thread.
    fn read_proc(files: &[&str]) -> Result<usize> {
        let mut buffer = Vec::with_capacity(8192);
        let mut count = 0;
        for process in fs::read_dir("/proc")? {
            let process = process?;
            if !process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
                continue;
            }
            let Ok(threads) = fs::read_dir(process.path().join("task")) else { continue };
            for thread in threads.flatten() {
                let folder = thread.path();
                count += usize::from(files.iter().all(|name| read(&folder.join(name), &mut buffer)));
            }
        }
        Ok(count)
    }

    fn read(path: &Path, buffer: &mut Vec<u8>) -> bool {
        buffer.clear();
        File::open(path).is_ok_and(|mut file| file.read_to_end(buffer).is_ok())
    }
}
