//! Properties of systemd units that the daemon set itself, to tell them from an administrator's.
//!
//! The daemon's drop-ins and an administrator's are files in the same folders. They are told apart by unit,
//! property and value: a property with a different value is the administrator's.

use std::collections::BTreeMap;

use numa_topology::set::CpuSet;

/// Values by unit and property. A property has two values after a crash between recording the later value and
/// setting it: either may be in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnSettings(BTreeMap<(String, String), Vec<String>>);

impl OwnSettings {
    /// Records a value.
    pub fn add(&mut self, unit: &str, property: &str, value: &str) {
        self.0.entry((unit.to_owned(), property.to_owned())).or_default().push(value.to_owned());
    }

    /// Did the daemon set the property of the unit to this value?
    pub fn has(&self, unit: &str, property: &str, value: &str) -> bool {
        let ours = self.0.get(&(unit.to_owned(), property.to_owned()));
        ours.is_some_and(|ours| ours.iter().any(|ours| is_same_list(ours, value)))
    }
}

/// Do both lists hold the same CPUs or nodes, one as the kernel writes it and the other as systemd does?
pub fn is_same_list(one: &str, other: &str) -> bool {
    one == other || list(one).is_some_and(|one| list(other) == Some(one))
}

/// The list in the kernel's format; `None` if it is not a list.
pub fn as_in_file(text: &str) -> Option<String> {
    list(text).map(|list| format!("{list}\n"))
}

/// Parses a list of systemd: it accepts commas or white space and writes the latter. Node lists have the same
/// form.
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
