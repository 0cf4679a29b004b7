//! QEMU as a process: started from its own folder, never left behind.

use std::{
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command},
};

use anyhow::{Context, Result};

use super::platform::GuestPlatform;

/// QEMU from its folder, with its own loader and libraries: the host's may be older.
pub(super) fn command(folder: &Path, platform: &GuestPlatform) -> Command {
    let at = |path: &str| -> PathBuf { folder.join(path) };
    let mut command = tethered(&at("lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(at("usr/lib/x86_64-linux-gnu"));
    command.arg(at(&format!("usr/bin/{}", platform.program)));
    for firmware in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
        command.arg("-L").arg(at(firmware));
    }
    command
}

/// A program that the kernel kills when the thread that started it ends, however that ends
/// (`PR_SET_PDEATHSIG`, prctl(2)): `kill -9` of this program leaves no guest behind.
fn tethered(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A process that is killed when this is dropped.
pub(super) struct Killed(pub(super) Child);

impl Killed {
    /// Its standard output, once.
    pub(super) fn stdout(&mut self) -> Result<ChildStdout> {
        self.0.stdout.take().context("QEMU has no standard output")
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        os::unix::process::ExitStatusExt,
        process::Stdio,
        thread,
    };

    use super::*;

    #[test]
    fn a_process_dies_with_what_started_it() {
        let starter = thread::spawn(|| {
            let mut child = tethered(Path::new("sh"))
                .args(["-c", "echo up; exec sleep 600"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            // It runs by now, so it is tethered.
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "up\n");
            Killed(child)
        });
        let mut orphan = starter.join().unwrap();
        assert_eq!(orphan.0.wait().unwrap().signal(), Some(9));
    }
}
