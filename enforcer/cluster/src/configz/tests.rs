use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::*;

const NODE: &str = "node-1";
const TOKEN: &str = "the-token-of-the-daemon";

/// An authority, and its certificate as PEM.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for a name with its authority, as a kubelet writes both into one file, and the key.
    fn certify(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        (format!("{}{}", signed.pem(), self.pem), key.serialize_pem())
    }
}

/// A server that answers each request with the same bytes, and keeps what it was sent.
struct TlsServer {
    address: SocketAddr,
    received: Arc<Mutex<Vec<u8>>>,
}

impl TlsServer {
    async fn start((certificates, key): &(String, String), answer: Vec<u8>, closes: bool) -> Self {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(certificates.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&received);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut buffer = [0; 4096];
                while !keep.lock().unwrap().ends_with(b"\r\n\r\n") {
                    let Ok(count @ 1..) = stream.read(&mut buffer).await else { break };
                    keep.lock().unwrap().extend_from_slice(&buffer[..count]);
                }
                // The client may have gone.
                let _ = stream.write_all(&answer).await;
                if closes {
                    let _ = stream.shutdown().await;
                } else {
                    std::future::pending::<()>().await;
                }
            }
        });
        Self { address, received }
    }

    async fn fetch(&self, own: &str, authority: &str) -> Result<Vec<u8>, ConfigzError> {
        self.fetch_within(LIMIT, own, authority).await
    }

    async fn fetch_within(
        &self,
        limit: Duration,
        own: &str,
        authority: &str,
    ) -> Result<Vec<u8>, ConfigzError> {
        let server = KubeletServer {
            address: self.address,
            node: NODE,
            own_certificates: own.as_bytes(),
            cluster_authority: authority.as_bytes(),
            token: TOKEN,
        };
        super::fetch_within(limit, &server).await
    }

    fn received(&self) -> String {
        String::from_utf8(self.received.lock().unwrap().clone()).unwrap()
    }
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

fn ok() -> Vec<u8> {
    answer("200 OK", b"{\"kubeletconfig\":{}}")
}

#[tokio::test]
async fn the_kubelets_own_certificate_gets_the_token() {
    // As a kubelet makes it: signed by an authority of its own, for a name that need not be the node's.
    let own = Authority::new("node-1-ca@1").certify("other-name");
    let server = TlsServer::start(&own, ok(), true).await;
    let with_key = format!("{}{}", own.1, own.0);
    let cluster = Authority::new("kubernetes").pem;
    for (own, authority) in [(&own.0, ""), (&with_key, ""), (&own.0, &cluster)] {
        server.received.lock().unwrap().clear();
        assert_eq!(server.fetch(own, authority).await.unwrap(), b"{\"kubeletconfig\":{}}");
        let request = server.received().to_lowercase();
        assert!(request.starts_with("get /configz http/1.1\r\n"), "{request}");
        assert!(request.contains(&format!("authorization: bearer {TOKEN}\r\n")), "{request}");
    }
}

#[tokio::test]
async fn a_certificate_of_the_cluster_for_this_node_gets_the_token() {
    let cluster = Authority::new("kubernetes");
    let server = TlsServer::start(&cluster.certify(NODE), ok(), true).await;
    let stale = Authority::new("node-1-ca@1").certify(NODE).0;
    assert!(server.fetch(&stale, &cluster.pem).await.is_ok());
    assert!(server.received().contains(TOKEN));
}

#[tokio::test]
async fn any_other_certificate_gets_no_token() {
    let (cluster, kubelet) = (Authority::new("kubernetes"), Authority::new("node-1-ca@1"));
    let own = kubelet.certify(NODE);
    for (what, shown) in [
        ("signed by another authority", Authority::new("node-1-ca@1").certify(NODE)),
        ("by the cluster's, for another node", cluster.certify("node-2")),
        ("by the authority in the kubelet's file, for this node", kubelet.certify(NODE)),
    ] {
        let server = TlsServer::start(&shown, ok(), true).await;
        let error = server.fetch(&own.0, &cluster.pem).await.unwrap_err();
        assert!(matches!(error, ConfigzError::Untrusted(..)), "{what}: {error}");
        assert_eq!(server.received(), "", "{what}");
    }
}

