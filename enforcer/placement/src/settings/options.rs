//! Options of the engine `hints` for one workload: `full-pcpus-only`, `align-by-socket=false`.
//!
//! The spelling is that of the annotation `options`: a name of the kubelet's or of this project, which turns
//! the option on, or a name with its value. Invariant: a list has no option that the engine does not know.

use std::fmt;

use thiserror::Error;

use super::HintsSettings;

/// Most options of a list; the engine has ten.
const MOST: usize = 16;

/// Options in the order of their list, of which a later one counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "Vec<String>", into = "Vec<String>")
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(with = "Vec<String>", extend("maxItems" = 16)))]
pub struct HintsOptions(Vec<String>);

/// Why a list is none of options.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoHintsOption {
    /// The engine has no such option, or the option no such value.
    #[error("the engine hints has no option {0:?}: a name as in placement.hints, or NAME=false, is expected")]
    Unknown(String),
    /// There are too many.
    #[error("at most {MOST} options are expected")]
    TooMany,
}

impl HintsOptions {
    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Does the list have this setting, by its key?
    pub fn sets(&self, key: &str) -> bool {
        let key_of = |option: &str| {
            let name = option.split_once('=').map_or(option, |(name, _)| name.trim());
            name.replace('-', "_").replace("uncorecache", "uncore_cache")
        };
        self.0.iter().any(|option| key_of(option) == key)
    }

    /// Changes these settings. They may exclude each other then; [`HintsSettings::validate`] tells.
    pub fn apply(&self, settings: &mut HintsSettings) {
        for option in &self.0 {
            settings.set_option(option);
        }
    }
}

impl TryFrom<Vec<String>> for HintsOptions {
    type Error = NoHintsOption;

    fn try_from(list: Vec<String>) -> Result<Self, NoHintsOption> {
        if list.len() > MOST {
            return Err(NoHintsOption::TooMany);
        }
        let mut any = HintsSettings::default();
        match list.iter().find(|option| !any.set_option(option)) {
            Some(unknown) => Err(NoHintsOption::Unknown(unknown.chars().take(80).collect())),
            None => Ok(Self(list)),
        }
    }
}

impl From<HintsOptions> for Vec<String> {
    fn from(options: HintsOptions) -> Self {
        options.0
    }
}

impl fmt::Display for HintsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::NumaAllocationStrategy;

    fn options(list: &[&str]) -> Result<HintsOptions, NoHintsOption> {
        HintsOptions::try_from(list.iter().map(|&option| option.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_change_settings_in_their_order() {
        let list = options(&[
            "full-pcpus-only",
            "align_by_socket = true",
            "align-by-socket=false",
            "numa-allocation-strategy=most-allocated",
            "prefer-align-cpus-by-uncorecache",
        ]);
        let list = list.unwrap();
        let mut settings = HintsSettings::default();
        list.apply(&mut settings);
        assert!(settings.full_pcpus_only && !settings.align_by_socket);
        assert!(settings.prefer_align_cpus_by_uncore_cache);
        assert_ne!(settings.numa_allocation_strategy, NumaAllocationStrategy::None);
        for key in ["full_pcpus_only", "align_by_socket", "prefer_align_cpus_by_uncore_cache"] {
            assert!(list.sets(key), "{key}");
        }
        assert!(!list.sets("strict_cpu_reservation") && !list.is_empty());
        assert!(list.to_string().starts_with("full-pcpus-only, align_by_socket"));
    }

    #[test]
    fn what_the_engine_does_not_know_is_no_option() {
        for bad in ["", "policy=none", "full-pcpus-only=maybe", "full pcpus only", "numa-allocation-strategy"]
        {
            assert_eq!(options(&[bad]), Err(NoHintsOption::Unknown(bad.to_owned())), "{bad}");
        }
        assert_eq!(options(&["align-by-socket"; 17]), Err(NoHintsOption::TooMany));
        assert!(options(&["align-by-socket"; 16]).is_ok());
    }
}
