//! Speed differences between the CPUs of one machine.
//!
//! Kernels report them in different places, and often not at all: lists of performance and efficiency cores
//! (hybrid x86), a relative capacity (Arm, RISC-V), a guaranteed frequency per CPU (cpufreq), a configured
//! preference between performance and power. All values are kept as the kernel reports them; placement
//! interprets them.
//!
//! Invariant: the frequency alone never determines a core type: cores of one type are binned too.

use std::fmt;

use crate::{parse::ParseError, parse::scalar, set::CpuSet};

/// CPUs with the same known properties.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct CpuKind {
    /// The CPUs.
    pub cpus: CpuSet,
    /// Core type, if the machine has several and reports them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub core_type: Option<CoreType>,
    /// `cpu_capacity`: relative to 1024, that of the strongest CPU.
    #[cfg_attr(feature = "serde", serde(default))]
    pub capacity: Option<u32>,
    /// `cpufreq/base_frequency`: frequency that the CPUs sustain under full load.
    #[cfg_attr(feature = "serde", serde(default))]
    pub base_frequency_khz: Option<u64>,
    /// `cpufreq/cpuinfo_max_freq`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_frequency_khz: Option<u64>,
    /// `cpufreq/energy_performance_preference`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub energy_preference: Option<EnergyPreference>,
}

impl CpuKind {
    /// Is any property known?
    pub fn is_known(&self) -> bool {
        *self != Self { cpus: self.cpus.clone(), ..Self::default() }
    }
}

/// Type of a core of a hybrid machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum CoreType {
    /// Built for speed: P-core, big.
    Performance,
    /// Built for low power: E-core, little.
    Efficiency,
}

/// Energy preference of a CPU, from 0 (performance) to 255 (low power), the field of `IA32_HWP_REQUEST`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct EnergyPreference(pub u8);

/// Words of `energy_performance_preference` (Documentation/admin-guide/pm/intel_pstate.rst) and their values
/// in the drivers.
const WORDS: [(&str, u8); 4] =
    [("performance", 0), ("balance_performance", 0x80), ("balance_power", 0xc0), ("power", 0xff)];

impl EnergyPreference {
    /// Parses a word or number of the kernel; `default` is `None`.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn parse(text: &str) -> Result<Option<Self>, ParseError> {
        let word = scalar::bare(text);
        if word == "default" {
            return Ok(None);
        }
        let known = WORDS.iter().find(|(known, _)| *known == word).map(|(_, value)| *value);
        let value = known.or_else(|| scalar::unsigned(word).ok().and_then(|number| number.try_into().ok()));
        let error =
            || ParseError::new("performance, balance_performance, balance_power, power or 0-255", word);
        value.map(|value| Some(Self(value))).ok_or_else(error)
    }
}

impl fmt::Display for EnergyPreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match WORDS.iter().find(|(_, value)| *value == self.0) {
            Some((word, _)) => f.write_str(word),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_are_words_or_numbers() {
        for (text, value) in [
            ("performance\n", Some(0)),
            ("balance_performance", Some(128)),
            ("balance_power", Some(192)),
            ("power", Some(255)),
            ("255", Some(255)),
            ("37\n", Some(37)),
            ("default\n", None),
        ] {
            assert_eq!(EnergyPreference::parse(text), Ok(value.map(EnergyPreference)), "{text:?}");
        }
        for text in ["", "256", "-1", "fast", "balance performance"] {
            assert!(EnergyPreference::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(EnergyPreference(192).to_string(), "balance_power");
        assert_eq!(EnergyPreference(7).to_string(), "7");
    }

    #[test]
    fn only_cpus_are_nothing_known() {
        let cpus: CpuSet = "0-3".parse().unwrap();
        let bare = CpuKind { cpus, ..CpuKind::default() };
        assert!(!bare.is_known());
        assert!(CpuKind { base_frequency_khz: Some(1), ..bare }.is_known());
    }
}
