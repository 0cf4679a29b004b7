//! Protects a loopback port from web pages (DNS rebinding).
//!
//! Every local user may query the port, and a browser is one of them. It lets a page read answers from the
//! page's own host name, and the owner of that name can point it at 127.0.0.1. The browser then sends that
//! name in `Host`. So a port on loopback answers only to `localhost` and to addresses, which cannot be
//! pointed elsewhere. A port that is open to others answers to every name.

use std::net::{IpAddr, Ipv6Addr};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Answer to refused requests.
const REFUSED: &str =
    "this port is on loopback, and answers to localhost and to IP addresses alone, not to the name in Host\n";

/// Passes requests with an accepted host.
pub(super) async fn only_ours(request: Request, next: Next) -> Response {
    if is_ours(request.uri(), request.headers()) {
        next.run(request).await
    } else {
        (StatusCode::MISDIRECTED_REQUEST, REFUSED).into_response()
    }
}

/// Every host that the request names: in its first line, which takes precedence, and in each header.
fn is_ours(uri: &Uri, headers: &HeaderMap) -> bool {
    let named = uri.authority().map(|authority| authority.as_str().as_bytes());
    let all = named.into_iter().chain(headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes));
    all.map(str::from_utf8).all(|host| host.is_ok_and(is_local))
}

/// `localhost`, an address or nothing; with a port or without.
fn is_local(host: &str) -> bool {
    let address = |name: &str| name.parse::<IpAddr>().is_ok();
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return address.parse::<Ipv6Addr>().is_ok()
            && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let name = match host.split_once(':') {
        Some((name, port)) if is_port(port) => name,
        Some(_) => return false,
        None => host,
    };
    name.is_empty() || name.eq_ignore_ascii_case("localhost") || address(name)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_and_addresses_are_ours_and_names_are_not() {
        for host in [
            "",
            "localhost",
            "LocalHost:9477",
            "127.0.0.1",
            "127.0.0.1:9477",
            "10.0.0.7:80",
            "[::1]",
            "[::1]:9477",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9477",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "127.0.0.1:9477@evil.example",
            "[::1",
            "[::1]evil.example",
            "[::1].evil.example",
            "[127.0.0.1]",
            "::1:80:x",
            " localhost",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn every_name_of_a_request_counts() {
        let of = |uri: &'static str, hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, HeaderValue::from_static(host));
            }
            is_ours(&Uri::from_static(uri), &headers)
        };
        assert!(of("/metrics", &[]) && of("/metrics", &["localhost"]));
        assert!(of("http://localhost:9477/metrics", &["localhost:9477"]));
        assert!(!of("/metrics", &["evil.example"]) && !of("/metrics", &["localhost", "evil.example"]));
        assert!(!of("http://evil.example/metrics", &["localhost"]));
    }
}
