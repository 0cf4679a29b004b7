//! What Helm has rendered, object by object.
//!
//! The texts are those of the chart's own templates, so their layout is known: a top-level `kind:`, a name
//! below `metadata:`, block scalars below `data:`. Anything else is an error.

use anyhow::{Context, Result, ensure};

/// Separates objects.
const SEPARATOR: &str = "---\n";

/// What Helm says of where an object comes from.
const SOURCE: &str = "# Source: ";

/// Labels of what Helm installs, which others do not.
const OF_HELM: [&str; 2] = ["app.kubernetes.io/managed-by:", "helm.sh/chart:"];

/// One object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RenderedObject {
    pub(crate) kind: String,
    pub(crate) name: String,
    /// Ends with a line end; without the line about its source.
    pub(crate) text: String,
}

impl RenderedObject {
    /// The objects of a rendering, in their order.
    pub(crate) fn all(rendering: &str) -> Result<Vec<Self>> {
        let texts = format!("\n{rendering}");
        texts.split(&format!("\n{SEPARATOR}")).filter(|text| !text.trim().is_empty()).map(Self::of).collect()
    }

    fn of(text: &str) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.starts_with(SOURCE));
        let text = format!("{}\n", text_of(lines.map(str::trim_end)).trim());
        let field = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix));
        let kind = field("kind: ").with_context(|| format!("an object without a kind:\n{text}"))?.to_owned();
        let (_, metadata) =
            text.split_once("\nmetadata:\n").with_context(|| format!("{kind}: no metadata"))?;
        let name = metadata.lines().find_map(|line| line.strip_prefix("  name: "));
        let name = name.with_context(|| format!("{kind} without a name"))?.to_owned();
        Ok(Self { kind, name, text })
    }

    /// The text as others than Helm install it.
    pub(crate) fn without_helm(&self) -> String {
        let is_of_helm = |line: &&str| OF_HELM.iter().any(|label| line.trim_start().starts_with(label));
        text_of(self.text.lines().filter(|line| !is_of_helm(line)))
    }

    /// `DaemonSet` as `daemon-set`.
    pub(crate) fn file_stem(&self) -> String {
        let mut stem = String::new();
        for c in self.kind.chars() {
            if c.is_ascii_uppercase() && !stem.is_empty() {
                stem.push('-');
            }
            stem.push(c.to_ascii_lowercase());
        }
        stem
    }

    /// The files of a `ConfigMap`: names and texts.
    pub(crate) fn files(&self) -> Result<Vec<(String, String)>> {
        let (_, entries) =
            self.text.split_once("\ndata:\n").with_context(|| format!("{}: no data", self.name))?;
        let mut files: Vec<(String, String)> = Vec::new();
        for line in entries.lines() {
            if let Some(name) = line.strip_prefix("  ").and_then(|line| line.strip_suffix(": |"))
                && !name.starts_with(' ')
            {
                files.push((name.to_owned(), String::new()));
                continue;
            }
            let (_, file) = files.last_mut().with_context(|| format!("{}: {line}", self.name))?;
            let text = line.strip_prefix("    ");
            ensure!(text.is_some() || line.is_empty(), "{}: no block scalar: {line}", self.name);
            file.push_str(text.unwrap_or_default());
            file.push('\n');
        }
        ensure!(!files.is_empty(), "{}: no files", self.name);
        Ok(files)
    }
}

/// The lines as a text.
pub(super) fn text_of<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "---\n# Source: c/templates/m.yaml\n# Why.\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  \
                        name: one\n  labels:\n    app.kubernetes.io/managed-by: Helm\n    \
                        helm.sh/chart: c-1\n    x: y\ndata:\n  a.toml: |\n    [a]\n\n      b = 1\n  \
                        c.json: |\n    {}\n---\n# Source: c/templates/d.yaml\nkind: DaemonSet\nmetadata:\n  \
                        name: two\n";

    #[test]
    fn objects_are_separated_and_named() {
        let objects = RenderedObject::all(TEXT).unwrap();
        let names: Vec<_> = objects.iter().map(|one| (one.file_stem(), one.name.as_str())).collect();
        assert_eq!(names, [("config-map".to_owned(), "one"), ("daemon-set".to_owned(), "two")]);
        assert!(objects[0].text.starts_with("# Why.\napiVersion: v1\n"));
        assert_eq!(objects[1].text, "kind: DaemonSet\nmetadata:\n  name: two\n");
        let text = objects[0].without_helm();
        assert!(text.contains("  labels:\n    x: y\n") && text.contains("name: one\n"), "{text}");
        assert!(RenderedObject::all("---\nmetadata:\n  name: x\n").is_err());
        assert!(RenderedObject::all("---\nkind: A\nmetadata:\n  labels: {}\n").is_err());
    }

    #[test]
    fn files_of_a_map_are_as_they_were() {
        let objects = RenderedObject::all(TEXT).unwrap();
        let expected = [("a.toml", "[a]\n\n  b = 1\n"), ("c.json", "{}\n")];
        assert_eq!(
            objects[0].files().unwrap(),
            expected.map(|(name, text)| (name.to_owned(), text.to_owned()))
        );
        assert!(objects[1].files().is_err());
    }
}
