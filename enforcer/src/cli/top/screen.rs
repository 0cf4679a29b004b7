//! The terminal: taken, drawn on, and always restored.
//!
//! It is written through a file descriptor of our own: the printing thread locks standard output, and a panic
//! of another thread must still restore the terminal. The terminal's claimed size is bounded: each cell costs
//! memory.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    mem::ManuallyDrop,
    os::fd::AsFd,
    panic, process,
    sync::mpsc::{SyncSender, TrySendError},
    thread,
    time::{Duration, Instant},
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

use super::super::{Exit, ending::EndingSignals, terminal::style};
use crate::signals::GRACE;
use enforcer_report::top::{TopEvent, TopState, draw};

/// Most columns and rows that are drawn; the rest of a larger terminal stays empty.
const LARGEST: (u16, u16) = (500, 300);

/// Wait before a full event channel is tried again.
const AGAIN: Duration = Duration::from_millis(20);

/// A terminal that is ours until this is dropped.
pub(super) struct Screen {
    /// Not dropped: its drop would report a lost terminal on standard error, and panic if that is gone too.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<File>>>>,
    colour: bool,
}

impl Screen {
    /// Takes the terminal.
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
        // A failed start restores the terminal, too.
        let terminal = ManuallyDrop::new(terminal.inspect_err(|_error| leave())?);
        Ok(Self { terminal, colour })
    }

    /// Columns and rows that are drawn.
    pub(super) fn size(&self) -> io::Result<(u16, u16)> {
        self.terminal.size().map(|size| shown((size.width, size.height)))
    }

    /// Handles a new size of the terminal: the next frame is complete. `Terminal::clear` would query the
    /// cursor, and the key reader would get the answer.
    pub(super) fn resized(&mut self, width: u16, height: u16) -> io::Result<(u16, u16)> {
        // What is beyond the largest frame, too.
        self.terminal.backend_mut().clear()?;
        self.terminal.resize(area((width, height)))?;
        Ok(shown((width, height)))
    }

    pub(super) fn draw(&mut self, state: &TopState) -> io::Result<()> {
        let colour = self.colour;
        self.terminal.draw(|frame| draw(state, frame.buffer_mut(), colour)).map(|_frame| ())
    }
}

/// The drawn part of a terminal with this size.
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

/// Restores the terminal. A failure means that it is gone.
fn leave() {
    let _ = disable_raw_mode();
    let _ = stdout().and_then(|mut out| {
        execute!(out, LeaveAlternateScreen, Show)?;
        out.flush()
    });
}

/// Sends the end event on a signal. A blocked terminal blocks the drawing thread: the process ends soon in
/// any case.
pub(super) fn end_on_signals(sender: SyncSender<TopEvent>) -> io::Result<()> {
    let signals = EndingSignals::catch()?;
    let wait = move || {
        signals.wait();
        let end = Instant::now() + GRACE;
        while let Err(TrySendError::Full(_)) = sender.try_send(TopEvent::End)
            && Instant::now() < end
        {
            thread::sleep(AGAIN);
        }
        // Stays until the grace is over: the loop may be blocked.
        thread::sleep(end.saturating_duration_since(Instant::now()));
        let _ = disable_raw_mode();
        process::exit(Exit::Ok.code().into());
    };
    thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}
