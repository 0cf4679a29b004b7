//! Authorities of certificates, and a client over TLS, for servers under test.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};

use crate::certificates::named;

/// An authority that signs certificates.
#[derive(Debug)]
pub struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, as PEM.
    pub pem: String,
}

impl TestAuthority {
    /// A new one.
    ///
    /// # Panics
    ///
    /// If no key can be made.
    pub fn new(name: &str) -> Self {
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("make a key");
        let pem = params.self_signed(&key).expect("sign an authority").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Certificate and key of a server with this name, as PEM.
    ///
    /// # Panics
    ///
    /// If the name is none.
    pub fn server(&self, name: &str) -> [String; 2] {
        let mut params = named(name);
        params.subject_alt_names = vec![SanType::DnsName(name.try_into().expect("a name"))];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// Certificate and key of a client, as PEM.
    ///
    /// # Panics
    ///
    /// If no key can be made.
    pub fn client(&self, name: &str) -> [String; 2] {
        let mut params = named(name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> [String; 2] {
        let key = KeyPair::generate().expect("make a key");
        [params.signed_by(&key, &self.issuer).expect("sign").pem(), key.serialize_pem()]
    }
}

/// A connection over TLS that speaks HTTP/1.1, one request after another.
#[derive(Debug)]
pub struct TlsClient(StreamOwned<ClientConnection, TcpStream>);

impl TlsClient {
    /// Connects to a server with this name that the authority has signed, with this certificate and key if
    /// there are any. The handshake is part of the first request.
    ///
    /// # Errors
    /// If the server cannot be reached.
    ///
    /// # Panics
    /// If certificates are no PEM.
    pub fn connect(
        address: SocketAddr,
        authority: &str,
        server: &'static str,
        client: Option<&[String; 2]>,
        limit: Duration,
    ) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).expect("PEM")).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("versions of TLS");
        let config = config.with_root_certificates(roots);
        let mut config = match client {
            None => config.with_no_client_auth(),
            Some([certificate, key]) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
                config.with_client_auth_cert(vec![certificate], key).expect("a certificate with its key")
            }
        };
        // As kube-scheduler offers them.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let name = ServerName::try_from(server).expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(limit))?;
        Ok(Self(StreamOwned::new(connection, stream)))
    }

    /// Status, head and body of the answer. The connection stays open if the server wishes so.
    ///
    /// # Errors
    /// If the server does not let the client in, or closes the connection.
    pub fn ask(&mut self, method: &str, path: &str, body: &str) -> io::Result<(u16, String, String)> {
        let length = body.len();
        let json = "Content-Type: application/json";
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{json}\r\nContent-Length: {length}\r\n\r\n");
        self.0.write_all(head.as_bytes())?;
        self.0.write_all(body.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut one = [0];
            self.0.read_exact(&mut one)?;
            head.extend(one);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, head.clone());
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(invalid)?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.ok_or_else(invalid)?];
        self.0.read_exact(&mut body)?;
        Ok((status, head, String::from_utf8_lossy(&body).into_owned()))
    }
}
