//! The container image: an OCI image layout in one tar file, for each architecture the binary alone.
//!
//! `ctr image import`, `podman load`, `skopeo copy oci-archive:FILE` and registries read it. Formats: the OCI
//! image specification 1.1, image-layout.md, image-index.md, manifest.md and config.md.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{ReleaseBinary, ReleaseDraft, archive, bounds, checksums, commit::ReleaseCommit};
use crate::{architecture::Architecture, progress::ProgressStep};

/// Where the image is published, and what containerd calls it after an import.
const REPOSITORY: &str = "ghcr.io/numa-enforcer/numa-enforcer";

/// Where the program is.
const PROGRAM: &str = "usr/bin/numa-enforcer";

/// User and group of a container that asks for no other: enough to look (`audit`, `plan`), and that of the
/// chart's `nonRoot`. Modes that need root say so (`runAsUser: 0` in the chart).
const USER: &str = "65532:65532";

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Writes the image of the binaries; returns the file.
pub(super) fn write(draft: &ReleaseDraft<'_>) -> Result<PathBuf> {
    let ReleaseDraft { workspace, commit, place, binaries, .. } = draft;
    let step = ProgressStep::begin("make the image");
    let scratch = workspace.scratch()?;
    let layout = ImageLayout { folder: scratch.path().join("layout") };
    fs::create_dir_all(layout.blobs()).context("create the layout of the image")?;
    let created = commit.time()?;
    let mut manifests = Vec::new();
    for ReleaseBinary { architecture, path } in binaries {
        let layer = layer(&scratch.path().join(architecture.debian()), path, draft)?;
        manifests.push(layout.image(&layer, *architecture, commit, &created)?);
    }
    let index = json!({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests,
        "annotations": labels(commit, &created),
    });
    let mut named = layout.blob(INDEX, &serde_json::to_vec(&index)?)?;
    named["annotations"] = json!({
        "org.opencontainers.image.ref.name": commit.version,
        "io.containerd.image.name": format!("{REPOSITORY}:{}", commit.version),
    });
    let top = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [named] });
    layout.file("index.json", &serde_json::to_vec(&top)?)?;
    layout.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let file = place.join(format!("numa-enforcer-{}-oci.tar", commit.version));
    archive::tar(&layout.folder, &["blobs", "index.json", "oci-layout"], commit, &file)?;
    step.done();
    Ok(file)
}

/// A layer, packed and as it is unpacked.
struct ImageLayer {
    packed: Vec<u8>,
    unpacked_sha256: String,
}

/// The file system of the image: the program in its folder.
fn layer(folder: &Path, binary: &Path, draft: &ReleaseDraft<'_>) -> Result<ImageLayer> {
    let root = folder.join("root");
    let program = root.join(PROGRAM);
    fs::create_dir_all(program.parent().context("the program has a folder")?)
        .with_context(|| format!("create {}", root.display()))?;
    fs::copy(binary, &program).with_context(|| format!("copy {}", binary.display()))?;
    let unpacked = folder.join("layer.tar");
    archive::tar(&root, &["usr"], &draft.commit, &unpacked)?;
    let unpacked_sha256 = checksums::of(&unpacked)?;
    let packed =
        if draft.is_published { archive::gzip(&unpacked)? } else { archive::gzip_quickly(&unpacked)? };
    draft.check(&packed, bounds::PACKED)?;
    let packed = fs::read(&packed).with_context(|| format!("read {}", packed.display()))?;
    Ok(ImageLayer { packed, unpacked_sha256 })
}

/// A folder with the layout of an image.
struct ImageLayout {
    folder: PathBuf,
}

impl ImageLayout {
    fn blobs(&self) -> PathBuf {
        self.folder.join("blobs/sha256")
    }

    fn file(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// Keeps bytes under their checksum; returns their descriptor.
    fn blob(&self, media_type: &str, bytes: &[u8]) -> Result<Value> {
        let unnamed = self.file("blobs/unnamed", bytes)?;
        let sha256 = checksums::of(&unnamed)?;
        fs::rename(&unnamed, self.blobs().join(&sha256)).context("name a blob of the image")?;
        Ok(json!({ "mediaType": media_type, "digest": format!("sha256:{sha256}"), "size": bytes.len() }))
    }

    /// Keeps the image of one architecture; returns the descriptor of its manifest, with its platform.
    fn image(
        &self,
        layer: &ImageLayer,
        architecture: Architecture,
        commit: &ReleaseCommit,
        created: &str,
    ) -> Result<Value> {
        let config = json!({
            "created": created, "architecture": architecture.debian(), "os": "linux",
            "config": {
                "User": USER, "Entrypoint": [format!("/{PROGRAM}")], "Cmd": ["run"],
                "Labels": labels(commit, created),
            },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", layer.unpacked_sha256)] },
            "history": [{ "created": created, "created_by": "cargo xtask dist" }],
        });
        let config = self.blob(CONFIG, &serde_json::to_vec(&config)?)?;
        let layer = self.blob(LAYER, &layer.packed)?;
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
            "annotations": labels(commit, created),
        });
        let mut described = self.blob(MANIFEST, &serde_json::to_vec(&manifest)?)?;
        described["platform"] = json!({ "architecture": architecture.debian(), "os": "linux" });
        Ok(described)
    }
}

