//! Headless Chromium, driven through chromedriver: the few commands of W3C `WebDriver` that the page's test
//! needs.
//!
//! Plain HTTP with JSON over loopback, one request per connection. Nothing is asked of a network: the browser
//! is started with what keeps it from looking for updates and the like, and with a profile of its own that
//! goes with the test.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// Longest wait for an answer; a page of some megabytes takes seconds on a busy machine.
const LIMIT: Duration = Duration::from_mins(2);
/// Longest answer: a printed page is some megabytes.
const LONGEST: usize = 1 << 28;
/// Key of an element's reference in `WebDriver`.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// What the browser is started with.
const ARGUMENTS: [&str; 11] = [
    "--headless",
    // Root, as in CI, has no sandbox.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--hide-scrollbars",
];

/// A browser with one window.
pub(super) struct Browser {
    driver: Driver,
    session: String,
}

impl Browser {
    /// Starts it; everything that it writes is in `scratch`.
    pub(super) fn start(scratch: &Path) -> Result<Self> {
        let driver = Driver::start(&scratch.join("chromedriver.log"))?;
        let profile = scratch.join("profile");
        let mut arguments: Vec<String> = ARGUMENTS.map(str::to_owned).into();
        arguments.push(format!("--user-data-dir={}", profile.display()));
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let made = driver.request("POST", "/session", &wanted)?;
        let session = made["sessionId"].as_str().context("chromedriver named no session")?.to_owned();
        let browser = Self { driver, session };
        browser.devtools("Performance.enable", &json!({ "timeDomain": "threadTicks" }))?;
        Ok(browser)
    }

    /// Loads a page, and waits until it has loaded.
    pub(super) fn open(&self, url: &str) -> Result<()> {
        self.post("url", &json!({ "url": url })).map(drop)
    }

    /// What a function body returns in the page.
    pub(super) fn script(&self, body: &str) -> Result<Value> {
        self.post("execute/sync", &json!({ "script": body, "args": [] }))
    }

    /// Clicks on the first element that a CSS selector finds, as a mouse would.
    pub(super) fn click(&self, selector: &str) -> Result<()> {
        let element = self.element(selector)?;
        self.post(&format!("element/{element}/click"), &json!({})).map(drop)
    }

    /// Types into an element, or presses keys on it, which gives it the focus.
    pub(super) fn keys(&self, selector: &str, keys: &str) -> Result<()> {
        let element = self.element(selector)?;
        self.post(&format!("element/{element}/value"), &json!({ "text": keys })).map(drop)
    }

    /// What the console has said since the last time: errors and warnings of the page, violations of its
    /// policy.
    pub(super) fn console(&self) -> Result<Vec<String>> {
        let entries = self.post("se/log", &json!({ "type": "browser" }))?;
        let entries = entries.as_array().context("the log is no list")?;
        Ok(entries.iter().map(|entry| format!("{}: {}", entry["level"], entry["message"])).collect())
    }

    /// What the page has cost since it was begun, in seconds of a CPU: other than a clock, it does not count
    /// others' work.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        let told = self.devtools("Performance.getMetrics", &json!({}))?;
        let mut metrics = told["metrics"].as_array().context("no metrics came")?.iter();
        let tasks =
            metrics.find(|metric| metric["name"] == "TaskDuration").context("no time of tasks came")?;
        tasks["value"].as_f64().context("a time of tasks that is no number")
    }

    /// Role and name that a screen reader is told of the first element that a CSS selector finds; none where
    /// it is told of nothing.
    pub(super) fn told(&self, selector: &str) -> Result<Option<(String, String)>> {
        let document = self.devtools("DOM.getDocument", &json!({ "depth": 0 }))?;
        let wanted = json!({ "nodeId": document["root"]["nodeId"], "selector": selector });
        let found = self.devtools("DOM.querySelector", &wanted)?;
        let wanted = json!({ "nodeId": found["nodeId"], "fetchRelatives": false });
        let tree = self.devtools("Accessibility.getPartialAXTree", &wanted)?;
        let node = &tree["nodes"][0];
        let text = |key: &str| node[key]["value"].as_str().unwrap_or_default().to_owned();
        Ok((node["ignored"] == false).then(|| (text("role"), text("name"))))
    }

    /// A window of that size, in pixels.
    pub(super) fn resize(&self, width: u32, height: u32) -> Result<()> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// Does the person prefer dark or light?
    pub(super) fn prefer(&self, scheme: &str) -> Result<()> {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": features })).map(drop)
    }

    /// What the window shows, as PNG.
    pub(super) fn screenshot(&self, path: &Path) -> Result<()> {
        let image =
            self.driver.request("GET", &format!("/session/{}/screenshot", self.session), &Value::Null)?;
        write(path, &image)
    }

    /// All of the page as it would be printed, as PDF.
    pub(super) fn print(&self, path: &Path) -> Result<()> {
        let printed = self.devtools("Page.printToPDF", &json!({ "preferCSSPageSize": true }))?;
        write(path, &printed["data"])
    }

    fn devtools(&self, command: &str, parameters: &Value) -> Result<Value> {
        self.post("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    fn element(&self, selector: &str) -> Result<String> {
        let found = self.post("element", &json!({ "using": "css selector", "value": selector }))?;
        found[ELEMENT].as_str().map(str::to_owned).with_context(|| format!("{selector} is no element"))
    }

    fn post(&self, command: &str, body: &Value) -> Result<Value> {
        self.driver.request("POST", &format!("/session/{}/{command}", self.session), body)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends the browser; it fails only if that has ended already.
        let _ = self.driver.request("DELETE", &format!("/session/{}", self.session), &Value::Null);
    }
}

