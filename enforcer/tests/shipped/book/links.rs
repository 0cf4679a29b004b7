//! Pages are in the summary, and links lead to files and headings that are there.

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
};

use super::{pages, root, split};

/// Targets of the links of a page: what is in the parentheses behind brackets, outside of code.
fn targets(page: &str) -> Vec<String> {
    let prose = split(page).0.join("\n");
    // What is between backticks is no link.
    let spoken: String = prose.split('`').step_by(2).collect::<Vec<_>>().join("code");
    let links = spoken.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    links.map(|(target, _)| target.to_owned()).collect()
}

/// As GitHub and mdBook name a heading: lower case, blanks as hyphens, nothing but letters, digits, `-` and
/// `_`.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = split(page).0.into_iter().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

/// `a/b/../c` is `a/c`.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let pages = pages();
    let mut broken = Vec::new();
    for (path, page) in &pages {
        for target in targets(page) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let to = match file {
                "" => path.clone(),
                file => plain(&path.parent().unwrap().join(file)),
            };
            let has_heading = |page: &String| anchors(page).contains(anchor);
            let good =
                root().join(&to).exists() && (anchor.is_empty() || pages.get(&to).is_none_or(has_heading));
            if !good {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_is_in_the_summary_once() {
    let pages = pages();
    let summary = Path::new("docs/SUMMARY.md");
    let listed: Vec<PathBuf> =
        targets(&pages[summary]).into_iter().map(|target| Path::new("docs").join(target)).collect();
    let there: BTreeSet<&PathBuf> =
        pages.keys().filter(|path| path.starts_with("docs") && *path != summary).collect();
    assert_eq!(listed.iter().collect::<BTreeSet<_>>(), there);
    assert_eq!(listed.len(), there.len(), "a page is listed twice");
}

#[test]
fn links_and_headings_are_found_as_they_are_written() {
    let page = "# A `b` c, d\n[x](a.md#b) `[no](c.md)` [y](../d.md)\n```\n# no\n[z](e.md)\n```\n";
    assert_eq!(targets(page), ["a.md#b", "../d.md"]);
    assert_eq!(anchors(page), ["a-b-c-d".to_owned()].into());
    assert_eq!(plain(Path::new("docs/adr/../../deploy")), Path::new("deploy"));
}
