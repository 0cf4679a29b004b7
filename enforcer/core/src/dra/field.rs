//! Fields of JSON objects from outside, with their path for errors.
//!
//! Invariant: everything that is read has a bound, and every error names the field by its path in the object.

use numa_topology::text::printable_within;
use serde_json::Value;
use thiserror::Error;

/// A field of an object that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// Path of the field: `status.allocation.devices.results[0].device`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Characters of a foreign text that an error repeats.
const MAX_SHOWN: usize = 80;

/// A foreign text as a part of an error.
pub(crate) fn shown(text: &str) -> String {
    format!("`{}`", printable_within(text, MAX_SHOWN))
}

/// A value with its path.
#[derive(Debug, Clone)]
pub(crate) struct Field<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Field<'a> {
    /// The object itself; fields of it have no prefix.
    pub(crate) const fn root(value: &'a Value) -> Self {
        Self { path: String::new(), value }
    }

    /// A value at this path of an object that is not at hand.
    #[cfg(test)]
    pub(crate) fn at(path: impl Into<String>, value: &'a Value) -> Self {
        Self { path: path.into(), value }
    }

    pub(crate) fn path(&self) -> &str {
        if self.path.is_empty() { "object" } else { &self.path }
    }

    pub(crate) fn error(&self, problem: impl Into<String>) -> FieldError {
        FieldError { field: self.path().to_owned(), problem: problem.into() }
    }

    /// Path of a field of this one.
    pub(crate) fn path_of(&self, name: &str) -> String {
        let name = printable_within(name, MAX_SHOWN);
        if self.path.is_empty() { name } else { format!("{}.{name}", self.path) }
    }

    /// Field of an object; none if it is absent or null.
    pub(crate) fn get(&self, name: &str) -> Result<Option<Self>, FieldError> {
        let Value::Object(fields) = self.value else { return Err(self.error("an object is expected")) };
        let value = fields.get(name).filter(|value| !value.is_null());
        Ok(value.map(|value| Field { path: self.path_of(name), value }))
    }

    /// Field of an object that has to be there.
    pub(crate) fn need(&self, name: &str) -> Result<Self, FieldError> {
        let absent = || FieldError { field: self.path_of(name), problem: "it is missing".into() };
        self.get(name)?.ok_or_else(absent)
    }

    /// A text of at most `most` bytes.
    pub(crate) fn text(&self, most: usize) -> Result<&'a str, FieldError> {
        match self.value {
            Value::String(text) if text.len() <= most => Ok(text),
            Value::String(text) => {
                Err(self.error(format!("it has {} bytes, at most {most} are expected", text.len())))
            }
            _ => Err(self.error("a text is expected")),
        }
    }

    /// Text of a field; empty if it is absent.
    pub(crate) fn text_of(&self, name: &str, most: usize) -> Result<&'a str, FieldError> {
        self.get(name)?.map_or(Ok(""), |field| field.text(most))
    }

    /// A whole number that is not negative.
    pub(crate) fn number(&self) -> Result<u64, FieldError> {
        self.value.as_u64().ok_or_else(|| self.error("a whole number that is not negative is expected"))
    }

    /// Flag of an object; false if it is absent.
    pub(crate) fn flag_of(&self, name: &str) -> Result<bool, FieldError> {
        let Some(field) = self.get(name)? else { return Ok(false) };
        field.value.as_bool().ok_or_else(|| field.error("true or false is expected"))
    }

    /// Elements of a list of at most `most`.
    pub(crate) fn list(&self, most: usize) -> Result<Vec<Self>, FieldError> {
        let Value::Array(values) = self.value else { return Err(self.error("a list is expected")) };
        if values.len() > most {
            return Err(self.error(format!("it has {} elements, at most {most} are expected", values.len())));
        }
        let element = |(at, value)| Field { path: format!("{}[{at}]", self.path()), value };
        Ok(values.iter().enumerate().map(element).collect())
    }

    /// Elements of a list of an object; none if it is absent.
    pub(crate) fn list_of(&self, name: &str, most: usize) -> Result<Vec<Self>, FieldError> {
        self.get(name)?.map_or(Ok(Vec::new()), |field| field.list(most))
    }

    /// Fields of an object of at most `most`, by name.
    pub(crate) fn entries(&self, most: usize) -> Result<Vec<(&'a str, Self)>, FieldError> {
        let Value::Object(fields) = self.value else { return Err(self.error("an object is expected")) };
        if fields.len() > most {
            return Err(self.error(format!("it has {} fields, at most {most} are expected", fields.len())));
        }
        let entry = |(name, value): (&'a String, &'a Value)| {
            (name.as_str(), Field { path: self.path_of(name), value })
        };
        Ok(fields.iter().map(entry).collect())
    }

    /// Fields of an object of an object; none if it is absent.
    pub(crate) fn entries_of(&self, name: &str, most: usize) -> Result<Vec<(&'a str, Self)>, FieldError> {
        self.get(name)?.map_or(Ok(Vec::new()), |field| field.entries(most))
    }

    /// The value itself.
    pub(crate) const fn value(&self) -> &'a Value {
        self.value
    }
}
