//! Draws the state into cells; keeps and reads nothing else.
//!
//! Written row by row instead of with layouts and widgets: the columns that fit are known beforehand, and a
//! frame makes only the rows that are on the screen. Whatever does not fit is cut, never an error.

mod canvas;
mod head;
pub(super) mod nodes;
mod workloads;

use enforcer_core::named::Named as _;
use ratatui::buffer::Buffer;

use self::canvas::Canvas;
use super::{
    columns,
    layout::{Rows, ScreenLayout},
    pages,
    state::{TopState, TopView},
};
use crate::{style::Tone, text, units};

/// Columns of the age, the state and the name of an action.
const AGE: usize = 8;
const STATE: usize = 10;
const NAME: usize = 20;

/// Fills the buffer with the screen, in colour or not.
pub fn draw(state: &TopState, buffer: &mut Buffer, colour: bool) {
    let height = buffer.area.height;
    let mut canvas = Canvas::new(buffer, colour);
    head::draw(state, &mut canvas);
    if state.view == TopView::Main {
        let layout = state.layout();
        nodes::draw(state, layout.nodes, &mut canvas);
        workloads::draw(state, layout.workloads, &mut canvas);
        actions(state, layout.actions, &mut canvas);
        head::foot(state, layout.foot, &mut canvas);
    } else {
        let rows = ScreenLayout::page(height);
        let lines = pages::lines(state);
        let shown = lines.iter().skip(state.scroll).take(usize::from(rows.count));
        for (line, y) in shown.zip(rows.at..) {
            canvas.put(0, y, &line.text, line.tone);
        }
        let foot = Rows { at: rows.at + rows.count, count: height - rows.at - rows.count };
        let more = lines.len().saturating_sub(state.scroll + usize::from(rows.count));
        head::foot_of_page(more, foot, &mut canvas);
    }
}

/// The newest actions, as many as there is room for.
fn actions(state: &TopState, rows: Rows, canvas: &mut Canvas<'_>) {
    if rows.count == 0 {
        return;
    }
    let title = format!("{:<AGE$} {:<STATE$} {:<NAME$} {}", "decided", "state", "workload", "why");
    canvas.bar(rows.at, &title);
    let actions = state.report().map_or(&[][..], |report| &report.actions);
    for (action, y) in actions.iter().zip(rows.at + 1..rows.at + rows.count) {
        let age = units::ago(state.unix_ms(), action.first_unix_ms);
        let tone = match action.state.tone() {
            Tone::Quiet => None,
            tone => Some(tone),
        };
        let x = canvas.put(0, y, &format!("{age:<AGE$} "), None);
        let x = canvas.put(x, y, &format!("{:<STATE$} ", action.state.name()), tone);
        let name = columns::left(&text::fit(&state.called(action), NAME), NAME);
        let x = canvas.put(x, y, &format!("{name} "), None);
        canvas.put(x, y, &text::escape(action.words()), None);
    }
}

/// The cells as lines of text, for output that is not on a terminal.
pub fn to_text(buffer: &Buffer) -> String {
    let mut out = String::new();
    for row in buffer.content.chunks(usize::from(buffer.area.width).max(1)) {
        let begin = out.len();
        // A wide character has the cell behind it, too.
        let mut covered = 0;
        for cell in row {
            if covered == 0 {
                out.push_str(cell.symbol());
                covered = text::width(cell.symbol()).max(1);
            }
            covered -= 1;
        }
        out.truncate(begin + out[begin..].trim_end().len());
        out.push('\n');
    }
    out
}
