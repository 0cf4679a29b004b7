//! Annotations with structured values.
//!
//! Some annotations hold YAML or JSON: affinity rules, exact resources, a cold start, maps from container to
//! value. The core has no text parsers, so the caller that builds a request parses these into [`Document`]s
//! with [`documents`](crate::pools::documents), and the core reads its types out of these. Parse errors are
//! kept and reported when the value is needed.
//!
//! The text is untrusted: depth and number of elements are bounded while it is parsed.

use std::collections::BTreeMap;

#[cfg(feature = "serde")]
mod reader;

/// Types that annotations with structured values are converted to.
pub(crate) trait FromDocument: Sized {
    /// Converts a document; the error names the part that does not fit.
    fn from_document(document: &Document) -> Result<Self, String>;
}

#[cfg(not(feature = "serde"))]
impl<T> FromDocument for T {
    fn from_document(_: &Document) -> Result<Self, String> {
        Err("structured values need the feature serde of numa-placement".to_owned())
    }
}

/// Documents of a pod by annotation key, or the parse error.
pub type Documents = BTreeMap<String, Result<Document, String>>;

/// A value of YAML or JSON.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Document {
    /// Nothing.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Real(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Document>),
    /// A map, ordered by key; keys that are not text are converted to text.
    Map(BTreeMap<String, Document>),
}

impl Document {
    /// Converts it to a typed value; the error names the part that does not fit.
    pub(crate) fn read<T: FromDocument>(&self) -> Result<T, String> {
        T::from_document(self)
    }
}

/// A scalar of any kind as text: people write `values: [1, true]` and mean text.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scalar(pub(crate) String);
