//! The pods of one node, followed for the daemon that runs there.

use std::{convert::Infallible, sync::Arc};

use numa_topology::degraded::Degraded;
use tokio::sync::watch::Sender;

use super::{
    WatchedPods,
    bound::PodSet,
    follow::{Collection, GoneObject, ObjectSink, WatchLimits, follow, name_in},
    pod::read,
    split::Piece,
};
use crate::{connection::ApiConnection, newest::send_if_different};

/// Keeps `pods` at what the server has of the pods of `node`. `degraded` is set while the server does not
/// tell.
pub async fn watch_pods(
    connection: &ApiConnection,
    node: &str,
    limits: WatchLimits,
    pods: &Sender<WatchedPods>,
    degraded: &Sender<Option<Degraded>>,
) -> Infallible {
    let selector = format!("fieldSelector=spec.nodeName%3D{node}");
    let collection = Collection {
        path: "/api/v1/pods",
        selector: &selector,
        first_version: "0",
        source: "pod-watch",
        without: "the published state lacks names of pods, kinds of containers and refused pods",
        outdated: "what the published state tells of the pods is as old as the last list of them",
    };
    let mut sink = NodePods { node, pods, set: PodSet::default(), listed: None };
    follow(connection, collection, limits, &mut sink, degraded).await
}

struct NodePods<'a> {
    node: &'a str,
    pods: &'a Sender<WatchedPods>,
    set: PodSet,
    /// The list that is being read.
    listed: Option<PodSet>,
}

impl ObjectSink for NodePods<'_> {
    fn begin_list(&mut self) {
        self.listed = Some(PodSet::default());
    }

    fn put(&mut self, object: Piece<'_>) {
        let set = self.listed.as_mut().unwrap_or(&mut self.set);
        match object {
            Piece::Whole(text) => match read(text) {
                Ok(read) if read.node == self.node => set.put(read),
                Ok(_of_another_node) => {}
                Err(reason) => set.leave_out(full_name(name_in(text)), reason),
            },
            Piece::TooLarge(head) => {
                let reason = format!("its object has more than {} bytes", super::LARGEST);
                set.leave_out(full_name(name_in(head)), reason);
            }
        }
    }

    fn remove(&mut self, gone: &GoneObject) {
        self.set.remove(&gone.uid, &format!("{}/{}", gone.namespace, gone.name));
    }

    fn end_list(&mut self) {
        self.set = self.listed.take().unwrap_or_default();
    }

    fn tell(&mut self) {
        send_if_different(self.pods, WatchedPods::Known(Arc::new(self.set.now())));
    }

    /// Without the right to read pods, none is known any more. Before the first answer the receiver is not
    /// kept waiting; after it, what was said last counts.
    fn fail(&mut self, is_refused: bool) {
        self.listed = None;
        if is_refused || *self.pods.borrow() == WatchedPods::Asked {
            send_if_different(self.pods, WatchedPods::Unknown);
        }
    }
}

fn full_name((namespace, name): (String, String)) -> String {
    format!("{namespace}/{name}")
}
