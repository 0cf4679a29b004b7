//! `[memory]`: page migration, demotion to slower memory, and more nodes for workloads that run out of
//! memory.

mod widening;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

pub use self::widening::{Brake, WideningSettings};
use super::{ByteSize, HumanDuration, PolicyError, Relation, WorkloadRule, at_odds, quoted, refused};
use crate::named::Named as _;
use crate::pacing::CallPacerLimits;

/// Minimum idle time of a cold page.
const SHORTEST_IDLE: HumanDuration = HumanDuration::from_secs(1);
/// Maximum idle time of a cold page.
const LONGEST_IDLE: HumanDuration = HumanDuration::from_secs(24 * 3600);
/// Maximum time of a call that moves pages.
const LONGEST_CALL: HumanDuration = HumanDuration::from_secs(1);

/// Settings of page placement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemorySettings {
    /// Moving pages to a workload's nodes.
    pub moves: MoveSettings,
    /// Moving cold pages to slower memory.
    pub demotion: DemotionSettings,
    /// More memory nodes for a workload with nearly full nodes.
    pub widening: WideningSettings,
}

/// How pages are moved after a workload got a new place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MoveSettings {
    /// Maximum bytes per second; no bound when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<ByteSize>,
    /// Target time of one call to the kernel; its size is adjusted to the measured time.
    pub call_time: HumanDuration,
}

/// Pages without accesses go to slower memory and come back when accessed there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DemotionSettings {
    /// Default for all declared workloads with `enforce = true`; an entry can override it.
    pub enabled: bool,
    /// Pages without an access for this long are cold.
    pub idle: HumanDuration,
    /// Maximum bytes per second, of all workloads together.
    pub bytes_per_second: ByteSize,
    /// Mechanism that moves cold pages; `move-pages` if this one is not safe.
    pub backend: DemotionBackend,
}

/// Mechanism that moves pages to slower memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum DemotionBackend {
    /// This daemon, page by page with `move_pages(2)`: the kernel refuses nodes outside the cpuset.
    #[default]
    MovePages,
    /// A DAMON thread (`migrate_cold`), which checks again whether they are cold.
    Damos,
    /// The kernel's reclaim (`memory.reclaim`), which selects pages by its own lists. Only where an
    /// administrator has turned the kernel's demotion on.
    Reclaim,
}

impl MemorySettings {
    pub(super) fn validate(&self, rules: &[WorkloadRule]) -> Result<(), PolicyError> {
        let Self { moves, demotion, widening } = self;
        widening.validate()?;
        let of_entry = || {
            let at = rules.iter().position(|rule| rule.demotion == Some(true))?;
            Some(format!("workload[{at}].demotion"))
        };
        let demotes = demotion.enabled.then(|| "memory.demotion.enabled".to_owned()).or_else(of_entry);
        if let Some(demotes) = demotes.filter(|_| widening.brake == Brake::High) {
            let brake = ("memory.widening.brake", quoted(widening.brake.name()));
            let relation = Relation::excludes(Brake::NOT_BESIDE_DEMOTION);
            return Err(at_odds(brake, relation, (demotes, true)));
        }
        for (key, rate) in [
            ("memory.moves.bytes_per_second", moves.bytes_per_second),
            ("memory.demotion.bytes_per_second", Some(demotion.bytes_per_second)),
        ] {
            if rate == Some(ByteSize(0)) {
                return Err(refused(key, 0, "it must be more than nothing"));
            }
        }
        if moves.call_time.is_zero() || moves.call_time > LONGEST_CALL {
            return Err(refused("memory.moves.call_time", moves.call_time, "1ms to 1s is expected"));
        }
        if !(SHORTEST_IDLE..=LONGEST_IDLE).contains(&demotion.idle) {
            return Err(refused("memory.demotion.idle", demotion.idle, "1s to 24h is expected"));
        }
        Ok(())
    }
}

impl MoveSettings {
    /// Settings as limits of a pace.
    pub fn pace(&self) -> CallPacerLimits {
        let bytes_per_second = self.bytes_per_second.map(|size| size.0);
        CallPacerLimits { bytes_per_second, call: self.call_time.get(), ..CallPacerLimits::default() }
    }
}

