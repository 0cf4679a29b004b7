//! The configuration in the answer of the kubelet's `/configz`.
//!
//! It is the merged configuration of the process, its flags included: `{"kubeletconfig": {...}}`
//! (`initConfigz` of `cmd/kubelet/app/server.go`). So it wins over the files.

use enforcer_core::cluster::state::ConfigurationSource;
use serde_json::Value;
use thiserror::Error;

use super::{
    ReadConfiguration,
    configuration::{Configuration, FieldFault},
    document::{DocumentFault, json},
};

/// Key of the kubelet's own configuration.
const KEY: &str = "kubeletconfig";

/// Policies that a kubelet with defaults has always set. Without one of them the answer is of something else.
const ALWAYS_SET: [&str; 3] = ["cpuManagerPolicy", "topologyManagerPolicy", "topologyManagerScope"];

/// Why an answer is not a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigzFault {
    /// Not JSON, or beyond the limits.
    #[error(transparent)]
    Document(#[from] DocumentFault),
    /// Another answer.
    #[error("no map {KEY:?} in it")]
    NoConfiguration,
    /// A field that the kubelet would refuse.
    #[error(transparent)]
    Field(#[from] FieldFault),
    /// A field that each kubelet has is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
}

/// Parses the body of the answer.
///
/// # Errors
/// It is not the configuration of a kubelet.
pub fn parse_configz(body: &[u8]) -> Result<ReadConfiguration, ConfigzFault> {
    let answer = json(body)?;
    let fields = answer.get(KEY).and_then(Value::as_object).ok_or(ConfigzFault::NoConfiguration)?;
    let is_missing =
        |name: &&str| fields.get(*name).is_none_or(|value| value.as_str().is_none_or(str::is_empty));
    if let Some(name) = ALWAYS_SET.into_iter().find(is_missing) {
        return Err(ConfigzFault::Missing(name));
    }
    let mut configuration = Configuration::from_fields(fields)?;
    // Of versions before 1.22, and of fields that are not written when they are empty.
    configuration.fill_defaults();
    Ok(ReadConfiguration { source: ConfigurationSource::Configz, configuration, unread: Vec::new() })
}
