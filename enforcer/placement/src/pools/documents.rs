//! Which annotations of a pod hold structured values, parsed by the caller's parser.

use std::{collections::BTreeMap, fmt};

use super::annotations::is_document;
use crate::document::{Document, Documents};

/// Documents among a pod's annotations, each parsed by `parse`.
pub fn documents<E: fmt::Display>(
    annotations: &BTreeMap<String, String>,
    parse: impl Fn(&str) -> Result<Document, E>,
) -> Documents {
    let documents = annotations.iter().filter(|(key, _)| is_document(key));
    documents.map(|(key, text)| (key.clone(), parse(text).map_err(|error| error.to_string()))).collect()
}
