//! Where claims are read: the API server alone knows what a claim was allocated.

use std::{future::Future, pin::Pin, sync::Arc};

use enforcer_cluster::{ApiConnection, ClaimReadError};
use enforcer_runtime::dra::KubeletClaim;
use serde_json::Value;
use tokio::sync::watch;

/// A claim, later, or why it is not read.
pub type ReadAnswer<'a> = Pin<Box<dyn Future<Output = Result<Value, UnreadClaim>> + Send + 'a>>;

/// Reads claims of the API server.
pub trait ClaimSource: Send + Sync + 'static {
    /// The claim of this namespace, name and uid.
    fn read(&self, claim: &KubeletClaim) -> ReadAnswer<'_>;
}

/// Why a claim is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnreadClaim {
    /// This may be over at the next try.
    Passing(String),
    /// This is not over within a minute: a missing right, a server without the kind.
    Lasting(String),
    /// The API server has no claim of this uid.
    Gone(String),
}

impl UnreadClaim {
    /// The cause, for people.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Self::Passing(why) | Self::Lasting(why) | Self::Gone(why) => why,
        }
    }

    /// Whether the API server has no claim of this uid.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::Gone(_))
    }
}

impl From<ClaimReadError> for UnreadClaim {
    fn from(error: ClaimReadError) -> Self {
        let why = error.to_string();
        if error.is_gone() {
            Self::Gone(why)
        } else if error.is_passing() {
            Self::Passing(why)
        } else {
            Self::Lasting(why)
        }
    }
}

/// Claims of the API server behind a connection that is made later.
pub struct LateClaims(pub watch::Receiver<Option<Arc<ApiConnection>>>);

impl ClaimSource for LateClaims {
    fn read(&self, claim: &KubeletClaim) -> ReadAnswer<'_> {
        let KubeletClaim { uid, namespace, name } = claim.clone();
        let connection = self.0.borrow().clone();
        Box::pin(async move {
            let none = || UnreadClaim::Passing("there is no connection to the API server yet".to_owned());
            let connection = connection.ok_or_else(none)?;
            connection.resource_claim((&namespace, &name), &uid).await.map_err(UnreadClaim::from)
        })
    }
}
