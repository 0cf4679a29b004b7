//! Asks systemd over its own socket, which root reaches without a bus and without `systemctl`: for a pod that
//! mounts it.
//!
//! The two questions are those that systemctl asks: `Get` of `org.freedesktop.DBus.Properties`, and
//! `SetUnitProperties` of systemd's `Manager` (org.freedesktop.systemd1(5)). A connection is opened for each.

use std::{
    fmt::Write as _,
    io::{self, Read, Write},
    os::unix::{fs::FileTypeExt, net::UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use enforcer_core::{owner::as_in_file, workload::UnitName};
use numa_topology::{id::CpuId, set::CpuSet};

use super::{
    SystemdError, UnitState,
    message::{Body, BusAnswer, BusCall, HEAD, MalformedMessage, PropertyValue, decode, rest},
};

/// Most other messages before the answer.
const MOST_SIGNALS: usize = 10_000;

/// Longest line of the authentication.
const LONGEST_LINE: usize = 1024;

/// The socket.
#[derive(Debug, Clone)]
pub struct PrivateSocket {
    path: PathBuf,
    limit: Duration,
}

impl PrivateSocket {
    /// The one there, if there is one.
    pub(super) fn at(path: &Path, limit: Duration) -> Option<Self> {
        let is_socket = path.metadata().is_ok_and(|found| found.file_type().is_socket());
        is_socket.then(|| Self { path: path.to_owned(), limit })
    }

    pub(super) fn show(&self, units: &[&UnitName]) -> Result<Vec<UnitState>, SystemdError> {
        let mut connection = self.connect("show")?;
        units.iter().map(|unit| connection.show(unit)).collect()
    }

    pub(super) fn set(&self, unit: &UnitName, property: &str, value: &str) -> Result<(), SystemdError> {
        let mut connection = self.connect(&format!("SetUnitProperties {unit} {property}={value}"))?;
        let ids = if value.trim().is_empty() { Some(CpuSet::default()) } else { list(value) };
        let ids = ids.ok_or_else(|| connection.refused("the value is no list".into()))?;
        let mut body = Body::default();
        // True is for the time until the next boot.
        body.text(unit.as_str()).number(1).array_of_one(|one| {
            one.text(property).signature("ay").bytes(&as_bits(&ids));
        });
        let call = BusCall {
            path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager",
            member: "SetUnitProperties",
            signature: "sba(sv)",
            body,
        };
        connection.call(&call).map(drop)
    }

    /// Connects and authenticates: systemd sees the user by itself.
    fn connect(&self, question: &str) -> Result<BusConnection, SystemdError> {
        let command = format!("{} {question}", self.path.display());
        let run = |cause| SystemdError::Run { command: command.clone(), cause };
        let stream = UnixStream::connect(&self.path).map_err(run)?;
        stream.set_read_timeout(Some(self.limit)).map_err(run)?;
        stream.set_write_timeout(Some(self.limit)).map_err(run)?;
        let mut connection = BusConnection { stream, command, limit: self.limit, serial: 0 };
        let uid = rustix::process::geteuid().as_raw().to_string();
        let mut hex = String::new();
        for byte in uid.bytes() {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
        }
        connection.send(format!("\0AUTH EXTERNAL {hex}\r\n").as_bytes())?;
        let line = connection.line()?;
        if !line.starts_with("OK") {
            return Err(connection.refused(line));
        }
        connection.send(b"BEGIN\r\n")?;
        Ok(connection)
    }
}

struct BusConnection {
    stream: UnixStream,
    command: String,
    limit: Duration,
    serial: u32,
}

impl BusConnection {
    fn show(&mut self, unit: &UnitName) -> Result<UnitState, SystemdError> {
        let path = object_path(unit);
        let mut get = |interface: &str, property: &str| self.get(&path, interface, property);
        let of_unit = "org.freedesktop.systemd1.Unit";
        let of_kind = interface(unit);
        let known = !matches!(text(get(of_unit, "LoadState")?).as_str(), "" | "not-found");
        let control_group = text(get(of_kind, "ControlGroup")?);
        let cpus = of_bits(get(of_kind, "AllowedCPUs")?);
        let mems = of_bits(get(of_kind, "AllowedMemoryNodes")?);
        let fragment = text(get(of_unit, "FragmentPath")?);
        let drop_ins = match get(of_unit, "DropInPaths")? {
            Some(PropertyValue::Texts(paths)) => paths,
            _ => Vec::new(),
        };
        let files = [fragment].into_iter().chain(drop_ins).filter(|path| !path.is_empty()).collect();
        Ok(UnitState { known, control_group, cpus, mems, files })
    }

    fn get(
        &mut self,
        path: &str,
        interface: &str,
        property: &str,
    ) -> Result<Option<PropertyValue>, SystemdError> {
        let mut body = Body::default();
        body.text(interface).text(property);
        let call = BusCall {
            path,
            interface: "org.freedesktop.DBus.Properties",
            member: "Get",
            signature: "ss",
            body,
        };
        self.call(&call)
    }

    fn call(&mut self, call: &BusCall<'_>) -> Result<Option<PropertyValue>, SystemdError> {
        self.serial += 1;
        let message = call.encode(self.serial);
        self.send(&message)?;
        for _ in 0..MOST_SIGNALS {
            let answer = self.receive()?.map_err(|error| self.refused(error.to_string()))?;
            match answer {
                BusAnswer::Reply { serial, value } if serial == self.serial => return Ok(value),
                BusAnswer::Error { serial, reason } if serial == self.serial => {
                    return Err(self.refused(reason));
                }
                _ => {}
            }
        }
        Err(self.refused(format!("{MOST_SIGNALS} messages, and no answer among them")))
    }

    fn receive(&mut self) -> Result<Result<BusAnswer, MalformedMessage>, SystemdError> {
        let mut head = [0; HEAD];
        self.read(&mut head)?;
        let rest = match rest(&head) {
            Ok(rest) => rest,
            Err(error) => return Ok(Err(error)),
        };
        let mut message = head.to_vec();
        message.resize(HEAD + rest, 0);
        self.read(message.get_mut(HEAD..).unwrap_or_default())?;
        Ok(decode(&message))
    }

    /// A line of the authentication, without its end.
    fn line(&mut self) -> Result<String, SystemdError> {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') && line.len() < LONGEST_LINE {
            let mut byte = [0];
            self.read(&mut byte)?;
            line.extend(byte);
        }
        Ok(String::from_utf8_lossy(&line).trim().to_owned())
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), SystemdError> {
        let read = self.stream.read_exact(bytes);
        read.map_err(|cause| self.failed(cause))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), SystemdError> {
        let written = self.stream.write_all(bytes);
        written.map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: io::Error) -> SystemdError {
        let command = self.command.clone();
        match cause.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                SystemdError::TimedOut { command, limit: self.limit }
            }
            _ => SystemdError::Run { command, cause },
        }
    }

    fn refused(&self, reason: String) -> SystemdError {
        SystemdError::Refused { command: self.command.clone(), reason }
    }
}

