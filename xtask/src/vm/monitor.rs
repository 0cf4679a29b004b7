//! QEMU's monitor, as far as a snapshot needs it.
//!
//! The protocol is QMP (QEMU's docs/interop/qmp-spec.rst): one JSON object in a line; a greeting first, then
//! an answer for each command, with events in between. The guest is stopped before it is
//! saved: saving a running one aborts QEMU 10 under TCG when the machine has HMAT.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// Longest time for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Longest time for writing a guest's memory to a file.
const SAVE_LIMIT: Duration = Duration::from_mins(2);

/// How often the progress is asked for.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes per second; the default is meant for a network.
const BANDWIDTH: u64 = 16 << 30;

/// A connection that takes commands.
pub(super) struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects to a QEMU that listens on `socket`.
    pub(super) fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("connect to QEMU's monitor at {}", socket.display()))?;
        Self::open(stream)
    }

    fn open(stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(ANSWER_LIMIT)).context("bound the wait for QEMU's monitor")?;
        let mut monitor = Self { stream: BufReader::new(stream) };
        let greeting = monitor.receive()?;
        ensure!(greeting.get("QMP").is_some(), "QEMU's monitor greets with {greeting}");
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Stops the guest and writes its memory and devices to `state`.
    pub(super) fn save(&mut self, state: &Path) -> Result<()> {
        self.execute("stop", &json!({}))?;
        self.execute("migrate-set-parameters", &json!({ "max-bandwidth": BANDWIDTH }))?;
        self.execute("migrate", &json!({ "uri": format!("file:{}", state.display()) }))?;
        let deadline = Instant::now() + SAVE_LIMIT;
        loop {
            let progress = self.execute("query-migrate", &json!({}))?;
            match progress["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => bail!("QEMU did not save the guest: {progress}"),
                _ => {}
            }
            ensure!(Instant::now() < deadline, "QEMU saves the guest for {} s", SAVE_LIMIT.as_secs());
            thread::sleep(LOOK);
        }
    }

    fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.stream.get_mut(), "{request}").with_context(|| format!("tell QEMU to {command}"))?;
        loop {
            let mut answer = self.receive().with_context(|| format!("{command} in QEMU's monitor"))?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            ensure!(answer.get("event").is_some(), "{command} in QEMU's monitor: {answer}");
        }
    }

    fn receive(&mut self) -> Result<Value> {
        let mut line = String::new();
        let length = self.stream.read_line(&mut line).context("read from QEMU's monitor")?;
        ensure!(length > 0, "QEMU closed its monitor");
        serde_json::from_str(&line).with_context(|| format!("QEMU's monitor says {line:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `save` against recorded lines; returns the commands that it sent.
    fn save(lines: &[&str]) -> (Result<()>, Vec<String>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for line in lines {
            writeln!(theirs, "{line}").unwrap();
        }
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let outcome = Monitor::open(ours).and_then(|mut monitor| monitor.save(Path::new("/s")));
        let sent = BufReader::new(theirs).lines().map(|line| {
            let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
            request["execute"].as_str().unwrap().to_owned()
        });
        (outcome, sent.collect())
    }

    const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"major": 10}}, "capabilities": ["oob"]}}"#;
    const DONE: &str = r#"{"return": {}}"#;

    #[test]
    fn a_guest_is_stopped_before_it_is_saved_and_events_are_no_answers() {
        let (outcome, sent) = save(&[
            GREETING,
            DONE,
            r#"{"timestamp": {"seconds": 1}, "event": "STOP"}"#,
            DONE,
            DONE,
            DONE,
            r#"{"return": {"status": "active"}}"#,
            r#"{"return": {"status": "completed"}}"#,
        ]);
        outcome.unwrap();
        let wanted = [
            "qmp_capabilities",
            "stop",
            "migrate-set-parameters",
            "migrate",
            "query-migrate",
            "query-migrate",
        ];
        assert_eq!(sent, wanted);
    }

    #[test]
    fn what_goes_wrong_is_told_in_the_words_of_qemu() {
        let failed = r#"{"return": {"status": "failed", "error-desc": "No space left"}}"#;
        let refused = r#"{"error": {"class": "GenericError", "desc": "not migratable"}}"#;
        for (lines, wanted) in [
            (&[GREETING, DONE, DONE, DONE, DONE, failed][..], "No space left"),
            (&[GREETING, DONE, DONE, DONE, refused], "not migratable"),
            (&[GREETING, DONE], "closed its monitor"),
            (&[DONE], "greets with"),
            (&["hello"], "hello"),
        ] {
            let error = save(lines).0.unwrap_err();
            assert!(format!("{error:#}").contains(wanted), "{error:#}");
        }
    }
}
