//! Which certificates a kubelet may show before the daemon's token is sent to it.
//!
//! Problem: a kubelet's certificate is often one that it has signed itself, so the cluster's authority says
//! nothing of it, and a process of any user can listen on the port while the kubelet is down. Without a check
//! that process would get the token of the daemon's account. Idea: the kubelet's certificate is in a file of
//! root on the same host, so exactly that one is trusted.
//!
//! Invariants: a certificate counts if it is byte for byte one of the kubelet's file, or if the cluster's
//! authority has issued it for this node. Nothing else does: no authority that is in the kubelet's file, and
//! none of the host. The holder of the certificate proves in each handshake that it has the key.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};

use super::ConfigzError;

/// Most certificates of a file.
const MOST_CERTIFICATES: usize = 256;

/// Settings of a connection to a kubelet with these certificates, both as PEM: those of its own file, and of
/// the cluster's authority. Either may be empty, but not both.
pub(super) fn client_config(own: &[u8], authority: &[u8]) -> Result<ClientConfig, ConfigzError> {
    let unusable = |error: Error| ConfigzError::Certificate(error.to_string());
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority)? {
        roots.add(certificate).map_err(unusable)?;
    }
    let own = certificates(own)?;
    let by_authority = if roots.is_empty() {
        None
    } else {
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
        Some(verifier.map_err(|error| ConfigzError::Certificate(error.to_string()))?)
    };
    if own.is_empty() && by_authority.is_none() {
        return Err(ConfigzError::Certificate("none to trust".to_owned()));
    }
    let verifier = KubeletVerifier { own, by_authority, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().map_err(unusable)?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// The certificates of a text; keys beside them, as in the kubelet's file, are passed over.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConfigzError> {
    let read = CertificateDer::pem_slice_iter(pem).take(MOST_CERTIFICATES);
    let read: Result<Vec<_>, _> = read.collect();
    read.map_err(|error| ConfigzError::Certificate(error.to_string()))
}

/// Checks the certificate of a kubelet.
#[derive(Debug)]
struct KubeletVerifier {
    own: Vec<CertificateDer<'static>>,
    by_authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for KubeletVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // A kubelet serves its own certificate beyond the end of its validity, and for any name.
        if self.own.iter().any(|own| own == end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        let Some(authority) = &self.by_authority else {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        };
        authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
