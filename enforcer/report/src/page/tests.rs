//! The page as text, as a browser parses it, and with names that want to break out.
//!
//! What only a browser tells (does it sort, does the policy let the script run, is anything in the console)
//! is asked of one by `cargo xtask test page`.

mod dom;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

use self::dom::{Element, ids, parse};
use super::*;
use crate::fixture::{self, HOSTILE};

/// Everything that must be so on every page.
fn check(page: &str) -> Vec<Element> {
    let elements = parse(page);
    let ids = ids(&elements);
    for element in &elements {
        let shown = format!("{element:?}");
        for attribute in element.attributes.keys() {
            assert!(attribute != "style" && attribute != "src" && !attribute.starts_with("on"), "{shown}");
        }
        for link in ["href", "xlink:href"].iter().filter_map(|name| element.get(name)) {
            let target = link.strip_prefix('#');
            assert!(link == "data:," || target.is_some_and(|id| ids.contains(id)), "leads nowhere: {shown}");
        }
        for reference in ["aria-labelledby", "aria-controls", "for"] {
            let named = element.get(reference).into_iter().flat_map(str::split_whitespace);
            named.for_each(|id| assert!(ids.contains(id), "{reference} of {shown}"));
        }
        match element.name.as_str() {
            "th" => assert!(element.get("scope").is_some(), "{shown}"),
            "table" => assert_eq!(element.children.first().map(String::as_str), Some("caption"), "{shown}"),
            "svg" => {
                let is_named = element.children.iter().any(|child| child == "title");
                assert!(is_named || element.get("aria-hidden") == Some("true"), "{shown}");
            }
            _ => {}
        }
    }
    let count = |name: &str| elements.iter().filter(|element| element.name == name).count();
    assert_eq!((count("script"), count("style"), count("h1"), count("main")), (1, 1, 1, 1));
    headings(&elements);
    elements
}

