//! Properties of standard output and standard error, for output to people.

use std::io::{self, IsTerminal, Write};

use numa_topology::degraded::Degraded;
use serde::Serialize;
use tracing_subscriber::{layer::SubscriberExt as _, reload, util::SubscriberInitExt as _};

use super::args::TableOrJson;
use crate::{
    log_level::{self, LogLevel},
    printer::{BlockingStream, Printer, Stream},
};
use enforcer_report::{json, style::Style, text};

/// What notes begin with.
const PROGRAM: &str = "numa-enforcer";

/// Width of output that goes into a file or a pipe.
const WIDTH_WITHOUT_TERMINAL: usize = 100;
/// Narrower than this, tables are unreadable anyway.
const LEAST_WIDTH: usize = 60;

/// Of what goes into a file of its own.
pub(super) const STYLE_OF_FILES: Style = Style { width: WIDTH_WITHOUT_TERMINAL, colour: false };

/// The width of the terminal, else `COLUMNS`, else 100; colour on a terminal unless `NO_COLOR` is set
/// to anything but nothing (<https://no-color.org>) or `TERM` is `dumb`.
pub(super) fn style() -> Style {
    let stdout = io::stdout();
    let terminal = stdout.is_terminal();
    let window = terminal.then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let columns = set("COLUMNS").and_then(|columns| columns.to_str()?.parse().ok());
    let width = window.map(|window| usize::from(window.ws_col)).filter(|width| *width > 0);
    Style {
        width: width.or(columns).unwrap_or(WIDTH_WITHOUT_TERMINAL).clamp(LEAST_WIDTH, 1000),
        colour: terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb"),
    }
}

/// Writes what a command has to say in the form that was asked for.
pub(super) fn show<T: Serialize>(
    output: TableOrJson,
    said: &T,
    table: impl FnOnce(&T, Style) -> String,
    out: &mut dyn Write,
) -> io::Result<()> {
    match output {
        TableOrJson::Table => write!(out, "{}", table(said, style())),
        TableOrJson::Json => json::write(said, out),
    }
}

/// One line on standard error, for what is worth knowing beside the output.
pub(super) fn note(line: &str) {
    note_by(PROGRAM, line);
}

/// The same by a program with another name.
pub(super) fn note_by(program: &str, line: &str) {
    // If this fails, there is no reader left.
    let _ = writeln!(io::stderr(), "{}", noted_by(program, line));
}

/// Such a line, without its end.
pub(super) fn noted(line: &str) -> String {
    noted_by(PROGRAM, line)
}

fn noted_by(program: &str, line: &str) -> String {
    format!("{program}: {}", text::escape(line))
}

/// What a reader could not see.
pub(super) fn note_degraded(degraded: &Degraded) {
    note(&degraded.to_string());
}

/// Warnings of what a command goes through go to standard error, as those of the daemon.
pub(super) fn warn_on_stderr() {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .log_internal_errors(false);
    // Only a second call fails, and then the first one's settings hold.
    let _ = subscriber.try_init();
}

/// The daemon's standard output. `complain` is called when output is lost.
pub(super) fn print_to_stdout(complain: impl Fn(&str) + Send + Sync + 'static) -> io::Result<Printer> {
    Printer::start(
        Stream { name: "stdout", what: "lines of turns" },
        BlockingStream::of(&io::stdout())?,
        complain,
    )
}

/// The daemon's standard error.
pub(super) fn print_to_stderr() -> io::Result<Printer> {
    // Lost log lines show in `status` and in the metrics only.
    Printer::start(
        Stream { name: "log", what: "lines of the log" },
        BlockingStream::of(&io::stderr())?,
        |_lost| (),
    )
}

/// Logs to standard error, from level info on unless `RUST_LOG` or a later change of the level says
/// otherwise.
pub(super) fn log_to_stderr() -> io::Result<(LogLevel, Printer)> {
    let printer = print_to_stderr()?;
    let asked = std::env::var(log_level::DIRECTIVES).ok();
    let (filter, unreadable) = log_level::filter(asked.as_deref());
    let current = filter.to_string();
    let (filter, handle) = reload::Layer::new(log_level::without_failed_requests(filter));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer({
            let printer = printer.clone();
            move || printer.clone()
        })
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        // It would write to standard error, too, and panic where that fails.
        .log_internal_errors(false);
    // Only a second call fails, and then the first one's settings hold.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    if let Some(error) = unreadable {
        let text = asked.unwrap_or_default();
        tracing::warn!("{} = {text:?}: {error}; the level is info", log_level::DIRECTIVES);
    }
    let level = LogLevel::new(current, move |filter| {
        handle.reload(log_level::without_failed_requests(filter)).map_err(|error| error.to_string())
    });
    Ok((level, printer))
}
