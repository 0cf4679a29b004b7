//! Text in messages: figures, names from outside, and values that are written in quotes.

mod causes;
pub mod figures;
mod printable;
#[cfg(feature = "serde")]
pub mod quoted;

pub use causes::with_causes;
pub use printable::{cut_at, is_unfit, printable, printable_within};

/// As much of a refused text as an error repeats.
pub fn beginning(text: &str) -> String {
    text.chars().take(40).collect()
}