/// Base64 into a file.
fn write(path: &Path, base64: &Value) -> Result<()> {
    let bytes =
        STANDARD.decode(base64.as_str().context("no picture came")?).context("a picture in base64")?;
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

/// chromedriver, which is killed when this is dropped.
struct Driver {
    child: Child,
    port: u16,
    /// Kept open, so that it may go on saying things.
    stdout: BufReader<ChildStdout>,
}

impl Driver {
    fn start(log: &Path) -> Result<Self> {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").arg(format!("--log-path={}", log.display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("run chromedriver")?;
        let stdout = child.stdout.take().context("chromedriver has no standard output")?;
        let mut driver = Self { child, port: 0, stdout: BufReader::new(stdout) };
        driver.port = driver.says_port()?;
        Ok(driver)
    }

    fn says_port(&mut self) -> Result<u16> {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).context("read what chromedriver says")? > 0 {
            if let Some(port) = port(&line) {
                return Ok(port);
            }
            line.clear();
        }
        bail!("chromedriver ended without a port")
    }

    /// The `value` of the answer.
    fn request(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let asked = || format!("{method} {path}");
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).with_context(asked)?;
        stream.set_read_timeout(Some(LIMIT)).with_context(asked)?;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost:{}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        )
        .with_context(asked)?;
        let answer = answer(&mut BufReader::new(stream)).with_context(asked)?;
        let mut answer: Value = serde_json::from_slice(&answer).with_context(asked)?;
        let value = answer["value"].take();
        ensure!(value["error"].is_null(), "{}: {}: {}", asked(), value["error"], value["message"]);
        Ok(value)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `ChromeDriver was started successfully on port 34567.`
fn port(line: &str) -> Option<u16> {
    let (_, port) = line.trim_end().trim_end_matches('.').rsplit_once("successfully on port ")?;
    port.parse().ok()
}

/// The body of an HTTP answer that tells its length.
fn answer(stream: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut length = None;
    loop {
        let mut line = String::new();
        ensure!(stream.read_line(&mut line)? > 0, "the answer ends in its header");
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = Some(value.trim().parse().with_context(|| format!("a length: {value}"))?);
        }
    }
    let length: usize = length.context("the answer has no length")?;
    ensure!(length <= LONGEST, "an answer of {length} bytes");
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_the_one_that_it_says() {
        assert_eq!(port("ChromeDriver was started successfully on port 41235.\n"), Some(41235));
        assert_eq!(port("Starting ChromeDriver 156.0 (abc) on port 0\n"), None);
    }

    #[test]
    fn an_answer_is_as_long_as_it_says() {
        let whole = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nX: y\r\n\r\n{}\nmore";
        assert_eq!(answer(&mut whole.as_bytes()).unwrap(), b"{}\n");
        for broken in ["HTTP/1.1 200 OK\r\n\r\n{}", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", ""] {
            assert!(answer(&mut broken.as_bytes()).is_err(), "{broken:?}");
        }
    }
}
