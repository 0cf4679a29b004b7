//! Errors in an entry beyond what its types refuse: matchers that can never match together, and requests that
//! cannot be granted.

use std::{collections::BTreeSet, fmt};

use super::{WorkloadRule, hints_of_cgroups};
use crate::{
    named::Named as _,
    partition::Partition,
    policy::{
        DeclaredClass, NameGlob, PolicyError, Relation, at_odds,
        placement::{PlacementEngine, PlacementSettings},
        quoted, refused,
    },
    workload::{SLICE_SUFFIX, UNIT_SUFFIXES},
};
use numa_topology::set::NodeSet;

/// Maximum length of a command in the kernel in bytes (`TASK_COMM_LEN` without the terminating NUL).
const LONGEST_COMMAND: usize = 15;
/// Maximum length of a label's key with its prefix and of its value in bytes, in Kubernetes.
const LONGEST_LABEL: (usize, usize) = (317, 63);
/// Maximum length of a device name in bytes: more than the kernel uses.
const LONGEST_DEVICE: usize = 64;
/// Maximum number of devices of an entry.
const MOST_DEVICES: usize = 16;

/// Checks all entries: each can match something, none has the matchers of an earlier one, and each can be
/// granted.
pub(in crate::policy) fn validate(
    rules: &[WorkloadRule],
    placement: &PlacementSettings,
) -> Result<(), PolicyError> {
    let (mut names, mut earlier) = (BTreeSet::new(), BTreeSet::new());
    for (index, rule) in rules.iter().enumerate() {
        let entry = RuleChecker { rule, section: format!("workload[{index}]") };
        if rule.name.trim().is_empty() {
            return entry.refused("name", quoted(&rule.name), "a workload needs a name");
        }
        if !names.insert(&rule.name) {
            return entry.refused("name", quoted(&rule.name), "the name is used twice");
        }
        entry.matchers()?;
        if !earlier.insert(rule.matchers()) {
            return entry.whole("an entry before it has the same matchers, so it never counts");
        }
        entry.wishes(placement)?;
    }
    Ok(())
}

struct RuleChecker<'a> {
    rule: &'a WorkloadRule,
    section: String,
}

