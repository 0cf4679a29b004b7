//! The terminal: taken, drawn on, and given back as it was, whatever happens.
//!
//! Written through a file descriptor of our own, because standard output is locked by the thread that prints,
//! and a panic of another thread must be able to give the terminal back all the same. What size a terminal
//! says that it has is not believed without bounds: cells are paid for in memory.

use std::{
    fs::File,
    future::pending,
    io::{self, BufWriter, Write},
    mem::ManuallyDrop,
    os::fd::AsFd,
    panic, process,
    sync::mpsc::{SyncSender, TrySendError},
    thread,
    time::Duration,
};

use ratatui::{
    Terminal, TerminalOptions, Viewport,
    backend::{Backend as _, CrosstermBackend},
    crossterm::{
        cursor::{Hide, Show},
        execute,
        terminal::{self, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
    layout::Rect,
};
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};

use super::super::{Exit, terminal::style};
use crate::signals::GRACE;
use enforcer_report::top::{Event, State, draw};

/// Columns and rows that are drawn at most; the rest of a larger terminal stays empty.
const LARGEST: (u16, u16) = (500, 300);

/// Until it is tried again to tell somebody who was told too much.
const AGAIN: Duration = Duration::from_millis(20);

/// A terminal that is ours until this is dropped.
pub(super) struct Screen {
    /// Its own end would say on standard error that there is no terminal any longer, and panic where that is
    /// gone too.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<File>>>>,
    colour: bool,
}

impl Screen {
    /// Takes it.
    pub(super) fn enter() -> io::Result<Self> {
        let mut writer = BufWriter::new(stdout()?);
        let colour = style().colour;
        enable_raw_mode()?;
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            leave();
            before(info);
        }));
        let entered = execute!(writer, EnterAlternateScreen, Hide);
        let terminal = entered.and_then(|()| {
            let viewport = Viewport::Fixed(area(terminal::size()?));
            Terminal::with_options(CrosstermBackend::new(writer), TerminalOptions { viewport })
        });
        // Nothing is left behind by a screen that could not be had.
        let terminal = ManuallyDrop::new(terminal.inspect_err(|_error| leave())?);
        Ok(Self { terminal, colour })
    }

    /// Columns and rows that are drawn.
    pub(super) fn size(&self) -> io::Result<(u16, u16)> {
        self.terminal.size().map(|size| shown((size.width, size.height)))
    }

    /// The terminal has that size now, of which so much is drawn: the next frame as a whole. Clearing it by
    /// `Terminal` would ask where the cursor is, and whoever reads keys would get the answer.
    pub(super) fn resized(&mut self, width: u16, height: u16) -> io::Result<(u16, u16)> {
        // What is beyond the largest frame, too.
        self.terminal.backend_mut().clear()?;
        self.terminal.resize(area((width, height)))?;
        Ok(shown((width, height)))
    }

    pub(super) fn draw(&mut self, state: &State) -> io::Result<()> {
        let colour = self.colour;
        self.terminal.draw(|frame| draw(state, frame.buffer_mut(), colour)).map(|_frame| ())
    }
}

/// What is drawn of a terminal that says it has so many columns and rows.
fn shown((width, height): (u16, u16)) -> (u16, u16) {
    (width.min(LARGEST.0), height.min(LARGEST.1))
}

fn area(size: (u16, u16)) -> Rect {
    let (width, height) = shown(size);
    Rect::new(0, 0, width, height)
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Standard output, without its lock.
fn stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Gives the terminal back. Where that fails there is none any longer.
fn leave() {
    let _ = disable_raw_mode();
    let _ = stdout().and_then(|mut out| {
        execute!(out, LeaveAlternateScreen, Show)?;
        out.flush()
    });
}

/// Says that it is time to end when a signal asks for that. A terminal that takes nothing more holds up who
/// draws: the process ends in any case soon.
pub(super) fn end_on_signals(sender: SyncSender<Event>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let context = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    drop(context);
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            let told = async {
                while let Err(TrySendError::Full(_)) = sender.try_send(Event::End) {
                    sleep(AGAIN).await;
                }
                // Who does not come to its end is held up; the grace is for that.
                pending::<()>().await;
            };
            let _late = timeout(GRACE, told).await;
        });
        let _ = disable_raw_mode();
        process::exit(Exit::Ok.code().into());
    };
    thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}
