//! A server as it starts, in a container: it fills memory, and says when it is ready as services tell systemd
//! (`sd_notify(3)`).
//!
//! What it says is one datagram to the socket that `NOTIFY_SOCKET` names; without that variable it says
//! nothing and does the same. It goes on to fill memory afterwards, so that the daemon cannot take it for a
//! program that has stopped growing. It joins no cgroup: it is in one already.

use std::{
    env,
    ffi::OsStr,
    io::{self, Write as _},
    os::unix::net::UnixDatagram,
    thread,
};

use anyhow::{Context, Result};

use crate::hog;

/// Names the socket.
pub const SOCKET: &str = "NOTIFY_SOCKET";

/// What is said there.
const READY: &[u8] = b"READY=1";

/// What it prints when that was sent.
pub const SAID: &str = "said that it is ready";

/// What the program does.
#[derive(Debug, Clone, clap::Args)]
pub struct Server {
    /// All of its memory
    #[arg(long)]
    mebibytes: usize,
    /// MiB of it after which it is ready
    #[arg(long)]
    ready_after: usize,
    /// MiB per second by which it grows
    #[arg(long)]
    mebibytes_per_second: usize,
}

impl Server {
    /// Never returns, except with an error.
    pub fn run(&self) -> Result<()> {
        let mut memory = vec![0; self.mebibytes << 20];
        let (first, rest) = memory.split_at_mut(self.ready_after.min(self.mebibytes) << 20);
        hog::grow(first, self.mebibytes_per_second);
        if let Some(socket) = env::var_os(SOCKET) {
            say(&socket)?;
        }
        hog::grow(rest, self.mebibytes_per_second);
        loop {
            thread::park();
        }
    }
}

fn say(socket: &OsStr) -> Result<()> {
    let sent = UnixDatagram::unbound().and_then(|sender| sender.send_to(READY, socket));
    match sent {
        Ok(_) => println!("{SAID}"),
        Err(error) => println!("could not say to {}: {error}", socket.display()),
    }
    io::stdout().flush().context("print what was said")
}
