//! The schema of `CycloneDX` 1.6 and a program that holds documents against it, both from PyPI.

use std::{env::consts::ARCH, path::PathBuf};

use anyhow::{Result, ensure};

use super::wheel::Wheel;
use crate::workspace::Workspace;

const VALIDATOR: Wheel = Wheel {
    project: "sourcemeta-jsonschema",
    version: "17.3.0",
    sha256: "cd4075c8a3df438f9937e8a6127c4b41c821a1606954171959b9826cc9677523",
    program: "sourcemeta_jsonschema/jsonschema-linux-x86_64",
};

/// A file of the library that ships the schemas.
const fn schema(path: &'static str) -> Wheel {
    Wheel {
        project: "cyclonedx-python-lib",
        version: "11.12.0",
        sha256: "0e807521a921a5c3cb8ce1153f8a61d29eedfe76a46aac2796b7c6b573391a54",
        program: path,
    }
}

/// The schema of a bill, then those that it refers to.
const SCHEMAS: [Wheel; 3] = [
    schema("cyclonedx/schema/_res/bom-1.6.SNAPSHOT.schema.json"),
    schema("cyclonedx/schema/_res/spdx.SNAPSHOT.schema.json"),
    schema("cyclonedx/schema/_res/jsf-0.82.SNAPSHOT.schema.json"),
];

/// Files of the workspace's tools.
pub(crate) struct CycloneDx {
    /// `validate SCHEMA DOCUMENT --resolve SCHEMA`.
    pub(crate) validator: PathBuf,
    /// The schema of a bill, then those that it refers to. Their references have `.SNAPSHOT` in their names,
    /// which their ids lack.
    pub(crate) schemas: Vec<PathBuf>,
}

/// Downloads both.
pub(crate) fn fetch(workspace: &Workspace) -> Result<CycloneDx> {
    ensure!(ARCH == "x86_64", "the validator is unpacked for x86-64; this machine is {ARCH}");
    let schemas = SCHEMAS.iter().map(|schema| schema.fetch(&workspace.tools())).collect::<Result<_>>()?;
    Ok(CycloneDx { validator: VALIDATOR.fetch(&workspace.tools())?, schemas })
}
