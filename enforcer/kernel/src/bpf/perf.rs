//! The clock of each CPU: a software perf event at a fixed rate.

use aya::programs::{
    PerfEvent, ProgramError,
    perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent},
};
use enforcer_common::settings::TICK_HZ;
use numa_topology::id::CpuId;
use rustix::io::Errno;

use super::{
    hook::HookError,
    object::{describe, io_error_of},
    perf_rights::PerfRights,
};

/// `ENODEV` of `perf_event_open`: the CPU is offline.
const OFFLINE: i32 = Errno::NODEV.raw_os_error();

/// Attaches the loaded program to the clocks of all CPUs that are online.
///
/// A CPU that comes online later has no clock: attach again after a change of the topology.
pub(super) fn attach(
    program: &mut PerfEvent,
    name: &'static str,
    cpus: impl ExactSizeIterator<Item = CpuId>,
) -> Result<(), HookError> {
    let asked = cpus.len();
    let mut attached = 0usize;
    for cpu in cpus {
        match attach_one(program, cpu) {
            Ok(()) => attached += 1,
            Err(error) if io_error_of(&error).and_then(std::io::Error::raw_os_error) == Some(OFFLINE) => {}
            Err(error) => {
                let mut cause = format!("CPU {cpu}: {}", describe(&error));
                if let Some(why) = io_error_of(&error).and_then(|error| PerfRights::here().refusal(error)) {
                    cause = format!("{cause}: {why}");
                }
                return Err(HookError::Program { name, cause });
            }
        }
    }
    if attached == 0 { Err(HookError::NoCpu(asked)) } else { Ok(()) }
}

fn attach_one(program: &mut PerfEvent, cpu: CpuId) -> Result<(), ProgramError> {
    program.attach(
        PerfEventConfig::Software(SoftwareEvent::CpuClock),
        PerfEventScope::AllProcessesOneCpu { cpu: cpu.0 },
        SamplePolicy::Frequency(TICK_HZ),
        false,
    )?;
    Ok(())
}
