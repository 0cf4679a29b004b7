//! The task iterator against `/proc`: how much cheaper is a snapshot of every thread?
//!
//! Both sides run in turn, several times in one process, on threads that this program makes; what is
//! quoted is the ratio of the medians. The `/proc` side is given every advantage: it reads the two files
//! that hold the same fields (`stat` and `status`) into one buffer and parses nothing.
//!
//! Needs root. Without the feature `bpf` there is nothing to compare.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]

#[cfg(not(feature = "bpf"))]
fn main() {
    println!("tasks: not measured, bpf is not built in");
}

#[cfg(feature = "bpf")]
fn main() -> anyhow::Result<()> {
    use enforcer::observe::bpf::{CgroupAxis, TaskIterator};

    // cargo test runs benches too, to see that they start; it does not pass --bench.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    compare::threads()?;
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?.parse()?;
    let iterator = TaskIterator::open(CgroupAxis::Unified, possible)?;
    compare::print(|| Ok(iterator.read()?.len()))
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

    /// Threads that are there to be listed.
    const THREADS: usize = 5_000;
    /// Snapshots of each kind.
    const ROUNDS: usize = 11;

    /// Makes threads that sleep until the program ends.
    pub(super) fn threads() -> Result<()> {
        for _ in 0..THREADS {
            let sleeper = || thread::sleep(Duration::from_hours(1));
            thread::Builder::new().stack_size(64 * 1024).spawn(sleeper).context("start a thread")?;
        }
        Ok(())
    }

    /// Measures both and prints one line.
    pub(super) fn print(mut iterator: impl FnMut() -> Result<usize>) -> Result<()> {
        let (mut by_iterator, mut by_proc) = (Vec::new(), Vec::new());
        let mut counts = (0, 0);
        for _ in 0..ROUNDS {
            counts.0 = timed(&mut by_iterator, &mut iterator)?;
            counts.1 = timed(&mut by_proc, &mut read_proc)?;
        }
        let (iterator_ms, proc_ms) = (median(by_iterator), median(by_proc));
        println!(
            "tasks: iterator {iterator_ms:.2} ms for {} threads, /proc {proc_ms:.2} ms for {}, \
             ratio {:.1} (medians of {ROUNDS})",
            counts.0,
            counts.1,
            proc_ms / iterator_ms
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

    /// Reads `stat` and `status` of every thread.
    fn read_proc() -> Result<usize> {
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
                count +=
                    usize::from(["stat", "status"].iter().all(|name| read(&folder.join(name), &mut buffer)));
            }
        }
        Ok(count)
    }

    fn read(path: &Path, buffer: &mut Vec<u8>) -> bool {
        buffer.clear();
        File::open(path).is_ok_and(|mut file| file.read_to_end(buffer).is_ok())
    }
}
