//! Which rows of the screen are for what.
//!
//! Two rows of head and one of keys; of the rest nodes get a third at most, actions a quarter at most, and
//! workloads the remainder. On a low screen actions are dropped first, then nodes, then the keys.

/// Rows from `at` on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Rows {
    /// The first one.
    pub(super) at: u16,
    /// How many.
    pub(super) count: u16,
}

/// Rows of the main view; those of a table include its heading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ScreenLayout {
    /// Source of the reports, and the state of the host.
    pub(super) head: Rows,
    /// NUMA nodes.
    pub(super) nodes: Rows,
    /// Workloads.
    pub(super) workloads: Rows,
    /// Rows of actions.
    pub(super) actions: Rows,
    /// Keys.
    pub(super) foot: Rows,
}

impl ScreenLayout {
    /// Layout of a screen of `height` rows for these numbers of nodes and actions.
    pub(super) fn new(height: u16, nodes: usize, actions: usize) -> Self {
        let count = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        let head = height.min(2);
        let foot = u16::from(height >= 5);
        let rest = height - head - foot;
        let with_heading = |number: usize, most: u16| match number {
            0 => 0,
            _ => count(number).saturating_add(1).min(most),
        };
        let nodes = if rest >= 6 { with_heading(nodes, (rest / 3).max(2)) } else { 0 };
        let actions = if rest >= 12 { with_heading(actions, rest / 4) } else { 0 };
        let workloads = rest - nodes - actions;
        let mut at = 0;
        let mut take = |count: u16| {
            let rows = Rows { at, count };
            at += count;
            rows
        };
        Self {
            head: take(head),
            nodes: take(nodes),
            workloads: take(workloads),
            actions: take(actions),
            foot: take(foot),
        }
    }

    /// Rows that are left for a page of text.
    pub(super) fn page(height: u16) -> Rows {
        let Self { head, foot, .. } = Self::new(height, 0, 0);
        Rows { at: head.count, count: height - head.count - foot.count }
    }
}

/// Rows at which all of these are shown, for output that is not on a terminal; bounded.
pub fn height_for(nodes: usize, workloads: usize, actions: usize) -> u16 {
    const MOST: usize = 500;
    (4..=MOST)
        .find_map(|height| {
            let height = u16::try_from(height).ok()?;
            let of = ScreenLayout::new(height, nodes, actions);
            let holds = |rows: Rows, wanted: usize| usize::from(rows.count) > wanted || wanted == 0;
            let all = holds(of.nodes, nodes) && holds(of.workloads, workloads) && holds(of.actions, actions);
            all.then_some(height)
        })
        .unwrap_or(500)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_ordinary_terminal_has_room_for_everything() {
        let ScreenLayout { nodes, workloads, actions, foot, .. } = ScreenLayout::new(24, 2, 64);
        assert_eq!((nodes.count, workloads.count, actions.count, foot.at), (3, 13, 5, 23));
        let ScreenLayout { nodes, workloads, actions, .. } = ScreenLayout::new(5, 64, 64);
        assert_eq!((nodes.count, workloads.count, actions.count), (0, 2, 0));
    }

    proptest! {
        #[test]
        fn rows_follow_one_another_and_fill_the_screen(height in 0u16..300, nodes in 0usize..1200, actions in 0usize..70) {
            let ScreenLayout { head, nodes, workloads, actions, foot } = ScreenLayout::new(height, nodes, actions);
            let mut at = 0;
            for rows in [head, nodes, workloads, actions, foot] {
                prop_assert_eq!(rows.at, at);
                at += rows.count;
            }
            prop_assert_eq!(at, height);
            prop_assert!(height < 3 || workloads.count > 0);
        }

        #[test]
        fn what_is_printed_once_is_whole(nodes in 0usize..65, workloads in 0usize..200, actions in 0usize..20) {
            let of = ScreenLayout::new(height_for(nodes, workloads, actions), nodes, actions);
            prop_assert!(usize::from(of.workloads.count) > workloads);
            prop_assert!(usize::from(of.nodes.count) > nodes || nodes == 0);
        }
    }
}
