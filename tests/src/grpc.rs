//! Calls of gRPC over a unix socket, one at a time, as a kubelet makes them.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use prost::Message;
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};
use tonic::{
    Request,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

/// A connection: made by the first call, and again by the one after it broke.
#[derive(Debug)]
pub struct Connection {
    runtime: Runtime,
    channel: Channel,
    /// Longest time for an answer.
    limit: Duration,
}

impl Connection {
    /// To a socket at which a service need not listen yet. The service is told `authority`.
    pub fn new(socket: &str, authority: &str, limit: Duration) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().context("start an executor")?;
        let endpoint = Endpoint::from_shared(format!("unix:{socket}"))?;
        let endpoint = endpoint.origin(format!("http://{authority}").parse()?);
        let channel = runtime.block_on(async { endpoint.connect_lazy() });
        Ok(Self { runtime, channel, limit })
    }

    /// Calls the method of this path: `/PACKAGE.SERVICE/METHOD`.
    pub fn call<Q, A>(&self, path: &str, request: Q) -> Result<A>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let route = PathAndQuery::try_from(path)?;
        let mut grpc = Grpc::new(self.channel.clone());
        let exchange = async {
            grpc.ready().await.context("the connection")?;
            let codec = ProstCodec::<Q, A>::default();
            let answer = grpc.unary(Request::new(request), route, codec).await;
            anyhow::Ok(answer.map_err(|status| anyhow!("{status}"))?.into_inner())
        };
        let answer = self.runtime.block_on(async { timeout(self.limit, exchange).await });
        answer.unwrap_or_else(|elapsed| Err(elapsed.into())).with_context(|| format!("call {path}"))
    }
}
