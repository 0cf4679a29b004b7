//! A workload: threads that hold memory and keep touching it.
//!
//! It joins its cgroup before it allocates, so that its pages are where the cgroup lets them be,
//! and says `ready` when every page has been touched once.

use std::{
    fs, hint,
    io::Write,
    path::PathBuf,
    thread::{self, sleep},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

/// Bytes between two touches: the smallest page.
const PAGE: usize = 4096;

/// What a hog does.
#[derive(Debug, Clone, clap::Args)]
pub struct Hog {
    /// Folder of the cgroup to join
    #[arg(long)]
    pub cgroup: PathBuf,
    /// Memory of each thread
    #[arg(long)]
    pub mebibytes: usize,
    /// Threads
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Pause after each round over the memory; 0 spins
    #[arg(long, default_value_t = 0)]
    pub pause_ms: u64,
    /// MiB per second by which each thread's memory grows; 0 takes all at once
    #[arg(long, default_value_t = 0)]
    pub mebibytes_per_second: usize,
}

impl Hog {
    /// Never returns, except with an error.
    pub fn run(&self) -> Result<()> {
        let procs = self.cgroup.join("cgroup.procs");
        fs::write(&procs, "0").with_context(|| format!("join {}", procs.display()))?;
        let pause = Duration::from_millis(self.pause_ms);
        let size = self.mebibytes << 20;
        let rate = self.mebibytes_per_second;
        let threads: Vec<_> = (0..self.threads)
            .map(|_| {
                let mut memory = vec![0_u8; size];
                grow(&mut memory, rate);
                thread::spawn(move || {
                    loop {
                        touch(&mut memory);
                        if !pause.is_zero() {
                            sleep(pause);
                        }
                    }
                })
            })
            .collect();
        println!("ready");
        std::io::stdout().flush().context("say that it is ready")?;
        for thread in threads {
            // Only a panic ends a thread.
            drop(thread.join());
        }
        Ok(())
    }
}

/// Writes to every page once, at this rate in MiB per second and never faster. A delay by a busy machine is
/// not made up for in a burst, which the daemon would rightly take for one.
pub(crate) fn grow(memory: &mut [u8], mebibytes_per_second: usize) {
    if mebibytes_per_second == 0 {
        return touch(memory);
    }
    let each = Duration::from_micros(1_000_000 / mebibytes_per_second as u64);
    let (begun, mut due) = (Instant::now(), Duration::ZERO);
    for mebibyte in memory.chunks_mut(1 << 20) {
        touch(mebibyte);
        let elapsed = begun.elapsed();
        due = next_due(due, each, elapsed);
        sleep(due.saturating_sub(elapsed));
    }
}

/// When the MiB after the one that was due at `due` is, if that one is written at `elapsed`. A sleep that was
/// a little too long is made up for, a MiB that was missed is not.
fn next_due(due: Duration, each: Duration, elapsed: Duration) -> Duration {
    (due + each).max(elapsed)
}

/// Writes to every page.
fn touch(memory: &mut [u8]) {
    for byte in memory.iter_mut().step_by(PAGE) {
        *byte = hint::black_box(byte.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_not_made_up_for_in_a_burst() {
        let ms = Duration::from_millis;
        for (due, written, expected) in [
            (0, 1, 10),
            // A sleep that took too long by a part of a MiB's time.
            (10, 12, 20),
            (20, 29, 30),
            // A second in which it did not run.
            (30, 1_031, 1_031),
            (1_031, 1_032, 1_041),
        ] {
            assert_eq!(next_due(ms(due), ms(10), ms(written)), ms(expected), "{due} {written}");
        }
    }
}
