//! Access to the port: the report names the pods and commands of every tenant.
//!
//! `/live` and `/ready` name no workload and are answered to every peer. With a token file everything else
//! needs the token. Without one, a port beyond loopback serves `/metrics` for Prometheus without credentials,
//! and refuses the reports.
//!
//! Invariant: an unreadable token file grants no access.

use std::{path::Path, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use enforcer_host::{read_bytes, written_text};

/// Shortest token, in bytes.
const SHORTEST: usize = 16;
/// Longest token, in bytes.
const LONGEST: usize = 4096;

const REPORTS_REFUSED: &str = "beyond loopback the reports are served only where metrics.token_file is \
    set; numa-enforcer status and explain read them on the host\n";
const TOKEN_MISSING: &str = "this takes the token of metrics.token_file: Authorization: Bearer TOKEN\n";
const TOKEN_UNREADABLE: &str = "metrics.token_file could not be read; the daemon's log says why\n";

/// Answers besides the probes.
#[derive(Debug, Clone)]
pub(super) enum PortAccess {
    /// Everything: the port is on loopback.
    Everything,
    /// Metrics alone.
    MetricsOnly,
    /// Everything, to requests with this token.
    Token(Arc<str>),
    /// Nothing: the token is not known.
    Nothing,
}

impl PortAccess {
    /// Reads the token file, if configured; the error says why only probes are served.
    pub(super) fn of(file: Option<&Path>, on_loopback: bool) -> (Self, Option<String>) {
        match file {
            Some(path) => match read(path) {
                Ok(token) => (Self::Token(token.into()), None),
                Err(cause) => {
                    (Self::Nothing, Some(format!("metrics.token_file {}: {cause}", path.display())))
                }
            },
            None if on_loopback => (Self::Everything, None),
            None => (Self::MetricsOnly, None),
        }
    }

    fn refusal(&self, path: &str, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
        match self {
            _ if is_probe(path) => None,
            Self::MetricsOnly if path.starts_with("/report") => {
                Some((StatusCode::FORBIDDEN, REPORTS_REFUSED))
            }
            Self::Everything | Self::MetricsOnly => None,
            Self::Token(token) if carries(headers, token) => None,
            Self::Token(_) => Some((StatusCode::UNAUTHORIZED, TOKEN_MISSING)),
            Self::Nothing => Some((StatusCode::FORBIDDEN, TOKEN_UNREADABLE)),
        }
    }
}

/// Paths with short answers that name no workload.
pub(super) fn is_probe(path: &str) -> bool {
    matches!(path, "/live" | "/ready")
}

/// Passes requests that may be answered.
pub(super) async fn only_allowed(State(access): State<PortAccess>, request: Request, next: Next) -> Response {
    let Some((status, text)) = access.refusal(request.uri().path(), request.headers()) else {
        return next.run(request).await;
    };
    let mut answer = (status, text).into_response();
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

fn carries(headers: &HeaderMap, token: &str) -> bool {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (all.next(), all.next()) else { return false };
    let given =
        value.as_bytes().split_at_checked(7).filter(|(word, _)| word.eq_ignore_ascii_case(b"bearer "));
    given.is_some_and(|(_, given)| are_equal(given, token.as_bytes()))
}

/// Compares in constant time.
fn are_equal(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn read(path: &Path) -> Result<String, String> {
    let most = LONGEST as u64 + 2;
    let text = read_bytes(path, most).and_then(written_text).map_err(|error| error.to_string())?;
    let token = text.trim();
    if !(SHORTEST..=LONGEST).contains(&token.len()) {
        return Err(format!("a token of {SHORTEST} to {LONGEST} bytes is expected, not of {}", token.len()));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a token of visible ASCII characters is expected, without blanks".to_owned());
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn headers(values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn each_access_answers_what_it_may() {
        let right = headers(&["Bearer 0123456789abcdef"]);
        let nothing = headers(&[]);
        let status = |access: &PortAccess, path: &str, headers: &HeaderMap| {
            access.refusal(path, headers).map_or(200, |(status, _)| status.as_u16())
        };
        let paths = ["/live", "/ready", "/metrics", "/report.json", "/report.html"];
        for (access, headers, expected) in [
            (PortAccess::Everything, &nothing, [200, 200, 200, 200, 200]),
            (PortAccess::MetricsOnly, &nothing, [200, 200, 200, 403, 403]),
            (PortAccess::MetricsOnly, &right, [200, 200, 200, 403, 403]),
            (PortAccess::Token(TOKEN.into()), &nothing, [200, 200, 401, 401, 401]),
            (PortAccess::Token(TOKEN.into()), &right, [200; 5]),
            (PortAccess::Nothing, &right, [200, 200, 403, 403, 403]),
        ] {
            assert_eq!(paths.map(|path| status(&access, path, headers)), expected, "{access:?}");
        }
    }

    #[test]
    fn only_the_whole_token_said_once_counts() {
        for (values, right) in [
            (&["Bearer 0123456789abcdef"] as &[_], true),
            (&["bearer 0123456789abcdef"], true),
            (&["Bearer 0123456789abcde"], false),
            (&["Bearer 0123456789abcdef0"], false),
            (&["Basic 0123456789abcdef"], false),
            (&["0123456789abcdef"], false),
            (&["Bearer"], false),
            (&["Bearer 0123456789abcdef", "Bearer x"], false),
            (&[], false),
        ] {
            assert_eq!(carries(&headers(values), TOKEN), right, "{values:?}");
        }
    }

    #[test]
    fn a_token_file_that_is_no_good_opens_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let (access, error) = PortAccess::of(Some(&path), true);
        assert!(matches!(access, PortAccess::Nothing) && error.unwrap().contains("No such file"));
        for text in
            ["", "short", "with a blank in between", "\u{e4}0123456789abcdef", &"x".repeat(LONGEST + 1)]
        {
            fs::write(&path, text).unwrap();
            let (access, error) = PortAccess::of(Some(&path), true);
            assert!(matches!(access, PortAccess::Nothing) && error.is_some(), "{text}");
        }
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let (access, error) = PortAccess::of(Some(&path), true);
        assert!(matches!(access, PortAccess::Nothing) && error.unwrap().contains("not a regular file"));
        fs::remove_file(&path).unwrap();
        fs::write(&path, format!("{TOKEN}\n")).unwrap();
        let (access, error) = PortAccess::of(Some(&path), false);
        assert!(matches!(access, PortAccess::Token(token) if *token == *TOKEN) && error.is_none());
    }

    #[test]
    fn without_a_token_file_the_address_decides() {
        assert!(matches!(PortAccess::of(None, true), (PortAccess::Everything, None)));
        assert!(matches!(PortAccess::of(None, false), (PortAccess::MetricsOnly, None)));
    }
}
