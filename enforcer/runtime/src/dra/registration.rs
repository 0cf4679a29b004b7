//! The registration: what the kubelet asks at the socket in its registry, and what it says afterwards.
//!
//! An error that is returned to its notice makes the kubelet drop the plugin again, so a notice is always
//! taken. The name of the socket has to contain an `@`: a kubelet calls it with the escaped path as authority
//! (`%2Fvar%2Flib...`), which the `http` crate takes for a host only behind one.

use prost::Message as _;
use tokio::sync::watch;

use super::{
    grpc::{AnswerStream, BoxedCall, GrpcMethods, decode},
    messages::{PluginIdentity, RegistrationStatus},
};

const GET_INFO: &str = "/pluginregistration.Registration/GetInfo";
const NOTIFY: &str = "/pluginregistration.Registration/NotifyRegistrationStatus";

/// Longest error of a kubelet that is kept.
const LONGEST_ERROR: usize = 500;

/// Services of the other socket, the newest first: the kubelet takes the first one that it knows.
const VERSIONS: [&str; 4] =
    ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

/// What the kubelet has said of the driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RegistrationNotice {
    /// It has not asked yet.
    #[default]
    Unasked,
    /// It has asked, and has not said what came of it.
    Asked,
    /// The driver is registered.
    Registered,
    /// The kubelet refuses the driver, for this reason.
    Refused(String),
}

/// The registration service of one driver.
#[derive(Debug)]
pub struct PluginRegistration {
    identity: PluginIdentity,
    notice: watch::Sender<RegistrationNotice>,
}

impl PluginRegistration {
    /// Of a driver with a service that listens at the path `endpoint`.
    #[must_use]
    pub fn new(driver: &str, endpoint: &str) -> Self {
        let identity = PluginIdentity {
            kind: "DRAPlugin".to_owned(),
            name: driver.to_owned(),
            endpoint: endpoint.to_owned(),
            supported_versions: VERSIONS.map(str::to_owned).to_vec(),
        };
        Self { identity, notice: watch::Sender::default() }
    }

    /// What the kubelet says, from now on.
    #[must_use]
    pub fn notices(&self) -> watch::Receiver<RegistrationNotice> {
        self.notice.subscribe()
    }
}

impl GrpcMethods for PluginRegistration {
    fn unary(&self, path: &str, request: Vec<u8>) -> Option<BoxedCall<'_>> {
        let answer = match path {
            GET_INFO => {
                self.notice.send_replace(RegistrationNotice::Asked);
                Ok(self.identity.encode_to_vec())
            }
            NOTIFY => decode::<RegistrationStatus>(&request).map(|status| {
                let error = status.error.chars().take(LONGEST_ERROR).collect();
                let refused = RegistrationNotice::Refused(error);
                let registered = RegistrationNotice::Registered;
                self.notice.send_replace(if status.plugin_registered { registered } else { refused });
                Vec::new()
            }),
            _ => return None,
        };
        Some(Box::pin(async { answer }))
    }

    fn stream(&self, _: &str) -> Option<AnswerStream> {
        None
    }
}
