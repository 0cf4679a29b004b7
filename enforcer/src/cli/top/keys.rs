//! Sends keys and sizes of the terminal.

use std::sync::mpsc::SyncSender;

use ratatui::crossterm::{
    event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    terminal,
};

use enforcer_report::top::{Event, Key};

/// Sends until the terminal or the receiver is gone.
pub(super) fn tell(sender: &SyncSender<Event>) {
    while let Ok(event) = event::read() {
        let told = match event {
            event::Event::Key(key) if key.kind != KeyEventKind::Release => of(key),
            event::Event::Resize(width, height) => Some(Event::Resized(width, height)),
            _ => None,
        };
        if told.is_some_and(|event| sender.send(event).is_err()) {
            return;
        }
    }
}

fn of(key: KeyEvent) -> Option<Event> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let key = match key.code {
        KeyCode::Char('c') if control => Key::Interrupt,
        // Redraws the whole screen, as after a change of its size.
        KeyCode::Char('l') if control => {
            return terminal::size().ok().map(|(width, height)| Event::Resized(width, height));
        }
        KeyCode::Char(_) if control => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    };
    Some(Event::Key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_c_ends_and_other_controls_are_no_characters() {
        let with = |code, modifiers| of(KeyEvent::new(code, modifiers));
        let control = KeyModifiers::CONTROL;
        assert_eq!(with(KeyCode::Char('c'), control), Some(Event::Key(Key::Interrupt)));
        assert_eq!(with(KeyCode::Char('q'), control), None);
        assert_eq!(with(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Event::Key(Key::Char('G'))));
        assert_eq!(with(KeyCode::F(1), KeyModifiers::NONE), None);
    }
}
