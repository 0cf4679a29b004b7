//! Cells with clipping: writes outside the screen are dropped.

use ratatui::{
    buffer::Buffer,
    style::{Color, Modifier, Style},
};

use crate::style::Tone;

/// A buffer, and whether there are colours.
pub(super) struct Canvas<'a> {
    buffer: &'a mut Buffer,
    colour: bool,
}

impl<'a> Canvas<'a> {
    pub(super) fn new(buffer: &'a mut Buffer, colour: bool) -> Self {
        Self { buffer, colour }
    }

    /// Columns.
    pub(super) fn width(&self) -> usize {
        usize::from(self.buffer.area.width)
    }

    /// Writes text that is escaped already, as much of it as fits; returns the column behind it.
    pub(super) fn put(&mut self, x: u16, y: u16, text: &str, tone: Option<Tone>) -> u16 {
        let style = tone.map_or_else(Style::default, |tone| self.style(tone));
        self.write(x, y, text, style)
    }

    /// A row that heads others: dark on light, whatever the colours.
    pub(super) fn bar(&mut self, y: u16, text: &str) {
        self.write(0, y, text, Style::default());
        self.mark(y);
    }

    /// Turns a row around.
    pub(super) fn mark(&mut self, y: u16) {
        let area = self.buffer.area;
        let row =
            ratatui::layout::Rect { x: area.x, y: area.y.saturating_add(y), width: area.width, height: 1 };
        self.buffer.set_style(row.intersection(area), Style::default().add_modifier(Modifier::REVERSED));
    }

    fn write(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        let area = self.buffer.area;
        if x >= area.width || y >= area.height {
            return x;
        }
        let room = usize::from(area.width - x);
        let (end, _) = self.buffer.set_stringn(area.x + x, area.y + y, text, room, style);
        end - area.x
    }

    fn style(&self, tone: Tone) -> Style {
        let style = match tone {
            Tone::Heading | Tone::Bad => Style::default().add_modifier(Modifier::BOLD),
            Tone::Good | Tone::Notice | Tone::Quiet => Style::default(),
        };
        match tone {
            _ if !self.colour => style,
            Tone::Good => style.fg(Color::Green),
            Tone::Notice => style.fg(Color::Yellow),
            Tone::Bad => style.fg(Color::Red),
            Tone::Quiet => style.add_modifier(Modifier::DIM),
            Tone::Heading => style,
        }
    }
}
