//! Files of cpusets that are written one below the other, each as soon as the one above it counts.
//!
//! A write takes effect at once, but returns only after the kernel has moved pages of other cgroups, seconds
//! later (see [`super`]). A cgroup below must not wait for that return. So each cgroup above is written by a
//! thread of its own, and its file shows when the write has taken effect: the kernel changes the content
//! before it waits.
//!
//! Invariant: a cgroup is written only after the cgroup above allows it, and not if the write above has
//! failed.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use numa_topology::set::NodeSet;

/// Time between two readings of a file.
const LOOK: Duration = Duration::from_millis(1);

/// The memory nodes of a cgroup.
pub(super) trait Mems: Send + Sync + 'static {
    /// Sets them; returns late.
    fn write(&self, text: &str) -> Result<(), String>;

    /// Are these among them? False where that cannot be read.
    fn has(&self, mems: &NodeSet) -> bool;
}

/// Writes these, those above first. The error is that of the highest.
pub(super) fn write<M: Mems>(mut files: Vec<(Arc<M>, NodeSet)>) -> Result<(), String> {
    let Some((lowest, its_mems)) = files.pop() else { return Ok(()) };
    let mut under_way = Vec::new();
    for (file, mems) in &files {
        under_way.extend(begin(file, mems)?);
    }
    let written = lowest.write(&its_mems.to_string());
    for result in under_way {
        result.recv().unwrap_or_else(|_gone| Err(NO_RESULT.to_owned()))?;
    }
    written
}

const NO_RESULT: &str = "the thread that writes above it has ended without a result";

/// Begins to write, and returns when that counts: with where the result will be, unless it has returned.
fn begin<M: Mems>(file: &Arc<M>, mems: &NodeSet) -> Result<Option<Receiver<Result<(), String>>>, String> {
    let (sender, result) = channel();
    let (to_write, text) = (Arc::clone(file), mems.to_string());
    let job = move || {
        // The receiver is gone when a write above has failed.
        let _ = sender.send(to_write.write(&text));
    };
    let here = job.clone();
    let spawned: io::Result<_> = thread::Builder::new().name("widening-above".into()).spawn(job);
    if spawned.is_err() {
        here();
    } else {
        drop(here);
    }
    loop {
        match result.recv_timeout(LOOK) {
            Ok(written) => return written.map(|()| None),
            Err(RecvTimeoutError::Timeout) if file.has(mems) => return Ok(Some(result)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(NO_RESULT.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// Long enough to fail rather than to hang.
    const LONG: Duration = Duration::from_secs(5);

    /// Writes, in order.
    #[derive(Default)]
    struct Log {
        written: Mutex<Vec<&'static str>>,
        changed: Condvar,
    }

    impl Log {
        fn wait_for(&self, name: &str) -> Result<(), String> {
            let written = self.written.lock().unwrap();
            let missing = |written: &mut Vec<&'static str>| !written.contains(&name);
            let (_written, waited) = self.changed.wait_timeout_while(written, LONG, missing).unwrap();
            if waited.timed_out() { Err(format!("{name} was not written meanwhile")) } else { Ok(()) }
        }
    }

    /// A file of a cgroup.
    #[derive(Clone)]
    struct Slow {
        name: &'static str,
        /// Its write returns when this one is written.
        until: Option<&'static str>,
        fails: bool,
        /// The file shows the written value.
        counts: bool,
    }

    const SLICE: Slow = Slow { name: "slice", until: Some("leaf"), fails: false, counts: true };
    const POD: Slow = Slow { name: "pod", ..SLICE };
    const LEAF: Slow = Slow { name: "leaf", until: None, ..SLICE };

    struct Logged(Slow, Arc<Log>);

    impl Mems for Logged {
        fn write(&self, _text: &str) -> Result<(), String> {
            let Self(Slow { name, until, fails, .. }, log) = self;
            log.written.lock().unwrap().push(name);
            log.changed.notify_all();
            until.map_or(Ok(()), |until| log.wait_for(until))?;
            if *fails { Err(format!("{name} fails")) } else { Ok(()) }
        }

        fn has(&self, _mems: &NodeSet) -> bool {
            self.0.counts && self.1.written.lock().unwrap().contains(&self.0.name)
        }
    }

    fn written(files: &[Slow]) -> (Result<(), String>, String) {
        let log = Arc::new(Log::default());
        let file = |file: &Slow| (Arc::new(Logged(file.clone(), Arc::clone(&log))), "0-1".parse().unwrap());
        let result = write(files.iter().map(file).collect());
        let written = log.written.lock().unwrap().join(" ");
        (result, written)
    }

    #[test]
    fn child_does_not_wait_until_the_write_above_returns() {
        let all = "slice pod leaf".to_owned();
        assert_eq!(written(&[SLICE, POD, LEAF]), (Ok(()), all.clone()));
        // Where what counts cannot be read, its return is waited for.
        let returns = |file| Slow { until: None, counts: false, ..file };
        assert_eq!(written(&[returns(SLICE), returns(POD), returns(LEAF)]), (Ok(()), all));
        assert_eq!(written(&[]), (Ok(()), String::new()));
    }

    #[test]
    fn child_of_a_failed_write_is_not_written_and_a_late_failure_is_reported() {
        let fails = |file| Slow { fails: true, ..file };
        let failed = |name: &str, written: &str| (Err(format!("{name} fails")), written.to_owned());
        let at_once = Slow { until: None, counts: false, ..SLICE };
        assert_eq!(written(&[fails(at_once), LEAF]), failed("slice", "slice"));
        assert_eq!(written(&[SLICE, fails(LEAF)]), failed("leaf", "slice leaf"));
        assert_eq!(written(&[fails(SLICE), fails(LEAF)]), failed("slice", "slice leaf"));
    }
}
