//! What we have set of systemd's units ourselves, so that it is not taken for an administrator's.
//!
//! Both are files in the same folders. Ours are told apart by unit, property and value: somebody who sets the
//! same property to something else has made it theirs.

use std::collections::BTreeMap;

use crate::set::CpuSet;

/// Values by unit and property. There are two of one while it is not known which of them is in force: a crash
/// may have come between the record of the later one and the setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnSettings(BTreeMap<(String, String), Vec<String>>);

impl OwnSettings {
    /// Adds a value.
    pub fn add(&mut self, unit: &str, property: &str, value: &str) {
        self.0.entry((unit.to_owned(), property.to_owned())).or_default().push(value.to_owned());
    }

    /// Have we set the property of the unit to this?
    pub fn has(&self, unit: &str, property: &str, value: &str) -> bool {
        let ours = self.0.get(&(unit.to_owned(), property.to_owned()));
        ours.is_some_and(|ours| ours.iter().any(|ours| is_same_list(ours, value)))
    }
}

/// Are both lists of the same CPUs or nodes, the one as the kernel and the other as systemd writes them?
pub fn is_same_list(one: &str, other: &str) -> bool {
    one == other || list(one).is_some_and(|one| list(other) == Some(one))
}

/// A list as the kernel writes it in a file, however systemd or people do; `None` where it is no list.
pub fn as_in_file(text: &str) -> Option<String> {
    list(text).map(|list| format!("{list}\n"))
}

/// systemd separates by commas or by white space and writes the latter. Ids of nodes have the same form.
fn list(text: &str) -> Option<CpuSet> {
    let separated: Vec<&str> = text.split([',', ' ', '\t']).filter(|part| !part.is_empty()).collect();
    separated.join(",").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_set_is_ours_however_it_is_written() {
        let mut ours = OwnSettings::default();
        ours.add("a.service", "AllowedCPUs", "0-3,8");
        ours.add("a.service", "AllowedCPUs", "4");
        for (unit, property, value, is_ours) in [
            ("a.service", "AllowedCPUs", "0-3,8", true),
            ("a.service", "AllowedCPUs", "0-3 8", true),
            ("a.service", "AllowedCPUs", "0 1,2-3  8", true),
            ("a.service", "AllowedCPUs", "4", true),
            ("a.service", "AllowedCPUs", "0-3", false),
            ("a.service", "AllowedCPUs", "", false),
            ("a.service", "AllowedCPUs", "x", false),
            ("a.service", "AllowedMemoryNodes", "4", false),
            ("b.service", "AllowedCPUs", "4", false),
        ] {
            assert_eq!(ours.has(unit, property, value), is_ours, "{unit} {property}={value}");
        }
        assert!(!OwnSettings::default().has("a.service", "AllowedCPUs", "4"));
    }

    #[test]
    fn a_list_of_systemds_is_written_as_the_kernel_does() {
        for (text, file) in
            [("", Some("\n")), ("0 2-3", Some("0,2-3\n")), ("1 0", Some("0-1\n")), ("what", None)]
        {
            assert_eq!(as_in_file(text).as_deref(), file, "{text:?}");
        }
    }
}
