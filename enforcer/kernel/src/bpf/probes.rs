//! Kprobes in the place of trampolines.
//!
//! Problem: some kernels put no BPF trampoline on a function (arm64 before 6.4, kernels without it, rules
//! that refuse it), and four sources would be missing there.
//!
//! Idea: each program with a trampoline has a twin that takes its arguments from the registers. It costs more
//! and counts the same. It is attached through a perf event, and where perf events are refused through a link
//! that needs none ([`crate::probe_multi`]).
//!
//! Invariants: a twin is attached only where the kernel's types have shown that the function takes the
//! arguments that the program understands, and a trampoline was refused all the same; never both. All probes
//! of a hook are attached or none. A probe at the end of a function is attached before the one at its
//! beginning, so that no call is remembered that nothing asks for.

use std::{
    collections::HashMap,
    ffi::CString,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
};

use aya::{
    Ebpf,
    maps::{Map, MapData},
    programs::{KProbe, ProgramError},
};
use aya_obj::{Object, generated::bpf_insn};

use super::{
    hook::{Hook, HookError},
    object::{describe, io_error_of, object, program, with_causes},
    perf_rights::PerfRights,
};
use crate::probe_multi;

/// How functions are traced: the first way that is tried, and those below it where it is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FunctionTracing {
    /// BPF trampolines.
    #[default]
    Trampolines,
    /// Kprobes of perf events.
    PerfProbes,
    /// Kprobes without perf events.
    MultiProbes,
}

/// A program and the function that it is attached to.
pub(super) struct ProbeTwin {
    program: &'static str,
    function: &'static str,
    at_end: bool,
}

const fn at_start(program: &'static str, function: &'static str) -> ProbeTwin {
    ProbeTwin { program, function, at_end: false }
}

const fn at_end(program: &'static str, function: &'static str) -> ProbeTwin {
    ProbeTwin { program, function, at_end: true }
}

const HINTING_FAULTS: &[ProbeTwin] = &[at_start("probe_hinting_fault", "task_numa_fault")];
const KSWAPD: &[ProbeTwin] = &[at_start("probe_kswapd", "wakeup_kswapd")];
const OOM: &[ProbeTwin] =
    &[at_end("probe_oom_ends", "out_of_memory"), at_start("probe_oom", "out_of_memory")];
const CPUSET: &[ProbeTwin] =
    &[at_end("probe_cpuset_ends", "cpuset_write_resmask"), at_start("probe_cpuset", "cpuset_write_resmask")];
const POLICIES: &[ProbeTwin] = &[
    at_end("probe_policy_ends", "do_set_mempolicy"),
    at_start("probe_policy", "do_set_mempolicy"),
    at_end("probe_mbind_ends", "do_mbind"),
    at_start("probe_mbind", "do_mbind"),
];

/// The twins of a hook's programs; none where it has no trampolines.
pub(super) const fn of(hook: Hook) -> Option<&'static [ProbeTwin]> {
    match hook {
        Hook::HintFaults => Some(HINTING_FAULTS),
        Hook::KswapdWanted => Some(KSWAPD),
        Hook::OomConstraint => Some(OOM),
        Hook::CpusetWrites => Some(CPUSET),
        Hook::Policies => Some(POLICIES),
        _ => None,
    }
}

/// A probe without a perf event, and the program that it keeps, until it is dropped.
pub(super) struct MultiProbe {
    pub(super) name: &'static str,
    pub(super) program: OwnedFd,
    _link: OwnedFd,
}

/// Attaches the probes; says how, in words that follow the reason for it. `multi` keeps what takes no perf
/// event.
pub(super) fn attach(
    ebpf: &mut Ebpf,
    probes: &'static [ProbeTwin],
    first: FunctionTracing,
    multi: &mut Vec<MultiProbe>,
) -> Result<String, HookError> {
    let functions = || {
        let mut functions: Vec<&str> = probes.iter().map(|probe| probe.function).collect();
        functions.dedup();
        functions.join(" and ")
    };
    let by_perf = if first == FunctionTracing::MultiProbes {
        None
    } else {
        match with_perf_events(ebpf, probes) {
            Ok(()) => return Ok(format!("attached as kprobe of {}", functions())),
            Err(error) => Some(error),
        }
    };
    match without_perf_events(ebpf, probes) {
        Ok(attached) => {
            multi.extend(attached);
            let why = by_perf.map_or_else(String::new, |error| format!(" ({error})"));
            Ok(format!("attached as kprobe.multi of {}{why}", functions()))
        }
        Err(error) => Err(match by_perf {
            Some(first) => HookError::Both { first: Box::new(first), second: Box::new(error) },
            None => error,
        }),
    }
}

fn with_perf_events(ebpf: &mut Ebpf, probes: &'static [ProbeTwin]) -> Result<(), HookError> {
    for (at, probe) in probes.iter().enumerate() {
        if let Err(error) = with_perf_event(ebpf, probe) {
            // The one that was refused is loaded, too.
            for attached in probes.iter().take(at + 1) {
                if let Ok(program) = program::<KProbe>(ebpf, attached.program)
                    && let Err(error) = program.unload()
                {
                    tracing::debug!("detaching {}: {error}", attached.program);
                }
            }
            return Err(error);
        }
    }
    Ok(())
}

