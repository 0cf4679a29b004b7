//! Units of amounts in one text: each resource has one, so that its figures compare at a glance.

use crate::words::SizeUnit;

/// Units by resource; only for resources in bytes. A boxed slice, to keep the error small.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SizeUnits(Box<[(String, SizeUnit)]>);

impl SizeUnits {
    /// Unit of a resource.
    pub fn get(&self, resource: &str) -> Option<SizeUnit> {
        self.0.iter().find(|(name, _)| name == resource).map(|(_, unit)| *unit)
    }

    /// These units, plus others for resources that are missing here.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self(self.0.into_iter().chain(others.0).collect())
    }
}

impl FromIterator<(String, SizeUnit)> for SizeUnits {
    fn from_iter<I: IntoIterator<Item = (String, SizeUnit)>>(units: I) -> Self {
        Self(units.into_iter().collect())
    }
}
