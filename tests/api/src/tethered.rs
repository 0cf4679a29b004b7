//! A child process that ends with its value, and with this process.
//!
//! The kernel ends it when the thread that started it ends (`PR_SET_PDEATHSIG`, prctl(2)), which is why each
//! child has a thread of its own: the thread of a test may end before the last user of a server.

use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result};

/// Time between two looks at whether the child has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A running child; killed on drop.
#[derive(Debug)]
pub(crate) struct TetheredChild {
    /// Its end asks for that of the child.
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
    ended: Arc<AtomicBool>,
}

impl TetheredChild {
    /// Starts a program; what it says goes into the file `log`, which is appended to.
    pub(crate) fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
        let out = File::options().create(true).append(true).open(log);
        let out = out.with_context(|| format!("open {}", log.display()))?;
        let err = out.try_clone().context("share the log")?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let (stop, stopped) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let ended = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::clone(&ended);
        let keep = move || {
            let mut child = match command.spawn() {
                Ok(child) => {
                    // The receiver waits for it.
                    let _ = tell.send(Ok(()));
                    child
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                    return;
                }
            };
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(LOOK) {
                if !matches!(child.try_wait(), Ok(None)) {
                    has_ended.store(true, Ordering::Release);
                }
            }
            // Fails if it has ended; then `wait` returns at once.
            let _ = child.kill();
            let _ = child.wait();
        };
        let keeper = thread::Builder::new().name("keeper".into()).spawn(keep).context("start a thread")?;
        told.recv().context("start a child")?.with_context(|| format!("run {}", program.display()))?;
        Ok(Self { stop: Some(stop), keeper: Some(keeper), ended })
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

impl Drop for TetheredChild {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            // It does not panic.
            let _ = keeper.join();
        }
    }
}
