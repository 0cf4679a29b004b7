//! What an event changes of the screen's state: keys, sizes, reports.
//!
//! The selection is a workload and not a row: it stays on its workload when the order changes, and goes to
//! the next one when that workload ends. On the first row it stays on that row, the worst workload.

use std::time::Duration;

use ratatui::crossterm::event::KeyCode;

use super::{
    event::{Feed, TopEvent},
    layout::ScreenLayout,
    order::matches,
    pages,
    report::{TopReport, TopWorkload, WorkloadKey},
    sort::Sort,
    state::{LONGEST_FILTER, TopState, TopView},
};
use crate::view::distinct::distinct;

impl TopState {
    /// Takes an event at `now`, a time since any beginning.
    pub fn update(&mut self, event: TopEvent, now: Duration) {
        self.now = now;
        match event {
            TopEvent::Key(key) => self.press(key),
            TopEvent::Resized(width, height) => self.size = (width, height),
            TopEvent::Second => {}
            TopEvent::Report(feed, report) => self.hear(feed, *report),
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
        let workloads = report.turn.iter().flat_map(|turn| &turn.workloads);
        self.distinct = distinct(workloads.map(Into::into));
        self.report = Some(report);
        self.arrange();
    }

    fn press(&mut self, key: KeyCode) {
        match key {
            key if self.typing => self.type_filter(key),
            KeyCode::Char('q') if self.view == TopView::Main => self.ended = true,
            KeyCode::Char('q') | KeyCode::Esc if self.view != TopView::Main => self.show(TopView::Main),
            KeyCode::Esc => self.filter_by(String::new()),
            KeyCode::Char('n') => self.toggle(TopView::Nodes),
            KeyCode::Char('a') => self.toggle(TopView::Actions),
            KeyCode::Char('d') => self.toggle(TopView::Degraded),
            KeyCode::Char('?' | 'h') => self.toggle(TopView::Help),
            KeyCode::Up | KeyCode::Char('k') => self.go(|at, _| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go(|at, _| at.saturating_add(1)),
            KeyCode::PageUp => self.go(usize::saturating_sub),
            KeyCode::PageDown | KeyCode::Char(' ') => self.go(usize::saturating_add),
            KeyCode::Home | KeyCode::Char('g') => self.go(|_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.go(|_, _| usize::MAX),
            _ if self.view != TopView::Main => {}
            KeyCode::Enter if self.key.is_some() => self.show(TopView::Workload),
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('s') => self.sort_by(self.sort.next()),
            KeyCode::Char('t') => self.sort_by(Sort::Traffic),
            KeyCode::Char('b') => self.sort_by(Sort::Bytes),
            KeyCode::Char('m') => self.sort_by(Sort::Migrations),
            _ => {}
        }
    }

    fn type_filter(&mut self, key: KeyCode) {
        let mut filter = self.filter.clone();
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter_by(String::new());
            }
            KeyCode::Backspace => {
                filter.pop();
                self.filter_by(filter);
            }
            KeyCode::Char(c) if filter.chars().count() < LONGEST_FILTER && !c.is_control() => {
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

    fn at(&self, row: usize) -> Option<WorkloadKey> {
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
