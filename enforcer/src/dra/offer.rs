//! What the driver offers, and in which shape: devices that claims share out where the API server keeps their
//! fields, else what `dra.fallback` says.

use std::{convert::Infallible, sync::Arc, time::Duration};

use enforcer_cluster::{
    ApiConnection, ApiError, Backoff, KeptFields, SlicePublisher, SliceSettings, WantedSlices,
    publish_slices, send_if_different,
};
use enforcer_core::{
    dra::{
        AccountingMode, ClaimSupply, DRIVER, DeviceModel, NodeAllocatableShape, PublishOptions,
        slice::{ResourceSlice, SliceOwner, slices},
    },
    policy::{DraFallback, DraSettings},
};
use numa_placement::Inventory;
use numa_topology::degraded::Degraded;
use tokio::{sync::watch, time::sleep};

use super::{
    places::{ClaimPlaces, change},
    tally::ClaimTally,
};
use crate::{publish::jitter, version};

/// First and longest time between two questions that the API server does not answer.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));
/// Time after which the server is asked again which fields it keeps: it may be another version by then.
const PROBE_AGAIN: Duration = Duration::from_hours(1);
/// Milliseconds within which nodes that start at once write for the first time.
const JITTER_MS: u64 = 10_000;

/// What is offered by configuration.
#[derive(Debug, Clone)]
pub(super) struct DeviceOffer {
    fallback: DraFallback,
    accounting: AccountingMode,
    full_cores: bool,
    node: String,
    /// Shape of the devices; `None` until the API server has been asked, and where nothing is offered.
    shape: watch::Sender<Option<OfferedShape>>,
}

/// Shape of the devices, as the API server allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OfferedShape {
    model: DeviceModel,
    node_allocatable: NodeAllocatableShape,
}

impl DeviceOffer {
    pub(super) fn new(dra: &DraSettings, node: String) -> Self {
        Self {
            fallback: dra.fallback,
            accounting: dra.accounting,
            full_cores: dra.full_cores,
            node,
            shape: watch::Sender::new(None),
        }
    }

    /// Tells each change of the shape of the devices.
    pub(super) fn shape_changes(&self) -> watch::Receiver<Option<OfferedShape>> {
        self.shape.subscribe()
    }

    /// Names of the devices that are offered now.
    pub(super) fn devices(&self, places: &dyn ClaimPlaces) -> Vec<String> {
        let Some(shape) = *self.shape.borrow() else { return Vec::new() };
        let Some((inventory, supply)) = places.inventory().zip(places.supply()) else { return Vec::new() };
        let slices = self.slices((&inventory, &supply), shape, "", 0);
        slices.into_iter().flat_map(|slice| slice.devices).map(|device| device.name).collect()
    }

    /// Keeps the devices published. The shape is asked for again every hour, beside what goes on.
    pub(super) async fn keep_published(
        &self,
        connection: Arc<ApiConnection>,
        places: &Arc<dyn ClaimPlaces>,
        degraded: &watch::Sender<Option<Degraded>>,
        tally: &ClaimTally,
    ) -> Infallible {
        let publisher = SlicePublisher::new(Arc::clone(&connection));
        let (wanted, of_publisher) = watch::channel(None);
        let written = watch::Sender::new(0);
        let settings = settings(&self.node);
        let of = (DRIVER, self.node.as_str());
        let mut retry = Backoff::new(RETRY);
        let mut asked = loop {
            match self.ask(&connection, &publisher, places).await {
                Ok(asked) => break asked,
                Err(error) => {
                    send_if_different(degraded, Some(unpublished(&error)));
                    sleep(retry.next_wait()).await;
                }
            }
        };
        loop {
            let (uid, shape) = &asked;
            self.tell_shape(*shape);
            let publishing =
                publish_slices(&publisher, of, of_publisher.clone(), &settings, degraded, &written);
            let following = self.follow(places, (uid, *shape), &wanted);
            let asking = asked_otherwise(&asked, || self.ask(&connection, &publisher, places));
            let all = Box::pin(async {
                tokio::select! {
                    never = publishing => match never {},
                    never = following => match never {},
                    never = count(written.subscribe(), tally) => match never {},
                    other = asking => other,
                }
            });
            asked = all.await;
        }
    }

