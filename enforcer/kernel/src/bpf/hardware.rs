//! Counters of local and remote DRAM accesses: two events for each CPU, and a program on each.
//!
//! The events of the CPU's own table come first, the kernel's generic ones last; what is there is known when
//! it is opened. Both events of a CPU are one group, so that they count during the same time also where
//! counters are short and take turns: their ratio stays true.

use std::{borrow::Cow, collections::BTreeMap, io, os::fd::AsFd};

use aya::programs::ProgramFd;
use enforcer_core::{
    hardware::{AccessEvents, Candidates, NearCounts, PMU_EVENTS, Pmu},
    sample::HardwareAccesses,
};
use numa_topology::id::CpuId;
use rustix::io::Errno;

use super::{hook::HookError, perf_rights::PerfRights};
use crate::perf_event::CpuCounter;
use enforcer_host::HostRoot;

/// Accesses between two overflows, a prime so that it does not beat with loops. A core that does nothing but
/// wait for DRAM makes some 10^8 accesses a second: 1,000 overflows of about 1 us. One that makes 10^6 gives
/// the 100 samples of a figure in ten seconds.
pub const HARDWARE_PERIOD: u64 = 100_003;

/// Which counters to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardwareEvents {
    /// What to try, the best first.
    pub candidates: Candidates,
    /// Accesses between two overflows, at least 1.
    pub period: u64,
}

impl HardwareEvents {
    /// Those of this host's CPU.
    pub fn of_cpu(host: &HostRoot) -> Self {
        let cpuinfo = host.proc.join("cpuinfo").read_text().unwrap_or_default();
        Self { candidates: Candidates::new(&cpuinfo, &pmus(host)), period: HARDWARE_PERIOD }
    }
}

/// The PMUs that list an event of interest.
fn pmus(host: &HostRoot) -> Vec<Pmu> {
    let devices = host.sys.join("bus/event_source/devices");
    let pmu = |name: String| {
        let at = devices.join(&name);
        let events: BTreeMap<String, String> = PMU_EVENTS
            .iter()
            .filter_map(|event| Some(((*event).to_owned(), at.join("events").join(event).read_text().ok()?)))
            .collect();
        if events.is_empty() {
            return None;
        }
        Some(Pmu { kind: at.join("type").read_text().ok()?.trim().parse().ok()?, name, events })
    };
    devices.list_dir().ok().flatten().unwrap_or_default().into_iter().filter_map(pmu).collect()
}

/// The open counters; they count while this value lives.
#[derive(Debug)]
pub(super) struct OpenCounters {
    events: AccessEvents,
    period: u64,
    _counters: Vec<CpuCounter>,
}

impl OpenCounters {
    /// What the two counters say.
    pub(super) fn accesses(&self, near: u64, remote: u64) -> HardwareAccesses {
        let local = match self.events.counts {
            NearCounts::Local => near,
            NearCounts::All => near.saturating_sub(remote),
        };
        HardwareAccesses { local, remote, samples: local.saturating_add(remote) / self.period.max(1) }
    }
}

/// The loaded programs.
pub(super) struct OnOverflow {
    pub(super) near: ProgramFd,
    pub(super) remote: ProgramFd,
}

/// Opens the first candidates that all CPUs which are online have.
pub(super) fn open(
    wanted: &HardwareEvents,
    programs: &OnOverflow,
    cpus: &[CpuId],
) -> Result<OpenCounters, HookError> {
    let mut refused: Vec<OpenRefusal> = Vec::new();
    for events in &wanted.candidates.events {
        match open_all(events, wanted.period, programs, cpus) {
            Ok(counters) if counters.is_empty() => return Err(HookError::NoCpu(cpus.len())),
            Ok(counters) => {
                return Ok(OpenCounters { events: *events, period: wanted.period, _counters: counters });
            }
            Err((cpu, error)) => {
                let goes_on = another_may_do(&error);
                refused.push(OpenRefusal { name: events.name, cpu, error });
                if !goes_on {
                    break;
                }
            }
        }
    }
    let only_generic = wanted.candidates.only_generic.as_deref();
    Err(HookError::NoCounter(reason(only_generic, &refused, PerfRights::here())))
}

/// Events that could not be opened.
struct OpenRefusal {
    name: &'static str,
    cpu: CpuId,
    error: io::Error,
}

/// Why nothing is open; events that were refused alike are named together.
fn reason(only_generic: Option<&str>, refused: &[OpenRefusal], rights: PerfRights) -> String {
    let alike = |a: &OpenRefusal, b: &OpenRefusal| a.cpu == b.cpu && errno(&a.error) == errno(&b.error);
    let said = refused.chunk_by(alike).filter_map(|group| {
        let OpenRefusal { cpu, error, .. } = group.first()?;
        let names: Vec<&str> = group.iter().map(|refusal| refusal.name).collect();
        let meaning = rights.refusal(error).map_or(Cow::Borrowed(meaning(error)), Cow::Owned);
        Some(format!("{} on CPU {cpu}: {error}: {meaning}", names.join(", ")))
    });
    only_generic.map(str::to_owned).into_iter().chain(said).collect::<Vec<_>>().join("; ")
}

