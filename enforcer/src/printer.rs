//! Prints what the daemon says on a thread of its own, because whoever reads it may stop reading.
//!
//! A pipe that is full, and a terminal whose output somebody has stopped, keep whoever writes to them (pipe(7), termios(3)).
//! A host must not be left alone for that: what is printed is queued, and what does not fit into [`ROOM`] is lost, counted,
//! and said in its place once something fits again, and by [`Printer::degraded`] until then.
//!
//! Never: whoever prints waits, but in [`Printer::finish`], and there no longer than it wants to.

use std::{
    collections::VecDeque,
    io::{self, Write},
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use enforcer_core::degraded::Degraded;

use crate::privileges;

/// Bytes that wait to be printed: about two thousand lines of turns, or the audit of a large host.
const ROOM: usize = 512 << 10;

/// Who prints to one stream; clones print to the same.
#[derive(Clone)]
pub struct Printer(Arc<Inner>);

/// Hears that something begins to be lost; must not print it to the same stream.
type Complain = Box<dyn Fn(&str) + Send + Sync>;

/// What is printed.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    /// Of the thread, and in `degraded`.
    pub name: &'static str,
    /// For people.
    pub what: &'static str,
}

struct Inner {
    stream: Stream,
    complain: Complain,
    queue: Mutex<Queue>,
    /// Something is in the queue.
    more: Condvar,
    /// Nothing is, and nothing is being printed.
    idle: Condvar,
}

#[derive(Default)]
struct Queue {
    texts: VecDeque<Vec<u8>>,
    /// Bytes of these, and of what is being printed.
    bytes: usize,
    /// One of so many bytes is being printed.
    printing: Option<usize>,
    /// Texts that did not fit since the latest one that did.
    lost: u64,
    /// What became of the latest text that was printed.
    failed: Option<io::Error>,
}

impl Printer {
    /// Starts the thread that prints to `out`. It needs no privileges, so it gives all of them up.
    pub fn start(
        stream: Stream,
        mut out: impl Write + Send + 'static,
        complain: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (queue, more, idle) = Default::default();
        let printer = Self(Arc::new(Inner { stream, complain: Box::new(complain), queue, more, idle }));
        let inner = Arc::clone(&printer.0);
        let print = move || {
            if let Err(error) = privileges::renounce() {
                tracing::warn!("the thread that prints {} keeps its privileges: {error}", inner.stream.what);
            }
            loop {
                let text = inner.next();
                let printed = out.write_all(&text).and_then(|()| out.flush());
                inner.printed(printed);
            }
        };
        thread::Builder::new().name(stream.name.into()).spawn(print)?;
        Ok(printer)
    }

    /// Queues whole lines.
    pub fn print(&self, text: impl Into<Vec<u8>>) {
        let mut text = text.into();
        let mut queue = self.0.queue();
        // What alone is too large is better than nothing.
        if queue.bytes > 0 && queue.bytes + text.len() > ROOM {
            queue.lost += 1;
            let is_first = queue.lost == 1;
            drop(queue);
            if is_first {
                (self.0.complain)(&format!("{} are lost: nobody reads them", self.0.stream.what));
            }
            return;
        }
        if let lost @ 1.. = mem::take(&mut queue.lost) {
            let mut told = format!("(here were {lost} more, which nobody read)\n").into_bytes();
            told.append(&mut text);
            text = told;
        }
        queue.bytes += text.len();
        queue.texts.push_back(text);
        self.0.more.notify_one();
    }

    /// Waits until all is printed, for at most `patience` if there is a bound, and says whether the latest could be.
    pub fn finish(&self, patience: Option<Duration>) -> io::Result<()> {
        let is_busy = |queue: &mut Queue| queue.printing.is_some() || !queue.texts.is_empty();
        let queue = self.0.queue();
        let mut queue = match patience {
            Some(patience) => {
                let waited = self.0.idle.wait_timeout_while(queue, patience, is_busy);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.0.idle.wait_while(queue, is_busy).unwrap_or_else(PoisonError::into_inner),
        };
        if is_busy(&mut queue) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads it"));
        }
        let failed = queue.failed.as_ref();
        failed.map_or(Ok(()), |error| Err(io::Error::new(error.kind(), error.to_string())))
    }

    /// What is lost at present, if something is.
    pub fn degraded(&self) -> Option<Degraded> {
        let queue = self.0.queue();
        let reason = match (&queue.failed, queue.lost) {
            (_, lost @ 1..) => {
                format!("nobody reads it, and {} bytes wait; {lost} texts did not fit", queue.bytes)
            }
            (Some(error), 0) => error.to_string(),
            (None, 0) => return None,
        };
        Some(Degraded::new(self.0.stream.name, reason, format!("{} are lost", self.0.stream.what)))
    }
}

