//! Certificates of one API server: an authority, the server, and an administrator.
//!
//! A client certificate of the organisation `system:masters` may do everything, without any authorizer.

use std::{fs, net::Ipv4Addr, path::Path};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

/// File names in the folder of certificates.
pub(crate) const AUTHORITY: &str = "ca.crt";
pub(crate) const SERVER: [&str; 2] = ["server.crt", "server.key"];
pub(crate) const ADMINISTRATOR: [&str; 2] = ["admin.crt", "admin.key"];

/// Writes all of them into `folder`; that of the server is for this machine, and for these names and
/// addresses.
pub(crate) fn write(folder: &Path, names: &[String]) -> Result<()> {
    let mut authority = named("test-ca");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().context("make a key")?;
    let signed = authority.self_signed(&key).context("sign the authority")?;
    fs::write(folder.join(AUTHORITY), signed.pem()).context("write the authority")?;
    let issuer = Issuer::new(authority, key);
    let mut server = named("apiserver");
    server.subject_alt_names = vec![SanType::IpAddress(Ipv4Addr::LOCALHOST.into())];
    for name in names {
        server.subject_alt_names.push(match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_no_address) => SanType::DnsName(name.as_str().try_into().context("a name for the server")?),
        });
    }
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    write_signed(folder, SERVER, &server, &issuer)?;
    let mut administrator = named("admin");
    administrator.distinguished_name.push(DnType::OrganizationName, "system:masters");
    administrator.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    write_signed(folder, ADMINISTRATOR, &administrator, &issuer)
}

pub(crate) fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn write_signed(
    folder: &Path,
    [certificate, private]: [&str; 2],
    params: &CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
) -> Result<()> {
    let key = KeyPair::generate().context("make a key")?;
    let signed = params.signed_by(&key, issuer).with_context(|| format!("sign {certificate}"))?;
    fs::write(folder.join(certificate), signed.pem()).with_context(|| format!("write {certificate}"))?;
    fs::write(folder.join(private), key.serialize_pem()).with_context(|| format!("write {private}"))
}
