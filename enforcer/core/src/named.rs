//! Names of values that are one of a few, as JSON, labels and logs have them.
//!
//! The names are derived from the variants (`strum::IntoStaticStr`), in the same case as in JSON.

/// A value with a name.
pub trait Named {
    /// Name in JSON, labels and logs, such as `one-node`.
    fn name(&self) -> &'static str;
}

impl<T> Named for T
where
    for<'a> &'static str: From<&'a T>,
{
    fn name(&self) -> &'static str {
        self.into()
    }
}