/// What describes the image (annotations.md of the OCI specification).
fn labels(commit: &ReleaseCommit, created: &str) -> Value {
    json!({
        "org.opencontainers.image.title": "numa-enforcer",
        "org.opencontainers.image.description":
            "Keeps workloads' CPUs, memory and devices on the same NUMA nodes",
        "org.opencontainers.image.version": commit.version,
        "org.opencontainers.image.revision": commit.revision(),
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
        "org.opencontainers.image.source": "https://github.com/numa-enforcer/numa-enforcer",
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::{command, dist::commit::tests::commit, workspace::Workspace};

    /// The image of a program for both architectures, unpacked.
    fn unpacked(place: &Path) -> (Vec<u8>, PathBuf) {
        let path = place.join("program");
        fs::write(&path, "#!/bin/true\n").unwrap();
        command::quietly(Command::new("chmod").arg("755").arg(&path)).unwrap();
        let binaries = [Architecture::Amd64, Architecture::Arm64]
            .map(|architecture| ReleaseBinary { architecture, path: path.clone() });
        let workspace = &Workspace::find().unwrap();
        let (place, target) = (place.to_owned(), place.join("target"));
        let draft = ReleaseDraft {
            workspace,
            commit: commit(),
            place: place.clone(),
            binaries: binaries.into(),
            target,
            is_published: true,
        };
        write(&draft).unwrap();
        let file = place.join("numa-enforcer-1.2.3-oci.tar");
        let layout = place.join("layout");
        fs::create_dir(&layout).unwrap();
        command::quietly(Command::new("tar").arg("-xf").arg(&file).arg("-C").arg(&layout)).unwrap();
        (fs::read(file).unwrap(), layout)
    }

    fn read(layout: &Path, descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let path = layout.join("blobs/sha256").join(digest);
        assert_eq!(checksums::of(&path).unwrap(), digest);
        let bytes = fs::read(path).unwrap();
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    fn json(layout: &Path, descriptor: &Value) -> Value {
        serde_json::from_slice(&read(layout, descriptor)).unwrap()
    }

    #[test]
    fn every_blob_is_where_its_digest_says_and_each_platform_has_the_program() {
        let place = tempfile::tempdir().unwrap();
        let (_, layout) = unpacked(place.path());
        let top: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
        let index = json(&layout, &top["manifests"][0]);
        let platforms = index["manifests"].as_array().unwrap();
        let of = |key: &str| -> Vec<_> { platforms.iter().map(|one| one["platform"][key].clone()).collect() };
        assert_eq!(of("architecture"), ["amd64", "arm64"]);
        assert_eq!(of("os"), ["linux", "linux"]);
        for platform in platforms {
            let manifest = json(&layout, platform);
            let config = json(&layout, &manifest["config"]);
            assert_eq!(config["architecture"], platform["platform"]["architecture"]);
            assert_eq!(config["config"]["User"], USER);
            assert_eq!(config["config"]["Labels"]["org.opencontainers.image.revision"], commit().hash);
            let packed = place.path().join("layer.tar.gz");
            fs::write(&packed, read(&layout, &manifest["layers"][0])).unwrap();
            command::quietly(Command::new("gzip").args(["-d", "-f", "-k"]).arg(&packed)).unwrap();
            let unpacked = place.path().join("layer.tar");
            let diff_id = format!("sha256:{}", checksums::of(&unpacked).unwrap());
            assert_eq!(config["rootfs"]["diff_ids"], json!([diff_id]));
            let listed = command::quietly(Command::new("tar").args(["-tvf"]).arg(&unpacked)).unwrap();
            let program = listed.lines().last().unwrap();
            assert!(program.starts_with("-rwxr-xr-x 0/0"), "{listed}");
            assert!(program.ends_with(&format!(" {PROGRAM}")), "{listed}");
        }
    }

    #[test]
    fn another_folder_and_time_give_the_same_bytes() {
        let [one, other] = std::array::from_fn(|_| {
            let place = tempfile::tempdir().unwrap();
            unpacked(place.path()).0
        });
        assert_eq!(one, other);
    }
}
