//! The disk's side of a recording: a thread that compresses frames and appends them.
//!
//! Only this thread waits for the disk. It ends for good when the file has reached its limit or cannot be
//! written; the file is then a whole recording up to that point. Each frame is written at once, so a crash of
//! the daemon loses at most the last one. After a crash of the machine it depends on the kernel.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, BufReader, Seek, SeekFrom, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel},
    },
    time::{Duration, Instant},
};

use rustix::fs::FlockOperation;
use thiserror::Error;

use super::frame::{self, FrameReader, FrameStep, RecordingError};
use crate::threads::{self, Role};
use enforcer_host::{
    file_error::{FileError, failed},
    owned_file::{of_one_writer, open_ours},
};

/// Most queued frames.
const WAITING: usize = 2;

/// Longest wait for queued frames when the daemon ends: less than its time to end.
const PATIENCE: Duration = Duration::from_millis(500);

/// Why a recording cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file was not written by a daemon, or is damaged; it stays unchanged.
    #[error("recording to {path}, which is left as it is: {cause}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault.
        #[source]
        cause: RecordingError,
    },
}

/// A file that is ready to be appended to.
#[derive(Debug)]
pub struct RecordingFile {
    path: PathBuf,
    file: File,
    length: u64,
    limit: u64,
}

impl RecordingFile {
    /// Creates a private file, or continues an existing recording. An incomplete turn at its end, left by a
    /// crash or a loss of power, is cut off. A file that other users may write is refused: they could make us
    /// append to their content. The file is locked against a second daemon until it is closed. A full file is
    /// no error, because a restarted daemon must not fail for that; it reports that nothing is recorded.
    pub fn open(path: &Path, limit: u64) -> Result<Self, OpenError> {
        let mut options = OpenOptions::new();
        let file = open_ours(options.read(true).append(true).create(true), path)
            .and_then(|file| {
                of_one_writer(&file.metadata()?)?;
                rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| {
                    if errno == rustix::io::Errno::WOULDBLOCK {
                        io::Error::new(io::ErrorKind::ResourceBusy, "another daemon records there")
                    } else {
                        errno.into()
                    }
                })?;
                Ok(file)
            })
            .map_err(failed("opening", path))?;
        let mut target = Self { path: path.to_owned(), file, length: 0, limit };
        let had = target.file.metadata().map_err(failed("looking at", path))?.len();
        target.length = target.whole()?;
        if target.length < had {
            target.file.set_len(target.length).map_err(failed("cutting", path))?;
            let (path, cut, whole) = (path.display(), had - target.length, target.length);
            tracing::warn!(
                "{path}: its last {cut} bytes were not written whole and are cut off; {whole} are kept"
            );
        }
        // Only now: a file that is no recording stays unchanged.
        target
            .file
            .set_permissions(Permissions::from_mode(0o600))
            .map_err(failed("closing to others", path))?;
        Ok(target)
    }

    /// Bytes up to the end of the last whole frame. Only that frame is inflated: a long recording must not
    /// delay the start of the daemon.
    fn whole(&self) -> Result<u64, OpenError> {
        let damaged = |cause| OpenError::Damaged { path: self.path.clone(), cause };
        let mut frames = FrameReader::at(0, BufReader::new(&self.file));
        let mut last = 0;
        while frames.skip().map_err(damaged)? == FrameStep::Frame(()) {
            last = frames.offset();
        }
        (&self.file).seek(SeekFrom::Start(last)).map_err(failed("looking at", &self.path))?;
        let mut frames = FrameReader::at(last, BufReader::new(&self.file));
        while let FrameStep::Frame(_) = frames.read().map_err(damaged)? {}
        Ok(frames.offset())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for RecordingFile {
    /// Unlocks explicitly: a process that is just being started holds a copy of the open file for a moment,
    /// and the lock would live as long.
    fn drop(&mut self) {
        // It fails only if the lock is gone.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Destination of frames.
pub(super) trait RecordingMedium: Send {
    /// Appends a turn's lines as a frame; an error is final.
    fn write(&mut self, plain: &[u8]) -> Result<(), String>;
}

impl RecordingMedium for RecordingFile {
    fn write(&mut self, plain: &[u8]) -> Result<(), String> {
        let frame =
            frame::encode(plain).ok_or_else(|| format!("{}: a turn is too large", self.path.display()))?;
        let length = self.length;
        if length + frame.len() as u64 > self.limit {
            let (path, limit) = (self.path.display(), self.limit);
            return Err(format!("{path} has {length} of at most {limit} bytes (--record-limit)"));
        }
        self.append(&frame).map_err(|error| {
            // If this fails, the incomplete frame at the end is no damage.
            let _ = self.file.set_len(length);
            format!("writing {}: {error}", self.path.display())
        })
    }
}

/// Writes frames until the sender is gone, and returns their buffers.
fn write_all(
    mut medium: impl RecordingMedium,
    frames: &Receiver<Vec<u8>>,
    done: &Sender<Vec<u8>>,
) -> Result<(), String> {
    for mut plain in frames {
        medium.write(&plain)?;
        plain.clear();
        // The receiver of buffers is gone when the daemon ends.
        let _ = done.send(plain);
    }
    Ok(())
}

/// Outcome of handing a frame over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handed {
    /// The frame will be written, or no frame ever will be.
    Over,
    /// Earlier frames are not written yet.
    Busy,
}

/// Handle to the thread.
#[derive(Debug)]
pub(super) struct Writer {
    to: Option<SyncSender<Vec<u8>>>,
    back: Receiver<Vec<u8>>,
    /// An empty buffer for reuse.
    spare: Vec<u8>,
    ended: Arc<OnceLock<String>>,
}

impl Writer {
    pub(super) fn start(medium: impl RecordingMedium + 'static) -> io::Result<Self> {
        let (to, frames) = sync_channel::<Vec<u8>>(WAITING);
        let (done, back) = channel();
        let ended = Arc::new(OnceLock::new());
        let reason = Arc::clone(&ended);
        let write = move || {
            if let Err(error) = write_all(medium, &frames, &done) {
                tracing::warn!("turns are no longer recorded: {error}");
                // Set once: the thread ends here.
                let _ = reason.set(error);
            }
            // Dropped last: after that the file is closed and the reason is set.
            drop((frames, done));
        };
        threads::spawn(Role::Recording, write)?;
        Ok(Self { to: Some(to), back, spare: Vec::new(), ended })
    }

    /// Hands a frame over, and leaves an empty buffer in its place.
    pub(super) fn hand(&mut self, frame: &mut Vec<u8>) -> Handed {
        let Some(to) = &self.to else { return Handed::Over };
        if let Ok(spare) = self.back.try_recv() {
            self.spare = spare;
        }
        match to.try_send(std::mem::take(frame)) {
            Ok(()) => {
                *frame = std::mem::take(&mut self.spare);
                Handed::Over
            }
            Err(TrySendError::Full(back)) => {
                *frame = back;
                Handed::Busy
            }
            Err(TrySendError::Disconnected(back)) => {
                *frame = back;
                self.to = None;
                Handed::Over
            }
        }
    }

    /// Waits until a frame is written; its buffer is lost.
    #[cfg(test)]
    pub(super) fn settle(&self) {
        let _ = self.back.recv();
    }

    /// Why no frame is written any longer.
    pub(super) fn ended(&self) -> Option<String> {
        self.ended.get().cloned()
    }

    /// Waits for queued frames, within bounds.
    pub(super) fn finish(&mut self) {
        self.to = None;
        let until = Instant::now() + PATIENCE;
        loop {
            match self.back.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(_ended_or_late) => return,
            }
        }
    }
}
