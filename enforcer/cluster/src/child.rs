//! Child processes that end: by themselves, at a deadline, when they are dropped, or all at once.
//!
//! A child that outlives the program would keep a port of the user's machine open. So each one is registered,
//! and a signal ends all of them ([`Children::end_all`]). The pipes of a child are read by threads of their
//! own: a child never waits for its reader.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Time between two looks at whether a child has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Bytes that are kept of what a child says on standard error.
const MOST_SAID: usize = 4096;

/// The children of one program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Children(Arc<Mutex<ChildTable>>);

#[derive(Debug, Default)]
struct ChildTable {
    next: u64,
    /// No child is started any more.
    closed: bool,
    running: BTreeMap<u64, Child>,
}

/// A child, ended on drop.
#[derive(Debug)]
pub(crate) struct RunningChild {
    children: Children,
    id: u64,
    said: SaidText,
}

/// The end of what a child says on standard error.
#[derive(Debug, Clone, Default)]
struct SaidText(Arc<Mutex<SaidState>>);

#[derive(Debug, Default)]
struct SaidState {
    kept: Vec<u8>,
    /// The child says nothing more.
    is_whole: bool,
}

impl Children {
    /// Starts a child without input; returns its standard output beside it.
    pub(crate) fn start(&self, command: &mut Command) -> io::Result<(RunningChild, ChildStdout)> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The lock is held while it starts, so that `end_all` misses none.
        let mut table = self.table();
        if table.closed {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the program ends"));
        }
        let mut child = command.spawn()?;
        let said = SaidText::default();
        let pipes = child.stdout.take().zip(child.stderr.take());
        let id = table.next;
        table.next += 1;
        table.running.insert(id, child);
        drop(table);
        let running = RunningChild { children: self.clone(), id, said };
        let (stdout, stderr) = pipes.ok_or_else(|| io::Error::other("it has no output"))?;
        let said = running.said.clone();
        thread::Builder::new().name("complaints".into()).spawn(move || said.keep_end_of(stderr))?;
        Ok((running, stdout))
    }

    /// Ends all children, and lets no other one start.
    pub(crate) fn end_all(&self) {
        let mut table = self.table();
        table.closed = true;
        for child in table.running.values_mut() {
            // It may have ended already.
            let _ = child.kill();
        }
    }

    fn table(&self) -> MutexGuard<'_, ChildTable> {
        // Poisoning is ignored: every change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningChild {
    /// The exit status, if it ends before `deadline`.
    pub(crate) fn wait_until(&self, deadline: Instant) -> io::Result<Option<ExitStatus>> {
        loop {
            let ended = match self.children.table().running.get_mut(&self.id) {
                Some(child) => child.try_wait()?,
                None => return Ok(None),
            };
            if ended.is_some() || Instant::now() >= deadline {
                return Ok(ended);
            }
            thread::sleep(LOOK);
        }
    }

    /// The latest lines that it has said on standard error; waits until `deadline` for the first one, and for
    /// the last one if it has ended.
    pub(crate) fn said(&self, deadline: Instant) -> String {
        loop {
            // Its end comes before the end of what it has said is read.
            let runs = self.runs();
            let (text, is_whole) = self.said.text();
            if is_whole || (runs && !text.is_empty()) || Instant::now() >= deadline {
                return text;
            }
            thread::sleep(LOOK);
        }
    }

    fn runs(&self) -> bool {
        let mut table = self.children.table();
        table.running.get_mut(&self.id).is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }
}

impl Drop for RunningChild {
    fn drop(&mut self) {
        let child = self.children.table().running.remove(&self.id);
        if let Some(mut child) = child {
            // Fails if it has ended; then `wait` returns at once.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl SaidText {
    fn keep_end_of(&self, mut stream: impl Read) {
        let mut read = [0; 1024];
        loop {
            match stream.read(&mut read) {
                Ok(0) => break,
                Ok(length) => {
                    let mut state = self.state();
                    state.kept.extend_from_slice(&read[..length]);
                    let beyond = state.kept.len().saturating_sub(MOST_SAID);
                    state.kept.drain(..beyond);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.state().is_whole = true;
    }

    /// What is said so far, and whether that is all.
    fn text(&self) -> (String, bool) {
        let state = self.state();
        (told(&String::from_utf8_lossy(&state.kept)), state.is_whole)
    }

    fn state(&self) -> MutexGuard<'_, SaidState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lines of a text, joined by `; `. Lines of kubectl's own log are left out if there are others: they
/// repeat each try.
fn told(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let plain: Vec<&str> = lines.iter().copied().filter(|line| !is_log(line)).collect();
    if plain.is_empty() { lines.join("; ") } else { plain.join("; ") }
}

/// `E1127 14:51:23.893659 ...`: klog's form.
fn is_log(line: &str) -> bool {
    let mut words = line.split(' ');
    let (day, time) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let day = day.strip_prefix(['E', 'W', 'I', 'F']).unwrap_or_default();
    day.len() == 4
        && day.bytes().all(|byte| byte.is_ascii_digit())
        && time.split(':').count() == 3
        && time.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    #[test]
    fn output_and_complaints_are_bounded_and_the_child_never_waits() {
        let children = Children::default();
        let script =
            "echo out; i=0; while [ $i -lt 3000 ]; do echo complaint $i >&2; i=$((i+1)); done; exit 3";
        let (child, mut stdout) = children.start(&mut shell(script)).unwrap();
        assert_eq!(child.wait_until(soon()).unwrap().unwrap().code(), Some(3));
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        assert_eq!(text, "out\n");
        // The pipe is read to its end by another thread.
        let until = soon();
        while !child.said(until).ends_with("complaint 2999") {
            assert!(Instant::now() < until);
        }
        assert!(child.said(until).len() <= 2 * MOST_SAID);
    }

    #[test]
    fn log_of_kubectl_is_left_out_where_it_says_more() {
        let log = "E1127 14:51:23.893659 5560 memcache.go:265] \"Unhandled Error\"";
        for (text, expected) in [
            (format!("{log}\n{log}\nUnable to connect\n"), "Unable to connect"),
            (log.to_owned(), log),
            ("error: a\n\n  b\n".to_owned(), "error: a; b"),
            ("Error from server: E1127\n".to_owned(), "Error from server: E1127"),
            (String::new(), ""),
        ] {
            assert_eq!(told(&text), expected);
        }
    }

    #[test]
    fn child_ends_when_it_is_dropped() {
        let children = Children::default();
        let (child, mut stdout) = children.start(&mut shell("echo begun; exec sleep 600")).unwrap();
        assert_eq!(child.wait_until(Instant::now()).unwrap(), None);
        drop(child);
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        assert!(children.table().running.is_empty());
    }

    #[test]
    fn after_the_end_of_all_none_starts() {
        let children = Children::default();
        let (child, mut stdout) = children.start(&mut shell("exec sleep 600")).unwrap();
        let (send, receive) = mpsc::channel();
        thread::spawn(move || send.send(stdout.read(&mut [0])));
        children.end_all();
        assert_eq!(receive.recv_timeout(Duration::from_mins(1)).unwrap().unwrap(), 0);
        assert!(child.wait_until(soon()).unwrap().is_some());
        assert!(children.start(&mut shell("true")).is_err());
    }
}
