//! Shares memory pressure events between two readers: the samples, which count every event, and a thread that
//! acts within a millisecond.
//!
//! A ring has one reader at a time. Here it is behind a lock, and either reader drains it for both. When a
//! turn has drained it, the thread is woken. While a thread listens, the ring wakes no other.
//!
//! Invariant: events are only passed on here. Without a ring there are none.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use enforcer_core::sample::PressureEvent;

#[cfg(feature = "bpf")]
use super::pressure_buffer::PressureBuffer;
use enforcer_kernel::waker::Waker;
#[cfg(feature = "bpf")]
use enforcer_kernel::{bpf::PressureRing, clock};

/// Most events queued for the thread; the first ones are kept, because they are the earliest sign.
const WAITING: usize = 1_024;

/// Handle to the ring; clones share it.
#[derive(Clone, Default)]
pub struct PressureTap(Arc<Mutex<Tapped>>);

#[derive(Default)]
struct Tapped {
    #[cfg(feature = "bpf")]
    ring: Option<PressureRing>,
    #[cfg(feature = "bpf")]
    told: PressureBuffer,
    /// The ring's descriptor, to wait on.
    fd: Option<Arc<OwnedFd>>,
    /// Events for the thread.
    waiting: Vec<PressureEvent>,
    /// Wakes the thread; `None` without one.
    waker: Option<Waker>,
}

impl PressureTap {
    fn lock(&self) -> MutexGuard<'_, Tapped> {
        // Poisoning is ignored: every update leaves the events consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the thread: `waker` wakes it when a turn has drained the ring, or when the ring is replaced.
    pub fn listen(&self, waker: Waker) {
        let mut tapped = self.lock();
        tapped.waiting.reserve(WAITING);
        tapped.waker = Some(waker);
    }

    /// For the thread: the ring's descriptor to wait on. A wake-up may replace it.
    pub fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.lock().fd.clone()
    }

    /// For the turns: the same while no thread listens, so that the ring wakes one of the two.
    pub fn without_listener(&self) -> Option<Arc<OwnedFd>> {
        let tapped = self.lock();
        tapped.fd.clone().filter(|_| tapped.waker.is_none())
    }

    /// For the thread: waits for events or the waker, at most `longest`.
    pub fn wait(waker: &Waker, ring: Option<&OwnedFd>, longest: Duration) -> io::Result<(bool, bool)> {
        waker.wait(ring.map(AsFd::as_fd), longest)
    }

    /// For the turns: drains the ring.
    pub fn drain(&self) {
        let mut tapped = self.lock();
        let before = tapped.waiting.len();
        tapped.read();
        if tapped.waiting.len() > before {
            tapped.wake();
        }
    }

    /// For the thread: passes all events since the last call to `take`.
    pub fn take(&self, mut take: impl FnMut(&PressureEvent)) {
        let mut tapped = self.lock();
        tapped.read();
        tapped.waiting.iter().for_each(&mut take);
        tapped.waiting.clear();
    }
}

#[cfg(feature = "bpf")]
impl PressureTap {
    /// For the turns: replaces the ring.
    pub(super) fn attach(&self, ring: Option<PressureRing>) {
        let mut tapped = self.lock();
        let fd = ring.as_ref().and_then(|ring| ring.as_fd().try_clone_to_owned().ok());
        tapped.fd = fd.map(Arc::new);
        tapped.ring = ring;
        tapped.wake();
    }

    /// For the turns: whether there is a ring.
    pub(super) fn is_attached(&self) -> bool {
        self.lock().ring.is_some()
    }

    /// For the turns: runs `of` on the collected events.
    pub(super) fn with<T>(&self, of: impl FnOnce(&mut PressureBuffer) -> T) -> T {
        of(&mut self.lock().told)
    }
}

impl Tapped {
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    #[cfg(not(feature = "bpf"))]
    fn read(&mut self) {
        let _ = self;
    }

    #[cfg(feature = "bpf")]
    fn read(&mut self) {
        let Self { ring, told, waiting, waker, .. } = self;
        let Some(ring) = ring else { return };
        let now_ns = clock::now_ns();
        ring.read(|event| {
            if let Some(event) = event.as_ref().filter(|_| waker.is_some() && waiting.len() < WAITING) {
                waiting.push(event.clone());
            }
            told.take(event, now_ns);
        });
    }
}
