//! The bill of materials is valid: what `dist` writes, against the schema of `CycloneDX` 1.6.
//!
//! The bill is that of a binary that is never built: `cargo tree` and lock files say the rest, in seconds.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{command, dist, setup, workspace::Workspace};

/// Writes a bill and holds it against the schema, and shows that another one is refused.
pub(super) fn run(workspace: &Workspace) -> Result<()> {
    let schema = Schema::unpack(workspace)?;
    let bill = dist::bill_of_materials(workspace, schema.folder.path())?;
    schema.check(&bill)?;
    let text = fs::read_to_string(&bill).with_context(|| format!("read {}", bill.display()))?;
    let digits = text.split("\"content\": \"").nth(1).and_then(|rest| rest.get(..64)).context("no hash")?;
    fs::write(&bill, text.replace(digits, "0")).with_context(|| format!("write {}", bill.display()))?;
    ensure!(schema.check(&bill).is_err(), "a hash of one digit is accepted");
    Ok(())
}

/// Schemas with ids that their references name, and the program that reads them.
struct Schema {
    validator: PathBuf,
    folder: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Schema {
    fn unpack(workspace: &Workspace) -> Result<Self> {
        let setup::CycloneDx { validator, schemas } = setup::cyclonedx(workspace)?;
        let folder = workspace.scratch()?;
        let mut paths = Vec::new();
        for (number, schema) in schemas.iter().enumerate() {
            let text = fs::read_to_string(schema).with_context(|| format!("read {}", schema.display()))?;
            let path = folder.path().join(format!("{number}.schema.json"));
            fs::write(&path, text.replace(".SNAPSHOT", ""))
                .with_context(|| format!("write {}", path.display()))?;
            paths.push(path);
        }
        Ok(Self { validator, folder, paths })
    }

    fn check(&self, bill: &Path) -> Result<()> {
        let (schema, others) = self.paths.split_first().context("no schema")?;
        let mut validate = Command::new(&self.validator);
        validate.arg("validate").arg(schema).arg(bill);
        for other in others {
            validate.arg("--resolve").arg(other);
        }
        command::quietly(&mut validate).map(drop)
    }
}
