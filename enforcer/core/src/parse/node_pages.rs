//! What a node has left, from `/sys/devices/system/node/nodeN/vmstat` (`node_read_vmstat` in `drivers/base/node.c`) and
//! `/proc/zoneinfo` (`zoneinfo_show_print` in `mm/vmstat.c`). Amounts are pages.
//!
//! The first is read up to 200 times a second, so it allocates nothing, and looks at each line once.

use std::collections::BTreeMap;

use super::{ParseError, scalar::unsigned};
use crate::id::NodeId;

/// Most zones that are looked at; a node has five at most.
const MOST_ZONES: usize = 8 * 1024;

/// Pages of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodePages {
    /// `nr_free_pages`.
    pub free: u64,
    /// `nr_active_file` and `nr_inactive_file`.
    pub file: u64,
    /// `nr_slab_reclaimable`.
    pub slab_reclaimable: u64,
}

/// What does not change from look to look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZonePages {
    /// Low watermarks of all zones of the node.
    pub low: u64,
    /// Pages that the kernel manages in them.
    pub managed: u64,
}

/// Reads a node's vmstat; `None` where it does not say what is free.
pub fn node_pages(text: &str) -> Option<NodePages> {
    let (mut pages, mut free) = (NodePages::default(), None);
    for line in text.lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let sum = match name {
            "nr_free_pages" => free.insert(0),
            "nr_active_file" | "nr_inactive_file" => &mut pages.file,
            "nr_slab_reclaimable" => &mut pages.slab_reclaimable,
            _ => continue,
        };
        *sum = sum.saturating_add(value.parse().ok()?);
    }
    Some(NodePages { free: free?, ..pages })
}

/// Reads the watermarks of all nodes.
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
                // Counters of its own are below it, and `low` is nowhere else.
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
    fn reads_what_a_node_has_left() {
        let text = "nr_free_pages 12\nnr_zone_inactive_anon 5\nnr_inactive_anon 1\nnr_inactive_file 30\n\
                    nr_active_file 4\nnr_slab_reclaimable 7\nnr_slab_unreclaimable 9\n";
        assert_eq!(node_pages(text), Some(NodePages { free: 12, file: 34, slab_reclaimable: 7 }));
        assert_eq!(node_pages("nr_active_file 4\n"), None);
        assert_eq!(node_pages("nr_free_pages x\n"), None);
    }

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
        fn any_text_is_pages_or_none(text in any::<String>()) {
            let _ = node_pages(&text);
            let _ = zone_pages(&text);
        }
    }
}
