//! `numa-enforcer schema`: the JSON Schemas of what goes in and comes out.
//!
//! They are the files of docs/schema: what generates them from the types is larger than they are, and is in
//! the tests alone, which keep the files equal to the types.

use std::io::Write;

use super::{Exit, args};

pub(super) fn run(args: &args::Schema, out: &mut dyn Write) -> anyhow::Result<Exit> {
    out.write_all(published(args.of).as_bytes())?;
    Ok(Exit::Ok)
}

const fn published(of: args::SchemaOf) -> &'static str {
    match of {
        args::SchemaOf::Audit => include_str!("../../../docs/schema/audit.schema.json"),
        args::SchemaOf::Control => include_str!("../../../docs/schema/control.schema.json"),
        args::SchemaOf::Config => crate::config::SCHEMA,
        args::SchemaOf::Plan => include_str!("../../../docs/schema/plan.schema.json"),
        args::SchemaOf::ClusterPlan => include_str!("../../../docs/schema/cluster-plan.schema.json"),
        args::SchemaOf::PodExplanation => include_str!("../../../docs/schema/pod-explanation.schema.json"),
        args::SchemaOf::ClusterCheck => include_str!("../../../docs/schema/cluster-check.schema.json"),
        args::SchemaOf::Rebalance => include_str!("../../../docs/schema/rebalance.schema.json"),
        args::SchemaOf::Replay => include_str!("../../../docs/schema/replay.schema.json"),
        args::SchemaOf::Topology => include_str!("../../../docs/schema/topology.schema.json"),
        args::SchemaOf::Cluster => include_str!("../../../docs/schema/cluster.schema.json"),
        args::SchemaOf::Doctor => include_str!("../../../docs/schema/doctor.schema.json"),
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use clap::ValueEnum;
    use enforcer_core::{
        audit::Audit,
        cluster::{check::ClusterCheckReport, explain::PodExplanation, plan::ClusterPlanReport},
        policy::Policy,
        rebalance::RebalanceReport,
        replay::ReplayReport,
    };
    use numa_placement::trial::PlanReport;
    use numa_topology::Topology;
    use schemars::{
        Schema, schema_for,
        transform::{RecursiveTransform, Transform as _},
    };
    use serde_json::Value;

    use super::*;
    use crate::serve::api::Control;
    use enforcer_report::{checks::Diagnosis, cluster::ClusterOutputs, json};

    fn of_the_types(of: args::SchemaOf) -> Schema {
        let mut schema = match of {
            args::SchemaOf::Audit => schema_for!(Audit),
            args::SchemaOf::Control => schema_for!(Control),
            args::SchemaOf::Config => schema_for!(Policy),
            args::SchemaOf::Plan => schema_for!(PlanReport),
            args::SchemaOf::ClusterPlan => schema_for!(ClusterPlanReport),
            args::SchemaOf::PodExplanation => schema_for!(PodExplanation),
            args::SchemaOf::ClusterCheck => schema_for!(ClusterCheckReport),
            args::SchemaOf::Rebalance => schema_for!(RebalanceReport),
            args::SchemaOf::Replay => schema_for!(ReplayReport),
            args::SchemaOf::Topology => schema_for!(Topology),
            args::SchemaOf::Cluster => schema_for!(ClusterOutputs),
            args::SchemaOf::Doctor => schema_for!(Diagnosis),
        };
        RecursiveTransform(unwrap_description).transform(&mut schema);
        schema
    }

    /// Line breaks of a comment mean nothing in a schema; its empty lines do.
    fn unwrap_description(schema: &mut Schema) {
        if let Some(Value::String(text)) = schema.get_mut("description") {
            let paragraphs: Vec<_> = text.split("\n\n").map(|lines| lines.replace('\n', " ")).collect();
            *text = paragraphs.join("\n\n");
        }
    }

    #[test]
    fn published_schemas_are_those_of_the_types() {
        let mut others = Vec::new();
        for of in args::SchemaOf::value_variants() {
            let mut generated = Vec::new();
            json::write(&of_the_types(*of), &mut generated).unwrap();
            if published(*of).as_bytes() == generated {
                continue;
            }
            let name = format!("{}.schema.json", of.to_possible_value().unwrap().get_name());
            if env::var_os("UPDATE_SCHEMAS").is_some() {
                let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schema");
                fs::write(folder.join(&name), &generated).unwrap();
            }
            others.push(name);
        }
        assert!(
            others.is_empty(),
            "of docs/schema {others:?} were not the schemas of the types; regenerate them with\n    \
             UPDATE_SCHEMAS=1 cargo test -p enforcer --lib schema"
        );
    }
}
