//! Requests with a body of JSON over one connection that is kept, as kube-scheduler sends them.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

/// Longest wait for an answer; kube-scheduler's is `httpTimeout`.
const LIMIT: Duration = Duration::from_secs(30);

/// Status and body of an answer, and the time that it took.
#[derive(Debug)]
pub struct HttpAnswer {
    /// 200 where the protocol of extenders is concerned.
    pub status: u16,
    /// The whole body.
    pub body: String,
    /// From the first byte that was sent to the last one that was received.
    pub took: Duration,
}

/// A client of one address.
#[derive(Debug)]
pub struct HttpClient {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl HttpClient {
    /// A client that connects with its first request.
    pub const fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn send(&mut self, method: &str, path: &str, body: &str) -> Result<HttpAnswer> {
        let began = Instant::now();
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let about = || format!("{method} http://{}{path}", self.address);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let out = stream.get_mut();
        // One write: the rest of a request would wait for the acknowledgement of its head.
        out.write_all((head + body).as_bytes()).with_context(about)?;
        let mut line = String::new();
        stream.read_line(&mut line).with_context(about)?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.with_context(|| format!("{}: no status in {line:?}", about()))?;
        let (mut length, mut is_kept) = (0, true);
        loop {
            line.clear();
            stream.read_line(&mut line).with_context(about)?;
            let lower = line.trim().to_ascii_lowercase();
            if lower.is_empty() {
                break;
            }
            if let Some(number) = lower.strip_prefix("content-length:") {
                length = number.trim().parse().with_context(about)?;
            }
            is_kept &= lower != "connection: close";
        }
        let mut text = vec![0; length];
        stream.read_exact(&mut text).with_context(about)?;
        if is_kept {
            self.stream = Some(stream);
        }
        let body = String::from_utf8(text).with_context(about)?;
        Ok(HttpAnswer { status, body, took: began.elapsed() })
    }

    fn connect(&self) -> Result<BufReader<TcpStream>> {
        let about = || format!("connect to {}", self.address);
        let stream = TcpStream::connect(self.address).with_context(about)?;
        stream.set_nodelay(true).with_context(about)?;
        stream.set_read_timeout(Some(LIMIT)).with_context(about)?;
        Ok(BufReader::new(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use enforcer_test_api::ApiStub;

    #[test]
    fn a_connection_serves_several_requests() {
        let stub = ApiStub::start(&[]);
        let address = stub.url().strip_prefix("http://").unwrap().parse().unwrap();
        let mut client = HttpClient::new(address);
        let pod = r#"{"metadata":{"name":"a"}}"#;
        assert_eq!(client.send("POST", "/api/v1/namespaces/x/pods", pod).unwrap().status, 201);
        let answer = client.send("GET", "/api/v1/namespaces/x/pods/a", "").unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.body.contains("resourceVersion"), "{}", answer.body);
        assert_eq!(client.send("GET", "/api/v1/namespaces/x/pods/b", "").unwrap().status, 404);
    }
}
