//! `cargo xtask notes`: the section of CHANGELOG.md about this version, as the text of a release.
//!
//! A release without a section, or under another tag than that of its version, is an error.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{stdout, workspace::Workspace};

/// Characters of a text that GitHub takes for a release are 125,000 at most; some are left for the last line.
const LONGEST: usize = 124_000;

/// Arguments of `notes`.
#[derive(clap::Args)]
pub(crate) struct NotesArguments {
    /// Tag of the release: an error if it is not that of the version
    #[arg(long)]
    tag: Option<String>,
}

/// Prints the section.
pub(crate) fn run(workspace: &Workspace, arguments: &NotesArguments) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    if let Some(tag) = &arguments.tag {
        ensure!(*tag == format!("v{version}"), "the tag is {tag}, and the workspace has version {version}");
    }
    let path = workspace.root().join("CHANGELOG.md");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let section = section(&text, version)
        .with_context(|| format!("{} has no section `## [{version}] - DATE`", path.display()))?;
    stdout::lines(within(section, LONGEST, version).lines().map(str::to_owned))
}

/// What is below the heading of a version, up to the next one.
fn section<'a>(changelog: &'a str, version: &str) -> Option<&'a str> {
    let heading = format!("## [{version}] - ");
    let begin =
        if changelog.starts_with(&heading) { 0 } else { changelog.find(&format!("\n{heading}"))? + 1 };
    let (_, rest) = changelog[begin..].split_once('\n')?;
    Some(rest.split("\n## ").next().unwrap_or_default().trim())
}

/// The entries that have room in so many characters, and where the others are.
fn within(section: &str, longest: usize, version: &str) -> String {
    let Some((cut, _)) = section.char_indices().nth(longest) else { return section.to_owned() };
    let end = section[..cut].rfind("\n- ").unwrap_or_default();
    format!("{}\n\nThe rest is in CHANGELOG.md of the tag v{version}.", &section[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-27\n\n### Fixed\n\n- One.\n- Two.\n\n\
                             ## [1.2.2] - 2026-01-01\n\n- Old.\n";

    #[test]
    fn a_version_has_what_is_below_its_own_heading() {
        assert_eq!(section(CHANGELOG, "1.2.3"), Some("### Fixed\n\n- One.\n- Two."));
        assert_eq!(section(CHANGELOG, "1.2.2"), Some("- Old."));
        for version in ["1.2", "1.2.30", "Unreleased"] {
            assert_eq!(section(CHANGELOG, version), None, "{version}");
        }
    }

    #[test]
    fn a_long_section_ends_with_a_whole_entry() {
        let all = section(CHANGELOG, "1.2.3").unwrap();
        assert_eq!(within(all, all.len(), "1.2.3"), all);
        let cut = "### Fixed\n\n- One.\n\nThe rest is in CHANGELOG.md of the tag v1.2.3.";
        assert_eq!(within(all, all.len() - 1, "1.2.3"), cut);
    }

    #[test]
    fn this_version_has_notes_under_its_own_tag_alone() {
        let workspace = Workspace::find().unwrap();
        let tag = |tag: &str| NotesArguments { tag: Some(tag.to_owned()) };
        let version = env!("CARGO_PKG_VERSION");
        let error = run(&workspace, &tag("v0.0.0")).unwrap_err().to_string();
        assert_eq!(error, format!("the tag is v0.0.0, and the workspace has version {version}"));
        assert!(run(&workspace, &tag(version)).is_err(), "a tag begins with v");
        let text = fs::read_to_string(workspace.root().join("CHANGELOG.md")).unwrap();
        assert!(!section(&text, version).unwrap().is_empty());
    }
}
