//! The kubelet's command line, as far as it affects placement.
//!
//! Source: `cmd/kubelet/app/options/options.go`, and pflag, which parses it. A word `--name=value` or two
//! words `--name value` set a flag; `_` in a name counts as `-`; `--` ends the flags; the last value of a
//! plain flag counts. A flag with a map replaces the map of the files with its first value, and adds to it
//! with each further one.
//!
//! Invariant: values of other flags are not kept. Some name files with credentials.

use std::collections::BTreeMap;

/// Flags with a value that are kept.
const VALUE_FLAGS: [&str; 19] = [
    "cert-dir",
    "config",
    "config-dir",
    "cpu-manager-policy",
    "cpu-manager-policy-options",
    "eviction-hard",
    "feature-gates",
    "hostname-override",
    "kube-reserved",
    "max-pods",
    "memory-manager-policy",
    "port",
    "reserved-cpus",
    "reserved-memory",
    "system-reserved",
    "tls-cert-file",
    "topology-manager-policy",
    "topology-manager-policy-options",
    "topology-manager-scope",
];

/// Longest value in bytes that is kept; the limit of one word in Linux is 128 KiB.
const LONGEST_VALUE: usize = 16 << 10;

/// Flags of a kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CommandLine {
    values: BTreeMap<&'static str, Vec<String>>,
    /// Flags with a value that is too long to be kept.
    pub(super) too_long: Vec<&'static str>,
}

impl CommandLine {
    /// Parses the zero-terminated words of `/proc/PID/cmdline`.
    pub(super) fn parse(text: &str) -> Self {
        let mut flags = Self::default();
        let mut words = text.strip_suffix('\0').unwrap_or(text).split('\0').skip(1);
        while let Some(word) = words.next() {
            if word == "--" {
                break;
            }
            let Some(flag) = word.strip_prefix("--") else { continue };
            let (name, value) =
                flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            let name = name.replace('_', "-");
            let Some(name) = VALUE_FLAGS.into_iter().find(|known| *known == name) else { continue };
            let Some(value) = value.or_else(|| words.next()) else { continue };
            if value.len() > LONGEST_VALUE {
                flags.too_long.push(name);
            } else {
                flags.values.entry(name).or_default().push(value.to_owned());
            }
        }
        flags
    }

    /// The value of a plain flag.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.all(name)?.last().map(String::as_str)
    }

    /// All values of a flag, in order; `None` without the flag.
    pub(super) fn all(&self, name: &str) -> Option<&[String]> {
        self.values.get(name).map(Vec::as_slice)
    }

    /// Does it set anything of the configuration? Flags that name files are not part of it.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// The pairs of a flag with a map, those of one value apart by commas: `a=1,b=2`, or `a<1,b<2`.
///
/// # Errors
/// The part that is no pair.
pub(super) fn pairs(values: &[String], sign: char) -> Result<BTreeMap<String, String>, String> {
    let mut map = BTreeMap::new();
    for part in values.iter().flat_map(|value| value.split(',')).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once(sign).ok_or(part)?;
        map.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    Ok(map)
}

/// The pairs of a flag that takes one pair in each value, commas included.
///
/// # Errors
/// The value that is no pair.
pub(super) fn single_pairs(values: &[String]) -> Result<BTreeMap<String, String>, String> {
    let mut map = BTreeMap::new();
    for part in values {
        let (key, value) = part.split_once('=').ok_or(part.as_str())?;
        map.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    Ok(map)
}

/// A boolean as Go reads it (`strconv.ParseBool`).
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> CommandLine {
        CommandLine::parse(&(words.join("\0") + "\0"))
    }

    #[test]
    fn flags_are_read_as_pflag_reads_them() {
        for (words, policy) in [
            (&["kubelet"][..], None),
            (&["kubelet", "--cpu-manager-policy=static"], Some("static")),
            (&["kubelet", "--cpu-manager-policy", "static"], Some("static")),
            (&["kubelet", "--cpu_manager_policy=static"], Some("static")),
            (&["kubelet", "--cpu-manager-policy=none", "--cpu-manager-policy=static"], Some("static")),
            (&["kubelet", "--v=2", "--fail-swap-on", "--cpu-manager-policy=static"], Some("static")),
            (&["kubelet", "-v", "2", "--cpu-manager-policy=static"], Some("static")),
            (&["kubelet", "--cpu-manager-policy="], Some("")),
            (&["kubelet", "--cpu-manager-policy"], None),
            (&["kubelet", "--", "--cpu-manager-policy=static"], None),
            (&["kubelet", "-cpu-manager-policy=static"], None),
            (&["kubelet", "--cpu-manager-policy-x=static"], None),
            (&["--cpu-manager-policy=static"], None),
            (&[""], None),
        ] {
            assert_eq!(parsed(words).value("cpu-manager-policy"), policy, "{words:?}");
        }
    }

    #[test]
    fn other_flags_are_not_kept() {
        let flags = parsed(&["kubelet", "--bootstrap-kubeconfig=/secret", "--kubeconfig", "/secret"]);
        assert!(flags.is_empty(), "{flags:?}");
    }

    #[test]
    fn a_value_that_is_too_long_is_named() {
        let long = format!("--kube-reserved=cpu={}", "1".repeat(LONGEST_VALUE));
        let flags = parsed(&["kubelet", &long]);
        assert_eq!((flags.all("kube-reserved"), &flags.too_long[..]), (None, &["kube-reserved"][..]));
    }

    #[test]
    fn maps_are_pairs() {
        let values = ["cpu=1, memory = 2Gi,".to_owned(), "pid=10".to_owned()];
        let map = pairs(&values, '=').unwrap();
        assert_eq!(map.into_iter().collect::<Vec<_>>().len(), 3);
        assert_eq!(pairs(&["memory.available<1Gi".into()], '<').unwrap()["memory.available"], "1Gi");
        assert_eq!(pairs(&["cpu".into()], '=').unwrap_err(), "cpu");
        assert_eq!(pairs(&[String::new()], '=').unwrap().len(), 0);
        assert_eq!(single_pairs(&["a=true,b=true".into()]).unwrap()["a"], "true,b=true");
        assert!(single_pairs(&["a".into()]).is_err());
    }
}
