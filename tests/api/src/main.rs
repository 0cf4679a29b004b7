//! `api-front`: an API for a guest, until standard input ends.
//!
//! Arguments are names and addresses that the certificate is for. The first line on standard output names the
//! ports: `{"secure": PORT, "open": PORT}`.

use std::{
    env,
    io::{self, Write as _},
};

use anyhow::{Context as _, Result};
use enforcer_test_api::ApiFront;
use serde_json::json;

fn main() -> Result<()> {
    let names: Vec<String> = env::args().skip(1).collect();
    let front = ApiFront::start(&names).context("the API server has no programs")?;
    let mut out = io::stdout();
    writeln!(out, "{}", json!({"secure": front.secure_port(), "open": front.open_port()}))
        .and_then(|()| out.flush())
        .context("say which ports it has")?;
    io::copy(&mut io::stdin(), &mut io::sink()).context("wait for the end of standard input")?;
    Ok(())
}
