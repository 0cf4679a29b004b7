//! Watermarks of the nodes, from `/proc/zoneinfo` (`zoneinfo_show_print` in `mm/vmstat.c`). Amounts are
//! pages.

use std::collections::BTreeMap;

use super::{ParseError, scalar::unsigned};
use numa_topology::id::NodeId;

/// Maximum number of zones read; a node has five at most.
const MOST_ZONES: usize = 8 * 1024;

/// Pages that change only with a setting, or when memory is added or removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZonePages {
    /// Low watermarks of all zones of the node.
    pub low: u64,
    /// Pages that the kernel manages in all zones of the node.
    pub managed: u64,
}

/// Parses the watermarks of all nodes.
pub fn zone_pages(text: &str) -> Result<BTreeMap<NodeId, ZonePages>, ParseError> {
    let mut nodes: BTreeMap<NodeId, ZonePages> = BTreeMap::new();
    let (mut node, mut zones) = (None, 0);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("Node"), Some(id)) => {
                let id = unsigned(id.trim_end_matches(',')).ok().and_then(|id| u32::try_from(id).ok());
                let id = id.ok_or_else(|| ParseError::new("`Node N, zone NAME`", line))?;
                zones += 1;
                if zones > MOST_ZONES {
                    return Err(ParseError::new("fewer zones", line));
                }
                node = Some(NodeId(id));
            }
            (Some(name @ ("low" | "managed")), Some(value)) => {
                // Per-CPU counters follow; none of them is named `low`.
                let Some(node) = node else { continue };
                let value = unsigned(value).map_err(|_error| ParseError::new("a number of pages", line))?;
                let pages = nodes.entry(node).or_default();
                let sum = if name == "low" { &mut pages.low } else { &mut pages.managed };
                *sum = sum.saturating_add(value);
            }
            _ => {}
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn watermarks_are_summed_over_the_zones_of_a_node() {
        let text = "Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 10\n  pages free     3840\n        \
                    boost    0\n        min      10\n        low      13\n        high     16\n        spanned  4095\n        \
                    managed  3840\n        protection: (0, 1, 2)\nNode 0, zone    DMA32\n  pages free 9\n        \
                    low      100\n        managed  1000\nNode 7, zone   Normal\n        low      1\n        managed  2\n";
        let found = zone_pages(text).unwrap();
        let expected = [(0, (113, 4840)), (7, (1, 2))];
        let expected = expected.map(|(id, (low, managed))| (NodeId(id), ZonePages { low, managed }));
        assert_eq!(found, BTreeMap::from(expected));
        assert!(zone_pages("Node x, zone DMA\n").is_err());
        assert!(zone_pages("Node 0, zone DMA\n low many\n").is_err());
        assert!(zone_pages("").unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_watermarks_or_an_error(text in any::<String>()) {
            let _ = zone_pages(&text);
        }
    }
}
