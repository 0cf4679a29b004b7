//! Waiting for something to become true, for a bounded time of the guest.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// Looks until `look` finds something; says in the error what was waited for.
///
/// An error of `look` is not the end: a daemon that is starting has no socket yet.
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        let seen = look();
        match seen {
            Ok(Some(found)) => return Ok(found),
            Err(error) if Instant::now() > end => return Err(error).context(not_seen(what, limit)),
            Ok(None) if Instant::now() > end => anyhow::bail!(not_seen(what, limit)),
            Ok(None) | Err(_) => sleep(PAUSE),
        }
    }
}

fn not_seen(what: &str, limit: Duration) -> String {
    format!("{what}: not seen within {} s", limit.as_secs())
}
