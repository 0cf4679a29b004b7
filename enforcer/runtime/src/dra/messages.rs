//! Messages of the plugin registration, of the DRA service, and of its health.
//!
//! The versions v1 and v1beta1 of the service have the same messages; v1beta1 of Kubernetes 1.36 does not
//! know `share_id` and skips it.

use std::collections::HashMap;

use prost::Message;

/// What a plugin says of itself.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PluginIdentity {
    /// `DRAPlugin`.
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    /// The driver's.
    #[prost(string, tag = "2")]
    pub(super) name: String,
    /// Path of the service socket.
    #[prost(string, tag = "3")]
    pub(super) endpoint: String,
    /// Services; the kubelet takes the first one that it knows.
    #[prost(string, repeated, tag = "4")]
    pub(super) supported_versions: Vec<String>,
}

/// What the kubelet made of a plugin.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    pub(super) plugin_registered: bool,
    #[prost(string, tag = "2")]
    pub(super) error: String,
}

/// A claim as the kubelet names it.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ClaimMessage {
    #[prost(string, tag = "1")]
    pub(super) namespace: String,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

/// Claims to be prepared, or to be unprepared.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ClaimsRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) claims: Vec<ClaimMessage>,
}

/// Answers by uid of the claim.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PrepareResponse {
    #[prost(map = "string, message", tag = "1")]
    pub(super) claims: HashMap<String, PrepareEntry>,
}

/// Devices of a claim, or why there are none.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PrepareEntry {
    #[prost(message, repeated, tag = "1")]
    pub(super) devices: Vec<DeviceMessage>,
    #[prost(string, tag = "2")]
    pub(super) error: String,
}

/// A device that a container may be given.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct DeviceMessage {
    #[prost(string, repeated, tag = "1")]
    pub(super) request_names: Vec<String>,
    #[prost(string, tag = "2")]
    pub(super) pool_name: String,
    #[prost(string, tag = "3")]
    pub(super) device_name: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) cdi_device_ids: Vec<String>,
    #[prost(string, optional, tag = "5")]
    pub(super) share_id: Option<String>,
}

/// Answers by uid of the claim.
#[derive(Clone, PartialEq, Message)]
pub(super) struct UnprepareResponse {
    #[prost(map = "string, message", tag = "1")]
    pub(super) claims: HashMap<String, UnprepareEntry>,
}

/// Why a claim is still prepared; empty if it is not.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct UnprepareEntry {
    #[prost(string, tag = "1")]
    pub(super) error: String,
}

/// The health of all devices.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) devices: Vec<HealthMessage>,
}

/// The health of one device.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct HealthMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) device: Option<DeviceIdentifier>,
    /// 0 unknown, 1 healthy, 2 unhealthy.
    #[prost(int32, tag = "2")]
    pub(super) health: i32,
    /// Seconds since 1970.
    #[prost(int64, tag = "3")]
    pub(super) last_updated_time: i64,
    /// Seconds after which the kubelet takes the device for unknown.
    #[prost(int64, tag = "4")]
    pub(super) health_check_timeout_seconds: i64,
    #[prost(string, tag = "5")]
    pub(super) message: String,
}

/// A device of a pool.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct DeviceIdentifier {
    #[prost(string, tag = "1")]
    pub(super) pool_name: String,
    #[prost(string, tag = "2")]
    pub(super) device_name: String,
}
