//! Identifies the CPU from the text of `/proc/cpuinfo`.
//!
//! The first processor's block decides: machines that mix generations have no common events anyway.

use std::fmt;

use thiserror::Error;

/// Maximum length of quoted text in a message.
const WORD: usize = 40;

/// Maker of an x86 CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// `GenuineIntel`
    Intel,
    /// `AuthenticAMD`
    Amd,
}

/// A CPU by the properties that determine its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuModel {
    /// x86, by CPUID.
    X86 {
        /// `vendor_id`
        maker: Maker,
        /// `cpu family`, with the extended family added.
        family: u32,
        /// `model`, with the extended model.
        model: u32,
    },
    /// Arm: its events are architectural, and its PMU lists the optional ones.
    Arm,
}

/// Why no events are known for the CPU of a text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnknownCpu {
    /// The maker is not in the table.
    #[error("/proc/cpuinfo: vendor_id `{0}` is not in the table of CPUs")]
    Maker(String),
    /// A required line is missing or not a number.
    #[error("/proc/cpuinfo: no `{0}` that is understood, so the CPU is not known")]
    NoLine(&'static str),
}

impl CpuModel {
    /// Identifies the CPU of a `/proc/cpuinfo` text.
    pub fn identify(cpuinfo: &str) -> Result<Self, UnknownCpu> {
        let Some(vendor) = value(cpuinfo, "vendor_id") else {
            return match value(cpuinfo, "CPU implementer") {
                Some(_) => Ok(Self::Arm),
                None => Err(UnknownCpu::NoLine("vendor_id")),
            };
        };
        let maker = match vendor {
            "GenuineIntel" => Maker::Intel,
            "AuthenticAMD" => Maker::Amd,
            other => return Err(UnknownCpu::Maker(other.chars().take(WORD).collect())),
        };
        let number = |name| value(cpuinfo, name)?.parse().ok();
        let family = number("cpu family").ok_or(UnknownCpu::NoLine("cpu family"))?;
        let model = number("model").ok_or(UnknownCpu::NoLine("model"))?;
        Ok(Self::X86 { maker, family, model })
    }
}

impl fmt::Display for CpuModel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::X86 { maker, family, model } => {
                write!(out, "{maker:?} family {family:#x} model {model:#x}")
            }
            Self::Arm => out.write_str("Arm"),
        }
    }
}

/// The value of the first line `NAME : VALUE`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find_map(|(key, value)| (key.trim_end() == name).then(|| value.trim()))
}
