//! The page as text, as a browser parses it, and with names that want to break out.
//!
//! What only a browser tells (does it sort, does the policy let the script run, is anything in the console) is asked of
//! one by `cargo xtask test page`.

mod dom;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

use self::dom::{Element, ids, parse};
use super::*;
use crate::report::fixture::{self, HOSTILE};

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
    let nothing = fixture::audit(enforcer_core::topology::Topology::default(), Vec::new(), Vec::new());
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

#[test]
fn a_command_is_whole_or_not_there() {
    let mut audit = fixture::small();
    audit.findings[0].remedy = format!("echo {} > x", "1,".repeat(2000));
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
