//! A container as affinity rules see it.

use std::collections::BTreeMap;

use crate::{pod_name::PodName, qos::QosClass};

/// A container as rules see it.
#[derive(Debug, Clone, Copy)]
pub struct AffinitySubject<'a> {
    /// Its pod.
    pub pod: &'a PodName,
    /// Its name.
    pub container: &'a str,
    /// `QoS` class of its pod.
    pub qos: Option<QosClass>,
    /// Labels of its pod.
    pub labels: &'a BTreeMap<String, String>,
}
