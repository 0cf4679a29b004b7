//! A Pod object as plans and checks read it.

use enforcer_core::cluster::objects::{PodArrival, PodClaim, PodObject, PodPhase, PodScheduling, Toleration};
use numa_placement::ContainerKind;

use super::seconds;
use crate::{
    pod_object::{
        ClaimFields, ContainerStatus, PodFields, PodStatus, ReadRequest, TolerationFields, VolumeFields,
        required_and_gates,
    },
    resize::PodCondition,
};

impl PodStatus {
    fn phase(&self) -> PodPhase {
        match self.phase.as_str() {
            "Succeeded" | "Failed" => PodPhase::Ended,
            "Running" => PodPhase::Running,
            _ => PodPhase::Pending,
        }
    }

    /// When a scheduler bound the pod.
    fn bound_at(&self) -> Option<i64> {
        seconds(PodCondition::that_holds(&self.conditions.0, "PodScheduled")?.since())
    }

    /// When the last container ended; unknown if none has run.
    fn ended_at(&self) -> Option<i64> {
        let ended =
            |status: &ContainerStatus| seconds(status.state.terminated.as_ref()?.finished_at.as_deref());
        self.container_statuses.0.iter().filter_map(ended).max()
    }
}

/// Reads a Pod; an amount that is no quantity is a fault.
pub(crate) fn read(text: &str) -> Result<PodObject, String> {
    let fields: PodFields = serde_json::from_slice(text.as_bytes()).map_err(|fault| fault.to_string())?;
    let ReadRequest { request, counted } = fields.request()?;
    let mirror_of = fields.static_uid().map(str::to_owned);
    let (required, gates) = required_and_gates(&fields);
    let PodFields { metadata, spec, status } = fields;
    let node = spec.node_name.filter(|node| !node.is_empty());
    let created = seconds(metadata.creation_timestamp.as_deref()).unwrap_or(0);
    let bound_at = status.bound_at().filter(|_| node.is_some());
    let is_init =
        |name: &str| request.containers.iter().any(|one| one.name == name && one.kind == ContainerKind::Init);
    let statuses = status.init_container_statuses.0.iter();
    let ended = statuses.filter(|one| one.state.terminated.is_some() && is_init(&one.name));
    let ended_init = ended.map(|one| one.name.clone()).collect();
    let is_bound = node.is_some();
    let claim = |fields: &ClaimFields| PodClaim {
        name: fields.name.clone(),
        claim: fields.resource_claim_name.clone(),
        template: fields.resource_claim_template_name.clone(),
        containers: Vec::new(),
    };
    let claims = spec.resource_claims.0.iter().filter(|_| !is_bound).map(claim).collect();
    // No scheduler binds it any more, however long its finalizers stand.
    let is_ended = !is_bound && metadata.deletion_timestamp.is_some();
    let binds_late =
        !spec.resource_claims.0.is_empty() || spec.volumes.0.iter().any(VolumeFields::binds_late);
    let toleration =
        |TolerationFields { key, operator, value, effect }| Toleration { key, operator, value, effect };
    let tolerations = spec.tolerations.0.into_iter().filter(move |_| !is_bound);
    Ok(PodObject {
        uid: metadata.uid,
        mirror_of,
        node,
        phase: if is_ended { PodPhase::Ended } else { status.phase() },
        arrival: PodArrival {
            at: bound_at.unwrap_or(created),
            version: metadata.resource_version.parse().unwrap_or(0),
        },
        ended_at: status.ended_at(),
        ended_init,
        scheduling: PodScheduling {
            priority: spec.priority.unwrap_or(0),
            // A pod with a node has passed its taints.
            tolerations: tolerations.map(toleration).collect(),
            nominated_node: status.nominated_node_name.filter(|node| !is_bound && !node.is_empty()),
            binds_late: !is_bound && binds_late,
            required,
            gates,
            claims,
        },
        counted,
        request,
    })
}