fn text(value: Option<PropertyValue>) -> String {
    match value {
        Some(PropertyValue::Text(text)) => text,
        _ => String::new(),
    }
}

/// The interface with the unit's cgroup properties.
fn interface(unit: &UnitName) -> &'static str {
    match unit.as_str().rsplit_once('.') {
        Some((_, "slice")) => "org.freedesktop.systemd1.Slice",
        Some((_, "scope")) => "org.freedesktop.systemd1.Scope",
        _ => "org.freedesktop.systemd1.Service",
    }
}

/// The object of a unit: everything but letters and digits as its number (`sd_bus_path_encode(3)`).
fn object_path(unit: &UnitName) -> String {
    let encoded = unit.as_str().bytes().enumerate().map(|(at, byte)| match byte {
        b'a'..=b'z' | b'A'..=b'Z' => char::from(byte).to_string(),
        b'0'..=b'9' if at > 0 => char::from(byte).to_string(),
        _ => format!("_{byte:02x}"),
    });
    format!("/org/freedesktop/systemd1/unit/{}", encoded.collect::<String>())
}

fn list(text: &str) -> Option<CpuSet> {
    as_in_file(text)?.trim().parse().ok()
}

/// A set as systemd has it: bit 0 of the first byte is id 0. Nodes have the same form.
fn as_bits(ids: &CpuSet) -> Vec<u8> {
    let mut bits = Vec::new();
    for CpuId(id) in ids.iter() {
        let at = usize::try_from(id / 8).unwrap_or(usize::MAX);
        if bits.len() <= at {
            bits.resize(at + 1, 0);
        }
        if let Some(byte) = bits.get_mut(at) {
            *byte |= 1 << (id % 8);
        }
    }
    bits
}

