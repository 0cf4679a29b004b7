//! The clock's tick on demand: nothing is attached, and a test knows to the last tick what there is to count.
//!
//! The kernel has `BPF_PROG_TEST_RUN` for raw tracepoint programs (since 5.10, on any CPU, for whoever runs
//! there), and for none of the types that are used here: `tp_btf` has none, that of `fentry` is for the
//! kernel's own test functions alone, perf events and task iterators have none. So the same inner function is
//! in a raw tracepoint program too, which nobody else loads. The others are tested on real events, each with
//! a control.

use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun as _};
use enforcer_core::id::CpuId;

use super::{AttachOptions, Hook, HookState, Kernel, NodeColumns, Programs, Slots, attach, raise_limits};

/// The program's name.
const TICK: &str = "rehearsed_tick";

impl Programs {
    /// Loads it; the error says why this kernel does not.
    pub fn rehearsal(options: &AttachOptions) -> Result<Self, String> {
        raise_limits();
        let columns = NodeColumns::new(&options.cpu_node);
        let kernel = Kernel::read(options.cgroups);
        let mut ebpf =
            attach::load(&kernel, options, &columns).map_err(|error| attach::with_causes(&error))?;
        let program: &mut RawTracePoint =
            attach::program(&mut ebpf, TICK).map_err(|error| error.to_string())?;
        program.load().map_err(|error| attach::describe(&error))?;
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
        program.test_run(on_cpu).map(|_| ()).map_err(|error| attach::describe(&error))
    }
}
