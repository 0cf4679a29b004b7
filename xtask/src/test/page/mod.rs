//! The page of an audit as a person meets it: in headless Chromium.
//!
//! The product writes the page of a machine with 64 nodes and 2,000 containers (`large_machine`), and a
//! daemon on this host serves its own; both are loaded, sorted, filtered, made dark and narrow, and printed.
//! What is wrong is what people would see: an error in the console, an order that does not change, text that
//! is too pale, a page wider than its window; or hear, where what is out of sight is not told to a screen
//! reader. Traffic is looked at on a page of a guest (`guest`). Each check counts one. Pictures for people
//! are left in `target/page`. Times are told and not judged: the machine may be busy. Without a browser it
//! fails.

mod browser;
mod guest;
mod large_machine;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use self::browser::Browser;
use super::{daemon::Daemon, tally::TestTally};
use crate::{
    product::{self, BuildProfile},
    progress::ProgressStep,
    setup,
    workspace::Workspace,
};

/// Bytes of the page.
const LARGEST: usize = 3_000_000;
/// Least contrast of text with what is behind it (WCAG 2.2, 1.4.3).
const CONTRAST: f64 = 4.5;
/// Looks at a page that is being laid out, ten in a second.
const PATIENCE: usize = 600;
/// More rows than a page of paper has.
const ROWS_OF_PAPER: usize = 80;
/// Enter and space, as `WebDriver` names keys.
const ENTER: &str = "\u{e007}";
const SPACE: &str = " ";

/// Workloads: containers, and units with hostile names.
const ROWS: usize = large_machine::CONTAINERS as usize + large_machine::HOSTILE.len();

/// Rows that are to be seen, by name and the number that they are sorted by.
const SHOWN: &str = "return [...document.querySelectorAll('#workloads tr[data-verdict]')]
    .filter((row) => row.offsetParent).map((row) => [row.cells[0].textContent, row.cells[7].dataset.n ?? null]);";

/// Checks all of it, and counts each.
pub(super) fn run(workspace: &Workspace, tally: &mut TestTally) -> Result<()> {
    setup::browser()?;
    let program = product::build(workspace, BuildProfile::Dev)?;
    let step = ProgressStep::begin("page");
    let scratch = workspace.scratch()?;
    let pictures = workspace.target().join("page");
    fs::create_dir_all(&pictures).with_context(|| format!("create {}", pictures.display()))?;
    let file = audited(&program, scratch.path())?;
    let browser = Browser::start(scratch.path())?;
    browser.resize(1400, 1000)?;
    browser.open(&format!("file://{}", file.display()))?;
    let page = BrowserPage { browser, pictures };
    let checks: [(&str, PageCheck); 11] = [
        ("loads", BrowserPage::loads),
        ("keeps hostile names as text", BrowserPage::keeps_names_as_text),
        ("sorts by click", BrowserPage::sorts_by_click),
        ("sorts by keyboard", BrowserPage::sorts_by_keyboard),
        ("is told to screen readers as a whole", BrowserPage::is_told),
        ("filters", BrowserPage::filters),
        ("leads from a finding to its row", BrowserPage::leads_to_rows),
        ("is as dark and as clear as asked", BrowserPage::is_clear),
        ("fits a narrow window", BrowserPage::fits),
        ("prints", BrowserPage::prints),
        ("has said nothing", BrowserPage::has_said_nothing),
    ];
    for (name, check) in checks {
        tally.outcome(&format!("page {name}"), check(&page));
    }
    tally.outcome("page of a daemon", of_a_daemon(&page.browser, &program, scratch.path()));
    let of_a_guest = guest::shows_its_traffic(workspace, &page.browser, scratch.path());
    tally.outcome("page of a guest shows its traffic", of_a_guest);
    println!("page: pictures are in {}", page.pictures.display());
    step.done();
    Ok(())
}

type PageCheck = fn(&BrowserPage) -> Result<()>;

/// The page that the product writes about the large machine.
fn audited(program: &Path, scratch: &Path) -> Result<PathBuf> {
    let machine = scratch.join("machine");
    large_machine::write(&machine)?;
    let file = scratch.join("audit.html");
    let mut audit = Command::new(program);
    audit.args(["audit", "-o", "html", "--root"]).arg(&machine).arg("--write").arg(&file);
    let output = audit.stdin(Stdio::null()).output().context("run an audit")?;
    let page = fs::read(&file).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    ensure!(page.len() < LARGEST, "the page has {} bytes", page.len());
    println!("page: {} bytes", page.len());
    Ok(file)
}

