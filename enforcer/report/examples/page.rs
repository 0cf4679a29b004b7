//! Writes the page of an audit that was made elsewhere: `audit -o json` on standard input, HTML on standard
//! output.
//!
//! For `cargo xtask test page`, which looks at a page of what a guest's kernel has counted, as the code of
//! today draws it. It is no part of the product, which makes the page where it looks.

use std::io::{self, Write};

use enforcer_core::audit::Audit;
use enforcer_report::page;

fn main() -> io::Result<()> {
    let audit: Audit = serde_json::from_reader(io::stdin().lock())?;
    io::stdout().lock().write_all(page::render(&audit, None).as_bytes())
}
