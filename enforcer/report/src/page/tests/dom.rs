//! A page as a browser's parser sees it.

use std::collections::{BTreeMap, BTreeSet};

use html5ever::{ParseOpts, parse_document, tendril::TendrilSink as _};
use markup5ever_rcdom::{Handle, NodeData, RcDom};

/// One element, without what is below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) attributes: BTreeMap<String, String>,
    /// Text directly in it.
    pub(super) text: String,
    /// Names of the elements directly in it.
    pub(super) children: Vec<String>,
}

impl Element {
    pub(super) fn get(&self, attribute: &str) -> Option<&str> {
        self.attributes.get(attribute).map(String::as_str)
    }

    /// What it is, whatever its texts are.
    pub(super) fn shape(&self) -> (&str, Vec<&str>) {
        (&self.name, self.attributes.keys().map(String::as_str).collect())
    }
}

/// Every element in the order of the document.
pub(super) fn parse(html: &str) -> Vec<Element> {
    let dom = parse_document(RcDom::default(), ParseOpts::default()).one(html);
    let errors: Vec<String> = dom.errors.borrow().iter().map(ToString::to_string).collect();
    assert_eq!(errors, [""; 0], "the parser of a browser complains");
    let mut elements = Vec::new();
    walk(&dom.document, &mut elements);
    elements
}

fn walk(handle: &Handle, elements: &mut Vec<Element>) {
    if let NodeData::Element { name, attrs, .. } = &handle.data {
        let attributes = attrs.borrow();
        let attributes = attributes.iter().map(|one| (one.name.local.to_string(), one.value.to_string()));
        let mut element = Element {
            name: name.local.to_string(),
            attributes: attributes.collect(),
            text: String::new(),
            children: Vec::new(),
        };
        for child in handle.children.borrow().iter() {
            match &child.data {
                NodeData::Text { contents } => element.text.push_str(&contents.borrow()),
                NodeData::Element { name, .. } => element.children.push(name.local.to_string()),
                _ => {}
            }
        }
        elements.push(element);
    }
    for child in handle.children.borrow().iter() {
        walk(child, elements);
    }
}

/// The ids, each of which is there once.
pub(super) fn ids(elements: &[Element]) -> BTreeSet<&str> {
    let all: Vec<&str> = elements.iter().filter_map(|element| element.get("id")).collect();
    let unique: BTreeSet<&str> = all.iter().copied().collect();
    assert_eq!(unique.len(), all.len(), "ids that are there twice");
    unique
}
