//! `/proc/interrupts`: one line for each interrupt, one column for each online CPU.
//!
//! Lines without a number (`NMI`, `LOC`, ...) are counts of the CPUs themselves, and are left out. Zero
//! counts are left out too: a large machine has hundreds of interrupts on hundreds of CPUs, nearly all of
//! them 0.
//!
//! Timers and counters of the CPUs have numbers on arm64, RISC-V, `LoongArch` and in guests of Xen. They are
//! known by their chip ([`is_of_each_cpu`]), and left out as well.

use super::ParseError;
use numa_topology::id::CpuId;

/// Most lines and most columns that are read.
const MOST: usize = 1 << 16;

/// Most counts that are kept, of all lines together.
const MOST_COUNTS: usize = 1 << 20;

/// Most characters of a description that are kept.
const DESCRIPTION: usize = 256;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptLine {
    /// Number of the interrupt.
    pub number: u32,
    /// Counts since boot by CPU, ascending, without zeros.
    pub counts: Vec<(CpuId, u64)>,
    /// Chip, hardware number and actions, as the kernel words them.
    pub description: String,
}

/// Whether the interrupts of this chip are each CPU's own: none of a device, and no CPU can be chosen.
///
/// Sources: Documentation/devicetree/bindings/interrupt-controller/arm,gic-v3.yaml (numbers below 32 are
/// private, and so are the extended ones, 1056 to 1119); names from `drivers/irqchip` (`irq-riscv-intc.c`,
/// `irq-loongarch-cpu.c`) and `drivers/xen/events/events_base.c`.
pub fn is_of_each_cpu(chip: &str, hwirq: Option<u64>) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // Not `GICv2m-PCI-MSI-...`, which counts the messages of a device.
    let is_gic = chip.strip_prefix("GIC").is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('v').or_else(|| rest.strip_prefix('-')).is_some_and(is_number)
    });
    match chip {
        "xen-percpu" | "RISC-V INTC" | "CPUINTC" => true,
        _ => is_gic && hwirq.is_some_and(|number| number < 32 || (1056..1120).contains(&number)),
    }
}

/// The same of a description: chip and hardware number come first.
fn describes_each_cpu(description: &str) -> bool {
    let mut words = description.split_ascii_whitespace();
    let (chip, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    is_of_each_cpu(chip, second.parse().ok()) || is_of_each_cpu(&format!("{chip} {second}"), None)
}

/// CPUs with a column.
pub fn interrupt_columns(text: &str) -> Result<Vec<CpuId>, ParseError> {
    let header = text.lines().next().unwrap_or_default();
    let mut cpus = Vec::new();
    for word in header.split_ascii_whitespace().take(MOST) {
        let id = word.strip_prefix("CPU").and_then(|id| id.parse().ok());
        cpus.push(id.map(CpuId).ok_or_else(|| ParseError::new("a column of each CPU", header))?);
    }
    if cpus.is_empty() {
        return Err(ParseError::new("a column of each CPU", header));
    }
    Ok(cpus)
}

/// Parses the file. An empty text is an error: a container runtime may mask the file by an empty one.
pub fn interrupts(text: &str) -> Result<Vec<InterruptLine>, ParseError> {
    let cpus = interrupt_columns(text)?;
    let (mut found, mut kept) = (Vec::new(), 0);
    for line in text.lines().skip(1).take(MOST) {
        let Some((number, rest)) = line.split_once(':') else { continue };
        let Ok(number) = number.trim().parse::<u32>() else { continue };
        let mut rest = rest.trim_start();
        let mut counts = Vec::new();
        for cpu in &cpus {
            let (word, after) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
            let Ok(count) = word.parse::<u64>() else { break };
            if count > 0 && kept < MOST_COUNTS {
                kept += 1;
                counts.push((*cpu, count));
            }
            rest = after.trim_start();
        }
        let description: String = rest.trim_end().chars().take(DESCRIPTION).collect();
        if !describes_each_cpu(&description) {
            found.push(InterruptLine { number, counts, description });
        }
    }
    Ok(found)
}

/// `per_cpu_count` of `/sys/kernel/irq/N`: one count for each possible CPU from 0 on.
pub fn per_cpu_count(text: &str) -> Vec<(CpuId, u64)> {
    let counts = text.trim().split(',').take(MOST).enumerate();
    let read = counts.filter_map(|(cpu, count)| Some((CpuId(u32::try_from(cpu).ok()?), count.parse().ok()?)));
    read.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "           CPU0       CPU2       CPU3       \n  0:         41          0          0  IR-IO-APIC    2-edge      timer\n \
                        24:          0        700          9  PCI-MSIX-0000:3b:00.0   0-edge      eth0-TxRx-0\nNMI:          3          0          0   Non-maskable interrupts\nERR:          0\n";

    #[test]
    fn numbered_lines_have_counts_by_cpu_and_the_rest_is_left_out() {
        let found = interrupts(TEXT).unwrap();
        let numbers: Vec<u32> = found.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [0, 24]);
        assert_eq!(found[0].counts, [(CpuId(0), 41)]);
        assert_eq!(found[1].counts, [(CpuId(2), 700), (CpuId(3), 9)]);
        assert_eq!(found[1].description, "PCI-MSIX-0000:3b:00.0   0-edge      eth0-TxRx-0");
        assert_eq!(per_cpu_count("0,700,9\n"), [(CpuId(1), 700), (CpuId(2), 9)]);
    }

    #[test]
    fn interrupts_of_each_cpu_are_none_of_devices() {
        for (description, is_device) in [
            ("GICv3  27 Level     arch_timer", false),
            ("GICv3  23 Level     arm-pmu", false),
            ("GICv3 1056 Level     arm-spe", false),
            ("GIC-0  27 Level     arch_timer", false),
            ("GIC  29 Edge      twd", false),
            ("GICv3  33 Level     uart-pl011", true),
            ("GICv2m-PCI-MSIX-0000:00:01.0   0 Edge      virtio0-config", true),
            ("ITS-PCI-MSIX-0000:01:00.0   0 Edge      eth0-TxRx-0", true),
            ("RISC-V INTC   5 Edge      riscv-timer", false),
            ("SiFive PLIC  10 Edge      ttyS0", true),
            ("CPUINTC  11  timer", false),
            ("xen-percpu    -virq      timer0", false),
            ("xen-percpu    -ipi       resched0", false),
            ("xen-dyn    -event     eth0-q0-tx", true),
            ("IO-APIC    2-edge      timer", true),
        ] {
            let found = interrupts(&format!(" CPU0 CPU1\n 10: 5 7 {description}\n")).unwrap();
            assert_eq!(found.len(), usize::from(is_device), "{description}");
        }
        assert!(is_of_each_cpu("GICv3", Some(31)) && !is_of_each_cpu("GICv3", None));
    }

    #[test]
    fn hostile_text_is_bounded_and_a_masked_file_is_an_error() {
        for text in ["", "\n", "CPUx\n", "CPU0 x\n 1: 2\n"] {
            assert!(interrupts(text).is_err(), "{text:?}");
        }
        let name = "n".repeat(100_000);
        let found = interrupts(&format!(
            "CPU0\n 5: 1 {name}\n 4294967296: 1 a\n-1: 1 a\n 7: 99999999999999999999 b\n"
        ));
        let found = found.unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].description.len(), 256);
        assert_eq!((found[1].number, found[1].counts.len()), (7, 0));
        assert_eq!(per_cpu_count("a,,18446744073709551616"), []);
    }
}
