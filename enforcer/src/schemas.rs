//! The published JSON Schemas, which are the files of docs/schema.
//!
//! What generates them from the types is larger than they are, and is in the tests alone, which keep the
//! files equal to the types. The program has them packed: as text they would be a fiftieth of it.

use std::io::{self, Read};

use flate2::bufread::GzDecoder;

/// A schema, as the build packs it.
#[derive(Debug, Clone, Copy)]
pub struct PackedSchema(&'static [u8]);

macro_rules! packed {
    ($name:literal) => {
        PackedSchema(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".schema.json.gz")))
    };
}

/// Of `audit -o json`.
pub const AUDIT: PackedSchema = packed!("audit");
/// Of the answers of the daemon's control socket.
pub const CONTROL: PackedSchema = packed!("control");
/// Of the configuration file.
pub const CONFIG: PackedSchema = packed!("config");
/// Of `plan -o json`.
pub const PLAN: PackedSchema = packed!("plan");
/// Of `plan --cluster -o json`.
pub const CLUSTER_PLAN: PackedSchema = packed!("cluster-plan");
/// Of `explain pod -o json`.
pub const POD_EXPLANATION: PackedSchema = packed!("pod-explanation");
/// Of `cluster check -o json`.
pub const CLUSTER_CHECK: PackedSchema = packed!("cluster-check");
/// Of `rebalance -o json`.
pub const REBALANCE: PackedSchema = packed!("rebalance");
/// Of `replay -o json`.
pub const REPLAY: PackedSchema = packed!("replay");
/// Of `topology -o json`.
pub const TOPOLOGY: PackedSchema = packed!("topology");
/// Of the outputs about several nodes.
pub const CLUSTER: PackedSchema = packed!("cluster");
/// Of `doctor -o json`.
pub const DOCTOR: PackedSchema = packed!("doctor");

impl PackedSchema {
    /// The schema as text.
    ///
    /// # Errors
    /// If the program is damaged.
    pub fn text(self) -> io::Result<String> {
        let mut text = String::new();
        GzDecoder::new(self.0).read_to_string(&mut text)?;
        Ok(text)
    }
}
