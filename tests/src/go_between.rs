//! A socket between a container runtime and its plugin that passes everything on, but cuts the first
//! connection in the middle of a synchronisation.
//!
//! It knows of the protocol only what the name of the call looks like: what follows it is the list of pods
//! and containers.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use anyhow::{Context as _, Result};

/// How the runtime calls it.
const CALL: &[u8] = b"Synchronize";
/// Bytes behind the name that still get through.
const PASSED: usize = 100;

/// Between a runtime and a plugin, until the program ends.
#[derive(Debug)]
pub struct GoBetween {
    connections: Arc<AtomicU32>,
    cuts: Arc<AtomicU32>,
}

impl GoBetween {
    /// Listens at one path for the plugin, and connects it with the runtime at the other.
    pub fn start(path: &str, runtime: &'static str) -> Result<Self> {
        let _absent = fs::remove_file(path);
        let listener = UnixListener::bind(path).with_context(|| format!("listen at {path}"))?;
        let this = Self { connections: Arc::default(), cuts: Arc::default() };
        let (connections, cuts) = (Arc::clone(&this.connections), Arc::clone(&this.cuts));
        thread::spawn(move || {
            for plugin in listener.incoming().flatten() {
                let Ok(runtime) = UnixStream::connect(runtime) else { continue };
                let is_first = connections.fetch_add(1, Ordering::SeqCst) == 0;
                if let Err(error) = connect(plugin, runtime, is_first.then(|| Arc::clone(&cuts))) {
                    println!("between runtime and plugin: {error}");
                }
            }
        });
        Ok(this)
    }

    /// Connections that there were.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::SeqCst)
    }

    /// How many of them were cut.
    pub fn cuts(&self) -> u32 {
        self.cuts.load(Ordering::SeqCst)
    }
}

/// Passes everything on in both directions; what the runtime says only so far, where cuts are counted.
fn connect(plugin: UnixStream, runtime: UnixStream, cuts: Option<Arc<AtomicU32>>) -> io::Result<()> {
    let (mut asks, mut told) = (plugin.try_clone()?, runtime.try_clone()?);
    thread::spawn(move || {
        let _ended = io::copy(&mut asks, &mut told);
        let _gone = told.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        let (mut from, mut to) = (runtime, plugin);
        let _ended = match cuts {
            None => io::copy(&mut from, &mut to).map(drop),
            Some(cuts) => until_cut(&mut from, &mut to).map(|()| {
                cuts.fetch_add(1, Ordering::SeqCst);
            }),
        };
        for end in [from, to] {
            let _gone = end.shutdown(Shutdown::Both);
        }
    });
    Ok(())
}

/// Passes on what comes before the call, and the beginning of it.
fn until_cut(from: &mut UnixStream, to: &mut UnixStream) -> io::Result<()> {
    let (mut seen, mut passed) = (Vec::new(), 0);
    let mut buffer = [0; 4096];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        seen.extend_from_slice(&buffer[..read]);
        let call = seen.windows(CALL.len()).position(|bytes| bytes == CALL);
        let end = call.map_or(seen.len(), |at| seen.len().min(at + CALL.len() + PASSED));
        to.write_all(seen.get(passed..end).unwrap_or_default())?;
        passed = end;
        if call.is_some_and(|at| end == at + CALL.len() + PASSED) {
            return Ok(());
        }
    }
}
