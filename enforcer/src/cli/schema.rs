//! `numa-enforcer schema`: the JSON Schemas of what goes in and comes out, generated from the types.
//!
//! The files in docs/schema are this command's output; `tests/schema.rs` keeps them equal.

use std::io::Write;

use enforcer_core::{
    audit::Audit, policy::Policy, rebalance::RebalanceReport, replay::ReplayReport, topology::Topology,
    trial::PlanReport,
};
use schemars::schema_for;

use super::{Exit, args};
use crate::{
    report::{checks::Diagnosis, json},
    serve::api::Control,
};

pub(super) fn run(args: &args::Schema, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let schema = match args.of {
        args::SchemaOf::Audit => schema_for!(Audit),
        args::SchemaOf::Control => schema_for!(Control),
        args::SchemaOf::Config => schema_for!(Policy),
        args::SchemaOf::Plan => schema_for!(PlanReport),
        args::SchemaOf::Rebalance => schema_for!(RebalanceReport),
        args::SchemaOf::Replay => schema_for!(ReplayReport),
        args::SchemaOf::Topology => schema_for!(Topology),
        args::SchemaOf::Doctor => schema_for!(Diagnosis),
    };
    json::write(&schema, out)?;
    Ok(Exit::Ok)
}
