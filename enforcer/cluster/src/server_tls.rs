//! Mutual TLS for a port of this program, with certificates that are renewed while it runs.
//!
//! Problem: kube-scheduler's protocol knows no authentication, and certificates live shorter than programs.
//! Idea: only clients with a certificate of one authority come through the handshake, and the files are read
//! again from time to time.
//!
//! Invariants: what is in use is whole: certificate and key belong together, and there is an authority for
//! clients. Files that are none of this are named, and the last good ones stay in use. Sessions are not
//! resumed: each connection shows its certificate, which may have expired meanwhile.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use numa_topology::degraded::Degraded;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Most bytes of a file.
const LARGEST: u64 = 1 << 20;
/// Most certificates of a file.
const MOST_CERTIFICATES: usize = 256;
/// Effect of files that cannot be used.
const EFFECT: &str = "the certificates from before stay in use, until they expire";

/// Where the certificates are, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and those of authorities between it and the root.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Authorities of clients.
    pub client_authority: PathBuf,
}

/// Why files cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {cause}", path.display())]
pub struct TlsFileError {
    path: PathBuf,
    cause: String,
}

impl TlsFileError {
    /// How reports name it.
    pub fn degraded(&self) -> Degraded {
        Degraded::new("tls", self.to_string(), EFFECT)
    }
}

/// Contents of the three files.
type Texts = [Vec<u8>; 3];

/// A side that accepts connections of authenticated clients.
pub struct ServerTls {
    files: TlsFiles,
    acceptor: TlsAcceptor,
    /// What is in use.
    used: Texts,
    /// What could not be used at the latest look.
    unusable: Option<Texts>,
}

impl ServerTls {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// If one cannot be read, or they do not fit each other.
    pub fn load(files: TlsFiles) -> Result<Self, TlsFileError> {
        let used = files.read()?;
        let acceptor = files.acceptor(&used)?;
        Ok(Self { files, acceptor, used, unusable: None })
    }

    /// Reads the files again; whether others are in use now. Files that are being replaced may not fit each
    /// other for a moment, so those that cannot be used are an error at the second look.
    ///
    /// # Errors
    /// If the files of now cannot be used.
    pub fn reload(&mut self) -> Result<bool, TlsFileError> {
        let texts = self.files.read()?;
        if texts == self.used {
            self.unusable = None;
            return Ok(false);
        }
        match self.files.acceptor(&texts) {
            Ok(acceptor) => {
                (self.acceptor, self.used, self.unusable) = (acceptor, texts, None);
                Ok(true)
            }
            Err(error) if self.unusable.as_ref() == Some(&texts) => Err(error),
            Err(_may_be_half_written) => {
                self.unusable = Some(texts);
                Ok(false)
            }
        }
    }

    /// The handshake with a client, by the certificates of now. The caller bounds its time.
    pub fn accept(
        &self,
        stream: TcpStream,
    ) -> impl Future<Output = io::Result<TlsStream<TcpStream>>> + Send + 'static {
        self.acceptor.accept(stream)
    }
}

impl TlsFiles {
    fn read(&self) -> Result<Texts, TlsFileError> {
        Ok([read(&self.certificate)?, read(&self.key)?, read(&self.client_authority)?])
    }

    fn acceptor(&self, [certificate, key, authority]: &Texts) -> Result<TlsAcceptor, TlsFileError> {
        let chain = certificates(&self.certificate, certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable(&self.key, &error))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(&self.client_authority, authority)? {
            roots.add(root).map_err(|error| unusable(&self.client_authority, &error))?;
        }
        let provider = Arc::new(ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
        let clients = clients.map_err(|error| unusable(&self.client_authority, &error))?;
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| unusable(&self.certificate, &error))?;
        let config = config.with_client_cert_verifier(clients).with_single_cert(chain, key);
        let mut config = config.map_err(|error| unusable(&self.certificate, &error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn unusable(path: &Path, cause: &dyn std::error::Error) -> TlsFileError {
    TlsFileError { path: path.to_owned(), cause: cause.to_string() }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFileError> {
    let mut text = Vec::new();
    let whole = File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut text));
    whole.map_err(|error| unusable(path, &error))?;
    Ok(text)
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let read = CertificateDer::pem_slice_iter(pem).take(MOST_CERTIFICATES).collect::<Result<Vec<_>, _>>();
    let read = read.map_err(|error| unusable(path, &error))?;
    if read.is_empty() {
        return Err(TlsFileError { path: path.to_owned(), cause: "no certificate in it".to_owned() });
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    /// Writes a new authority, and a certificate of it with its key.
    fn write(files: &TlsFiles) {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        fs::write(&files.client_authority, authority.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(authority, key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        fs::write(&files.certificate, params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
    }

    #[test]
    fn renewed_files_are_used_and_damaged_ones_are_named_at_the_second_look() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| folder.path().join(name);
        let files =
            TlsFiles { certificate: of("tls.crt"), key: of("tls.key"), client_authority: of("ca.crt") };
        let missing = ServerTls::load(files.clone()).err().unwrap();
        assert!(missing.to_string().contains("tls.crt: No such file"), "{missing}");
        write(&files);
        let mut tls = ServerTls::load(files.clone()).unwrap();
        assert_eq!(tls.reload(), Ok(false));
        write(&files);
        assert_eq!(tls.reload(), Ok(true));
        assert_eq!(tls.reload(), Ok(false));
        let good = fs::read(&files.key).unwrap();
        for (path, text, told) in [
            (&files.key, KeyPair::generate().unwrap().serialize_pem(), "tls.crt: "),
            (&files.key, "-----BEGIN".to_owned(), "tls.key: "),
            (&files.key, String::new(), "tls.key: "),
            (&files.client_authority, String::new(), "ca.crt: no certificate in it"),
            (&files.certificate, "no PEM".to_owned(), "tls.crt: no certificate in it"),
        ] {
            let before = fs::read(path).unwrap();
            fs::write(path, text).unwrap();
            assert_eq!(tls.reload(), Ok(false), "half of them may be written");
            let error = tls.reload().unwrap_err().degraded();
            assert_eq!(error.source, "tls");
            assert!(error.reason.contains(told), "{}", error.reason);
            fs::write(path, before).unwrap();
            assert_eq!(tls.reload(), Ok(false));
        }
        assert_eq!(fs::read(&files.key).unwrap(), good);
        fs::remove_file(&files.key).unwrap();
        assert!(tls.reload().is_err());
        let certificate = fs::read(&files.certificate).unwrap();
        write(&files);
        assert_ne!(fs::read(&files.certificate).unwrap(), certificate);
        assert_eq!(tls.reload(), Ok(true));
    }
}
