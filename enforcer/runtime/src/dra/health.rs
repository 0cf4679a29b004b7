//! The health of devices, as a stream that the kubelet keeps open.
//!
//! The kubelet takes a device for unknown if nothing is said of it for the time that the message names, so
//! the report is repeated well within that. It opens the stream on every plugin, whether its registration
//! names the service or not. An end of the stream takes back all that it has said.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message as _;
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use super::{
    grpc::AnswerStream,
    messages::{DeviceIdentifier, HealthMessage, WatchResponse},
};

/// Time between two equal reports.
const AGAIN: Duration = Duration::from_secs(10);
/// Seconds for which the kubelet believes a report.
const VALID_SECONDS: i64 = 20;
/// Longest message that the kubelet keeps.
const LONGEST_MESSAGE: usize = 1_024;

/// How a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceCondition {
    /// It can be used.
    Healthy,
    /// It cannot, for this reason.
    Unhealthy(String),
}

/// How all devices of the driver are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceHealthReport {
    /// Their pool.
    pub pool: String,
    /// Devices by name.
    pub devices: Vec<(String, DeviceCondition)>,
}

impl DeviceHealthReport {
    fn message(&self, at: i64) -> WatchResponse {
        let device = |(name, condition): &(String, DeviceCondition)| {
            let (health, message) = match condition {
                DeviceCondition::Healthy => (1, String::new()),
                DeviceCondition::Unhealthy(why) => (2, bounded(why)),
            };
            HealthMessage {
                device: Some(DeviceIdentifier { pool_name: self.pool.clone(), device_name: name.clone() }),
                health,
                last_updated_time: at,
                health_check_timeout_seconds: VALID_SECONDS,
                message,
            }
        };
        WatchResponse { devices: self.devices.iter().map(device).collect() }
    }
}

fn bounded(text: &str) -> String {
    text.get(..text.floor_char_boundary(LONGEST_MESSAGE)).unwrap_or_default().to_owned()
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The report now, at each change, and every ten seconds; ends with the client or the reports.
pub(super) fn stream(mut reports: watch::Receiver<DeviceHealthReport>) -> AnswerStream {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let report = reports.borrow_and_update().message(now()).encode_to_vec();
            if sender.send(Ok(report)).await.is_err() {
                return;
            }
            tokio::select! {
                () = sender.closed() => return,
                changed = timeout(AGAIN, reports.changed()) => {
                    if matches!(changed, Ok(Err(_))) {
                        return;
                    }
                }
            }
        }
    });
    AnswerStream(receiver)
}
