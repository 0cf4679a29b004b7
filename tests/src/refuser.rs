//! Runs a program on a kernel that refuses BPF trampolines.
//!
//! No kernel of the rig does, so a tracer stands between: each `BPF_PROG_LOAD` of the program, and of what it
//! starts in threads, is looked at, and those for a trampoline fail with `EPERM` as such a kernel lets them.
//! All other calls go through.

use std::{
    collections::BTreeSet,
    io::Write as _,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use nix::{
    libc::{self, user_regs_struct},
    sys::{
        ptrace::{self, Options},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// Command, types and places of bpf(2) (include/uapi/linux/bpf.h): the type of a program is the first word of
/// the attributes of a load, what it is to be attached as the last of those that all kernels have.
const BPF_PROG_LOAD: u64 = 5;
const TRACING: u32 = 26;
const FENTRY: u32 = 24;
const FEXIT: u32 = 25;
const ATTACHED_AS: u64 = 64;

/// Runs a program to its end, with the standard streams of this one; its exit status.
pub fn run(program: &str, arguments: &[String]) -> Result<i32> {
    // It waits for a line until the tracer is there.
    let mut command = Command::new("sh");
    command.args(["-c", "read -r go && exec \"$0\" \"$@\" </dev/null", program]).args(arguments);
    let mut child = command.stdin(Stdio::piped()).spawn().with_context(|| format!("run {program}"))?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(pid, options).context("trace the program")?;
    ptrace::interrupt(pid).context("stop the program")?;
    let stopped = waitpid(pid, Some(WaitPidFlag::__WALL)).context("wait for the program to stop")?;
    go(&mut child)?;
    ptrace::syscall(pid, None).with_context(|| format!("go on after {stopped:?}"))?;
    trace(pid)
}

fn go(child: &mut Child) -> Result<()> {
    let mut stdin = child.stdin.take().context("a program without standard input")?;
    stdin.write_all(b"go\n").context("let the program begin")
}

/// Until the first process ends.
fn trace(first: Pid) -> Result<i32> {
    let mut refused: BTreeSet<Pid> = BTreeSet::new();
    loop {
        let status = waitpid(None, Some(WaitPidFlag::__WALL)).context("wait for the program")?;
        let Some(thread) = status.pid() else { continue };
        let mut signal = None;
        match status {
            WaitStatus::Exited(pid, code) if pid == first => return Ok(code),
            WaitStatus::Signaled(pid, signal, _) if pid == first => bail!("it ended by {signal}"),
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => continue,
            WaitStatus::PtraceSyscall(thread) => {
                // Asked each time: the first stop may be either end of a call.
                let call = ptrace::syscall_info(thread).context("look at a call")?;
                if call.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
                    if refused.remove(&thread) {
                        answer(thread, -i64::from(libc::EPERM))?;
                    }
                } else if is_trampoline(thread)? {
                    skip(thread)?;
                    refused.insert(thread);
                }
            }
            WaitStatus::Stopped(_, of_program) => signal = Some(of_program),
            _ => {}
        }
        // A thread that was killed meanwhile is told of by the next wait.
        match ptrace::syscall(thread, signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
            Err(error) => return Err(error).context("let a thread go on"),
        }
    }
}

/// Is the call that the thread begins a load of a program with a trampoline?
fn is_trampoline(thread: Pid) -> Result<bool> {
    let registers = ptrace::getregs(thread).context("read the registers")?;
    let [number, command, attributes] = registers_of_call(&registers);
    if number != u64::try_from(libc::SYS_bpf)? || command != BPF_PROG_LOAD {
        return Ok(false);
    }
    let word = |at: u64| -> Result<[u8; 8]> {
        let word = ptrace::read(thread, at as ptrace::AddressType).context("read the attributes")?;
        Ok(word.to_ne_bytes())
    };
    let [first, second, third, fourth, ..] = word(attributes)?;
    let kind = u32::from_ne_bytes([first, second, third, fourth]);
    let [.., first, second, third, fourth] = word(attributes + ATTACHED_AS)?;
    let attached_as = u32::from_ne_bytes([first, second, third, fourth]);
    Ok(kind == TRACING && matches!(attached_as, FENTRY | FEXIT))
}

/// The kernel knows no command of this number, so it does nothing.
fn skip(thread: Pid) -> Result<()> {
    let mut registers = ptrace::getregs(thread).context("read the registers")?;
    *first_argument(&mut registers) = u64::MAX;
    ptrace::setregs(thread, registers).context("skip a call")
}

fn answer(thread: Pid, result: i64) -> Result<()> {
    let mut registers = ptrace::getregs(thread).context("read the registers")?;
    *self::result(&mut registers) = result.cast_unsigned();
    ptrace::setregs(thread, registers).context("answer a call")
}

/// Number and first two arguments of a call that begins.
#[cfg(target_arch = "x86_64")]
const fn registers_of_call(registers: &user_regs_struct) -> [u64; 3] {
    [registers.orig_rax, registers.rdi, registers.rsi]
}

#[cfg(target_arch = "x86_64")]
const fn first_argument(registers: &mut user_regs_struct) -> &mut u64 {
    &mut registers.rdi
}

#[cfg(target_arch = "x86_64")]
const fn result(registers: &mut user_regs_struct) -> &mut u64 {
    &mut registers.rax
}

/// Number and first two arguments of a call that begins.
#[cfg(target_arch = "aarch64")]
const fn registers_of_call(registers: &user_regs_struct) -> [u64; 3] {
    [registers.regs[8], registers.regs[0], registers.regs[1]]
}

#[cfg(target_arch = "aarch64")]
const fn first_argument(registers: &mut user_regs_struct) -> &mut u64 {
    &mut registers.regs[0]
}

#[cfg(target_arch = "aarch64")]
const fn result(registers: &mut user_regs_struct) -> &mut u64 {
    &mut registers.regs[0]
}
