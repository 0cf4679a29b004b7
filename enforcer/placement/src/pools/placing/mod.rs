//! Places one container: ranks the pools, and takes the first that can meet the request.
//!
//! The state of the machine is read once per pod and updated with each container. Memory offers are
//! calculations: other containers move only for the chosen pool.

mod give;
mod offer;
mod pool_scores;
mod wanted;

use self::wanted::ContainerWish;
use super::{
    classify::Classifier,
    cpus::CpuGroups,
    rank::{PoolOrder, PoolScore},
    refusal::{PoolObstacle, PoolRefusal},
    supply::CpuSupply,
    tree::PoolTree,
};
use crate::{
    Allocations, Candidate, Holder, Inventory, PodRequest, Rejection, Trace, memory::ZoneAccount,
    settings::PoolsSettings,
};

/// Number of the best pools that are sorted first: usually one of them meets the request.
const SORTED: usize = 8;

/// A pod that is being placed.
pub(super) struct PoolsPlacing<'a> {
    settings: &'a PoolsSettings,
    inventory: &'a Inventory,
    tree: &'a PoolTree,
    classifier: &'a Classifier,
    pod: &'a PodRequest,
    /// Whether its containers never run on CPUs that are reserved for the system.
    pub(super) strict_cpu_reservation: bool,
    supply: CpuSupply<'a>,
    account: ZoneAccount,
    /// Groups of CPUs, looked up for requests of exclusive ones.
    groups: Option<&'a CpuGroups>,
}

impl<'a> PoolsPlacing<'a> {
    /// Starts placing the pod on the current allocations.
    pub(super) fn new(
        settings: &'a PoolsSettings,
        inventory: &'a Inventory,
        classifier: &'a Classifier,
        pod: &'a PodRequest,
        allocations: &Allocations,
    ) -> Self {
        let tree = inventory.pools.tree(inventory);
        Self {
            settings,
            inventory,
            tree,
            classifier,
            pod,
            strict_cpu_reservation: false,
            supply: CpuSupply::new(tree, allocations, |_| false),
            account: ZoneAccount::new(inventory, allocations, |_| false),
            groups: None,
        }
    }

    /// Reads the state for the container at this position in the list.
    pub(super) fn look_again(&mut self, allocations: &Allocations, index: usize) {
        let ended = |holder: &Holder| self.pod.has_ended(holder, index);
        self.supply = CpuSupply::new(self.tree, allocations, ended);
        self.account = ZoneAccount::new(self.inventory, allocations, ended);
    }

    /// Makes the grant of one container.
    pub(super) fn place(
        &mut self,
        index: usize,
        allocations: &mut Allocations,
        trace: &mut Trace,
    ) -> Result<(), Rejection> {
        let wanted = self.wanted(index, allocations, trace)?;
        if wanted.demand.full > 0 && self.groups.is_none() {
            self.groups = Some(self.inventory.pools.groups(self.inventory));
        }
        let order = PoolOrder::new(&wanted.demand, wanted.memory.limit);
        let sorted = if trace.is_wanted() { usize::MAX } else { SORTED };
        let (mut pool_scores, offers) = self.pool_scores(&wanted, &order, sorted, allocations);
        let mut obstacles = Vec::new();
        for at in 0..pool_scores.len() {
            if at == sorted {
                order.sort(&mut pool_scores[at..]);
            }
            let standing = &pool_scores[at];
            match self.try_pool(&wanted, standing, &offers, allocations) {
                Ok((grant, offer)) => {
                    self.consider(&wanted, &pool_scores, standing, &obstacles, trace);
                    self.give(&wanted, grant, &offer, allocations);
                    return Ok(());
                }
                Err(obstacle) => obstacles.push((standing.pool, obstacle)),
            }
        }
        self.consider_none(&wanted, &obstacles, trace);
        let refused = PoolRefusal {
            inventory: self.inventory,
            tree: self.tree,
            supply: &self.supply,
            account: &self.account,
            demand: &wanted.demand,
            memory: &wanted.memory,
            exclusive: &|pool| self.most_exclusive(&wanted, pool),
        };
        Err(refused.rejection(&obstacles))
    }

    fn consider(
        &self,
        wanted: &ContainerWish<'_>,
        pool_scores: &[PoolScore],
        chosen: &PoolScore,
        obstacles: &[(usize, PoolObstacle)],
        trace: &mut Trace,
    ) {
        if !trace.is_wanted() {
            return;
        }
        let order = PoolOrder::new(&wanted.demand, wanted.memory.limit);
        let candidates = pool_scores.iter().map(|standing| {
            let obstacle =
                obstacles.iter().find(|(id, _)| *id == standing.pool).map(|(_, obstacle)| obstacle);
            let because = match obstacle {
                Some(obstacle) => obstacle.to_string(),
                None if standing.pool == chosen.pool => "the first that can give everything".to_owned(),
                None => format!("behind the chosen one by {}", order.decided_by(chosen, standing)),
            };
            Candidate {
                container: wanted.container.name.clone(),
                place: self.tree.pool(standing.pool).name.clone(),
                chosen: standing.pool == chosen.pool,
                because,
            }
        });
        trace.consider(candidates);
    }

    fn consider_none(
        &self,
        wanted: &ContainerWish<'_>,
        obstacles: &[(usize, PoolObstacle)],
        trace: &mut Trace,
    ) {
        if trace.is_wanted() {
            trace.consider(obstacles.iter().map(|(id, obstacle)| Candidate {
                container: wanted.container.name.clone(),
                place: self.tree.pool(*id).name.clone(),
                chosen: false,
                because: obstacle.to_string(),
            }));
        }
    }
}