/// What a daemon serves is the same page, and its header forbids nothing that it needs.
fn of_a_daemon(browser: &Browser, program: &Path, scratch: &Path) -> Result<()> {
    let daemon = Daemon::start(program, scratch)?;
    daemon.get("/report.html")?;
    browser.console()?;
    browser.open(&format!("http://{}/report.html", daemon.address()))?;
    let seen = browser.script(
        "return [document.title.startsWith('NUMA audit of'), document.querySelectorAll('main h2').length,
            !document.getElementById('workloads') || document.querySelector('#workloads thead button') !== null];",
    )?;
    ensure!(seen == serde_json::json!([true, 7, true]), "the page is another: {seen}");
    quiet(browser)
}

/// The console has nothing to say.
fn quiet(browser: &Browser) -> Result<()> {
    let said = browser.console()?;
    ensure!(said.is_empty(), "the console says:\n{}", said.join("\n"));
    Ok(())
}

/// The large page in its window.
struct BrowserPage {
    browser: Browser,
    pictures: PathBuf,
}

impl BrowserPage {
    fn loads(&self) -> Result<()> {
        quiet(&self.browser)?;
        let seen = self.script(
            "const rows = document.querySelectorAll('#workloads tr[data-verdict]').length;
            const boxes = document.querySelectorAll('.machine .node').length;
            return [rows, boxes, document.getElementById('controls').hidden];",
        )?;
        ensure!(
            seen == serde_json::json!([ROWS, large_machine::NODES, false]),
            "rows, nodes, controls: {seen}"
        );
        let elements = self.script("return document.querySelectorAll('*').length;")?;
        println!("page: {elements} elements");
        let times = self.script(
            "const timing = performance.getEntriesByType('navigation')[0];
            return [timing.domInteractive, timing.loadEventEnd].map(Math.round);",
        )?;
        println!("page: parsed after {} ms, loaded and drawn after {} ms", times[0], times[1]);
        println!(
            "page: {:.0} ms of a CPU, with what is laid out later, so far",
            self.browser.cpu_seconds()? * 1e3
        );
        self.picture("light", "machine")?;
        self.picture("light", "by-node")?;
        self.picture("light", "findings")
    }

