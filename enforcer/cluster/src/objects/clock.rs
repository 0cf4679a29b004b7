//! The time at which objects were listed, from the times in them.
//!
//! Problem: a file of objects does not say when it was made, and the age of a state is counted from that
//! time. Times that nodes write are of their own clocks, and one clock that is fast would make the states of
//! all other nodes old. Idea: times that the API server wrote count as they are. Of the nodes' clocks the
//! second newest counts, if there are three of them or more.

use std::collections::BTreeMap;

/// Number of nodes from which the newest of their times does not count.
const ENOUGH: usize = 3;

/// Times that are not later than that of the list, in seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TimesWithin {
    /// The newest of the API server.
    server: i64,
    /// The newest of each node.
    nodes: BTreeMap<String, i64>,
}

impl TimesWithin {
    /// Adds a time that the API server wrote.
    pub(super) fn of_server(&mut self, at: Option<i64>) {
        self.server = self.server.max(at.unwrap_or(0));
    }

    /// Adds a time that a node wrote.
    pub(super) fn of_node(&mut self, node: &str, at: Option<i64>) {
        let Some(at) = at else { return };
        match self.nodes.get_mut(node) {
            Some(newest) => *newest = at.max(*newest),
            None => {
                self.nodes.insert(node.to_owned(), at);
            }
        }
    }

    /// Adds all times of another list.
    pub(super) fn append(&mut self, other: Self) {
        self.of_server(Some(other.server));
        for (node, at) in other.nodes {
            self.of_node(&node, Some(at));
        }
    }

    /// The newest time; one clock alone moves it only where there are too few others.
    pub(super) fn latest(&self) -> i64 {
        let (mut newest, mut second) = (0, 0);
        for at in self.nodes.values() {
            if *at > newest {
                (newest, second) = (*at, newest);
            } else {
                second = second.max(*at);
            }
        }
        self.server.max(if self.nodes.len() < ENOUGH { newest } else { second })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fast_clock_does_not_move_the_time() {
        let latest = |server: i64, nodes: &[i64]| {
            let mut times = TimesWithin::default();
            times.of_server(Some(server));
            for (name, at) in nodes.iter().enumerate() {
                times.of_node(&name.to_string(), Some(at - 9));
                times.of_node(&name.to_string(), Some(*at));
                times.of_node(&name.to_string(), None);
            }
            times.latest()
        };
        assert_eq!(latest(7, &[]), 7);
        assert_eq!(latest(7, &[100, 9_000, 110]), 110);
        assert_eq!(latest(7, &[100, 100, 100]), 100);
        assert_eq!(latest(7, &[100, 160]), 160, "of two, one may be the last of a daemon that has ended");
        assert_eq!(latest(200, &[100, 9_000, 110]), 200);
        assert_eq!(latest(7, &[-5]), 7);
    }
}
