//! Runs the built program as a user would, and never waits for it without end.

use std::{
    fs::{self, File, Permissions},
    io::{PipeReader, PipeWriter, Write as _, pipe},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tempfile::TempDir;

/// Far above what any command here takes; a program that is still running then hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// A full pipe: writes to it block.
pub(crate) fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    for size in [4096, 1] {
        while writer.write(&vec![b'.'; size]).is_ok() {}
    }
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

/// The program with its arguments, an empty environment and no input.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_numa-enforcer"));
    command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The same without root, where the test has it: from a copy that every user can reach, as the
/// working copy may be below a home directory that only root can enter.
pub(crate) fn unprivileged(arguments: &[&str]) -> (Command, TempDir) {
    let open = TempDir::with_prefix("numa-enforcer-").unwrap();
    fs::set_permissions(open.path(), Permissions::from_mode(0o755)).unwrap();
    let copy = open.path().join("numa-enforcer");
    // Not by this process: a child that another thread makes meanwhile would have it open for writing, and it
    // could not be run.
    let copied =
        Command::new("cp").args([env!("CARGO_BIN_EXE_numa-enforcer").as_ref(), copy.as_path()]).status();
    assert!(copied.unwrap().success());
    let mut command = program(&[]);
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command = Command::new(copy);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.uid(65534).gid(65534).current_dir(open.path());
    }
    command.args(arguments);
    (command, open)
}

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit code; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

/// Runs it to its end.
///
/// # Panics
/// When it hangs or panics.
pub(crate) fn finish(mut command: Command) -> Ended {
    let child = command.spawn().unwrap();
    let pid = child.id();
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(child.wait_with_output()));
    let Ok(output) = receive.recv_timeout(PATIENCE) else {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        panic!("{command:?} still runs after {PATIENCE:?}");
    };
    let Output { status, stdout, stderr } = output.unwrap();
    let ended = Ended {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    };
    assert!(!ended.stderr.contains("panicked"), "{command:?}: {}", ended.stderr);
    ended
}

/// Runs the program with these arguments to its end.
pub(crate) fn run(arguments: &[&str]) -> Ended {
    finish(program(arguments))
}

/// A daemon on this host that observes, without eBPF, with its socket there and everything else below `root`;
/// it turns once.
pub(crate) fn observing_daemon(root: &TempDir, socket: &Path) -> Child {
    let file = root.path().join("config.toml");
    let text = format!(
        "interval = \"1h\"\n[control]\nsocket = \"{}\"\n[sample]\nbpf = false\n[nri]\nenabled = false\n",
        socket.display()
    );
    fs::write(&file, text).unwrap();
    let mut command = program(&["run", "--metrics-listen", "off", "--config"]);
    command.arg(&file).arg("--state-dir").arg(root.path().join("state"));
    let log = File::create(root.path().join("log")).unwrap();
    command.stderr(log).spawn().unwrap()
}