/// Each write is one text, as the log writes an event.
impl Write for Printer {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.print(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Inner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next text, once there is one.
    fn next(&self) -> Vec<u8> {
        let mut queue = self.queue();
        loop {
            if let Some(text) = queue.texts.pop_front() {
                queue.printing = Some(text.len());
                return text;
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn printed(&self, result: io::Result<()>) {
        let mut queue = self.queue();
        queue.bytes -= queue.printing.take().unwrap_or(0);
        let (first, said) = match &result {
            Ok(()) => (false, String::new()),
            Err(error) => {
                (queue.failed.is_none(), format!("{} are lost: printing: {error}", self.stream.what))
            }
        };
        queue.failed = result.err();
        if queue.texts.is_empty() {
            self.idle.notify_all();
        }
        drop(queue);
        if first {
            (self.complain)(&said);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, PipeReader, Read},
        sync::{
            atomic::{AtomicBool, Ordering},
            mpsc::{self, Receiver},
        },
    };

    use super::*;

    const LINES: Stream = Stream { name: "lines", what: "lines of a test" };

    fn printing_to(out: impl Write + Send + 'static) -> (Printer, Receiver<String>) {
        let (complaints, heard) = mpsc::channel();
        let complain = move |said: &str| complaints.send(said.to_owned()).unwrap();
        (Printer::start(LINES, out, complain).unwrap(), heard)
    }

    fn unread() -> (Printer, Receiver<String>, PipeReader) {
        let (reader, writer) = io::pipe().unwrap();
        let (printer, heard) = printing_to(writer);
        (printer, heard, reader)
    }

    #[test]
    fn a_reader_that_stops_reading_costs_lines_that_are_counted_in_their_place() {
        let (printer, heard, reader) = unread();
        let lines = 3 * ROOM / 100;
        for number in 0..lines {
            printer.print(format!("{number:099}\n"));
        }
        assert_eq!(heard.recv().unwrap(), "lines of a test are lost: nobody reads them");
        let degraded = printer.degraded().unwrap();
        assert_eq!(
            (degraded.source.as_str(), degraded.effect.as_str()),
            ("lines", "lines of a test are lost")
        );
        assert_eq!(printer.finish(Some(Duration::ZERO)).unwrap_err().kind(), io::ErrorKind::TimedOut);

        let mut read = BufReader::new(reader).lines().map(Result::unwrap);
        let (mut kept, mut later) = (0, 0);
        // There is room again before what waits has been read as a whole.
        while printer.degraded().is_some() {
            assert_eq!(read.next().unwrap(), format!("{kept:099}"));
            kept += 1;
            printer.print("next\n");
            later += 1;
        }
        let told = loop {
            let line = read.next().unwrap();
            if line.starts_with('(') {
                break line;
            }
            assert_eq!(line, format!("{kept:099}"));
            kept += 1;
        };
        assert_eq!(told, format!("(here were {} more, which nobody read)", lines - kept + later - 1));
        assert_eq!(read.next().unwrap(), "next");
        assert!(kept >= ROOM / 100, "{kept}");
        assert!(heard.try_recv().is_err(), "it is said once");
    }

    #[test]
    fn what_is_printed_comes_in_its_order_and_is_waited_for() {
        let (printer, _heard, mut reader) = unread();
        let large = "x".repeat(2 * ROOM) + "\n";
        let expected = format!("{large}one\ntwo\n");
        let mut read = vec![0; expected.len()];
        let reading = thread::spawn(move || reader.read_exact(&mut read).map(|()| read));
        printer.print(large);
        printer.finish(None).unwrap();
        let mut log = printer.clone();
        log.write_all(b"one\n").unwrap();
        printer.print("two\n");
        printer.finish(None).unwrap();
        assert_eq!(String::from_utf8(reading.join().unwrap().unwrap()).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_written_is_said_once_and_again_after_it_could_be() {
        let is_full = Arc::new(AtomicBool::new(true));
        let (printer, heard) = printing_to(Disk(Arc::clone(&is_full)));
        printer.print("one\n");
        printer.print("two\n");
        let said = "lines of a test are lost: printing: No space left on device (os error 28)";
        assert_eq!(heard.recv().unwrap(), said);
        while printer.finish(Some(Duration::ZERO)).is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
        {
            thread::yield_now();
        }
        assert_eq!(printer.degraded().unwrap().reason, "No space left on device (os error 28)");
        assert!(heard.try_recv().is_err(), "it is said once");
        is_full.store(false, Ordering::SeqCst);
        printer.print("three\n");
        printer.finish(None).unwrap();
        assert_eq!(printer.degraded(), None);
        is_full.store(true, Ordering::SeqCst);
        printer.print("four\n");
        assert_eq!(heard.recv().unwrap(), said);
    }

    /// Full or not.
    struct Disk(Arc<AtomicBool>);

    impl Write for Disk {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            if self.0.load(Ordering::SeqCst) {
                return Err(io::Error::from_raw_os_error(28));
            }
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
