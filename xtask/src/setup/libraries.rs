//! Libraries in C that the linker takes into a static binary, and the packages that they come from.

use anyhow::Result;

use super::{cross, packages};
use crate::{architecture::Architecture, workspace::Workspace};

/// A library of a static binary.
#[derive(Debug, Clone)]
pub(crate) struct LinkedLibrary {
    pub(crate) name: &'static str,
    /// Its licence as an SPDX expression.
    pub(crate) licence: &'static str,
    /// Debian's package of it.
    pub(crate) package: String,
    /// Version of the package; `None` on another distribution.
    pub(crate) version: Option<String>,
    /// Debian's name of the package's architecture.
    pub(crate) architecture: &'static str,
}

/// Name, licence, and Debian's package.
const LIBRARIES: [(&str, &str, &str); 3] = [
    ("glibc", "LGPL-2.1-or-later", "libc6-dev"),
    ("libelf", "GPL-2.0-or-later OR LGPL-3.0-or-later", "libelf-dev"),
    ("zlib", "Zlib", "zlib1g-dev"),
];

/// The libraries of the product's binary for an architecture.
pub(crate) fn linked_libraries(
    workspace: &Workspace,
    architecture: Architecture,
) -> Result<Vec<LinkedLibrary>> {
    let cross = (!architecture.is_native()).then(|| cross::compiler(workspace, architecture)).transpose()?;
    let mut found = Vec::new();
    for (name, licence, package) in LIBRARIES {
        let of_cross = cross.as_ref().map(|cross| cross.package(package)).transpose()?.flatten();
        let (package, version, architecture) = match (of_cross, &cross) {
            (Some(version), _) => (package.to_owned(), Some(version), architecture.debian()),
            // The compiler's own, which is a package of every architecture.
            (None, Some(_)) => {
                let package = format!("{package}-{}-cross", architecture.debian());
                let version = packages::version(&package)?;
                (package, version, "all")
            }
            (None, None) => (package.to_owned(), packages::version(package)?, architecture.debian()),
        };
        found.push(LinkedLibrary { name, licence, package, version, architecture });
    }
    Ok(found)
}