impl DemotionSettings {
    /// Does it apply to the workloads of this entry?
    pub fn is_for(&self, rule: &WorkloadRule) -> bool {
        rule.demotion.unwrap_or(self.enabled && rule.enforce)
    }
}

impl Default for MoveSettings {
    fn default() -> Self {
        Self { bytes_per_second: None, call_time: CallPacerLimits::default().call.into() }
    }
}

impl Default for DemotionSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            idle: HumanDuration::from_secs(120),
            bytes_per_second: ByteSize(100 << 20),
            backend: DemotionBackend::MovePages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Brake, DemotionBackend};
    use crate::named::Named as _;
    use crate::policy::Policy;

    #[test]
    fn what_cannot_be_is_refused_by_its_key() {
        for (text, key) in [
            ("moves.bytes_per_second = \"0\"", "memory.moves.bytes_per_second"),
            ("moves.call_time = \"0ms\"", "memory.moves.call_time"),
            ("moves.call_time = \"2s\"", "memory.moves.call_time"),
            ("demotion.bytes_per_second = \"0\"", "memory.demotion.bytes_per_second"),
            ("demotion.idle = \"500ms\"", "memory.demotion.idle"),
            ("demotion.idle = \"25h\"", "memory.demotion.idle"),
        ] {
            let policy: Policy = toml::from_str(&format!("[memory]\n{text}\n")).unwrap();
            assert_eq!(policy.validate().unwrap_err().key, key);
        }
        Policy::default().validate().unwrap();
    }

    #[test]
    fn the_brake_is_off_and_memory_high_is_none_beside_demotion() {
        let of = |text: &str| -> Policy { toml::from_str(text).unwrap() };
        let rule = "[[workload]]\nname = \"a\"\ncgroup = \"/a\"\ncpus = 1\n";
        assert_eq!(of("").memory.widening.brake, Brake::Off);
        for (brake, demotion, own, refused) in [
            ("high", false, "", false),
            ("high", true, "", true),
            ("high", false, "demotion = true", true),
            ("high", false, "demotion = false", false),
            ("freeze", true, "demotion = true", false),
            ("off", true, "demotion = true", false),
        ] {
            let policy = of(&format!(
                "[memory.widening]\nbrake = \"{brake}\"\n[memory.demotion]\nenabled = {demotion}\n{rule}{own}\n"
            ));
            let found = policy.validate();
            assert_eq!(found.is_err(), refused, "{brake} {demotion} {own}");
            if let Err(error) = found {
                assert_eq!(error.key, "memory.widening.brake");
                assert!(error.to_string().contains("demotion is on"), "{error}");
            }
        }
    }

    #[test]
    fn the_backend_is_move_pages_and_has_the_name_that_the_configuration_gives_it() {
        assert_eq!(Policy::default().memory.demotion.backend, DemotionBackend::MovePages);
        for backend in [DemotionBackend::MovePages, DemotionBackend::Damos, DemotionBackend::Reclaim] {
            let text = format!("[memory.demotion]\nbackend = \"{}\"\n", backend.name());
            let policy: Policy = toml::from_str(&text).unwrap();
            assert_eq!(policy.memory.demotion.backend, backend, "{text}");
        }
    }

    #[test]
    fn an_entry_says_for_itself_whether_its_cold_pages_move() {
        for (settings, keys, expected) in [
            ("enabled = false", "", false),
            ("enabled = false", "demotion = true", true),
            ("enabled = true", "", true),
            ("enabled = true", "demotion = false", false),
            ("enabled = true", "enforce = false", false),
            // The place of its pages does not depend on where it is placed.
            ("enabled = true", "enforce = false\ndemotion = true", true),
        ] {
            let text = format!(
                "[memory.demotion]\n{settings}\n[[workload]]\nname = \"a\"\ncgroup = \"/a\"\ncpus = 1\n{keys}\n"
            );
            let policy: Policy = toml::from_str(&text).unwrap();
            policy.validate().unwrap();
            assert_eq!(policy.memory.demotion.is_for(&policy.workloads[0]), expected, "{settings} {keys}");
        }
    }
}
