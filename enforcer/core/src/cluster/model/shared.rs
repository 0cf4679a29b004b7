//! Parts that the models of a cluster's nodes have in common.
//!
//! Problem: each state brings its machine and its settings along, and a cluster has thousands of nodes of a
//! few kinds. Idea: a new model takes the part of another node where the two are equal.
//!
//! Invariant: what is shared is equal in every field; a hash that a node publishes decides nothing.

use std::sync::{Arc, Weak};

use numa_placement::{Inventory, settings::PlacementSettings};

use super::NodeModel;

/// Most different parts that are remembered: with more of them the nodes have little in common.
const MOST: usize = 64;

/// Parts of models that are in use.
#[derive(Debug, Default)]
pub struct SharedParts {
    inventories: Vec<Weak<Inventory>>,
    settings: Vec<Weak<PlacementSettings>>,
}

impl SharedParts {
    /// Gives the model the parts that others have already.
    pub fn share(&mut self, model: &mut NodeModel) {
        share(&mut self.inventories, &mut model.inventory);
        share(&mut self.settings, &mut model.settings);
    }
}

fn share<T: PartialEq>(known: &mut Vec<Weak<T>>, part: &mut Arc<T>) {
    known.retain(|known| known.strong_count() > 0);
    if let Some(equal) = known.iter().filter_map(Weak::upgrade).find(|known| *known == *part) {
        *part = equal;
    } else if known.len() < MOST {
        known.push(Arc::downgrade(part));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::model::tests::state;

    #[test]
    fn models_of_equal_nodes_share_their_parts_and_others_do_not() {
        let model = |supply: i64| {
            let mut state = state();
            (state.memory[0].allocatable, state.memory[0].free) = (supply << 30, supply << 30);
            NodeModel::new(&state).unwrap()
        };
        let mut parts = SharedParts::default();
        let mut models = [model(16), model(16), model(15)];
        for model in &mut models {
            parts.share(model);
        }
        let [one, equal, other] = models;
        assert!(Arc::ptr_eq(&one.inventory, &equal.inventory));
        assert!(!Arc::ptr_eq(&one.inventory, &other.inventory));
        assert!(Arc::ptr_eq(&one.settings, &other.settings));
        drop((one, equal));
        parts.share(&mut model(14));
        assert_eq!(parts.inventories.len(), 2, "those that no model has are forgotten");
    }
}
