//! Memory pressure for two readers: the samples, which want to know all that was told, and a thread that acts
//! on it within a millisecond.
//!
//! A ring has one reader at a time. Here it is behind a lock: whoever comes takes out what is there for both
//! of them. When the turns took it, the thread is woken. While a thread listens, the ring wakes nobody else.
//!
//! Never: anything is done with an event here. Where nothing tells of pressure there is nothing to take.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use enforcer_core::sample::PressureEvent;

#[cfg(feature = "bpf")]
use super::kernel_side::Pressure;
use crate::waker::Waker;
#[cfg(feature = "bpf")]
use enforcer_kernel::{bpf::PressureRing, clock};

/// Events that wait for the thread; the first stay, because they are the earliest sign.
const WAITING: usize = 1_024;

/// A handle to the ring; clones refer to the same.
#[derive(Clone, Default)]
pub struct PressureTap(Arc<Mutex<Tapped>>);

#[derive(Default)]
struct Tapped {
    #[cfg(feature = "bpf")]
    ring: Option<PressureRing>,
    #[cfg(feature = "bpf")]
    told: Pressure,
    /// For the thread.
    waiting: Vec<PressureEvent>,
    /// Wakes it; none where no thread listens.
    waker: Option<Waker>,
}

impl PressureTap {
    fn lock(&self) -> MutexGuard<'_, Tapped> {
        // Whoever panicked left events that are whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread listens from now on: it is woken by `waker` when somebody else took events out, or another
    /// ring is there.
    pub fn listen(&self, waker: Waker) {
        let mut tapped = self.lock();
        tapped.waiting.reserve(WAITING);
        tapped.waker = Some(waker);
    }

    /// Does a thread listen?
    pub fn is_listened_to(&self) -> bool {
        self.lock().waker.is_some()
    }

    /// For the thread: what the ring is to be waited for with. Another one after it was woken.
    pub fn descriptor(&self) -> Option<OwnedFd> {
        #[cfg(feature = "bpf")]
        return self.lock().ring.as_ref().and_then(|ring| ring.as_fd().try_clone_to_owned().ok());
        #[cfg(not(feature = "bpf"))]
        None
    }

    /// For the thread: waits for events, the waker or so long.
    pub fn wait(waker: &Waker, ring: Option<&OwnedFd>, longest: Duration) -> io::Result<(bool, bool)> {
        waker.wait(ring.map(AsFd::as_fd), longest)
    }

    /// For the thread: hands all that was told since the last time to `take`.
    pub fn take(&self, mut take: impl FnMut(&PressureEvent)) {
        let mut tapped = self.lock();
        tapped.read();
        tapped.waiting.iter().for_each(&mut take);
        tapped.waiting.clear();
    }
}

#[cfg(feature = "bpf")]
impl PressureTap {
    /// For the turns: goes on with this ring.
    pub(super) fn attach(&self, ring: Option<PressureRing>) {
        let mut tapped = self.lock();
        tapped.ring = ring;
        tapped.wake();
    }

    /// For the turns: is there a ring?
    pub(super) fn is_attached(&self) -> bool {
        self.lock().ring.is_some()
    }

    /// For the turns: takes out what is there, so that there is room for more.
    pub(super) fn drain(&self) {
        let mut tapped = self.lock();
        let before = tapped.waiting.len();
        tapped.read();
        if tapped.waiting.len() > before {
            tapped.wake();
        }
    }

    /// For the turns: does something with what was told.
    pub(super) fn with<T>(&self, of: impl FnOnce(&mut Pressure) -> T) -> T {
        of(&mut self.lock().told)
    }
}

impl Tapped {
    #[cfg(feature = "bpf")]
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
        let Self { ring, told, waiting, waker } = self;
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
