//! `/proc/interrupts`: one line for each interrupt, one column for each online CPU.
//!
//! Lines without a number (`NMI`, `LOC`, ...) are counts of the CPUs themselves, and are left out. Zero
//! counts are left out too: a large machine has hundreds of interrupts on hundreds of CPUs, nearly all of
//! them 0.

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

/// Parses the file. An empty text is an error: a container runtime may mask the file by an empty one.
pub fn interrupts(text: &str) -> Result<Vec<InterruptLine>, ParseError> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let mut cpus = Vec::new();
    for word in header.split_ascii_whitespace().take(MOST) {
        let id = word.strip_prefix("CPU").and_then(|id| id.parse().ok());
        cpus.push(id.map(CpuId).ok_or_else(|| ParseError::new("a column of each CPU", header))?);
    }
    if cpus.is_empty() {
        return Err(ParseError::new("a column of each CPU", header));
    }
    let (mut found, mut kept) = (Vec::new(), 0);
    for line in lines.take(MOST) {
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
        let description = rest.trim_end().chars().take(DESCRIPTION).collect();
        found.push(InterruptLine { number, counts, description });
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