/// Both events of every CPU that is online.
fn open_all(
    events: &AccessEvents,
    period: u64,
    programs: &OnOverflow,
    cpus: &[CpuId],
) -> Result<Vec<CpuCounter>, (CpuId, io::Error)> {
    let mut counters = Vec::new();
    for &cpu in cpus {
        match open_pair(events, period, programs, cpu) {
            Ok(pair) => counters.extend(pair),
            Err(error) if errno(&error) == Some(Errno::NODEV) => {}
            Err(error) => return Err((cpu, error)),
        }
    }
    Ok(counters)
}

fn open_pair(
    events: &AccessEvents,
    period: u64,
    programs: &OnOverflow,
    cpu: CpuId,
) -> io::Result<[CpuCounter; 2]> {
    let near = CpuCounter::open(&events.near, period, cpu, None)?;
    let remote = CpuCounter::open(&events.remote, period, cpu, Some(&near))?;
    near.run(programs.near.as_fd())?;
    remote.run(programs.remote.as_fd())?;
    near.enable()?;
    Ok([near, remote])
}

/// Could other events be opened where these are refused?
fn another_may_do(error: &io::Error) -> bool {
    matches!(errno(error), Some(Errno::NOENT | Errno::INVAL | Errno::OPNOTSUPP))
}

fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

/// What an error of `perf_event_open(2)` means here.
fn meaning(error: &io::Error) -> &'static str {
    match errno(error) {
        Some(Errno::NOENT) => "no such counter, as in most virtual machines",
        Some(Errno::OPNOTSUPP) => {
            "the counter cannot interrupt: virtual machines may pass on that kind alone"
        }
        Some(Errno::INVAL) => "the kernel does not know the event, or the two do not fit together",
        Some(Errno::MFILE) => "two files for each CPU are more than RLIMIT_NOFILE allows",
        _ => "perf_event_open(2)",
    }
}

#[cfg(test)]
mod tests {
    use enforcer_core::hardware::{PerfEvent, TYPE_SOFTWARE};

    use super::*;

    fn counters(counts: NearCounts) -> OpenCounters {
        let event = PerfEvent { kind: TYPE_SOFTWARE, config: 0, config1: 0 };
        let events = AccessEvents { name: "test", near: event, counts, remote: event };
        OpenCounters { events, period: 100, _counters: Vec::new() }
    }

    #[test]
    fn all_accesses_are_the_local_and_the_remote_ones() {
        let accesses = |local, remote, samples| HardwareAccesses { local, remote, samples };
        assert_eq!(counters(NearCounts::Local).accesses(300, 200), accesses(300, 200, 5));
        assert_eq!(counters(NearCounts::All).accesses(300, 200), accesses(100, 200, 3));
        assert_eq!(counters(NearCounts::All).accesses(100, 200), accesses(0, 200, 2), "one counter is ahead");
        assert_eq!(counters(NearCounts::Local).accesses(u64::MAX, 200).samples, u64::MAX / 100);
    }

    #[test]
    fn a_refusal_has_a_meaning_and_only_a_missing_counter_makes_try_another() {
        for (errno, goes_on, said) in [
            (Errno::NOENT, true, "no such counter"),
            (Errno::OPNOTSUPP, true, "cannot interrupt"),
            (Errno::INVAL, true, "does not know the event"),
            (Errno::MFILE, false, "RLIMIT_NOFILE"),
            (Errno::NOSYS, false, "perf_event_open"),
        ] {
            let error = io::Error::from(errno);
            assert_eq!(another_may_do(&error), goes_on, "{error}");
            assert!(meaning(&error).contains(said), "{error}");
        }
    }

    #[test]
    fn events_that_were_refused_alike_are_named_together() {
        let unread = PerfRights { paranoid: None, capabilities: rustix::thread::CapabilitySet::empty() };
        let refusal = |name, cpu, errno: Errno| OpenRefusal { name, cpu: CpuId(cpu), error: errno.into() };
        let refused =
            [refusal("a", 0, Errno::NOENT), refusal("b", 0, Errno::NOENT), refusal("c", 3, Errno::ACCESS)];
        assert_eq!(
            reason(Some("an unknown CPU"), &refused, unread),
            "an unknown CPU; a, b on CPU 0: No such file or directory (os error 2): no such counter, as in most \
             virtual machines; c on CPU 3: Permission denied (os error 13): kernel.perf_event_paranoid cannot be \
             read: it takes CAP_PERFMON"
        );
        assert_eq!(reason(None, &refused[..0], unread), "");
    }

    #[test]
    fn the_pmus_are_those_that_list_an_event() {
        let root = tempfile::tempdir().unwrap();
        let devices = root.path().join("sys/bus/event_source/devices");
        let write = |path: &str, text: &str| {
            let file = devices.join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("armv8_pmuv3_0/type", "10\n");
        write("armv8_pmuv3_0/events/remote_access", "event=0x0031\n");
        write("armv8_pmuv3_0/events/ll_cache_miss_rd", "event=0x0037\n");
        write("other/type", "11\n");
        write("broken/events/remote_access", "event=0x0031\n");
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/cpuinfo"), "CPU implementer\t: 0x41\n").unwrap();
        let events = HardwareEvents::of_cpu(&HostRoot::captured(root.path()));
        let first = events.candidates.events[0];
        assert_eq!((first.remote.kind, first.remote.config, first.near.config), (10, 0x31, 0x37));
        assert_eq!((events.candidates.only_generic, events.period), (None, HARDWARE_PERIOD));
    }
}
