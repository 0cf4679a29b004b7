//! JSON merge patches: how the kubelet applies the drop-ins of `--config-dir`.

use serde_json::{Map, Value};

/// Applies a patch to a map of fields ([RFC 7386](https://www.rfc-editor.org/rfc/rfc7386), section 2): maps
/// are merged, `null` removes a field, and everything else, lists too, is replaced.
///
/// The depth of the recursion is that of `patch`, which its reader limits.
pub(super) fn merge_patch(target: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, change) in patch {
        match change {
            Value::Null => {
                target.remove(&key);
            }
            Value::Object(change) => {
                let field = target.entry(key).or_insert_with(|| Value::Object(Map::new()));
                if !field.is_object() {
                    *field = Value::Object(Map::new());
                }
                if let Value::Object(fields) = field {
                    merge_patch(fields, change);
                }
            }
            change => {
                target.insert(key, change);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn merged(target: &Value, patch: &Value) -> Value {
        let mut fields = target.as_object().unwrap().clone();
        merge_patch(&mut fields, patch.as_object().unwrap().clone());
        Value::Object(fields)
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // Appendix A, those whose target and patch are maps.
        for (target, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            assert_eq!(merged(&target, &patch), expected, "{target} {patch}");
        }
    }

    /// Maps of maps with scalars, lists and nulls.
    fn tree(keys: &'static str) -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            (0u8..4).prop_map(|number| json!([number])),
            (0u8..4).prop_map(|number| json!(number)),
        ];
        let inner = leaf.prop_recursive(3, 24, 4, |inner| {
            prop::collection::btree_map("[x-z]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        });
        prop::collection::btree_map(keys, inner, 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn patches_of_different_fields_commute(
            base in tree("[a-f]"), one in tree("[a-c]"), other in tree("[d-f]"),
        ) {
            prop_assert_eq!(
                merged(&merged(&base, &one), &other),
                merged(&merged(&base, &other), &one)
            );
        }

        #[test]
        fn a_patch_twice_is_the_patch_once(base in tree("[a-f]"), patch in tree("[a-f]")) {
            let once = merged(&base, &patch);
            prop_assert_eq!(&merged(&once, &patch), &once);
        }
    }
}
