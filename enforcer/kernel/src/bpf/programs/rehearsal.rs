//! The clock's tick on demand, for tests: nothing is attached, and the counts are exact.
//!
//! The kernel can run raw tracepoint programs on demand (`BPF_PROG_TEST_RUN`, since 5.10, on any CPU, for the
//! task running there), and none of the types used here: `tp_btf` has no such call, that of `fentry` is for
//! the kernel's own test functions, perf events and task iterators have none. So a raw tracepoint program
//! that only this test loads contains the same inner function. The others are tested on real events, each
//! with a control.

use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun as _};
use numa_topology::id::CpuId;

use super::{
    super::object::{describe, program},
    AttachOptions, Hook, HookState, KernelFacts, NodeColumns, Programs, Slots, load, raise_limits,
    with_causes,
};

/// The program's name.
const TICK: &str = "rehearsed_tick";

impl Programs {
    /// Loads it; the error says why this kernel does not.
    pub fn rehearsal(options: &AttachOptions) -> Result<Self, String> {
        raise_limits();
        let columns = NodeColumns::new(&options.cpu_node);
        let kernel = KernelFacts::read(options.cgroups);
        let mut ebpf = load::load(&kernel, options, &columns).map_err(|error| with_causes(&error))?;
        let program: &mut RawTracePoint = program(&mut ebpf, TICK).map_err(|error| error.to_string())?;
        program.load().map_err(|error| describe(&error))?;
        Ok(Self {
            ebpf: Some(ebpf),
            hooks: vec![HookState { hook: Hook::RunTime, absent: None, instead: None }],
            columns,
            sizes: options.sizes,
            slots: Slots::new(options.sizes.slots),
            ..Self::empty()
        })
    }

    /// One tick on a CPU, for the task that it runs.
    pub fn rehearse_tick(&self, cpu: CpuId) -> Result<(), String> {
        let program = self.ebpf.as_ref().and_then(|ebpf| ebpf.program(TICK));
        let program: &RawTracePoint =
            program.and_then(|program| program.try_into().ok()).ok_or("nothing is loaded")?;
        let on_cpu = RawTracePointRunOptions { cpu: Some(cpu.0), ..RawTracePointRunOptions::new() };
        program.test_run(on_cpu).map(|_| ()).map_err(|error| describe(&error))
    }
}
