//! State of the screen, and what is read of it to draw it.
//!
//! Bounded: one report, one history ([`Histories`]), a filter of some characters.

use std::time::Duration;

use super::{
    action::TopAction,
    event::Feed,
    history::Histories,
    layout::ScreenLayout,
    report::{self, TopReport, TopTurn, TopWorkload},
    sort::Sort,
};
use crate::view::distinct::called;

/// Characters of a filter.
pub(super) const LONGEST_FILTER: usize = 64;
/// Time for which the return of an answer is shown.
const NEWS: Duration = Duration::from_secs(10);

/// Content of the screen below the head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TopView {
    /// Nodes, workloads, actions.
    #[default]
    Main,
    /// All nodes.
    Nodes,
    /// All actions, with their reasons.
    Actions,
    /// What is missing.
    Degraded,
    /// The selected workload.
    Workload,
    /// The keys.
    Help,
}

/// Everything that is shown is a function of this.
#[derive(Debug, Clone, Default)]
pub struct TopState {
    pub(super) size: (u16, u16),
    pub(super) view: TopView,
    pub(super) sort: Sort,
    pub(super) filter: String,
    /// The filter is being typed.
    pub(super) typing: bool,
    pub(super) report: Option<TopReport>,
    pub(super) feed: Option<Feed>,
    /// Since when no report comes, and why.
    pub(super) silent: Option<(Duration, String)>,
    /// Texts that make names unique.
    pub(super) distinct: Vec<Option<String>>,
    /// Indices of the workloads that are shown, in their order.
    pub(super) order: Vec<usize>,
    /// Which of them is selected, and which is the first on the screen.
    pub(super) selected: usize,
    pub(super) first: usize,
    /// Workload of the selection, and of the view of one.
    pub(super) key: Option<report::WorkloadKey>,
    /// First line of a page.
    pub(super) scroll: usize,
    pub(super) histories: Histories,
    /// When the report came, and news about its source.
    pub(super) told: Duration,
    pub(super) news: Option<(Duration, String)>,
    pub(super) now: Duration,
    pub(super) ended: bool,
}

impl TopState {
    /// State before the first report.
    pub fn new(size: (u16, u16), sort: Sort, filter: &str) -> Self {
        let filter = filter.chars().take(LONGEST_FILTER).collect();
        Self { size, sort, filter, ..Self::default() }
    }

    /// Is it over?
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The latest report.
    pub fn report(&self) -> Option<&TopReport> {
        self.report.as_ref()
    }

    /// Workloads that are shown.
    pub fn shown(&self) -> usize {
        self.order.len()
    }

    /// The turn of the latest report.
    pub(super) fn turn(&self) -> Option<&TopTurn> {
        self.report.as_ref()?.turn.as_ref()
    }

    /// Seconds since the turn that is shown began.
    pub(super) fn age_seconds(&self) -> Option<u64> {
        let since = self.now.saturating_sub(self.told).as_secs();
        Some(self.turn()?.age_seconds.saturating_add(since))
    }

    /// Wall clock of the report's source, in milliseconds since 1970.
    pub(super) fn unix_ms(&self) -> u64 {
        let since = u64::try_from(self.now.saturating_sub(self.told).as_millis()).unwrap_or(u64::MAX);
        self.report.as_ref().map_or(0, |report| report.now_unix_ms.saturating_add(since))
    }

    /// Seconds without a report, and why.
    pub(super) fn silence(&self) -> Option<(u64, &str)> {
        let (since, reason) = self.silent.as_ref()?;
        Some((self.now.saturating_sub(*since).as_secs(), reason))
    }

    /// News about the source of reports.
    pub(super) fn news(&self) -> Option<&str> {
        let (at, news) = self.news.as_ref()?;
        (self.now.saturating_sub(*at) < NEWS).then_some(news)
    }

    /// Workloads that are shown, in their order, from the first on the screen on, with what they are called.
    pub(super) fn on_screen(&self) -> impl Iterator<Item = (usize, &TopWorkload, String)> {
        let workloads = self.turn().map_or(&[][..], |turn| &turn.workloads);
        let from_first = self.order.iter().enumerate().skip(self.first);
        from_first.filter_map(|(row, index)| {
            let workload = workloads.get(*index)?;
            Some((
                row,
                workload,
                called(&workload.name, self.distinct.get(*index).and_then(Option::as_deref)),
            ))
        })
    }

    /// Name of an action's workload. One that is not in the report has its bare name.
    pub(super) fn called(&self, action: &TopAction) -> String {
        let workloads = self.turn().map_or(&[][..], |turn| &turn.workloads);
        let several = self.distinct.iter().zip(workloads);
        let mut several = several.filter_map(|(distinct, one)| Some((distinct.as_deref()?, one)));
        let is_it =
            |one: &TopWorkload| action.cgroup.as_ref() == Some(&one.cgroup) && one.name == action.workload;
        let distinct = several.find(|(_, one)| is_it(one)).map(|(distinct, _)| distinct);
        called(&action.workload, distinct)
    }

    /// The workload of the details.
    pub(super) fn workload(&self) -> Option<&TopWorkload> {
        let key = self.key.as_ref()?;
        self.turn()?.workloads.iter().find(|one| one.key() == *key)
    }

    pub(super) fn layout(&self) -> ScreenLayout {
        let nodes = self.turn().map_or(0, |turn| turn.nodes.len());
        let actions = self.report.as_ref().map_or(0, |report| report.actions.len());
        ScreenLayout::new(self.size.1, nodes, actions)
    }
}
