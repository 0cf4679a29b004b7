//! Key and value names of the kubelet and the topology-aware policy, in the published schema.
//!
//! A derived schema does not contain serde aliases, so an editor that validates a file against it would
//! refuse names that the program accepts. This module gives each alias the schema of the key or value that it
//! stands for, and marks it with `x-same-as` for tools that list aliases.
//!
//! The parser does not use this module: aliases that it accepts are at the fields. A test of the
//! configuration (`enforcer/src/config/kinds.rs`) keeps both consistent.

use schemars::Schema;

/// An alias, and its name in the schema.
type Alias = (&'static str, &'static str);

const OPTIONS: &[Alias] = &[
    ("align-by-socket", "align_by_socket"),
    ("distribute-cpus-across-cores", "distribute_cpus_across_cores"),
    ("distribute-cpus-across-numa", "distribute_cpus_across_numa"),
    ("full-pcpus-only", "full_pcpus_only"),
    ("numa-allocation-strategy", "numa_allocation_strategy"),
    ("prefer-align-cpus-by-uncorecache", "prefer_align_cpus_by_uncore_cache"),
    ("prefer_align_cpus_by_uncorecache", "prefer_align_cpus_by_uncore_cache"),
    ("prefer-closest-numa-nodes", "prefer_closest_numa_nodes"),
    ("strict-cpu-reservation", "strict_cpu_reservation"),
];

pub(super) fn of_placement(schema: &mut Schema) {
    keys(
        schema,
        &[
            ("AvailableResources", "available"),
            ("availableResources", "available"),
            ("ReservedResources", "reserved"),
            ("reservedResources", "reserved"),
        ],
    );
}

pub(super) fn of_resources(schema: &mut Schema) {
    keys(schema, &[("cpu", "cpus"), ("CPU", "cpus")]);
}

pub(super) fn of_hints(schema: &mut Schema) {
    keys(schema, OPTIONS);
    keys(
        schema,
        &[
            ("max-allowable-numa-nodes", "max_allowable_numa_nodes"),
            ("memoryManagerPolicy", "memory_manager_policy"),
            ("topologyManagerPolicy", "policy"),
            ("topologyManagerScope", "scope"),
        ],
    );
}

pub(super) fn of_rule(schema: &mut Schema) {
    keys(schema, OPTIONS);
    keys(schema, &[("memoryManagerPolicy", "memory_manager_policy")]);
}

pub(super) fn of_pools(schema: &mut Schema) {
    keys(
        schema,
        &[
            ("pinCPU", "pin_cpu"),
            ("PinCPU", "pin_cpu"),
            ("pinMemory", "pin_memory"),
            ("PinMemory", "pin_memory"),
            ("preferIsolatedCPUs", "prefer_isolated_cpus"),
            ("PreferIsolatedCPUs", "prefer_isolated_cpus"),
            ("preferSharedCPUs", "prefer_shared_cpus"),
            ("PreferSharedCPUs", "prefer_shared_cpus"),
            ("reservedPoolNamespaces", "reserved_pool_namespaces"),
            ("ReservedPoolNamespaces", "reserved_pool_namespaces"),
            ("colocatePods", "colocate_pods"),
            ("ColocatePods", "colocate_pods"),
            ("colocateNamespaces", "colocate_namespaces"),
            ("ColocateNamespaces", "colocate_namespaces"),
            ("unlimitedBurstable", "unlimited_burstable"),
            ("UnlimitedBurstable", "unlimited_burstable"),
            ("defaultCPUPriority", "default_cpu_priority"),
            ("DefaultCPUPriority", "default_cpu_priority"),
        ],
    );
}

pub(super) fn of_engines(schema: &mut Schema) {
    words(schema, &[("topology-aware", "pools")]);
}

pub(super) fn of_memory_manager(schema: &mut Schema) {
    words(schema, &[("None", "none"), ("Static", "static")]);
}

pub(super) fn of_levels(schema: &mut Schema) {
    words(schema, &[("socket", "package"), ("l3", "l3cache")]);
}

fn keys(schema: &mut Schema, aliases: &[Alias]) {
    let Some(known) = schema.get_mut("properties").and_then(|known| known.as_object_mut()) else { return };
    for (alias, name) in aliases {
        let Some(mut same) = known.get(*name).cloned() else { continue };
        if let Some(same) = same.as_object_mut() {
            same.remove("default");
            same.insert("description".into(), another_name_of(name).into());
            same.insert("x-same-as".into(), (*name).into());
        }
        known.insert((*alias).into(), same);
    }
}

fn words(schema: &mut Schema, aliases: &[Alias]) {
    let Some(known) = schema.get_mut("oneOf").and_then(|known| known.as_array_mut()) else { return };
    for (alias, word) in aliases {
        let named = known.iter().find(|one| one.get("const").and_then(|of| of.as_str()) == Some(*word));
        let Some(mut same) = named.cloned() else { continue };
        if let Some(same) = same.as_object_mut() {
            same.insert("description".into(), another_name_of(word).into());
            same.insert("const".into(), (*alias).into());
        }
        known.push(same);
    }
}

fn another_name_of(name: &str) -> String {
    format!("Another name of `{name}`.")
}
