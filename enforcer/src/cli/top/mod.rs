//! `numa-enforcer top`: the host live on a terminal.
//!
//! The source of the figures is a parameter: this host ([`feed`]), or a node's daemon (`cli/kubectl`).
//!
//! A thin shell around `report::top`, which has the logic. Three threads send events over one bounded
//! channel: keys, signals, and looks at the host ([`feed`]). This one takes the events and draws. It wakes at
//! least once a second, so that ages stay true.
//!
//! The terminal is always restored: at the end of the loop, after an error or a signal, and on a panic of any
//! thread.

pub(super) mod feed;
mod keys;
mod screen;

use std::{
    io::{self, IsTerminal, Write},
    process,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use ratatui::{buffer::Buffer, layout::Rect};

use self::{
    feed::{Feeds, TopSource},
    screen::Screen,
};
use super::{Exit, UsageError, args, terminal};
use enforcer_report::top::{Feed, Sort, TopEvent, TopState, draw, height_for, to_text};

/// Events that wait; a paste of more waits in the terminal.
const WAITING: usize = 256;
/// Longest time between two frames.
const SECOND: Duration = Duration::from_secs(1);

/// Options of `top`.
#[derive(Debug, Clone)]
pub(super) struct Options {
    feed: feed::Options,
    view: ViewOptions,
}

/// What is shown, from whatever source.
#[derive(Debug, Clone)]
pub(super) struct ViewOptions {
    /// One frame, as text.
    pub(super) once: bool,
    /// Order of the workloads.
    pub(super) sort: Sort,
    /// Part of the names that are shown.
    pub(super) filter: String,
}

impl From<args::Top> for Options {
    fn from(args: args::Top) -> Self {
        let socket = (!args.no_daemon).then_some(args.daemon.socket);
        Self { feed: feed::Options { socket, interval: args.view.interval }, view: args.view.into() }
    }
}

impl From<args::View> for ViewOptions {
    fn from(args: args::View) -> Self {
        Self { once: args.once, sort: args.sort.into(), filter: args.filter }
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let feed = options.feed.clone();
    show(&options.view, move || Feeds::new(&feed), out)
}

/// Shows what the source that `make` makes tells; it is made by the thread that asks it.
pub(super) fn show<S: TopSource>(
    options: &ViewOptions,
    make: impl FnOnce() -> S + Send + 'static,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    if options.once {
        return once(options, make(), out);
    }
    check_terminal()?;
    let (sender, events) = sync_channel(WAITING);
    screen::end_on_signals(sender.clone()).context("catching signals")?;
    let mut screen = Screen::enter().context("taking the terminal")?;
    spawn("keys", &sender, keys::send_keys)?;
    spawn("feed", &sender, move |sender| make().send_reports(sender))?;
    drop(sender);
    let state = TopState::new(screen.size()?, options.sort, &options.filter);
    watch(state, &events, &mut screen)?;
    Ok(Exit::Ok)
}

/// Draws until the end.
fn watch(mut state: TopState, events: &Receiver<TopEvent>, screen: &mut Screen) -> anyhow::Result<()> {
    let begin = Instant::now();
    while !state.has_ended() {
        screen.draw(&state).context("drawing")?;
        let first = match events.recv_timeout(SECOND) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => TopEvent::Second,
            Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("the source of figures has ended")),
        };
        // Queued events make one frame.
        for event in std::iter::once(first).chain(events.try_iter().take(WAITING)) {
            let event = match event {
                TopEvent::Resized(width, height) => {
                    let (width, height) = screen.resized(width, height).context("drawing")?;
                    TopEvent::Resized(width, height)
                }
                event => event,
            };
            state.update(event, begin.elapsed());
        }
    }
    Ok(())
}

/// One frame, as high as needed.
fn once(options: &ViewOptions, mut source: impl TopSource, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut event = source.next();
    if let Some(why) = source.in_vain() {
        terminal::note(&format!("{why}; top looks by itself"));
    }
    if matches!(event, TopEvent::Report(Feed::Own { .. }, _)) {
        // Rates take two looks.
        thread::sleep(source.interval());
        event = source.next();
    }
    if let TopEvent::Silent(reason) = event {
        return Err(anyhow!(reason));
    }
    let width = u16::try_from(terminal::style().width).unwrap_or(u16::MAX);
    let mut state = TopState::new((width, 0), options.sort, &options.filter);
    state.update(event, Duration::ZERO);
    let report = state.report().ok_or_else(|| anyhow!("nothing was told"))?;
    let nodes = report.turn.as_ref().map_or(0, |turn| turn.nodes.len());
    let height = height_for(nodes, state.shown(), report.actions.len());
    state.update(TopEvent::Resized(width, height), Duration::ZERO);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw(&state, &mut buffer, false);
    write!(out, "{}", to_text(&buffer))?;
    Ok(Exit::Ok)
}

/// A screen needs a terminal that can be written anywhere, and keys.
fn check_terminal() -> Result<(), UsageError> {
    let refused = |why: &str| Err(UsageError(format!("{why}; `top --once` prints one frame as text")));
    if !io::stdout().is_terminal() {
        return refused("standard output is not a terminal");
    }
    if !io::stdin().is_terminal() {
        return refused("standard input is not a terminal, so no key could be read");
    }
    match std::env::var_os("TERM") {
        None => refused("TERM is not set"),
        Some(term) if term.is_empty() || term == "dumb" => refused("TERM says that the terminal is dumb"),
        Some(_) => Ok(()),
    }
}

/// Starts a thread that sends events; when it ends for any reason, the loop ends.
fn spawn(
    name: &str,
    sender: &SyncSender<TopEvent>,
    tell: impl FnOnce(&SyncSender<TopEvent>) + Send + 'static,
) -> anyhow::Result<()> {
    let last = Last(sender.clone());
    let telling = move || tell(&last.0);
    thread::Builder::new()
        .name(name.into())
        .spawn(telling)
        .with_context(|| format!("starting the thread `{name}`"))?;
    Ok(())
}

/// Sends the end event when dropped, also by a panic.
struct Last(SyncSender<TopEvent>);

impl Drop for Last {
    fn drop(&mut self) {
        if thread::panicking() {
            // The screen's panic hook has printed the message and restored the terminal.
            process::exit(Exit::Undetermined.code().into());
        }
        // Fails only if the loop has ended already.
        let _ = self.0.send(TopEvent::End);
    }
}