/// The list of such a set; empty where there is none.
fn of_bits(value: Option<PropertyValue>) -> String {
    let Some(PropertyValue::Bytes(bits)) = value else { return String::new() };
    let ids = (0u32..).zip(&bits).flat_map(|(at, byte)| {
        (0..8u32).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| CpuId(at.saturating_mul(8) + bit))
    });
    ids.collect::<CpuSet>().to_string()
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread};

    use super::*;
    use crate::systemd::message::tests::{refusal, reply, signal};

    /// systemd's answer to the call with this serial, given its bytes.
    type Script = fn(u32, &[u8]) -> Vec<u8>;

    /// Plays systemd for one connection; returns the calls that came.
    fn played(script: Script) -> (tempfile::TempDir, PrivateSocket, thread::JoinHandle<Vec<Vec<u8>>>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("private");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let line = |stream: &mut UnixStream| {
                let mut line = Vec::new();
                while line.last() != Some(&b'\n') {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    line.extend(byte);
                }
                String::from_utf8(line).unwrap()
            };
            assert!(line(&mut stream).starts_with("\0AUTH EXTERNAL 3"));
            stream.write_all(b"OK 0123456789abcdef\r\n").unwrap();
            assert_eq!(line(&mut stream), "BEGIN\r\n");
            let mut calls = Vec::new();
            let mut head = [0; HEAD];
            while stream.read_exact(&mut head).is_ok() {
                let mut call = head.to_vec();
                call.resize(HEAD + rest(&head).unwrap(), 0);
                stream.read_exact(&mut call[HEAD..]).unwrap();
                let serial = u32::from_ne_bytes(head[8..12].try_into().unwrap());
                stream.write_all(&signal()).unwrap();
                stream.write_all(&script(serial, &call)).unwrap();
                calls.push(call);
            }
            calls
        });
        let socket = PrivateSocket::at(&path, Duration::from_mins(1)).unwrap();
        (dir, socket, server)
    }

    fn has(call: &[u8], text: &str) -> bool {
        call.windows(text.len()).any(|part| part == text.as_bytes())
    }

    #[test]
    fn unit_properties_are_read_and_signals_are_skipped() {
        let (_dir, socket, server) = played(|serial, call| {
            let text = |text: &str| reply(serial, "s", |body| body.text(text));
            match call {
                call if has(call, "LoadState") => text("loaded"),
                call if has(call, "ControlGroup") => text("/system.slice/a-1.scope"),
                call if has(call, "AllowedCPUs") => reply(serial, "ay", |body| body.bytes(&[0b1001, 1])),
                call if has(call, "AllowedMemoryNodes") => reply(serial, "ay", |body| body.bytes(&[])),
                call if has(call, "FragmentPath") => text("/run/systemd/transient/a-1.scope"),
                _ => reply(serial, "as", |body| body.number(0)),
            }
        });
        let unit = UnitName::new("a-1.scope").unwrap();
        let wanted = UnitState {
            known: true,
            control_group: "/system.slice/a-1.scope".into(),
            cpus: "0,3,8".into(),
            mems: String::new(),
            files: vec!["/run/systemd/transient/a-1.scope".into()],
        };
        assert_eq!(socket.show(&[&unit]).unwrap(), [wanted]);
        let calls = server.join().unwrap();
        assert!(calls.iter().all(|call| has(call, "/org/freedesktop/systemd1/unit/a_2d1_2escope")));
        assert!(has(&calls[1], "org.freedesktop.systemd1.Scope"), "{:?}", calls[1]);
    }

    #[test]
    fn a_property_is_set_until_the_next_boot_and_a_refusal_says_why() {
        let unit = UnitName::new("a.service").unwrap();
        let (_dir, socket, server) = played(|serial, _| reply(serial, "s", |body| body.text("")));
        socket.set(&unit, "AllowedCPUs", "0-1 9").unwrap();
        let calls = server.join().unwrap();
        let end = [&b"AllowedCPUs\0\x02ay\0"[..], &2u32.to_ne_bytes(), &[0b11, 0b10]].concat();
        assert!(has(&calls[0], "SetUnitProperties") && calls[0].ends_with(&end), "{:?}", calls[0]);

        let (_dir, socket, server) = played(|serial, _| {
            refusal(serial, "org.freedesktop.systemd1.NoSuchUnit", "Unit a.service not loaded.")
        });
        let error = socket.set(&unit, "AllowedCPUs", "").unwrap_err();
        assert!(matches!(error, SystemdError::Refused { .. }), "{error}");
        assert!(
            error.to_string().contains("a.service") && error.to_string().contains("NoSuchUnit"),
            "{error}"
        );
        assert!(server.join().unwrap()[0].ends_with(&0u32.to_ne_bytes()));
    }

    #[test]
    fn silent_systemd_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("private");
        let _silent = UnixListener::bind(&path).unwrap();
        let socket = PrivateSocket::at(&path, Duration::from_millis(20)).unwrap();
        let error = socket.show(&[&UnitName::new("a.service").unwrap()]).unwrap_err();
        assert!(matches!(error, SystemdError::TimedOut { .. }), "{error}");
        assert!(PrivateSocket::at(dir.path(), Duration::ZERO).is_none());
    }
}