/// No level is left out on the way down.
fn headings(elements: &[Element]) {
    let levels = elements.iter().filter_map(|element| element.name.strip_prefix('h')?.parse::<u8>().ok());
    let levels: Vec<u8> = levels.collect();
    assert!(levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{levels:?}");
}

/// Without what is the same on every page.
fn body(page: &str) -> String {
    page.replace(STYLE, "").replace(SCRIPT, "").replace("><", ">\n<")
}

#[test]
fn a_small_page_in_full() {
    let page = render(&fixture::small(), Some(&fixture::moves()));
    check(&page);
    insta::assert_snapshot!("small", body(&page));
}

#[test]
fn a_page_about_nothing_is_a_page() {
    let nothing = fixture::audit(numa_topology::Topology::default(), Vec::new(), Vec::new());
    let page = render(&nothing, None);
    check(&page);
    for said in ["no workload was seen", "No findings.", "Not sampled.", "Not considered"] {
        assert!(page.contains(said), "{said}: {page}");
    }
}

#[test]
fn hostile_names_change_nothing_but_texts() {
    let shape = |name: &str| -> Vec<(String, Vec<String>)> {
        let (audit, moves) = fixture::named(name);
        let elements = check(&render(&audit, Some(&moves)));
        let shapes = elements.iter().map(Element::shape);
        shapes.map(|(name, keys)| (name.to_owned(), keys.into_iter().map(str::to_owned).collect())).collect()
    };
    let harmless = shape("name");
    for name in HOSTILE {
        assert_eq!(shape(name), harmless, "{name:?}");
    }
}

#[test]
fn nothing_from_outside_is_in_a_script_a_style_a_link_or_an_id() {
    let (audit, moves) = fixture::named("qqq-hostile");
    for element in check(&render(&audit, Some(&moves))) {
        let is_code = matches!(element.name.as_str(), "script" | "style");
        assert!(!is_code || !element.text.contains("qqq"), "{element:?}");
        for (name, value) in &element.attributes {
            assert!(matches!(name.as_str(), "title" | "aria-label") || !value.contains("qqq"), "{element:?}");
        }
    }
}

#[test]
fn the_policy_lets_run_what_is_written_and_nothing_else() {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    for (what, text) in [("style-src", STYLE), ("script-src", SCRIPT)] {
        let line = format!("{what} {}", hash(text));
        assert!(POLICY.contains(&line), "after a change, POLICY needs\n    {line}");
    }
    assert!(POLICY.starts_with("default-src 'none';") && !POLICY.contains("unsafe"), "{POLICY}");
    assert!(!SCRIPT.contains("innerHTML") && !SCRIPT.contains("fetch("));
}

#[test]
fn workloads_of_one_name_are_told_apart() {
    let mut audit = fixture::small();
    for (one, path) in audit.workloads.iter_mut().zip(["/shop/eu/web", "/shop/us/web"]) {
        one.name = "web".to_owned();
        one.cgroup = enforcer_core::workload::CgroupPath::new(path);
        one.origin = enforcer_core::workload::Origin::Cgroup;
    }
    let page = render(&audit, None);
    for name in [">web (eu)</th>", ">web (us)</th>", ">web (eu)</a>"] {
        assert!(page.contains(name), "{name}: {page}");
    }
}

#[test]
fn sixty_four_nodes_and_two_thousand_containers_are_below_three_megabytes() {
    let audit = fixture::large();
    let page = render(&audit, None);
    let elements = check(&page);
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
    let rows = elements.iter().filter(|element| element.get("data-verdict").is_some()).count();
    assert_eq!(rows, 2000, "each workload has a row");
    let ids = ids(&elements);
    for place in 0..2000 {
        assert!(ids.contains(findings::anchor(place).as_str()), "the findings of workload {place}");
    }
}

/// What a browser works through, for each row: the cells, and a link to the findings. A picture or a badge in
/// each is what made a page of this size slow.
#[test]
fn a_row_of_the_large_page_is_its_cells_and_a_link() {
    let elements = check(&render(&fixture::large(), None));
    let mut rows = 0;
    let mut rest = elements.as_slice();
    while let Some(start) = rest.iter().position(|element| element.get("data-verdict").is_some()) {
        rest = &rest[start + 1..];
        let end = rest.iter().position(|element| !matches!(element.name.as_str(), "th" | "td" | "a"));
        let names: Vec<&str> =
            rest[..end.unwrap_or(rest.len())].iter().map(|element| element.name.as_str()).collect();
        assert_eq!(names, ["th", "td", "a", "td", "td", "td", "td", "td", "td", "td"]);
        rows += 1;
    }
    assert_eq!(rows, 2000);
}

/// On a screen the rows are no boxes of a table, and browsers differ in what they make of that.
#[test]
fn what_the_style_takes_from_the_table_its_roles_give_back() {
    let elements = check(&render(&fixture::small(), None));
    let start = elements.iter().position(|element| element.get("id") == Some("workloads")).unwrap();
    let table = elements[start..].iter().take_while(|element| element.name != "h2");
    let mut seen = std::collections::BTreeSet::new();
    for element in table {
        let role = match (element.name.as_str(), element.get("scope")) {
            ("table", _) => "table",
            ("caption", _) => "caption",
            ("thead" | "tbody", _) => "rowgroup",
            ("tr", _) => "row",
            ("th", Some("col")) => "columnheader",
            ("th", _) => "rowheader",
            ("td", _) => "cell",
            _ => continue,
        };
        assert_eq!(element.get("role"), Some(role), "{element:?}");
        seen.insert(role);
    }
    assert_eq!(seen.len(), 7, "{seen:?}");
}

#[test]
fn each_step_of_a_bar_has_a_style() {
    for step in 0..=residency::STEPS {
        let share = format!("{:.2}", 0.05 * f64::from(u32::try_from(step).unwrap()));
        let share = share.trim_end_matches('0').trim_end_matches('.');
        let share = if share == "0" { share } else { share.trim_start_matches('0') };
        assert!(STYLE.contains(&format!(".m{step}{{--away:{share}}}")), "{step}: {share}");
    }
    let page = render(&fixture::large(), None);
    assert!(page.contains("class=\"m20\"") || page.contains("class=\"m19\""), "nothing is away");
}

#[test]
fn a_command_is_whole_or_not_there() {
    let mut audit = fixture::small();
    audit.findings[0].remedy = Some(format!("echo {} > x", "1,".repeat(2000)));
    let page = render(&audit, None);
    assert!(page.contains("too long to show") && !page.contains("echo 1,"));
}

#[test]
fn the_picture_is_xml_by_itself() {
    let (hostile, _) = fixture::named("</text><script>\u{0}\u{fffe}");
    for audit in [fixture::small(), fixture::large(), hostile] {
        let picture = picture(&audit.topology);
        let parsed = roxmltree::Document::parse(&picture).unwrap();
        let root = parsed.root_element();
        assert_eq!(
            (root.tag_name().name(), root.tag_name().namespace()),
            ("svg", Some("http://www.w3.org/2000/svg"))
        );
        assert!(!parsed.descendants().any(|node| node.has_tag_name("script")));
    }
    insta::assert_snapshot!(
        "picture",
        picture(&fixture::small().topology).replace(machine::STYLE, "").replace("><", ">\n<")
    );
}
