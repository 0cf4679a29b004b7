//! The certificates that the kubelet shows to its clients, out of its own file.
//!
//! Problem: a client that sends a token to the kubelet's port has to know that the kubelet is there. Idea:
//! the file is root's, so what shows its certificate and has its key is the kubelet.
//!
//! Invariants: only certificates leave this module. One of the kubelet's files has its private key too. A
//! file that another user owns or may write is not read. The kubelet replaces its certificate while it runs,
//! so the caller reads it again for each connection, and its age says nothing.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use enforcer_host::{
    HostRoot, ReadError,
    owned_file::{of_one_writer, of_ours},
    present, read_within,
};
use rustix::fs::OFlags;

use super::{ReadConfiguration, process::RunningKubelet};

/// Largest file in bytes.
const CERTIFICATE_LIMIT: u64 = 256 << 10;
/// Directory of certificates, wherever the kubelet's own directory is; a flag names another.
const CERTIFICATE_DIR: &str = "/var/lib/kubelet/pki";
/// Files in it: the one that the cluster has signed, and the one that the kubelet has signed itself. Which of
/// them it serves depends on its configuration.
const FILES: [&str; 2] = ["kubelet-server-current.pem", "kubelet.crt"];

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The certificates that the kubelet may serve, as PEM; empty if there is no file.
///
/// # Errors
/// A file that is there and cannot be used.
pub fn serving_certificates(
    host: &HostRoot,
    kubelet: &RunningKubelet,
    configuration: Option<&ReadConfiguration>,
) -> Result<Vec<u8>, ReadError> {
    if host.captured || kubelet.elsewhere.is_some() {
        return Ok(Vec::new());
    }
    let configured = configuration.and_then(|read| read.configuration.tls_certificate.as_deref());
    let configured = kubelet.flags.value("tls-cert-file").or(configured).filter(|path| !path.is_empty());
    let paths: Vec<PathBuf> = if let Some(path) = configured {
        vec![path.into()]
    } else {
        let dir = kubelet.flags.value("cert-dir").filter(|dir| !dir.is_empty());
        let dir = Path::new(dir.unwrap_or(CERTIFICATE_DIR));
        FILES.iter().map(|name| dir.join(name)).collect()
    };
    let mut certificates = String::new();
    for path in paths {
        let path = kubelet.working_dir.as_deref().unwrap_or(Path::new("/")).join(path);
        let failed = |cause| ReadError { path: path.clone(), cause };
        if let Some(text) = present(read(&path).map_err(failed))? {
            certificates.extend(blocks(&text));
        }
    }
    Ok(certificates.into_bytes())
}

/// Links are followed: the name of the current certificate is one.
fn read(path: &Path) -> io::Result<String> {
    let flags = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    of_ours(&metadata)?;
    of_one_writer(&metadata)?;
    let bytes = read_within(file, CERTIFICATE_LIMIT)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The certificates of a text, each with its marks.
fn blocks(text: &str) -> impl Iterator<Item = String> {
    text.split(BEGIN).skip(1).filter_map(|rest| {
        let (body, _) = rest.split_once(END)?;
        Some(format!("{BEGIN}{body}{END}\n"))
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::{super::command_line::CommandLine, *};

    /// Text of a file with a certificate of that body, and a key.
    fn pem(body: &str) -> String {
        format!(
            "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n{BEGIN}\n{body}\n{END}\ntail"
        )
    }

    struct CertificateDir(tempfile::TempDir);

    impl CertificateDir {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            path
        }

        fn read(&self, flags: &[&str], elsewhere: Option<String>) -> Result<String, ReadError> {
            let words = format!("kubelet\0--cert-dir={}\0{}", self.0.path().display(), flags.join("\0"));
            let kubelet = RunningKubelet {
                pid: 1,
                start_ticks: 1,
                started_at: None,
                earliest_start: None,
                flags: CommandLine::parse(&words),
                working_dir: None,
                elsewhere,
            };
            let read = serving_certificates(&HostRoot::live(), &kubelet, None)?;
            Ok(String::from_utf8(read).unwrap())
        }
    }

    #[test]
    fn certificates_are_read_and_keys_are_not() {
        let dir = CertificateDir::new();
        assert_eq!(dir.read(&[], None).unwrap(), "");
        dir.write("kubelet.crt", &pem("self"));
        let current = dir.write("kubelet-server-2026.pem", &pem("cluster"));
        std::os::unix::fs::symlink(current, dir.0.path().join(FILES[0])).unwrap();
        let expected = format!("{BEGIN}\ncluster\n{END}\n{BEGIN}\nself\n{END}\n");
        assert_eq!(dir.read(&[], None).unwrap(), expected);
        let named = dir.write("named", &pem("named"));
        let flag = format!("--tls-cert-file={}", named.display());
        assert_eq!(dir.read(&[&flag], None).unwrap(), format!("{BEGIN}\nnamed\n{END}\n"));
        assert_eq!(dir.read(&[&flag], Some("of another root".into())).unwrap(), "");
    }

    #[test]
    fn a_file_that_others_may_write_is_refused() {
        let dir = CertificateDir::new();
        let path = dir.write("kubelet.crt", &pem("self"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o606)).unwrap();
        assert!(dir.read(&[], None).unwrap_err().to_string().contains("others may write"));
        dir.write("kubelet.crt", &"x".repeat(300 << 10));
        assert!(dir.read(&[], None).unwrap_err().to_string().contains("longer than"));
        dir.write("kubelet.crt", &format!("{BEGIN}\nno end"));
        assert_eq!(dir.read(&[], None).unwrap(), "");
    }
}
