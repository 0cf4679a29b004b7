//! Prints the daemon's output on a thread of its own, because its reader may stall.
//!
//! Problem: a full pipe or a stopped terminal blocks its writer (pipe(7), termios(3)), and enforcement must
//! go on. Idea: output is queued. Text beyond [`ROOM`] is dropped and counted, as is text that cannot be
//! written. The count is printed in its place once there is room, and [`Printer::degraded`] reports it until
//! then.
//!
//! Invariant: a caller never waits, except in [`Printer::finish`], for the time it chooses.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write},
    mem,
    os::fd::AsFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use numa_topology::degraded::Degraded;
use rustix::event::{PollFd, PollFlags, poll};

use enforcer_kernel::privileges;
use enforcer_report::units;

/// Most queued bytes: about two thousand lines of turns, or the audit of a large host.
const ROOM: usize = 512 << 10;

/// Handle to the thread that prints to one stream; clones share it.
#[derive(Clone)]
pub struct Printer(Arc<PrinterState>);

/// Called when output begins to be lost; must not print to the same stream.
type Complain = Box<dyn Fn(&str) + Send + Sync>;

/// An output stream.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    /// Name of the thread and in `degraded`.
    pub name: &'static str,
    /// Name for people.
    pub what: &'static str,
}

struct PrinterState {
    stream: Stream,
    complain: Complain,
    queue: Mutex<PrintQueue>,
    /// The queue is not empty.
    more: Condvar,
    /// The queue is empty and no text is being printed.
    idle: Condvar,
}

#[derive(Default)]
struct PrintQueue {
    texts: VecDeque<Vec<u8>>,
    /// Bytes in the queue and being printed.
    bytes: usize,
    /// Size of the text that is being printed.
    printing: Option<usize>,
    /// Texts dropped since the latest one that fitted.
    lost: u64,
    /// Error of the latest write.
    failed: Option<io::Error>,
}

impl Printer {
    /// Starts the thread that prints to `out`. It needs no privileges and drops all of them.
    pub fn start(
        stream: Stream,
        mut out: impl Write + Send + 'static,
        complain: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (queue, more, idle) = Default::default();
        let printer =
            Self(Arc::new(PrinterState { stream, complain: Box::new(complain), queue, more, idle }));
        let inner = Arc::clone(&printer.0);
        let print = move || {
            if let Err(error) = privileges::renounce() {
                tracing::warn!("the thread that prints {} keeps its privileges: {error}", inner.stream.what);
            }
            let mut page = StreamState::default();
            loop {
                let text = inner.next();
                inner.printed(page.print(text, &mut out));
            }
        };
        thread::Builder::new().name(stream.name.into()).spawn(print)?;
        Ok(printer)
    }

    /// Queues whole lines.
    pub fn print(&self, text: impl Into<Vec<u8>>) {
        let text = text.into();
        let mut queue = self.0.queue();
        // A text that is too large is accepted into an empty queue.
        if queue.bytes > 0 && queue.bytes + text.len() > ROOM {
            queue.lost += 1;
            let is_first = queue.lost == 1;
            drop(queue);
            if is_first {
                (self.0.complain)(&format!("{} are lost: they are not read", self.0.stream.what));
            }
            return;
        }
        queue.push(text);
        self.0.more.notify_one();
    }

    /// Queues the last text, even beyond the limit.
    pub fn print_last(&self, text: impl Into<Vec<u8>>) {
        self.0.queue().push(text.into());
        self.0.more.notify_one();
    }

    /// Waits at most `patience` until all is printed. Returns the result of the latest write; `TimedOut` if
    /// text is left. Texts dropped last are counted, too.
    pub fn finish(&self, patience: Duration) -> io::Result<()> {
        let is_busy = |queue: &mut PrintQueue| queue.printing.is_some() || !queue.texts.is_empty();
        let mut queue = self.0.queue();
        if queue.lost > 0 {
            queue.push(Vec::new());
            self.0.more.notify_one();
        }
        let waited = self.0.idle.wait_timeout_while(queue, patience, is_busy);
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        if is_busy(&mut queue) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it is not read"));
        }
        let failed = queue.failed.as_ref();
        failed.map_or(Ok(()), |error| Err(io::Error::new(error.kind(), error.to_string())))
    }

    /// The present loss of output, if any.
    pub fn degraded(&self) -> Option<Degraded> {
        let queue = self.0.queue();
        let reason = match (&queue.failed, queue.lost) {
            (_, lost @ 1..) => {
                format!("it is not read, and {} bytes wait; {lost} texts did not fit", queue.bytes)
            }
            (Some(error), 0) => error.to_string(),
            (None, 0) => return None,
        };
        Some(Degraded::new(self.0.stream.name, reason, format!("{} are lost", self.0.stream.what)))
    }
}

