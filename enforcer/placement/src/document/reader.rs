//! Reads documents by serde, within bounds, and typed values out of documents.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{
        self, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor,
        value::{MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};

use super::{Document, FromDocument, Scalar};

/// Maximum nesting depth of lists and maps.
const DEPTH_LIMIT: usize = 16;

/// Maximum number of elements of one list or map.
const LENGTH_LIMIT: usize = 4096;

impl<T: de::DeserializeOwned> FromDocument for T {
    fn from_document(document: &Document) -> Result<Self, String> {
        T::deserialize(document.into_deserializer()).map_err(|error: de::value::Error| error.to_string())
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Bounded { depth: 0 }.deserialize(deserializer)
    }
}

/// Deserializes a document, at most [`DEPTH_LIMIT`] deep.
#[derive(Clone, Copy)]
struct Bounded {
    depth: usize,
}

impl Bounded {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth >= DEPTH_LIMIT {
            return Err(E::custom(format_args!("nested more than {DEPTH_LIMIT} deep")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Bounded {
    type Value = Document;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Document, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of YAML or JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
        Ok(Document::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
        Ok(Document::Integer(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Document, E> {
        i64::try_from(value)
            .map(Document::Integer)
            .map_err(|_too_large| E::custom(format_args!("number {value} is too large")))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Document, E> {
        Ok(Document::Real(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Document, E> {
        Ok(Document::Text(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Ok(Document::Null)
    }

    fn visit_none<E>(self) -> Result<Document, E> {
        Ok(Document::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Document, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Document, A::Error> {
        let deeper = self.deeper()?;
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(deeper)? {
            within_length(list.len())?;
            list.push(element);
        }
        Ok(Document::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Document, A::Error> {
        let deeper = self.deeper()?;
        let mut map = BTreeMap::new();
        while let Some(key) = entries.next_key_seed(deeper)? {
            within_length(map.len())?;
            let Some(key) = key.text() else { return Err(de::Error::custom("a key is a list or a map")) };
            let value = entries.next_value_seed(deeper)?;
            if map.contains_key(&key) {
                return Err(de::Error::custom(format_args!("key {key:?} is there twice")));
            }
            map.insert(key, value);
        }
        Ok(Document::Map(map))
    }
}

fn within_length<E: de::Error>(length: usize) -> Result<(), E> {
    if length < LENGTH_LIMIT {
        return Ok(());
    }
    Err(E::custom(format_args!("more than {LENGTH_LIMIT} elements in one list or map")))
}

impl Document {
    /// A scalar as text.
    fn text(&self) -> Option<String> {
        match self {
            Self::Null => Some(String::new()),
            Self::Bool(value) => Some(value.to_string()),
            Self::Integer(value) => Some(value.to_string()),
            Self::Real(value) => Some(value.to_string()),
            Self::Text(value) => Some(value.clone()),
            Self::List(_) | Self::Map(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let document = Document::deserialize(deserializer)?;
        document.text().map(Self).ok_or_else(|| de::Error::custom("a list or a map where one value is meant"))
    }
}

impl<'de> IntoDeserializer<'de, de::value::Error> for &'de Document {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for &'de Document {
    type Error = de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self {
            Document::Null => visitor.visit_unit(),
            Document::Bool(value) => visitor.visit_bool(*value),
            Document::Integer(value) => visitor.visit_i64(*value),
            Document::Real(value) => visitor.visit_f64(*value),
            Document::Text(value) => visitor.visit_borrowed_str(value),
            Document::List(list) => visitor.visit_seq(SeqDeserializer::new(list.iter())),
            Document::Map(map) => {
                visitor.visit_map(MapDeserializer::new(map.iter().map(|(key, value)| (key.as_str(), value))))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        if *self == Document::Null { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match self {
            Document::Text(value) => {
                value.as_str().into_deserializer().deserialize_enum(name, variants, visitor)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Rule {
        key: String,
        #[serde(default)]
        values: Vec<Scalar>,
        weight: Option<i64>,
    }

    fn document(json: &str) -> Document {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_document_becomes_the_type_that_it_stands_for() {
        let read =
            document(r#"{"key": "name", "values": ["a", 1, true, 1.5], "weight": null}"#).read::<Rule>();
        let values = ["a", "1", "true", "1.5"].map(|text| Scalar(text.to_owned())).to_vec();
        assert_eq!(read, Ok(Rule { key: "name".into(), values, weight: None }));
    }

    #[test]
    fn what_does_not_fit_says_so() {
        for (json, problem) in [
            (r#"{"weight": 1}"#, "missing field `key`"),
            (r#"{"key": "a", "colour": 1}"#, "unknown field `colour`"),
            (r#"{"key": "a", "weight": "heavy"}"#, "invalid type: string"),
            (r#"{"key": "a", "values": [[]]}"#, "a list or a map where one value is meant"),
            ("[]", "invalid length 0"),
        ] {
            let error = document(json).read::<Rule>().unwrap_err();
            assert!(error.contains(problem), "{json}: {error}");
        }
    }

    #[test]
    fn depth_and_length_are_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(serde_json::from_str::<Document>(&nested(DEPTH_LIMIT)).is_ok());
        let error = serde_json::from_str::<Document>(&nested(DEPTH_LIMIT + 1)).unwrap_err();
        assert!(error.to_string().contains("nested more than 16 deep"), "{error}");
        let long = format!("[{}0]", "0,".repeat(LENGTH_LIMIT));
        let error = serde_json::from_str::<Document>(&long).unwrap_err();
        assert!(error.to_string().contains("more than 4096 elements"), "{error}");
        assert!(serde_json::from_str::<Document>(r#"{"a": 1, "a": 2}"#).is_err());
        assert!(serde_json::from_str::<Document>("18446744073709551615").is_err());
    }
}