fn with_perf_event(ebpf: &mut Ebpf, probe: &ProbeTwin) -> Result<(), HookError> {
    let kprobe: &mut KProbe = program(ebpf, probe.program)?;
    kprobe.load().and_then(|()| kprobe.attach(probe.function, 0)).map(|_id| ()).map_err(|error| {
        let why = rights(&error).map_or_else(String::new, |why| format!(": {why}"));
        HookError::Program { name: "kprobe", cause: format!("{}{why}", describe(&error)) }
    })
}

/// Why a perf event is refused, where it is that and not the load.
fn rights(error: &ProgramError) -> Option<String> {
    if matches!(error, ProgramError::LoadError { .. }) {
        return None;
    }
    io_error_of(error).and_then(|error| PerfRights::here().refusal(error))
}

fn without_perf_events(ebpf: &Ebpf, probes: &'static [ProbeTwin]) -> Result<Vec<MultiProbe>, HookError> {
    let failed = |cause: String| HookError::Program { name: "kprobe.multi", cause };
    let object = relocated(ebpf).map_err(failed)?;
    probes
        .iter()
        .map(|probe| {
            let parsed = object.programs.get(probe.program).ok_or(HookError::NoProgram(probe.program))?;
            let function = object.functions.get(&parsed.function_key());
            let function = function.ok_or(HookError::NoProgram(probe.program))?;
            let instructions: Vec<u64> = function.instructions.iter().copied().map(word).collect();
            let refused = |call| {
                move |error: std::io::Error| HookError::Program {
                    name: "kprobe.multi",
                    cause: format!("{call}: {error}"),
                }
            };
            let program = probe_multi::load(probe.program, &instructions, &parsed.license)
                .map_err(refused("BPF_PROG_LOAD"))?;
            let function = CString::new(probe.function).map_err(|error| failed(error.to_string()))?;
            let link = probe_multi::attach(program.as_fd(), &function, probe.at_end)
                .map_err(refused("BPF_LINK_CREATE"))?;
            Ok(MultiProbe { name: probe.program, program, _link: link })
        })
        .collect()
}

/// The object once more, with the maps that aya has made of it.
fn relocated(ebpf: &Ebpf) -> Result<Object, String> {
    let said = |error: &dyn std::error::Error| with_causes(error);
    let bytes = object().map_err(|error| said(&error))?;
    let mut object = Object::parse(&bytes).map_err(|error| said(&error))?;
    let maps: HashMap<String, aya_obj::Map> = object.maps.drain().collect();
    let made = maps.iter().filter_map(|(name, map)| {
        let descriptor = descriptor(ebpf.map(name)?)?;
        Some((name.as_str(), descriptor.as_raw_fd(), map))
    });
    let sections = object.functions.keys().map(|(section, _)| *section).collect();
    object.relocate_maps(made, &sections).map_err(|error| said(&error))?;
    object.relocate_calls(&sections).map_err(|error| said(&error))?;
    Ok(object)
}

/// The descriptor of a map of a kind that the object has.
fn descriptor(map: &Map) -> Option<BorrowedFd<'_>> {
    let (Map::Array(inner)
    | Map::HashMap(inner)
    | Map::LruHashMap(inner)
    | Map::PerCpuArray(inner)
    | Map::PerCpuHashMap(inner)
    | Map::PerfEventArray(inner)
    | Map::RingBuf(inner)) = map
    else {
        return None;
    };
    let inner: &MapData = inner;
    Some(inner.fd().as_fd())
}

/// An instruction as the kernel has it (`struct bpf_insn`).
fn word(instruction: bpf_insn) -> u64 {
    let [off, off_high] = instruction.off.to_ne_bytes();
    let [imm, second, third, high] = instruction.imm.to_ne_bytes();
    let (destination, source) = (instruction.dst_reg() & 0xf, instruction.src_reg() & 0xf);
    let registers =
        if cfg!(target_endian = "little") { source << 4 | destination } else { destination << 4 | source };
    u64::from_ne_bytes([instruction.code, registers, off, off_high, imm, second, third, high])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_twin_is_in_the_object_and_ends_come_first() {
        let object = Object::parse(&object().unwrap()).unwrap();
        for hook in Hook::ALL {
            let probes = of(hook).unwrap_or_default();
            for probe in probes {
                assert!(object.programs.contains_key(probe.program), "{}", probe.program);
            }
            for pair in probes.chunks(2).filter(|pair| pair.len() == 2) {
                assert_eq!(pair[0].function, pair[1].function);
                assert!(pair[0].at_end && !pair[1].at_end);
            }
        }
    }

    #[test]
    fn an_instruction_is_the_word_that_the_kernel_reads() {
        // r2 = *(u32 *)(r1 + 8)
        let bytes = [0x61, 0x12, 8, 0, 0, 0, 0, 0];
        let object = Object::parse(&object().unwrap()).unwrap();
        let words: Vec<u64> =
            object.functions.values().flat_map(|one| &one.instructions).copied().map(word).collect();
        // `exit` ends every function.
        let exit = u64::from_ne_bytes([0x95, 0, 0, 0, 0, 0, 0, 0]);
        assert!(words.contains(&exit));
        let mut load = bpf_insn {
            code: 0x61,
            _bitfield_align_1: [],
            _bitfield_1: bpf_insn::new_bitfield_1(2, 1),
            off: 8,
            imm: 0,
        };
        assert_eq!(word(load), u64::from_ne_bytes(bytes));
        load.imm = -1;
        assert_eq!(word(load).to_ne_bytes()[4..], [0xff; 4]);
    }
}