impl RuleChecker<'_> {
    fn refused<T>(
        &self,
        key: &str,
        value: impl fmt::Display,
        problem: &'static str,
    ) -> Result<T, PolicyError> {
        Err(refused(self.key(key), value, problem))
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.section)
    }

    fn of(&self, name: &str, value: String) -> (String, String) {
        (self.key(name), value)
    }

    /// An error about the entry as a whole, identified by its name.
    fn whole<T>(&self, problem: &'static str) -> Result<T, PolicyError> {
        Err(refused(self.section.clone(), quoted(&self.rule.name), problem))
    }

    fn matchers(&self) -> Result<(), PolicyError> {
        let WorkloadRule { cgroup, unit, command, labels, .. } = self.rule;
        let pods = self.rule.names_pods();
        if cgroup.is_none() && unit.is_none() && command.is_none() && !pods {
            return self.whole(
                "say what it is about: cgroup, unit, command, namespace, pod, container or labels is expected",
            );
        }
        if let Some(unit) = unit {
            if pods {
                return self.refused("unit", quoted(unit.as_str()), "no container of a pod is a unit");
            }
            if unit.as_str().ends_with(SLICE_SUFFIX) {
                return self.refused("unit", quoted(unit.as_str()), "nothing runs in a slice itself");
            }
            let literal = |unit: &NameGlob| !has_wildcard(unit.as_str());
            if literal(unit) && !UNIT_SUFFIXES.iter().any(|suffix| unit.as_str().ends_with(suffix)) {
                return self.refused(
                    "unit",
                    quoted(unit.as_str()),
                    "a unit's name has its type behind it, as in redis.service",
                );
            }
        }
        if let Some(command) = command {
            if pods {
                return self.refused(
                    "command",
                    quoted(command.as_str()),
                    "pods are not known by commands, which their containers choose themselves",
                );
            }
            if !has_wildcard(command.as_str()) && command.as_str().len() > LONGEST_COMMAND {
                return self.refused(
                    "command",
                    quoted(command.as_str()),
                    "the kernel keeps 15 bytes of a command, so no process is called that",
                );
            }
        }
        let (longest_key, longest_value) = LONGEST_LABEL;
        for (key, value) in labels {
            if key.is_empty() || key.len() > longest_key || value.len() > longest_value {
                return self.refused("labels", quoted(key), "no label is called that or has such a value");
            }
        }
        Ok(())
    }

    fn wishes(&self, placement: &PlacementSettings) -> Result<(), PolicyError> {
        let WorkloadRule {
            cpus,
            numa_nodes,
            memory_types,
            engine,
            policy,
            options,
            class,
            partition,
            enforce,
            ..
        } = self.rule;
        if cpus.is_none() && *enforce && !self.rule.names_pods() {
            return self.whole("cpus is missing: only containers of pods say themselves what they need");
        }
        if numa_nodes.as_ref().is_some_and(NodeSet::is_empty) {
            return self.refused("numa_nodes", quoted(""), "leave the key out to allow every node");
        }
        self.devices()?;
        let pools = *engine == Some(PlacementEngine::Pools);
        if memory_types.is_some() && !pools {
            let problem =
                "only the engine pools knows kinds of memory: engine = \"pools\" is expected beside it";
            return self.refused("memory_types", "[...]", problem);
        }
        if let Some(class @ (DeclaredClass::Isolated | DeclaredClass::Reserved)) = class
            && !pools
        {
            let class = format!("{class:?}").to_lowercase();
            let problem = "only the engine pools gives such CPUs: engine = \"pools\" is expected beside it";
            return self.refused("class", quoted(&class), problem);
        }
        if let (
            Some(Partition::Root | Partition::Isolated),
            Some(DeclaredClass::Shared | DeclaredClass::Reserved),
        ) = (partition, class)
        {
            let relation = Relation::excludes(
                "only CPUs that are the workload's own can be one: class = \"exclusive\" is expected",
            );
            let class = class.map(|class| format!("{class:?}").to_lowercase()).unwrap_or_default();
            let partition = quoted(partition.unwrap_or_default().name());
            return Err(at_odds(self.of("partition", partition), relation, self.of("class", quoted(&class))));
        }
        if let Some(policy) = policy.filter(|_| pools) {
            let relation = Relation::excludes("the engine pools has no policies");
            let policy = self.of("policy", quoted(policy.as_str()));
            return Err(at_odds(policy, relation, self.of("engine", quoted("pools"))));
        }
        if !options.is_empty() {
            if pools {
                let relation = Relation::excludes("the engine pools has no such options");
                let options = self.of("options", quoted(&options.to_string()));
                return Err(at_odds(options, relation, self.of("engine", quoted("pools"))));
            }
            if *class == Some(DeclaredClass::Shared) {
                let relation = Relation::excludes("the options are about exclusive CPUs");
                let options = self.of("options", quoted(&options.to_string()));
                return Err(at_odds(options, relation, self.of("class", quoted("shared"))));
            }
        }
        self.hints(placement)
    }

    /// Its policy and its options, beside those of the host for pods.
    fn hints(&self, placement: &PlacementSettings) -> Result<(), PolicyError> {
        const SECTION: &str = "placement.hints";
        let WorkloadRule { policy, options, .. } = self.rule;
        let mut hints = if self.rule.names_pods() { placement.hints.clone() } else { hints_of_cgroups() };
        hints.policy = policy.unwrap_or(hints.policy);
        options.apply(&mut hints);
        let own = |key: &str| {
            let name = key.strip_prefix(SECTION)?.strip_prefix('.')?;
            match name {
                "policy" => policy.is_some().then(|| self.key("policy")),
                _ => options.sets(name).then(|| self.key("options")),
            }
        };
        let about = self.key(if options.is_empty() { "policy" } else { "options" });
        if policy.is_none() && options.is_empty() {
            return Ok(());
        }
        hints.validate(SECTION).map_err(|error| error.renamed(own).about(&about))
    }

    fn devices(&self) -> Result<(), PolicyError> {
        let devices = &self.rule.devices;
        if devices.len() > MOST_DEVICES {
            return self.refused("devices", devices.len(), "at most 16 devices are expected");
        }
        for (index, device) in devices.iter().enumerate() {
            let key = format!("devices[{index}]");
            if device.is_empty() || device.len() > LONGEST_DEVICE {
                return self.refused(&key, quoted(device), "no device is called that");
            }
            if devices.iter().take(index).any(|earlier| earlier == device) {
                return self.refused(&key, quoted(device), "the device is there twice");
            }
        }
        Ok(())
    }
}

/// Can the glob match more than its own text?
fn has_wildcard(glob: &str) -> bool {
    glob.contains(['*', '?', '[', '{', '\\'])
}