impl PrintQueue {
    /// Appends a text, after a line that counts the dropped ones.
    fn push(&mut self, text: Vec<u8>) {
        let text = match mem::take(&mut self.lost) {
            0 => text,
            lost => {
                [format!("({} dropped: output blocked)\n", units::count(lost, "message")).into_bytes(), text]
                    .concat()
            }
        };
        self.bytes += text.len();
        self.texts.push_back(text);
    }
}

/// State of the stream.
#[derive(Default)]
struct StreamState {
    /// Texts that could not be written since the latest one that could.
    unwritten: u64,
    /// The output ends within a line.
    torn: bool,
}

impl StreamState {
    /// Writes a text, after a line that counts the unwritten ones.
    fn print(&mut self, text: Vec<u8>, out: &mut impl Write) -> io::Result<()> {
        let text = match self.unwritten {
            0 => text,
            unwritten => {
                let told = format!("({} dropped: write failed)\n", units::count(unwritten, "message"));
                let end: &[u8] = if self.torn { b"\n" } else { b"" };
                [end, told.as_bytes(), &text].concat()
            }
        };
        let mut left = text.as_slice();
        let result = write_all(out, &mut left).and_then(|()| out.flush());
        let written = text.len() - left.len();
        self.torn = text.get(..written).and_then(<[u8]>::last).map_or(self.torn, |last| *last != b'\n');
        self.unwritten = if result.is_ok() { 0 } else { self.unwritten + 1 };
        result
    }
}

