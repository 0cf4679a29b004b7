//! The published JSON Schemas are those of the types.

use std::{env, fs, path::Path, process::Command};

#[test]
fn published_schemas_are_those_of_the_types() {
    for of in ["audit", "config", "doctor", "topology"] {
        let output = Command::new(env!("CARGO_BIN_EXE_numa-enforcer")).args(["schema", of]).output().unwrap();
        assert!(output.status.success(), "{of}: {}", String::from_utf8_lossy(&output.stderr));
        let generated = String::from_utf8(output.stdout).unwrap();
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schema").join(format!("{of}.schema.json"));
        if env::var_os("UPDATE_SCHEMAS").is_some() {
            fs::write(&path, &generated).unwrap();
        }
        let published = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            published == generated,
            "docs/schema/{of}.schema.json is not the schema of the types; regenerate it with\n    \
             UPDATE_SCHEMAS=1 cargo test -p enforcer --test schema"
        );
    }
}