    /// Uid of the node, and the shape that the API server allows.
    async fn ask(
        &self,
        connection: &ApiConnection,
        publisher: &SlicePublisher,
        places: &Arc<dyn ClaimPlaces>,
    ) -> Result<(String, Option<OfferedShape>), ApiError> {
        let uid = connection.node(&self.node).await?.uid;
        let Some((inventory, supply)) = places.inventory().zip(places.supply()) else {
            return Ok((uid, None));
        };
        let probe = async |node_allocatable| {
            let shape = OfferedShape { model: DeviceModel::SharedNodes, node_allocatable };
            let slices = self.slices((&inventory, &supply), shape, &uid, 1);
            match slices.first() {
                Some(slice) => publisher.probe(slice).await,
                None => Ok(KeptFields { consumable_capacity: false, node_allocatable: false }),
            }
        };
        let mut mapping = NodeAllocatableShape::Absent;
        if self.accounting == AccountingMode::Mapped {
            for tried in [NodeAllocatableShape::Resources, NodeAllocatableShape::Mappings] {
                if probe(tried).await?.node_allocatable {
                    mapping = tried;
                    break;
                }
            }
        }
        let is_shared = probe(mapping).await?.consumable_capacity;
        let model = if is_shared { Some(DeviceModel::SharedNodes) } else { self.fallback.model() };
        Ok((uid, model.map(|model| OfferedShape { model, node_allocatable: mapping })))
    }

    fn tell_shape(&self, shape: Option<OfferedShape>) {
        let changed = self.shape.send_if_modified(|known| std::mem::replace(known, shape) != shape);
        if !changed {
            return;
        }
        match shape.map(|shape| shape.model) {
            Some(DeviceModel::SharedNodes) => tracing::info!("claims share out the NUMA nodes by amounts"),
            model => {
                let offered = match model {
                    Some(DeviceModel::Cores) => "a device for each core is offered",
                    Some(_) => "a device for each NUMA node is offered, for one claim",
                    None => "nothing is offered",
                };
                tracing::warn!("DRAConsumableCapacity is off in this cluster: {offered}");
            }
        }
        if self.accounting == AccountingMode::Mapped
            && shape.is_some_and(|shape| shape.node_allocatable == NodeAllocatableShape::Absent)
        {
            tracing::warn!(
                "dra.accounting is mapped, and the API server keeps no mapping \
                 (DRANodeAllocatableResources): pods have to repeat their claims in their requests"
            );
        }
    }

    /// Wants the slices of the machine as it is, from now on.
    async fn follow(
        &self,
        places: &Arc<dyn ClaimPlaces>,
        (uid, shape): (&str, Option<OfferedShape>),
        wanted: &watch::Sender<Option<WantedSlices>>,
    ) -> Infallible {
        let mut changes = places.changes();
        loop {
            changes.borrow_and_update();
            if let Some((inventory, supply)) = places.inventory().zip(places.supply()) {
                let (offer, uid) = (self.clone(), uid.to_owned());
                let slices = move |generation| match shape {
                    Some(shape) => offer.slices((&inventory, &supply), shape, &uid, generation),
                    None => Vec::new(),
                };
                wanted.send_replace(Some(Arc::new(slices)));
            }
            change(&mut changes).await;
        }
    }

    fn slices(
        &self,
        (inventory, supply): (&Inventory, &ClaimSupply),
        shape: OfferedShape,
        node_uid: &str,
        generation: u64,
    ) -> Vec<ResourceSlice> {
        let options = PublishOptions {
            model: shape.model,
            node_allocatable: shape.node_allocatable,
            full_cores: self.full_cores,
            version: version::VERSION,
        };
        let owner = SliceOwner { driver: DRIVER, node: &self.node, node_uid, generation };
        slices(inventory, supply, &options, &owner)
    }
}

/// Asks again every hour, until the answer is another one than this. A server that does not answer then
/// changes nothing.
async fn asked_otherwise<T, E, F>(known: &T, ask: impl Fn() -> F) -> T
where
    T: PartialEq,
    F: Future<Output = Result<T, E>>,
{
    loop {
        sleep(PROBE_AGAIN).await;
        let mut retry = Backoff::new(RETRY);
        let answer = loop {
            match ask().await {
                Ok(answer) => break answer,
                Err(_) => sleep(retry.next_wait()).await,
            }
        };
        if answer != *known {
            return answer;
        }
    }
}

fn unpublished(error: &ApiError) -> Degraded {
    Degraded::new("dra:slices", error.to_string(), "the scheduler sees no devices of this node, or old ones")
}

async fn count(mut written: watch::Receiver<u64>, tally: &ClaimTally) -> Infallible {
    loop {
        tally.set_slice_writes(*written.borrow_and_update());
        change(&mut written).await;
    }
}

/// Bounds of the writes and the watch.
fn settings(node: &str) -> SliceSettings {
    SliceSettings { first: jitter(node, JITTER_MS), ..SliceSettings::default() }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_published_goes_on_until_the_server_answers_otherwise() {
        let answers = RefCell::new(vec![Ok(2), Ok(1), Err("503"), Err("503"), Ok(1)]);
        let began = Instant::now();
        let other = asked_otherwise(&1, || std::future::ready(answers.borrow_mut().pop().unwrap())).await;
        assert_eq!((other, answers.borrow().len()), (2, 0));
        assert!(began.elapsed() >= PROBE_AGAIN * 3);
    }
}