#[tokio::test]
async fn the_certificate_without_its_key_gets_no_token() {
    let own = Authority::new("node-1-ca@1").certify(NODE);
    // A listener repeats the kubelet's certificate, which is no secret, and signs with a key of its own.
    let key = rustls::crypto::ring::sign::any_supported_type(
        &PrivateKeyDer::from_pem_slice(KeyPair::generate().unwrap().serialize_pem().as_bytes()).unwrap(),
    );
    let chain: Vec<_> = CertificateDer::pem_slice_iter(own.0.as_bytes()).map(Result::unwrap).collect();
    let stolen = rustls::sign::CertifiedKey::new(chain, key.unwrap());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let resolver = rustls::sign::SingleCertAndKey::from(stolen);
    let acceptor = TlsAcceptor::from(Arc::new(config.with_cert_resolver(Arc::new(resolver))));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor.accept(stream).await.is_ok()
    });
    let server = TlsServer { address, received: Arc::default() };
    let error = server.fetch(&own.0, "").await.unwrap_err();
    assert!(matches!(error, ConfigzError::Untrusted(..)), "{error}");
    assert!(!accepted.await.unwrap());
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let own = Authority::new("node-1-ca@1").certify(NODE);
    for (head, expected) in [
        ("401 Unauthorized", "refused the token (401)"),
        ("403 Forbidden", "needs `get` on nodes/configz"),
        ("404 Not Found", "status 404"),
        ("307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/", "status 307"),
        ("500 Internal Server Error", "status 500"),
    ] {
        let server = TlsServer::start(&own, answer(head, b"no"), true).await;
        let error = server.fetch(&own.0, "").await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains(TOKEN), "{error}");
    }
}

#[tokio::test]
async fn answers_without_an_end_or_a_form_are_errors() {
    let own = Authority::new("node-1-ca@1").certify(NODE);
    let huge = answer("200 OK", &vec![b' '; LARGEST + 1]);
    let endless = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &vec![b' '; LARGEST + 1]].concat();
    for bytes in [
        b"garbage\r\n\r\n".to_vec(),
        Vec::new(),
        huge,
        endless,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx".to_vec(),
    ] {
        let server = TlsServer::start(&own, bytes, true).await;
        let error = server.fetch(&own.0, "").await.unwrap_err();
        assert!(matches!(error, ConfigzError::Exchange(_)), "{error}");
    }
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let own = Authority::new("node-1-ca@1").certify(NODE);
    let limit = Duration::from_secs(2);
    for begun in [Vec::new(), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx".to_vec()] {
        let server = TlsServer::start(&own, begun, false).await;
        let error = server.fetch_within(limit, &own.0, "").await.unwrap_err();
        assert!(matches!(error, ConfigzError::Late(_)), "{error}");
        assert!(server.received().contains(TOKEN), "it was the answer that did not come");
    }
    // One that does not even shake hands.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let server = TlsServer { address: listener.local_addr().unwrap(), received: Arc::default() };
    let error = server.fetch_within(limit, &own.0, "").await.unwrap_err();
    assert!(matches!(error, ConfigzError::Late(_)), "{error}");
}

#[tokio::test]
async fn no_request_is_made_without_anything_to_trust() {
    let own = Authority::new("node-1-ca@1").certify(NODE);
    let server = TlsServer::start(&own, ok(), true).await;
    for (trusted, authority) in [("", ""), (own.1.as_str(), "")] {
        let error = server.fetch(trusted, authority).await.unwrap_err();
        assert!(matches!(error, ConfigzError::Certificate(_)), "{error}");
    }
    let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    assert!(matches!(server.fetch(broken, "").await.unwrap_err(), ConfigzError::Certificate(_)));
    assert_eq!(server.received(), "");
    let closed = TlsServer { address: (Ipv4Addr::LOCALHOST, 1).into(), received: Arc::default() };
    assert!(matches!(closed.fetch(&own.0, "").await.unwrap_err(), ConfigzError::Connect(..)));
}

#[test]
fn a_token_of_another_form_is_refused_and_the_request_does_not_show_it() {
    let server = |token| KubeletServer {
        address: (Ipv4Addr::LOCALHOST, 1).into(),
        node: NODE,
        own_certificates: b"",
        cluster_authority: b"",
        token,
    };
    assert!(matches!(request(&server("a\r\nX: y")).unwrap_err(), ConfigzError::Form("the token")));
    assert!(!format!("{:?}", request(&server(TOKEN)).unwrap()).contains(TOKEN));
    assert!(request(&server("token-with-newline\n")).is_ok());
}