/// Like `Write::write_all`, but keeps what is left.
fn write_all(out: &mut impl Write, left: &mut &[u8]) -> io::Result<()> {
    while !left.is_empty() {
        match out.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => *left = left.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A stream of the process that waits for room even if another process has set `O_NONBLOCK`: the flag belongs
/// to the open file, not to the descriptor (open(2)).
pub struct BlockingStream(File);

impl BlockingStream {
    /// The same stream with a descriptor of its own.
    pub fn of(stream: &impl AsFd) -> io::Result<Self> {
        Ok(Self(File::from(stream.as_fd().try_clone_to_owned()?)))
    }
}

impl Write for BlockingStream {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(text) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None)?;
                }
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Each write is one text: the log writes an event at once.
impl Write for Printer {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.print(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl PrinterState {
    fn queue(&self) -> MutexGuard<'_, PrintQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next text.
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
        io::{BufRead, BufReader, PipeReader, PipeWriter, Read},
        sync::{
            atomic::{AtomicBool, Ordering},
            mpsc::{self, Receiver},
        },
    };

    use rustix::fs::OFlags;

    use super::*;

    /// Far above the time that anything here takes.
    const PATIENCE: Duration = Duration::from_mins(1);

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

    /// Writes until the pipe is full. Returns the number of bytes.
    fn fill(mut pipe: &PipeWriter) -> usize {
        rustix::fs::fcntl_setfl(pipe, OFlags::NONBLOCK).unwrap();
        let mut written = 0;
        while let Ok(length) = pipe.write(&[0; 4096]) {
            written += length;
        }
        rustix::fs::fcntl_setfl(pipe, OFlags::empty()).unwrap();
        written
    }

    #[test]
    fn a_reader_that_stops_reading_costs_lines_that_are_counted_in_their_place() {
        let (mut reader, writer) = io::pipe().unwrap();
        // The pipe is full before anything is printed, so all losses are in one run, whatever the scheduling.
        let mut filled = vec![0; fill(&writer)];
        let (printer, heard) = printing_to(writer);
        let lines = 3 * ROOM / 100;
        for number in 0..lines {
            printer.print(format!("{number:099}\n"));
        }
        assert_eq!(heard.recv().unwrap(), "lines of a test are lost: they are not read");
        let degraded = printer.degraded().unwrap();
        assert_eq!(
            (degraded.source.as_str(), degraded.effect.as_str()),
            ("lines", "lines of a test are lost")
        );

        reader.read_exact(&mut filled).unwrap();
        let mut read = BufReader::new(reader).lines().map(Result::unwrap);
        let (mut kept, mut later) = (0, 0);
        // There is room again before the whole queue is read.
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
        assert_eq!(told, format!("({} messages dropped: output blocked)", lines - kept + later - 1));
        assert_eq!(read.next().unwrap(), "next");
        assert_eq!(kept, ROOM / 100);
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
        printer.finish(PATIENCE).unwrap();
        let mut log = printer.clone();
        log.write_all(b"one\n").unwrap();
        printer.print("two\n");
        printer.finish(PATIENCE).unwrap();
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
        while printer.finish(Duration::ZERO).is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            thread::yield_now();
        }
        assert_eq!(printer.degraded().unwrap().reason, "No space left on device (os error 28)");
        assert!(heard.try_recv().is_err(), "it is said once");
        is_full.store(false, Ordering::SeqCst);
        printer.print("three\n");
        printer.finish(PATIENCE).unwrap();
        assert_eq!(printer.degraded(), None);
        is_full.store(true, Ordering::SeqCst);
        printer.print("four\n");
        assert_eq!(heard.recv().unwrap(), said);
    }

    #[test]
    fn what_was_lost_last_is_counted_at_the_end() {
        let (printer, _heard, mut reader) = unread();
        for _ in 0..3 {
            printer.print("x".repeat(ROOM) + "\n");
        }
        printer.print_last("the last\n");
        printer.print("lost\n");
        assert_eq!(printer.finish(Duration::ZERO).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let reading = thread::spawn(move || {
            let mut text = vec![0; ROOM + 1];
            reader.read_exact(&mut text).unwrap();
            let mut text = String::new();
            for line in BufReader::new(reader).lines().take(3) {
                text += &(line.unwrap() + "\n");
            }
            text
        });
        printer.finish(PATIENCE).unwrap();
        let told = "(2 messages dropped: output blocked)\nthe last\n(1 message dropped: output blocked)\n";
        assert_eq!(reading.join().unwrap(), told);
    }

    #[test]
    fn what_could_not_be_written_is_counted_and_no_line_is_glued_to_half_of_one() {
        let mut page = StreamState::default();
        let mut disk = Room { left: 13, has: Vec::new() };
        page.print(b"turn 1\n".to_vec(), &mut disk).unwrap();
        for turn in 2..5 {
            page.print(format!("turn {turn}\n").into_bytes(), &mut disk).unwrap_err();
        }
        disk.left = 1000;
        page.print(b"turn 5\n".to_vec(), &mut disk).unwrap();
        page.print(b"turn 6\n".to_vec(), &mut disk).unwrap();
        let told = "turn 1\nturn 2\n(3 messages dropped: write failed)\nturn 5\nturn 6\n";
        assert_eq!(String::from_utf8(disk.has).unwrap(), told);
    }

    #[test]
    fn stream_set_nonblocking_by_another_process_is_waited_for() {
        let (mut reader, writer) = io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        let (printer, heard) = printing_to(BlockingStream::of(&writer).unwrap());
        let text = "x".repeat(1 << 20) + "\n";
        printer.print(text.as_str());
        let mut read = vec![0; text.len()];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), text);
        printer.finish(PATIENCE).unwrap();
        assert!(heard.try_recv().is_err(), "nothing was lost");
    }

    /// Accepts this many more bytes.
    struct Room {
        left: usize,
        has: Vec<u8>,
    }

    impl Write for Room {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let length = text.len().min(self.left);
            if length == 0 {
                return Err(io::Error::from_raw_os_error(28));
            }
            self.has.extend_from_slice(&text[..length]);
            self.left -= length;
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
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