    fn keeps_names_as_text(&self) -> Result<()> {
        let seen = self.script(
            "return [typeof hacked, document.scripts.length, document.images.length,
                document.querySelectorAll('[onerror], [onload], iframe, object, embed').length];",
        )?;
        ensure!(seen == serde_json::json!(["undefined", 1, 0, 0]), "something got in: {seen}");
        let names: Vec<String> = self.rows()?.into_iter().map(|(name, _)| name).collect();
        for name in ["<script>hacked=1<", "<img src=x onerror=hacked=1>.service"] {
            ensure!(names.iter().any(|shown| shown.ends_with(name)), "{name} is not shown");
        }
        ensure!(
            !names.iter().any(|shown| shown.contains(['\u{202e}', '\u{1b}'])),
            "a name reorders its line"
        );
        Ok(())
    }

    fn sorts_by_click(&self) -> Result<()> {
        let before = self.rows()?;
        self.laid_out()?;
        let took = self.script(
            "const button = document.querySelectorAll('#workloads thead button')[7];
            document.getElementById('by-node').scrollIntoView(); document.body.offsetHeight;
            const begun = performance.now(); button.click(); document.body.offsetHeight;
            return Math.round(performance.now() - begun);",
        )?;
        println!("page: sorted and laid out in {took} ms");
        let down = self.sorted(7, "descending")?;
        ensure!(down.windows(2).all(|pair| pair[0] >= pair[1]), "not from most to least: {down:?}");
        ensure!(down.first() > down.last(), "all are the same, which tests nothing");
        self.browser.click("#workloads thead th:nth-child(8) button")?;
        let up = self.sorted(7, "ascending")?;
        ensure!(up.windows(2).all(|pair| pair[0] <= pair[1]), "not from least to most: {up:?}");
        self.browser.click("#regroup")?;
        ensure!(self.rows()? == before, "the groups are not as they were");
        Ok(())
    }

    fn sorts_by_keyboard(&self) -> Result<()> {
        let first = "#workloads thead th:first-child button";
        self.browser.keys(first, ENTER)?;
        self.sorted(0, "ascending")?;
        let up = self.rows()?;
        self.browser.keys(first, SPACE)?;
        self.sorted(0, "descending")?;
        let down = self.rows()?;
        ensure!(up.first() == down.last() && up.first() != down.first(), "the order is the same");
        self.browser.keys("#regroup", ENTER)?;
        Ok(())
    }

    /// What is out of sight as well, and also after it was sorted.
    fn is_told(&self) -> Result<()> {
        self.laid_out()?;
        let last = "#workloads tbody:last-of-type tr:last-of-type";
        for (selector, role) in [
            ("#workloads".to_owned(), "table"),
            (format!("{last} th"), "rowheader"),
            (format!("{last} td"), "cell"),
            ("#workloads thead th".to_owned(), "columnheader"),
            ("#findings article:last-of-type h3".to_owned(), "heading"),
        ] {
            let told = self.browser.told(&selector)?;
            let (is, name) = told.with_context(|| format!("{selector} is not told"))?;
            ensure!(is == role && !name.is_empty(), "{selector} is a {is} with the name {name:?}");
        }
        Ok(())
    }

    /// Waits until the browser has laid out what is out of sight.
    fn laid_out(&self) -> Result<()> {
        for _ in 0..PATIENCE {
            let rest = self.script(
                "return document.querySelectorAll('.tall:not(.seen), article:not(.seen), #workloads tbody tr:not(.seen)').length;",
            )?;
            if rest == 0 {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
        bail!("rows are not laid out after {PATIENCE} looks")
    }

    fn filters(&self) -> Result<()> {
        self.browser.keys("#filter", "hacked")?;
        let rows = self.rows()?.len();
        let hostile = large_machine::HOSTILE.iter().filter(|name| name.contains("hacked")).count();
        ensure!(rows == hostile, "{rows} rows are shown, not {hostile}");
        let told = self.script("return document.getElementById('shown').textContent;")?;
        let expected = format!("{hostile} of {ROWS} workloads");
        ensure!(told.as_str().is_some_and(|told| told.starts_with(&expected)), "it says {told}");
        self.picture("filtered", "by-node")?;
        self.script(
            "const filter = document.getElementById('filter'); filter.value = '';
            filter.dispatchEvent(new Event('input'));",
        )?;
        self.choose_verdict("misaligned")?;
        let shown = self.script(
            "return [...document.querySelectorAll('#workloads tr[data-verdict]')]
                .filter((row) => row.offsetParent).map((row) => row.dataset.verdict);",
        )?;
        let shown = shown.as_array().context("no list")?;
        ensure!(!shown.is_empty() && shown.len() < ROWS, "{} rows are shown", shown.len());
        ensure!(shown.iter().all(|verdict| verdict == "misaligned"), "others are shown");
        Ok(())
    }

    /// A busy browser takes letters that come slowly for the beginning of another option, so the choice is
    /// looked at and made again.
    fn choose_verdict(&self, verdict: &str) -> Result<()> {
        for _ in 0..PATIENCE {
            self.browser.keys("#verdict", verdict)?;
            let chosen = self.script("return document.getElementById('verdict').value;")?;
            if chosen.as_str() == Some(verdict) {
                return Ok(());
            }
            // Longer than a browser waits for the next letter.
            thread::sleep(Duration::from_millis(1_500));
        }
        bail!("{verdict} is not chosen after {PATIENCE} looks")
    }

    /// While the filter still hides most rows. Browsers tell the page some time after the click that its
    /// fragment changed, so the row is waited for.
    fn leads_to_rows(&self) -> Result<()> {
        self.browser.keys("#filter", "no workload is called that")?;
        ensure!(self.rows()?.is_empty(), "rows are shown");
        self.browser.click("#findings article h3 a")?;
        for _ in 0..PATIENCE {
            let seen = self.script(
                "const row = document.getElementById(location.hash.slice(1));
                const place = row?.getBoundingClientRect();
                return Boolean(row?.offsetParent && place.top >= 0 && place.bottom <= innerHeight);",
            )?;
            if seen == true {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
        let at = self.script("return location.hash;")?;
        bail!("the row {at} is not in sight after {PATIENCE} looks")
    }

    fn is_clear(&self) -> Result<()> {
        for scheme in ["light", "dark"] {
            self.browser.prefer(scheme)?;
            let seen = self.script(CONTRASTS)?;
            let (worst, dark) = (seen[0].as_f64().context("no contrast")?, &seen[2]);
            ensure!(*dark == (scheme == "dark"), "{scheme} is {seen}");
            ensure!(worst >= CONTRAST, "{scheme}: a contrast of {worst:.2} in {}", seen[1]);
            println!("page: {scheme}: the palest text has a contrast of {worst:.1}");
        }
        self.picture("dark", "machine")?;
        self.picture("dark", "by-node")?;
        self.picture("dark", "findings")?;
        self.browser.prefer("light")
    }

    fn fits(&self) -> Result<()> {
        self.browser.resize(400, 1000)?;
        let width = self.script("return document.documentElement.scrollWidth;")?;
        ensure!(
            width.as_u64().is_some_and(|width| width <= 400),
            "the page is {width} wide in a window of 400"
        );
        self.picture("narrow", "machine")?;
        self.picture("narrow", "by-node")?;
        self.picture("narrow", "findings")?;
        self.browser.resize(1400, 1000)
    }

    fn prints(&self) -> Result<()> {
        let path = self.pictures.join("print.pdf");
        self.browser.print(&path)?;
        let printed = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        ensure!(printed.starts_with(b"%PDF"), "{} is no PDF", path.display());
        let text = String::from_utf8_lossy(&printed);
        let pages = text.matches("/Type /Page").count() - text.matches("/Type /Pages").count();
        println!("page: {pages} pages of paper");
        ensure!(pages > ROWS / ROWS_OF_PAPER, "{pages} pages: rows are missing");
        Ok(())
    }

    fn has_said_nothing(&self) -> Result<()> {
        quiet(&self.browser)
    }

    fn script(&self, body: &str) -> Result<Value> {
        self.browser.script(body)
    }

    /// Name and remote residency of the rows that are to be seen.
    fn rows(&self) -> Result<Vec<(String, Option<String>)>> {
        serde_json::from_value(self.script(SHOWN)?).context("the rows")
    }

    /// Remote residency of the rows, sorted by that column; in which direction is said to screen readers.
    fn sorted(&self, column: usize, direction: &str) -> Result<Vec<f64>> {
        let heads = self.script(
            "return [...document.querySelectorAll('#workloads thead th')].map((head) => head.getAttribute('aria-sort'));",
        )?;
        let heads = heads.as_array().context("no heads")?;
        let right = heads.iter().enumerate().all(|(place, head)| match head.as_str() {
            Some(said) => place == column && said == direction,
            None => place != column,
        });
        ensure!(right, "{direction} by column {column}, aria-sort says {heads:?}");
        let rows = self.rows()?;
        ensure!(rows.len() == ROWS, "{} rows are shown", rows.len());
        Ok(rows.iter().filter_map(|(_, share)| share.as_ref()?.parse().ok()).collect())
    }

    /// A picture of a section.
    fn picture(&self, name: &str, section: &str) -> Result<()> {
        self.script(&format!("document.getElementById('{section}').scrollIntoView();"))?;
        // Scrolled and drawn: nothing of the page tells when.
        thread::sleep(Duration::from_millis(200));
        self.browser.screenshot(&self.pictures.join(format!("{section}-{name}.png")))
    }
}

/// Least contrast of texts with the colour behind them, where that is, and whether the page is dark. Pictures
/// say what they say in tables beside them, in the same colours.
const CONTRASTS: &str = "
    const parse = (colour) => (colour.match(/[0-9.]+/g) ?? [0, 0, 0, 0]).map(Number);
    const linear = (part) => ((part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const behind = (element) => {
        for (; element; element = element.parentElement) {
            const colour = parse(getComputedStyle(element).backgroundColor);
            if (colour.length < 4 || colour[3] > 0) return colour;
        }
        return [255, 255, 255];
    };
    let worst = [99, ''];
    const kinds = new Map();
    for (const element of document.querySelectorAll('body *:not(svg, svg *, script)')) {
        const texts = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!texts || !element.offsetParent) continue;
        const kind = element.tagName + '.' + element.className + ' in ' + element.parentElement.tagName + '.' + element.parentElement.className;
        if ((kinds.get(kind) ?? 0) > 20) continue;
        kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
        const [a, b] = [luminance(parse(getComputedStyle(element).color)), luminance(behind(element))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < worst[0]) worst = [contrast, kind];
    }
    return [...worst, luminance(behind(document.body)) < 0.2];";
