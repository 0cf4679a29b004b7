//! Packs the published schemas into `OUT_DIR`, where `src/schemas.rs` embeds them.

use std::{env, fs, io::Write, path::PathBuf};

use anyhow::{Context, Result};
use flate2::{Compression, write::GzEncoder};

const SCHEMAS: &str = "../docs/schema";

fn main() -> Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);
    println!("cargo::rerun-if-changed={SCHEMAS}");
    for entry in fs::read_dir(SCHEMAS).with_context(|| format!("listing {SCHEMAS}"))? {
        let schema = entry.with_context(|| format!("listing {SCHEMAS}"))?.path();
        let name = schema.file_name().with_context(|| format!("{} has no name", schema.display()))?;
        let text = fs::read(&schema).with_context(|| format!("reading {}", schema.display()))?;
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(&text).context("packing in memory")?;
        let packed = out.join(name).with_added_extension("gz");
        fs::write(&packed, packer.finish().context("packing in memory")?)
            .with_context(|| format!("writing {}", packed.display()))?;
        println!("cargo::rerun-if-changed={}", schema.display());
    }
    Ok(())
}
