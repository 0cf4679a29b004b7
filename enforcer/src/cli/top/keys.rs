//! Sends keys and sizes of the terminal.

use std::sync::mpsc::SyncSender;

use ratatui::crossterm::{
    event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    terminal,
};

use enforcer_report::top::TopEvent;

/// Sends until the terminal or the receiver is gone.
pub(super) fn send_keys(sender: &SyncSender<TopEvent>) {
    while let Ok(event) = event::read() {
        let told = match event {
            event::Event::Key(key) if key.kind != KeyEventKind::Release => of(key),
            event::Event::Resize(width, height) => Some(TopEvent::Resized(width, height)),
            _ => None,
        };
        if told.is_some_and(|event| sender.send(event).is_err()) {
            return;
        }
    }
}

fn of(key: KeyEvent) -> Option<TopEvent> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => Some(TopEvent::End),
        // Redraws the whole screen, as after a change of its size.
        KeyCode::Char('l') if control => {
            terminal::size().ok().map(|(width, height)| TopEvent::Resized(width, height))
        }
        KeyCode::Char(_) if control => None,
        key => Some(TopEvent::Key(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_c_ends_and_other_controls_are_no_characters() {
        let with = |code, modifiers| of(KeyEvent::new(code, modifiers));
        let control = KeyModifiers::CONTROL;
        assert_eq!(with(KeyCode::Char('c'), control), Some(TopEvent::End));
        assert_eq!(with(KeyCode::Char('q'), control), None);
        assert_eq!(with(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(TopEvent::Key(KeyCode::Char('G'))));
    }
}
