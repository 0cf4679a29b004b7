//! The kubelet's effective configuration: which settings it places pods by.
//!
//! Problem: a prediction of what a node admits repeats the kubelet's decision, and needs the settings of the
//! process that runs, not those of a file that was changed since. Idea: the process is the first source
//! ([`parse_configz`], which another crate fetches); without it, its files and its command line are merged as
//! it merged them ([`read_files`]).
//!
//! Invariants: a setting is known or named in `inexact`, and never guessed. Where any file cannot be used,
//! only flags are known. Nothing here asks the network, and no file but those that the command line names is
//! read.

mod certificates;
mod command_line;
mod configuration;
mod configz;
mod document;
mod effective;
mod files;
mod merge;
mod process;
#[cfg(test)]
mod tests;
mod written;

use enforcer_core::cluster::state::{ConfigurationSource, InexactSource};

use self::configuration::Configuration;
pub use self::{
    certificates::serving_certificates,
    configuration::{FieldFault, ReservedNodeMemory},
    configz::{ConfigzFault, parse_configz},
    document::{DocumentFault, parse_document},
    effective::{EffectiveKubelet, KubeletReservations},
    files::read_files,
    process::{NoKubelet, RunningKubelet, find},
    written::{DocumentProblem, settings_of_document},
};

/// A configuration out of one source, and what of it could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadConfiguration {
    source: ConfigurationSource,
    configuration: Configuration,
    unread: Vec<InexactSource>,
}

impl ReadConfiguration {
    /// Whether all of it was read.
    pub fn is_complete(&self) -> bool {
        self.unread.is_empty()
    }

    /// Port of the kubelet's server, if it is known.
    pub fn port(&self) -> Option<u16> {
        self.configuration.port
    }
}

/// The effective settings of a kubelet.
///
/// `kubelet` is the process that runs, `files` what [`read_files`] has read for it, `configz` the answer of
/// the process itself, and `version` the node's `status.nodeInfo.kubeletVersion`. The answer counts; without
/// it the files do.
pub fn effective(
    kubelet: Result<&RunningKubelet, NoKubelet>,
    files: Option<&ReadConfiguration>,
    configz: Option<&ReadConfiguration>,
    version: Option<&str>,
) -> EffectiveKubelet {
    let Some(read) = configz.or(files) else {
        let reason =
            kubelet.err().map_or_else(|| "nothing of it was read".to_owned(), |none| none.to_string());
        let inexact = vec![effective::source("configuration", reason)];
        return EffectiveKubelet { inexact, ..EffectiveKubelet::default() };
    };
    let mut settings = effective::settings(&read.configuration, read.source, version, read.unread.clone());
    match kubelet {
        Ok(kubelet) => settings.profile.started_at = kubelet.started_at,
        Err(none) => settings.inexact.push(effective::source("process", none.to_string())),
    }
    effective::limit(&mut settings.inexact);
    settings
}
