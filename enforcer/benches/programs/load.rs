//! What the programs are run by.

use std::{thread, time::Duration};

use anyhow::{Context as _, Result};
use numa_topology::id::CpuId;
use rustix::time::{ClockId, clock_gettime};

/// Something to do again and again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Load {
    /// A thread goes there and back.
    Bounce,
    /// Threads are started.
    Start,
    /// A thread is busy.
    Burn,
}

/// Times that the load is put on between two looks at what was told.
pub(super) const STEPS: u32 = 10;
/// Times that a thread goes there and back, or is started, in a step.
const TIMES: u32 = 200;
/// CPU time that is used in a step.
const BUSY: Duration = Duration::from_millis(20);

impl Load {
    pub(super) fn step(self, ends: [CpuId; 2]) -> Result<()> {
        match self {
            Self::Bounce => bounce(ends, TIMES),
            Self::Start => {
                for _ in 0..TIMES / 2 {
                    thread::spawn(|| ()).join().ok().context("start a thread")?;
                }
                Ok(())
            }
            Self::Burn => {
                let used = || {
                    let time = clock_gettime(ClockId::ThreadCPUTime);
                    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
                };
                let end = used() + BUSY;
                while used() < end {
                    std::hint::black_box(0);
                }
                Ok(())
            }
        }
    }
}

/// Moves this thread there and back.
pub(super) fn bounce(ends: [CpuId; 2], times: u32) -> Result<()> {
    for _ in 0..times {
        for cpu in ends {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu.0 as usize);
            rustix::thread::sched_setaffinity(None, &set).context("move the thread")?;
        }
    }
    Ok(())
}

/// Lets this thread run on both again.
pub(super) fn anywhere(ends: [CpuId; 2]) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in ends {
        set.set(cpu.0 as usize);
    }
    rustix::thread::sched_setaffinity(None, &set).context("let the thread run anywhere")
}
