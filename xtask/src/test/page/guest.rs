//! The page of an audit in a guest: traffic that a kernel has counted, and none that was made up.
//!
//! The audit is that of the scenario `audit-misaligned`, kept in tests/fixtures/audits; the page is drawn of
//! it by the code of today. One of its programs runs on node 1 with its memory on node 0, and that must be
//! what one sees.

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::{Browser, quiet};
use crate::{product, workspace::Workspace};

/// The audit.
const AUDIT: &str = "tests/fixtures/audits/audit-misaligned.json";

/// Shade, text and colour of each cell, row by row.
const CELLS: &str = "return [...document.querySelectorAll('#traffic table.heat tbody tr')].map((row) =>
    [...row.querySelectorAll('td')].map((cell) =>
        [cell.className, cell.textContent, getComputedStyle(cell).backgroundColor]));";

/// The heat map has its hot cell where the memory is remote.
pub(super) fn shows_its_traffic(workspace: &Workspace, browser: &Browser, scratch: &Path) -> Result<()> {
    let page = scratch.join("guest.html");
    draw(workspace, &page)?;
    browser.console()?;
    browser.open(&format!("file://{}", page.display()))?;
    let cells: Vec<Vec<(String, String, String)>> =
        serde_json::from_value(browser.script(CELLS)?).context("the cells of the heat map")?;
    let rows: Vec<&[_]> = cells.iter().map(Vec::as_slice).collect();
    let [[_, unused], [remote, _]] = rows[..] else {
        anyhow::bail!("not a map of two nodes: {cells:?}");
    };
    let cpus = |cell: &(String, String, String)| {
        // As the page tells a little.
        cell.1.trim_start_matches('<').parse::<f64>().with_context(|| format!("CPUs in a cell: {cells:?}"))
    };
    let busy = cpus(remote)?;
    ensure!(busy > 10.0 * cpus(unused)?, "the other direction is as busy: {cells:?}");
    ensure!(matches!(&*remote.0, "h4" | "h5"), "it is not hot off the diagonal: {cells:?}");
    ensure!(remote.2 != unused.2, "what is hot has the colour of what is not: {cells:?}");
    println!("page: in the guest {busy} CPUs of node 1 were busy with memory of node 0");
    quiet(browser)
}

fn draw(workspace: &Workspace, page: &Path) -> Result<()> {
    let audit = workspace.root().join(AUDIT);
    let audit = File::open(&audit).with_context(|| format!("open {}", audit.display()))?;
    let mut example = Command::new(product::build_page_example(workspace)?);
    let drawn = example.stdin(audit).output().context("run the example that draws the page")?;
    ensure!(drawn.status.success(), "no page: {}", String::from_utf8_lossy(&drawn.stderr));
    fs::write(page, drawn.stdout).with_context(|| format!("write {}", page.display()))
}
