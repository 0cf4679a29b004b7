//! State of the screen, changed by one event after another.
//!
//! The selection is a workload and not a row: it stays on its workload when the order changes, and goes to
//! the next one when that workload ends. On the first row it stays on that row, the worst workload. Bounded:
//! one report, one history ([`Histories`]), a filter of some characters.

use std::time::Duration;

use super::{
    action::TopAction,
    event::{Feed, KeyPress, TopEvent},
    history::Histories,
    layout::ScreenLayout,
    order::{Sort, matches},
    pages,
    report::{self, TopReport, TopTurn, TopWorkload},
};
use crate::apart::{NamedWorkload, apart};

/// Characters of a filter.
const LONGEST_FILTER: usize = 64;
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
    behind: Vec<Option<String>>,
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
    told: Duration,
    news: Option<(Duration, String)>,
    now: Duration,
    ended: bool,
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

    /// Takes an event at `now`, a time since any beginning.
    pub fn update(&mut self, event: TopEvent, now: Duration) {
        self.now = now;
        match event {
            TopEvent::Key(key) => self.press(key),
            TopEvent::Resized(width, height) => self.size = (width, height),
            TopEvent::Second => {}
            TopEvent::Told(feed, report) => self.hear(feed, *report),
            TopEvent::Silent(reason) => {
                let since = self.silent.take().map_or(now, |(since, _)| since);
                self.silent = Some((since, reason));
            }
            TopEvent::End => self.ended = true,
        }
        self.settle();
    }

    fn hear(&mut self, feed: Feed, report: TopReport) {
        let before = self.report.as_ref().map(|before| before.pid);
        let another = before.is_some_and(|pid| pid != report.pid);
        let news = match &feed {
            Feed::Daemon if another => Some("another daemon answers now".to_owned()),
            Feed::Daemon if self.silent.is_some() && before.is_some() => {
                Some("the daemon answers again".to_owned())
            }
            _ => None,
        };
        if let Some(news) = news {
            self.news = Some((self.now, news));
        }
        if let Some(turn) = &report.turn {
            self.histories.add(report.pid, turn);
        }
        (self.silent, self.told, self.feed) = (None, self.now, Some(feed));
        self.behind = report.turn.as_ref().map_or_else(Vec::new, |turn| {
            let each = turn.workloads.iter();
            apart(each.map(|one| NamedWorkload { name: &one.name, cgroup: &one.cgroup, origin: &one.origin }))
        });
        self.report = Some(report);
        self.arrange();
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
            Some((row, workload, called(&workload.name, self.behind.get(*index).and_then(Option::as_deref))))
        })
    }

    /// Name of an action's workload. One that is not in the report has its bare name.
    pub(super) fn called(&self, action: &TopAction) -> String {
        let workloads = self.turn().map_or(&[][..], |turn| &turn.workloads);
        let mut several =
            self.behind.iter().zip(workloads).filter_map(|(behind, one)| Some((behind.as_deref()?, one)));
        let is_it =
            |one: &TopWorkload| action.cgroup.as_ref() == Some(&one.cgroup) && one.name == action.workload;
        let behind = several.find(|(_, one)| is_it(one)).map(|(behind, _)| behind);
        called(&action.workload, behind)
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

    fn press(&mut self, key: KeyPress) {
        match key {
            KeyPress::Interrupt => self.ended = true,
            key if self.typing => self.type_filter(key),
            KeyPress::Char('q') if self.view == TopView::Main => self.ended = true,
            KeyPress::Char('q') | KeyPress::Escape if self.view != TopView::Main => self.show(TopView::Main),
            KeyPress::Escape => self.filter_by(String::new()),
            KeyPress::Char('n') => self.toggle(TopView::Nodes),
            KeyPress::Char('a') => self.toggle(TopView::Actions),
            KeyPress::Char('d') => self.toggle(TopView::Degraded),
            KeyPress::Char('?' | 'h') => self.toggle(TopView::Help),
            KeyPress::Up | KeyPress::Char('k') => self.go(|at, _| at.saturating_sub(1)),
            KeyPress::Down | KeyPress::Char('j') => self.go(|at, _| at.saturating_add(1)),
            KeyPress::PageUp => self.go(usize::saturating_sub),
            KeyPress::PageDown | KeyPress::Char(' ') => self.go(usize::saturating_add),
            KeyPress::Home | KeyPress::Char('g') => self.go(|_, _| 0),
            KeyPress::End | KeyPress::Char('G') => self.go(|_, _| usize::MAX),
            _ if self.view != TopView::Main => {}
            KeyPress::Enter if self.key.is_some() => self.show(TopView::Workload),
            KeyPress::Char('/') => self.typing = true,
            KeyPress::Char('s') => self.sort_by(self.sort.next()),
            KeyPress::Char('t') => self.sort_by(Sort::Traffic),
            KeyPress::Char('b') => self.sort_by(Sort::Bytes),
            KeyPress::Char('m') => self.sort_by(Sort::Migrations),
            _ => {}
        }
    }

    fn type_filter(&mut self, key: KeyPress) {
        let mut filter = self.filter.clone();
        match key {
            KeyPress::Enter => self.typing = false,
            KeyPress::Escape => {
                self.typing = false;
                self.filter_by(String::new());
            }
            KeyPress::Backspace => {
                filter.pop();
                self.filter_by(filter);
            }
            KeyPress::Char(c) if filter.chars().count() < LONGEST_FILTER && !c.is_control() => {
                filter.push(c);
                self.filter_by(filter);
            }
            _ => {}
        }
    }

    fn show(&mut self, view: TopView) {
        (self.view, self.scroll) = (view, 0);
        if view == TopView::Main {
            self.key = self.at(self.selected);
        }
    }

    fn toggle(&mut self, view: TopView) {
        self.show(if self.view == view { TopView::Main } else { view });
    }

    fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        self.arrange();
    }

    fn filter_by(&mut self, filter: String) {
        self.filter = filter;
        self.arrange();
    }

    /// Moves the selection or the page; `to` gets the position and the number of visible rows.
    fn go(&mut self, to: impl Fn(usize, usize) -> usize) {
        if self.view == TopView::Main {
            self.selected = to(self.selected, self.rows().max(1)).min(self.order.len().saturating_sub(1));
            self.key = self.at(self.selected);
        } else {
            self.scroll = to(self.scroll, usize::from(ScreenLayout::page(self.size.1).count).max(1));
        }
    }

    /// Rows of workloads on the screen.
    fn rows(&self) -> usize {
        usize::from(self.layout().workloads.count).saturating_sub(1)
    }

    fn at(&self, row: usize) -> Option<report::WorkloadKey> {
        self.turn()?.workloads.get(*self.order.get(row)?).map(TopWorkload::key)
    }

    /// Puts the workloads in order, and the selection where its workload is.
    fn arrange(&mut self) {
        let workloads = self.turn().map_or(&[][..], |turn| &turn.workloads);
        let mut order = self.sort.order(workloads);
        order.retain(|index| workloads.get(*index).is_some_and(|one| matches(one, &self.filter)));
        let is_selected = |index: &usize| workloads.get(*index).map(TopWorkload::key) == self.key;
        let found = if self.selected > 0 { order.iter().position(is_selected) } else { None };
        self.order = order;
        self.selected = found.unwrap_or(self.selected).min(self.order.len().saturating_sub(1));
        // The details stay with the one that they are about, also when it has gone.
        if self.view != TopView::Workload {
            self.key = self.at(self.selected);
        }
    }

    /// Keeps the selection or the scroll position on the screen.
    fn settle(&mut self) {
        let rows = self.rows().max(1);
        let last = self.order.len().saturating_sub(rows);
        let least = (self.selected + 1).saturating_sub(rows);
        self.first = self.first.clamp(least, self.selected.max(least)).min(last);
        if self.view != TopView::Main {
            let page = usize::from(ScreenLayout::page(self.size.1).count);
            self.scroll = self.scroll.min(pages::lines(self).len().saturating_sub(page));
        }
    }
}

/// A name, and what stands behind it where others have it, too.
fn called(name: &str, behind: Option<&str>) -> String {
    behind.map_or_else(|| name.to_owned(), |behind| format!("{name} ({behind})"))
}
