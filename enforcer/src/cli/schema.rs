//! `numa-enforcer schema`: the JSON Schemas of what goes in and comes out.

use std::io::Write;

use anyhow::Context;

use super::{Exit, args};
use crate::schemas::{self, PackedSchema};

pub(super) fn run(args: &args::Schema, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let text = published(args.of).text().context("unpacking the schema of this program")?;
    out.write_all(text.as_bytes())?;
    Ok(Exit::Ok)
}

const fn published(of: args::SchemaOf) -> PackedSchema {
    match of {
        args::SchemaOf::Audit => schemas::AUDIT,
        args::SchemaOf::Control => schemas::CONTROL,
        args::SchemaOf::Config => schemas::CONFIG,
        args::SchemaOf::Plan => schemas::PLAN,
        args::SchemaOf::ClusterPlan => schemas::CLUSTER_PLAN,
        args::SchemaOf::PodExplanation => schemas::POD_EXPLANATION,
        args::SchemaOf::ClusterCheck => schemas::CLUSTER_CHECK,
        args::SchemaOf::Rebalance => schemas::REBALANCE,
        args::SchemaOf::Replay => schemas::REPLAY,
        args::SchemaOf::Topology => schemas::TOPOLOGY,
        args::SchemaOf::Cluster => schemas::CLUSTER,
        args::SchemaOf::Doctor => schemas::DOCTOR,
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
            if published(*of).text().unwrap().as_bytes() == generated {
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
