//! `kubectl numa top`: one node live, from its daemon alone.
//!
//! The connection is kept between looks, and made again after a failure: a pod that is replaced has another
//! name.

use std::{io::Write, time::Duration};

use super::{
    super::{
        Exit,
        top::{self, feed::TopSource},
    },
    args::TopOfNode,
    nodes::{Cluster, NodeConnection},
};
use crate::serve::api;
use enforcer_report::top::{Feed, TopEvent, TopReport};

/// The daemon of a node.
struct NodeFeed {
    cluster: Cluster,
    node: String,
    interval: Duration,
    connection: Option<NodeConnection>,
}

pub(super) fn run(cluster: &Cluster, args: TopOfNode, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let node = cluster.node(args.node.as_deref())?;
    // What can be said before the screen is taken is an error with its exit code.
    let connection = cluster.connect(&node)?;
    let feed = NodeFeed {
        cluster: cluster.clone(),
        node: node.node,
        interval: args.view.interval,
        connection: Some(connection),
    };
    top::show(&args.view.into(), move || feed, out)
}

impl NodeFeed {
    fn take_report(&mut self) -> anyhow::Result<TopReport> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.cluster.connect(&self.cluster.node(Some(&self.node))?)?,
        };
        let report = connection.get(api::TOP)?;
        self.connection = Some(connection);
        Ok(report)
    }
}

impl TopSource for NodeFeed {
    fn next(&mut self) -> TopEvent {
        match self.take_report() {
            Ok(report) => TopEvent::Report(Feed::Daemon, Box::new(report)),
            Err(error) => TopEvent::Silent(format!("{error:#}")),
        }
    }

    fn interval(&self) -> Duration {
        self.interval
    }
}
