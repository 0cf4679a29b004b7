//! Two container images made of busybox alone, so that no registry is asked: `localhost/busybox:1`, a
//! shell, and `localhost/pause:1`, which holds the place of a pod.
//!
//! An archive in the OCI image layout (image-spec, image-layout.md): blobs that are named by their SHA-256,
//! and an index that names the manifests. Both images have the same layer.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::command;

/// Programs that an image has besides the shell.
const APPLETS: &[&str] = &["cat", "dd", "echo", "false", "grep", "kill", "ls", "sh", "sleep", "true", "yes"];

/// Names of the images and what they run.
const IMAGES: &[(&str, &[&str])] = &[
    ("localhost/busybox:1", &["/bin/sh"]),
    // It has no handler for signals, so the first process of a pod must be killed; the kubelet's does it
    // better.
    ("localhost/pause:1", &["/bin/sleep", "2147483647"]),
];

const MEDIA_TYPE: &str = "application/vnd.oci.image";

/// Everything that an archive depends on besides busybox.
pub(super) fn recipe() -> String {
    format!("{APPLETS:?} {IMAGES:?}")
}

/// Writes the archive with both images.
pub(super) fn build(busybox: &Path, place: &Path) -> Result<()> {
    let scratch = tempfile::tempdir().context("create a scratch folder")?;
    let (files, layout) = (scratch.path().join("files"), scratch.path().join("layout"));
    fs::create_dir_all(layout.join("blobs/sha256"))?;
    lay_out(busybox, &files)?;
    let layer = scratch.path().join("layer");
    pack(&files, &layer)?;
    let layer = Blob::put(&layout, &fs::read(&layer).context("read the layer")?)?;
    let mut manifests = Vec::new();
    for (name, entry_point) in IMAGES {
        manifests.push(manifest(&layout, name, entry_point, &layer)?);
    }
    let index = json!({
        "schemaVersion": 2, "mediaType": format!("{MEDIA_TYPE}.index.v1+json"), "manifests": manifests,
    });
    for (file, value) in [("index.json", index), ("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }))] {
        fs::write(layout.join(file), value.to_string()).with_context(|| format!("write {file}"))?;
    }
    pack(&layout, place)
}

/// The files that containers see.
fn lay_out(busybox: &Path, files: &Path) -> Result<()> {
    for folder in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        fs::create_dir_all(files.join(folder)).with_context(|| format!("create {folder}"))?;
    }
    let program = files.join("bin/busybox");
    fs::copy(busybox, &program).with_context(|| format!("copy {}", busybox.display()))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    for applet in APPLETS {
        symlink("busybox", files.join("bin").join(applet)).with_context(|| format!("link {applet}"))?;
    }
    fs::write(files.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n").context("write etc/passwd")
}

/// A folder as an archive that is the same whenever it is made.
fn pack(folder: &Path, place: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "-C"]);
    command::quietly(tar.arg(folder).arg("-cf").arg(place).arg(".")).map(drop)
}

fn manifest(layout: &Path, name: &str, entry_point: &[&str], layer: &Blob) -> Result<Value> {
    let config = Blob::put_json(
        layout,
        &json!({
            "architecture": "amd64", "os": "linux",
            "config": { "Env": ["PATH=/bin"], "Entrypoint": entry_point },
            // Of the layer as it is unpacked, and it is not compressed.
            "rootfs": { "type": "layers", "diff_ids": [layer.digest] },
        }),
    )?;
    let manifest_type = format!("{MEDIA_TYPE}.manifest.v1+json");
    let manifest = Blob::put_json(
        layout,
        &json!({
            "schemaVersion": 2, "mediaType": manifest_type,
            "config": config.described(&format!("{MEDIA_TYPE}.config.v1+json")),
            "layers": [layer.described(&format!("{MEDIA_TYPE}.layer.v1.tar"))],
        }),
    )?;
    let mut entry = manifest.described(&manifest_type);
    entry["platform"] = json!({ "architecture": "amd64", "os": "linux" });
    // containerd takes the whole name from here, whatever the tag alone would say.
    entry["annotations"] = json!({ "io.containerd.image.name": name });
    Ok(entry)
}

/// Something that is stored by its digest.
struct Blob {
    digest: String,
    size: usize,
}

impl Blob {
    fn put(layout: &Path, bytes: &[u8]) -> Result<Self> {
        let blobs = layout.join("blobs/sha256");
        let unnamed = blobs.join("unnamed");
        fs::write(&unnamed, bytes).context("write a blob")?;
        let line = command::quietly(Command::new("sha256sum").arg(&unnamed))?;
        let sum = line.split_whitespace().next().context("sha256sum says nothing")?;
        fs::rename(&unnamed, blobs.join(sum)).context("name a blob")?;
        Ok(Self { digest: format!("sha256:{sum}"), size: bytes.len() })
    }

    fn put_json(layout: &Path, value: &Value) -> Result<Self> {
        Self::put(layout, value.to_string().as_bytes())
    }

    /// A descriptor (image-spec, descriptor.md).
    fn described(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_index_names_is_there_and_the_archive_is_always_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("busybox"), "#!/bin/sh\n").unwrap();
        build(&at("busybox"), &at("one.tar")).unwrap();
        build(&at("busybox"), &at("two.tar")).unwrap();
        assert_eq!(fs::read(at("one.tar")).unwrap(), fs::read(at("two.tar")).unwrap());

        fs::create_dir(at("unpacked")).unwrap();
        command::quietly(Command::new("tar").arg("-C").arg(at("unpacked")).arg("-xf").arg(at("one.tar")))
            .unwrap();
        let json = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().replace(':', "/");
            let path = at("unpacked").join("blobs").join(digest);
            assert_eq!(fs::metadata(&path).unwrap().len(), descriptor["size"].as_u64().unwrap());
            path
        };
        let index = json(&at("unpacked/index.json"));
        let entries = index["manifests"].as_array().unwrap();
        let names: Vec<_> = entries.iter().map(|e| &e["annotations"]["io.containerd.image.name"]).collect();
        assert_eq!(names, ["localhost/busybox:1", "localhost/pause:1"]);
        for entry in entries {
            let manifest = json(&blob(entry));
            let config = json(&blob(&manifest["config"]));
            blob(&manifest["layers"][0]);
            assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        }
    }
}
