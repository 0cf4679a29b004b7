//! The settings of a configuration that is only written: of a captured machine, whose kubelet does not run.

use enforcer_core::cluster::state::ConfigurationSource;
use thiserror::Error;

use super::{
    configuration::{Configuration, FieldFault, fill_eviction},
    document::{DocumentFault, parse_document},
    effective::{self, EffectiveKubelet},
};

/// Why a document is no configuration.
#[derive(Debug, Error)]
pub enum DocumentProblem {
    /// It is no document of that kind.
    #[error(transparent)]
    Document(#[from] DocumentFault),
    /// A field that the kubelet would refuse.
    #[error(transparent)]
    Field(#[from] FieldFault),
}

/// The settings of a `KubeletConfiguration`, for a kubelet of this version without drop-ins and flags.
///
/// # Errors
/// It is no configuration, or the kubelet would refuse it.
pub fn settings_of_document(bytes: &[u8], version: &str) -> Result<EffectiveKubelet, DocumentProblem> {
    let mut fields = parse_document(bytes)?;
    fill_eviction(&mut fields);
    let mut configuration = Configuration::from_fields(&fields)?;
    configuration.fill_defaults();
    Ok(effective::settings(&configuration, ConfigurationSource::Files, Some(version), Vec::new()))
}
