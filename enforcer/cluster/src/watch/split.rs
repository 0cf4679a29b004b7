//! Cuts an answer into its objects while it arrives.
//!
//! A watch is objects one after another; a list is one object with an array of them, and as large as the
//! server likes. Invariant: no more than one object, [`LARGEST`] bytes of it, and [`ENVELOPE`] bytes of what
//! is around the objects are held.

use super::LARGEST;

/// Bytes of a too large object that are kept, for its name.
const HEAD: usize = 4 << 10;
/// Bytes of a list beside its items that are kept.
const ENVELOPE: usize = 16 << 10;

/// One object of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// The beginning of one that is too large.
    TooLarge(&'a [u8]),
}

/// Where the objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// The text is a sequence of objects.
    Outermost,
    /// They are in an array of the outermost object.
    InArray,
}

/// Whether a byte is of a text in quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quoting {
    Outside,
    Inside,
    /// Inside, after a backslash.
    Escaped,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ObjectSplitter {
    level: Level,
    depth: u64,
    /// Whether the innermost bracket of depth 2 is an array.
    is_in_array: bool,
    quoting: Quoting,
    /// The depth outside of the object that is being read.
    begun_at: Option<u64>,
    object: Vec<u8>,
    is_too_large: bool,
    envelope: Vec<u8>,
}

impl ObjectSplitter {
    /// For the lines of a watch.
    pub(super) fn of_watch() -> Self {
        Self::new(Level::Outermost)
    }

    /// For the items of a list.
    pub(super) fn of_list() -> Self {
        Self::new(Level::InArray)
    }

    fn new(level: Level) -> Self {
        Self {
            level,
            depth: 0,
            is_in_array: false,
            quoting: Quoting::Outside,
            begun_at: None,
            object: Vec::new(),
            is_too_large: false,
            envelope: Vec::new(),
        }
    }

    /// What was around the items of a list, as JSON with an empty array; `None` before its end, or if it is
    /// too long.
    pub(super) fn envelope(&self) -> Option<&[u8]> {
        let text = self.envelope.trim_ascii_end();
        let is_whole = self.depth == 0 && self.envelope.len() < ENVELOPE && text.ends_with(b"}");
        is_whole.then_some(text)
    }

    /// Takes more of the answer, and hands over each object that ends in it.
    pub(super) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(Piece<'_>)) {
        for &byte in bytes {
            if self.step(byte) {
                each(if self.is_too_large {
                    Piece::TooLarge(&self.object)
                } else {
                    Piece::Whole(&self.object)
                });
                self.object.clear();
                // A large one is rare.
                self.object.shrink_to(HEAD);
                (self.begun_at, self.is_too_large) = (None, false);
            }
        }
    }

    /// Whether an object ends with this byte.
    fn step(&mut self, byte: u8) -> bool {
        let outside = self.depth;
        match (self.quoting, byte) {
            (Quoting::Escaped, _) | (Quoting::Outside, b'"') => self.quoting = Quoting::Inside,
            (Quoting::Inside, b'\\') => self.quoting = Quoting::Escaped,
            (Quoting::Inside, b'"') => self.quoting = Quoting::Outside,
            (Quoting::Outside, b'{' | b'[') => {
                if outside == 1 {
                    self.is_in_array = byte == b'[';
                }
                if byte == b'{' && self.begun_at.is_none() && self.is_level(outside) {
                    self.begun_at = Some(outside);
                }
                self.depth += 1;
            }
            (Quoting::Outside, b'}' | b']') => self.depth = outside.saturating_sub(1),
            (Quoting::Inside | Quoting::Outside, _) => {}
        }
        if let Some(begun_at) = self.begun_at {
            self.keep(byte);
            return self.depth == begun_at;
        }
        // Between the items there are commas alone.
        let is_around = !(self.depth > 1 && outside > 1 && self.is_in_array);
        if self.level == Level::InArray && is_around && self.envelope.len() < ENVELOPE {
            self.envelope.push(byte);
        }
        false
    }

    fn is_level(&self, depth: u64) -> bool {
        match self.level {
            Level::Outermost => depth == 0,
            Level::InArray => depth == 2 && self.is_in_array,
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.is_too_large {
            return;
        }
        if self.object.len() == LARGEST {
            self.is_too_large = true;
            self.object.truncate(HEAD);
            return;
        }
        self.object.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn pieces(splitter: &mut ObjectSplitter, bytes: &[u8], step: usize) -> Vec<Value> {
        let mut found = Vec::new();
        for part in bytes.chunks(step.max(1)) {
            splitter.feed(part, |piece| match piece {
                Piece::Whole(text) => found.push(serde_json::from_slice(text).unwrap()),
                Piece::TooLarge(head) => found.push(json!(head.len())),
            });
        }
        found
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(|number| json!(number)),
            "[a-z{}\\[\\]\"\\\\, \n]{0,12}".prop_map(|text| json!(text)),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                proptest::collection::btree_map("[a-z\"{]{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn objects() -> impl Strategy<Value = Vec<Value>> {
        let object = proptest::collection::btree_map("[a-z]{1,4}", values(), 0..4);
        proptest::collection::vec(object.prop_map(|map| Value::Object(map.into_iter().collect())), 0..5)
    }

    proptest! {
        #[test]
        fn objects_come_out_as_they_went_in(items in objects(), step in 1_usize..40) {
            let lines: String = items.iter().flat_map(|item| [item.to_string(), "\n".to_owned()]).collect();
            prop_assert_eq!(&pieces(&mut ObjectSplitter::of_watch(), lines.as_bytes(), step), &items);
            let list = json!({"kind": "PodList", "metadata": {"resourceVersion": "7", "x": [1]}, "items": items});
            let mut splitter = ObjectSplitter::of_list();
            prop_assert_eq!(&pieces(&mut splitter, list.to_string().as_bytes(), step), &items);
            let envelope: Value = serde_json::from_slice(splitter.envelope().unwrap()).unwrap();
            let expected = json!({"kind": "PodList", "metadata": {"resourceVersion": "7", "x": [1]}, "items": []});
            prop_assert_eq!(envelope, expected);
        }

        #[test]
        fn any_text_is_taken(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for mut splitter in [ObjectSplitter::of_watch(), ObjectSplitter::of_list()] {
                splitter.feed(&bytes, |_| {});
                let _ = splitter.envelope();
            }
        }
    }

    #[test]
    fn object_beyond_the_bound_is_its_beginning_alone() {
        let large = json!({"name": "web", "rest": "x".repeat(3 * LARGEST)});
        let text = format!("{large}\n{{\"name\":\"next\"}}\n");
        let mut splitter = ObjectSplitter::of_watch();
        assert_eq!(pieces(&mut splitter, text.as_bytes(), 1 << 16), [json!(HEAD), json!({"name": "next"})]);
        assert!(splitter.object.capacity() <= HEAD);
    }

    #[test]
    fn list_that_was_cut_off_has_no_envelope() {
        let mut splitter = ObjectSplitter::of_list();
        splitter.feed(br#"{"kind":"PodList","items":[{"a":1},{"b"#, |_| {});
        assert_eq!(splitter.envelope(), None);
    }
}
