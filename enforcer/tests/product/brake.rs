//! The process that watches over brakes, as the daemon starts it: does it put back what it was handed,
//! whatever signals it gets, when the daemon has gone?

use std::{
    fs::{self, File},
    io::{IoSlice, Read},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

use crate::common::{full_pipe, program};
use rustix::{
    net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
        sendmsg, socketpair,
    },
    process::{Pid, Signal, kill_process},
};

/// Far above what anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

fn line(socket: &File) -> String {
    let mut buffer = [0; 128];
    let mut socket = socket;
    let count = socket.read(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..count]).into_owned()
}

/// Hands over a file that is `1` and is to be `0`.
fn hold(socket: &File, file: &File, id: usize) {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    let message = format!("hold {id} 1 0");
    sendmsg(socket, &[IoSlice::new(message.as_bytes())], &mut control, SendFlags::empty()).unwrap();
    assert_eq!(line(socket), format!("held {id}"));
}

#[test]
fn it_outlives_signals_and_puts_back_what_it_holds_when_the_daemon_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (near, far): (OwnedFd, OwnedFd) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let record = dir.path().join("brakes");
    let file = dir.path().join("cgroup.freeze");
    fs::write(&file, "1\n").unwrap();
    let mut command = program(&["watch-brake"]);
    command.stdin(Stdio::from(far)).stdout(File::create(&record).unwrap()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    drop(command);
    let socket = File::from(near);
    assert_eq!(line(&socket), "ready");

    let open = File::options().read(true).write(true).open(&file).unwrap();
    hold(&socket, &open, 7);

    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).unwrap();
    assert_eq!(capabilities.trim().trim_start_matches('0'), "", "it keeps no capability");
    drop(socket);
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "it does not end");
        sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read_to_string(&file).unwrap(), "0\n");
    let record = fs::read_to_string(&record).unwrap();
    let (line, sum) = record.trim().rsplit_once(' ').unwrap();
    assert_eq!((line, sum.len()), ("{\"version\":5,\"record\":\"released\",\"id\":7}", 8));
}

#[test]
fn all_files_are_restored_though_its_output_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let (near, far): (OwnedFd, OwnedFd) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let (_reader, stderr) = full_pipe();
    let mut command = program(&["watch-brake"]);
    command.stdin(Stdio::from(far)).stdout(Stdio::null()).stderr(stderr);
    let mut child = command.spawn().unwrap();
    drop(command);
    let socket = File::from(near);
    assert_eq!(line(&socket), "ready");
    let files: Vec<_> = ["one", "two", "three"].map(|name| dir.path().join(name)).into();
    for (id, file) in files.iter().enumerate() {
        fs::write(file, "1\n").unwrap();
        hold(&socket, &File::options().read(true).write(true).open(file).unwrap(), id);
    }
    drop(socket);
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("it does not end");
        }
        sleep(Duration::from_millis(5));
    }
    for file in files {
        assert_eq!(fs::read_to_string(&file).unwrap(), "0\n", "{}", file.display());
    }
}
