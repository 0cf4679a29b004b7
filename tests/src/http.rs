//! Requests to a server without TLS, and figures out of Prometheus's text format.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

/// Longest wait for a server on the same machine.
const LIMIT: Duration = Duration::from_secs(10);

/// Longest wait for one on the machine that runs this guest, which may have to start something first.
const PATIENCE: Duration = Duration::from_mins(3);

/// Largest answer that is read.
const LARGEST: u64 = 8 << 20;

/// Body of `http://ADDRESS/PATH`.
pub fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream =
        TcpStream::connect_timeout(&address, LIMIT).with_context(|| format!("connect to {address}"))?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(LARGEST).read_to_string(&mut answer).with_context(|| format!("read from {address}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without an end of its header")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{path}: {}", head.lines().next().unwrap_or_default());
    Ok(body.to_owned())
}

/// Sends a request with a body; status and body of the answer.
pub fn send(address: SocketAddr, method: &str, path: &str, media: &str, body: &str) -> Result<(u16, String)> {
    let mut stream =
        TcpStream::connect_timeout(&address, LIMIT).with_context(|| format!("connect to {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // Of the older version: its answers come in one piece.
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: {media}\r\nContent-Length: {length}\r\n\
         \r\n{body}"
    )?;
    let mut answer = String::new();
    stream.take(LARGEST).read_to_string(&mut answer).with_context(|| format!("read from {address}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without an end of its header")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.with_context(|| format!("{method} {path}: {head}"))?, body.to_owned()))
}

/// Value of the first series of `metric` that has all `labels`.
pub fn metric(text: &str, metric: &str, labels: &[(&str, &str)]) -> Option<f64> {
    values(text, metric, labels).next()
}

/// Values of every series of `metric` that has all `labels`.
pub fn values(text: &str, metric: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = f64> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(metric)?;
        let (found, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once('}')?,
            None => ("", rest.strip_prefix(' ')?),
        };
        let has = |&(name, value): &(&str, &str)| {
            let wanted = format!("{name}=\"{value}\"");
            found.split(',').any(|label| label == wanted)
        };
        if labels.iter().all(has) { value.trim().parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE a gauge\na{w=\"x\",n=\"0\"} 0.5\na{w=\"y\",n=\"0\"} 1\nab 3\na_b{w=\"x\"} 9\n";

    #[test]
    fn a_series_is_found_by_its_labels() {
        assert_eq!(metric(TEXT, "a", &[("w", "y")]), Some(1.0));
        assert_eq!(metric(TEXT, "a", &[("w", "x"), ("n", "0")]), Some(0.5));
        assert_eq!(metric(TEXT, "a", &[("w", "z")]), None);
        assert_eq!(metric(TEXT, "ab", &[]), Some(3.0));
        assert_eq!(metric(TEXT, "b", &[]), None);
        assert_eq!(values(TEXT, "a", &[("n", "0")]).collect::<Vec<_>>(), [0.5, 1.0]);
    }
}
