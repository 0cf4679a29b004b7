//! The configuration file as a [`Policy`]; what its keys mean is the core's business.
//!
//! A message about the file starts with `FILE:LINE:COLUMN`, as a compiler's does, and fits a line of a log;
//! for people there is an [excerpt](ConfigError::excerpt) as well, which points at what is wrong.

mod kinds;
mod place;

use std::{
    borrow::Cow,
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use enforcer_core::{
    policy::{Ineffective, Policy},
    workload::{cut_at, printable},
};
use numa_placement::pools::Classifier;
use serde_json::Value;
use thiserror::Error;

use self::{
    kinds::misfit,
    place::{QUOTED_LIMIT, excerpt, position, span_of, written_span},
};
use crate::schemas;
use enforcer_host::{read_bytes, written_text};

/// Largest configuration that is read.
const SIZE_LIMIT: u64 = 1 << 20;

/// Most letters that are wrong, missing or in a wrong place in a key of which it is guessed which one was
/// meant.
const MISTAKES: usize = 2;

/// Why there is no policy.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("reading {path}: {cause}", path = path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// The text is not TOML, has unknown keys or bad values, or values that do not go together.
    #[error("{place}: {problem}")]
    Invalid {
        /// `FILE:LINE:COLUMN`, or the file alone.
        place: String,
        /// What is wrong.
        problem: String,
        /// The line, with marks below what is wrong.
        excerpt: Option<String>,
    },
    /// It is valid, but not on this machine as it is set just now.
    #[error("{place}: {key}: {problem} ({seen} is on)", place = place.display(), seen = seen.display())]
    NotHere {
        /// The file.
        place: PathBuf,
        /// Which key.
        key: &'static str,
        /// Why not.
        problem: &'static str,
        /// What says so.
        seen: PathBuf,
    },
}

impl ConfigError {
    /// The line that is wrong with marks below the place, in several lines.
    pub fn excerpt(&self) -> Option<&str> {
        match self {
            Self::Invalid { excerpt, .. } => excerpt.as_deref(),
            Self::Read { .. } | Self::NotHere { .. } => None,
        }
    }
}

/// What a configuration file says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Configured {
    /// The policy.
    pub policy: Policy,
    /// What of the file changes nothing or is left out, each as a line that begins with its place.
    pub notes: Vec<String>,
    /// The file that was read.
    pub file: Option<PathBuf>,
}

/// Flags of the command line, which win over the file.
pub trait Flags {
    /// Sets what they say.
    fn apply(&self, policy: &mut Policy);

    /// The flag that sets this key, with its value as it may be typed.
    fn flag(&self, key: &str) -> Option<String>;
}

/// None.
impl Flags for () {
    fn apply(&self, _: &mut Policy) {}

    fn flag(&self, _: &str) -> Option<String> {
        None
    }
}

/// Reads and checks a configuration file.
pub fn read_config(path: &Path) -> Result<Configured, ConfigError> {
    read_config_below(path, &())
}

/// The same with flags over it: what changes nothing is told of the whole.
pub fn read_config_below(path: &Path, flags: &impl Flags) -> Result<Configured, ConfigError> {
    let failed = |cause| ConfigError::Read { path: path.to_owned(), cause };
    // Not the size that the file says it has: devices say 0.
    let text = read_bytes(path, SIZE_LIMIT).and_then(written_text).map_err(failed)?;
    parse(path, &text, flags)
}

fn parse(path: &Path, text: &str, flags: &impl Flags) -> Result<Configured, ConfigError> {
    let schema = schema();
    if let Some(wrong) = misfit(&schema, text) {
        return Err(invalid(path, text, Some(wrong.span), &wrong.problem));
    }
    let mut policy: Policy =
        toml::from_str(text).map_err(|error| invalid(path, text, error.span(), error.message()))?;
    policy.validate().map_err(|problem| {
        let problem = problem.seen_from(|key| written_span(text, key, &schema).is_some());
        let span = span_of(text, &problem.key, &problem.value, &schema);
        invalid(path, text, span, &problem.to_string())
    })?;
    flags.apply(&mut policy);
    let notes = notes(path, text, &policy, flags, &schema);
    Ok(Configured { policy, notes, file: Some(path.to_owned()) })
}

/// What may stand in a configuration; nothing in a damaged program.
fn schema() -> Value {
    let text = schemas::CONFIG.text().unwrap_or_default();
    serde_json::from_slice(text.as_bytes()).unwrap_or_default()
}

/// What of the file changes nothing or is left out.
fn notes(path: &Path, text: &str, policy: &Policy, flags: &impl Flags, schema: &Value) -> Vec<String> {
    // One glob that is wrong must not take the namespaces beside it away, so it refuses nothing.
    let globs = Classifier::new(&policy.placement.pools).1.into_iter();
    let left_out = globs.map(|problem| format!("{}: {problem}; it is left out", path.display()));
    let ineffective = policy.ineffective().into_iter().filter_map(|setting| {
        // What a flag says wins over what is written.
        let written = || written_span(text, &setting.key, schema);
        let span = if flags.flag(&setting.key).is_some() { None } else { written() }?;
        let reason = setting.reason_with(|key| flags.flag(key));
        Some(format!("{}: {}: {reason}", at(path, text, &span), setting.key))
    });
    let left_out = left_out.chain(ineffective).map(|note| printable(&note));
    left_out.chain(notes_of_flags(policy, flags)).collect()
}

/// What flags say that changes nothing, as the rest of the configuration is.
pub fn notes_of_flags(policy: &Policy, flags: &impl Flags) -> Vec<String> {
    let note = |setting: Ineffective| {
        let flag = flags.flag(&setting.key)?;
        Some(printable(&format!("{flag}: {}", setting.reason_with(|key| flags.flag(key)))))
    };
    policy.ineffective().into_iter().filter_map(note).collect()
}

/// `FILE:LINE:COLUMN` of where something begins, or the file alone.
fn at(path: &Path, text: &str, span: &Range<usize>) -> String {
    match position(text, span.start) {
        Some((line, column)) => format!("{}:{line}:{column}", path.display()),
        None => path.display().to_string(),
    }
}

fn invalid(path: &Path, text: &str, span: Option<Range<usize>>, problem: &str) -> ConfigError {
    let problem = printable(&bounded(&suggesting(problem)));
    let place = span.as_ref().map_or_else(|| path.display().to_string(), |span| at(path, text, span));
    ConfigError::Invalid { place, problem, excerpt: span.and_then(|span| excerpt(text, span)) }
}

/// A key that is not known by the one that was probably meant, where there is one.
fn suggesting(problem: &str) -> Cow<'_, str> {
    // As serde words it: the names that it has for types (`de::Unexpected`, `de::Visitor`), and unknown names
    // (`unknown_field` and `unknown_variant` of its `de::Error`).
    for (named, kind) in [("map", "a table"), ("sequence", "a list")] {
        if let Some(expected) =
            problem.strip_prefix("invalid type: ").and_then(|rest| rest.strip_prefix(named))
        {
            return suggesting(&format!("{kind}{expected}")).into_owned().into();
        }
    }
    if let Some((value, expected)) = problem.split_once("` as i128, expected ") {
        return suggesting(&format!("{value}`, expected {expected}")).into_owned().into();
    }
    for (named, expected) in [
        ("f64", "a number, as in 0.5"),
        ("path string", "a path in quotes, as in \"/run/a\""),
        ("a string", "text in quotes"),
    ] {
        if let Some(before) = problem.strip_suffix(named).filter(|before| before.ends_with(", expected ")) {
            return Cow::Owned(format!("{before}{expected}"));
        }
    }
    let meant = problem.rsplit_once(", expected").and_then(|(unknown, expected)| {
        let wrong = unknown.strip_prefix("unknown ")?.split('`').nth(1)?;
        // How near two are takes as long as both are, multiplied.
        let wrong = Some(wrong).filter(|wrong| wrong.len() <= QUOTED_LIMIT)?;
        let near = |known: &&str| {
            strsim::damerau_levenshtein(&wrong.to_lowercase(), known) <= MISTAKES.min(wrong.len() / 2)
        };
        let known = expected.split('`').skip(1).step_by(2).filter(|known| known.len() <= QUOTED_LIMIT);
        let meant = known.filter(near).min_by_key(|known| strsim::damerau_levenshtein(wrong, known))?;
        Some(format!("{unknown}; did you mean `{meant}`?"))
    });
    meant.map_or(Cow::Borrowed(problem), Cow::Owned)
}

/// What is quoted from the file is cut; the keys that are expected are not from there, and all of them are
/// told.
fn bounded(problem: &str) -> Cow<'_, str> {
    match problem.rsplit_once(", expected one of `") {
        Some((unknown, expected)) if problem.starts_with("unknown ") => {
            Cow::Owned(format!("{}, expected one of `{expected}", shortened(unknown)))
        }
        _ => shortened(problem),
    }
}

/// A file may be one line of a megabyte.
fn shortened(text: &str) -> Cow<'_, str> {
    cut_at(text, QUOTED_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of messages")]
    fn messages_name_file_line_column_and_text() {
        for (text, expected) in [
            ("mode = \"observe\"\nintervall = \"5s\"\n", "c.toml:2:1: unknown field `intervall`"),
            ("intervall = \"5s\"\n", "c.toml:1:1: unknown field `intervall`; did you mean `interval`?"),
            ("mode = \"Enforce\"\n", "c.toml:1:8: unknown variant `Enforce`; did you mean `enforce`?"),
            ("[sample]\nx = 1\n", "c.toml:2:1: unknown field `x`, expected"),
            (
                "[workload]\nname = \"a\"\n",
                "c.toml:1:1: one of several is expected, which is written with two brackets",
            ),
            (
                "[[workload]]\nname = \"a\"\ncgroup = \"/a\"\ncpus = \"8\"\n",
                "c.toml:4:8: invalid type: string \"8\", expected a whole number from 1 to 4294967295",
            ),
            (
                "[thresholds]\nmin_samples = 99999999999999999999\n",
                "c.toml:2:15: invalid value: integer `99999999999999999999`, expected a whole number from 0 to",
            ),
            (
                "[rebalance]\nstart_above = \"a\"\n",
                "c.toml:2:15: invalid type: string \"a\", expected a number, as in 0.5",
            ),
            ("interval = 5\n", "c.toml:1:12: invalid type: integer `5`, expected a length of time in quotes"),
            (
                "[metrics]\nlisten = \"0.0.0.0\"\n",
                "c.toml:2:10: `0.0.0.0` is not an address and a port, as in `127.0.0.1:9477`",
            ),
            ("[metrics]\nlisten = 9477\n", "c.toml:2:10: invalid type: integer `9477`, expected an address"),
            (
                "[nri]\nplace = 99999999999999999999\n",
                "c.toml:2:9: invalid type: integer `99999999999999999999`, expected a boolean",
            ),
            (
                "[thresholds]\nremote_traffic_warning = 99999999999999999999\n",
                "c.toml:2:26: invalid type: integer `99999999999999999999`, expected a number, as in 0.5",
            ),
            ("[control]\nenabled = []\n", "c.toml:2:11: a list, expected a boolean"),
            (
                "[thresholds]\nremote_traffic_warning = []\n",
                "c.toml:2:26: a list, expected a number, as in 0.5",
            ),
            (
                "[sample]\n[placement]\n[placement.AvailableResources]\nCPU = \"750m\"\n",
                "c.toml:4:7: `750m` is an amount, where CPUs are to be named",
            ),
            (
                "[placement.hints]\nalign_by_socket = false\nfull-pcpus-only = true\n\
                 distribute-cpus-across-cores = true\n",
                "c.toml:3:19: placement.hints.full_pcpus_only = true: it cannot be used with \
                 placement.hints.distribute_cpus_across_cores, which is true",
            ),
            (
                "[memory.widening]\nwiden_percent = 50\n",
                "c.toml:2:17: memory.widening.widen_percent = 50: it must be below \
                 memory.widening.arm_percent, which is 8 by default",
            ),
            (
                "[memory.widening]\nrelease_percent = 5\n",
                "c.toml:2:19: memory.widening.release_percent = 5: it must be above \
                 memory.widening.arm_percent, which is 8 by default",
            ),
            (
                "[thresholds]\nremote_residency_warning = 0.9\n",
                "c.toml:2:28: thresholds.remote_residency_warning = 0.9: it must not be above \
                 thresholds.remote_residency_critical, which is 0.5 by default",
            ),
            (
                "[rebalance]\nshort_below = 0.2\n",
                "c.toml:2:15: rebalance.short_below = 0.2: it must be below rebalance.enough_above, which is \
                 0.1 by default",
            ),
            (
                "[rebalance]\nshort_below = 0.2\nenough_above = 0.1\n",
                "c.toml:3:16: rebalance.enough_above = 0.1: it must be above rebalance.short_below, \
                 which is 0.2",
            ),
            (
                "[metrics]\nprobes = '127.0.0.1:9477'\n",
                "c.toml:2:10: metrics.probes = \"127.0.0.1:9477\": it cannot be used with metrics.listen, \
                 which is \"127.0.0.1:9477\" by default: both",
            ),
            (
                "[placement.hints]\nalign_by_socket = true\n[[placement.rule]]\nnamespace = 'a'\n\
                 policy = 'single-numa-node'\n",
                "c.toml:2:19: placement.hints.align_by_socket = true: it cannot be used with \
                 placement.rule[0].policy, which is \"single-numa-node\"",
            ),
            (
                "[placement.hints]\nalign_by_socket = true\n[[workload]]\nname = 'a'\nnamespace = 'a'\n\
                 policy = 'single-numa-node'\n",
                "c.toml:6:10: workload[0].policy = \"single-numa-node\": it cannot be used with \
                 placement.hints.align_by_socket, which is true: a socket",
            ),
            (
                "[memory.widening]\nbrake = 'high'\n[[workload]]\nname = 'a'\ncgroup = '/a'\ncpus = 1\n\
                 demotion = true\n",
                "c.toml:2:9: memory.widening.brake = \"high\": it cannot be used with workload[0].demotion, \
                 which is true: while demotion is on",
            ),
            ("control.enabled.a = 1\n", "c.toml:1:9: a table, expected a boolean"),
            (
                "[placement.available]\ncpus = \"750m\"\n",
                "c.toml:2:8: `750m` is an amount, where CPUs are to be named",
            ),
            (
                "[placement.available]\ncpus = \"cpuset:\"\n",
                "c.toml:2:8: placement.available.cpus = \"cpuset:\": no CPU is left",
            ),
            ("interval = \"\"\"\na\nb\"\"\"\n", "c.toml:1:12: `a\\nb` is not a length of time"),
            ("\"a\\nb\" = 1\n", "c.toml:1:1: unknown field `a\\nb`"),
            (
                "[placement.reserved.memory]\n\"a\\nb\" = 1\n",
                "c.toml:2:10: a table is expected, as in `[placement.reserved.memory.\"a\\nb\"]`",
            ),
            (
                "[placement.reserved.memory.0]\nmemory = \"1G\"\n\
                 [placement.reserved.memory.\"a.b\"]\nmemory = \"1G\"\n",
                "c.toml:3:28: placement.reserved.memory = \"a.b\": the id of a node is expected",
            ),
            (
                "[placement.reserved.memory]\n0 = { memory = \"1G\", gpu = \"1G\" }\n",
                "c.toml:2:22: placement.reserved.memory.0 = \"gpu\": memory or hugepages-SIZE",
            ),
            (
                "state_dir = 7\n",
                "c.toml:1:13: invalid type: integer `7`, expected a path in quotes, as in \"/run/a\"",
            ),
            ("[[workload]]\nname = 7\n", "c.toml:2:8: invalid type: integer `7`, expected text in quotes"),
            ("interval = \"5 parsecs\"\n", "c.toml:1:12: `5 parsecs` is not a length of time"),
            ("mode = \"enforce\"\n[[workload]\n", "c.toml:2:"),
            ("interval = \"0s\"\n", "c.toml:1:12: interval = 0s: it must be longer than zero"),
            (
                "[[workload]]\nname = \"a\"\nunit = \"x\"\ncpus = 1\n",
                "c.toml:3:8: workload[0].unit = \"x\": a unit's name",
            ),
        ] {
            let message = parse(Path::new("c.toml"), text, &()).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn all_keys_that_are_expected_are_told() {
        let message = parse(Path::new("c.toml"), "colour = 1\n", &()).unwrap_err().to_string();
        for key in
            toml::Table::try_from(Policy::default()).unwrap().keys().map(String::as_str).chain(["workload"])
        {
            assert!(message.contains(&format!("`{key}`")), "{key}: {message}");
        }
    }

    #[test]
    fn a_message_about_a_long_line_is_short() {
        let long = "x".repeat(100_000);
        for text in [
            format!("a = \"{long}"),
            format!("interval = \"{}\"", "9".repeat(100_000)),
            format!("{long} = 1"),
            format!("\"{long}, expected one of `{long}\" = 1"),
            format!("interval = \"unknown , expected one of `{long}\""),
        ] {
            let message = parse(Path::new("c.toml"), &text, &()).unwrap_err().to_string();
            assert!(message.len() < 1000, "{}", message.len());
        }
    }

    #[test]
    fn what_would_block_or_never_end_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for path in [fifo.as_path(), Path::new("/dev/zero")] {
            let message = read_config(path).unwrap_err().to_string();
            assert!(message.ends_with("not a regular file"), "{message}");
        }
    }

    #[test]
    fn the_excerpt_points_at_what_is_wrong() {
        for (text, marked) in [
            ("mode = \"observe\"\nintervall = \"5s\"\n", "2 | intervall = \"5s\"\n  | ^^^^^^^^^"),
            ("interval = \"5 parsecs\"\n", "1 | interval = \"5 parsecs\"\n  |            ^^^^^^^^^^^"),
        ] {
            let error = parse(Path::new("c.toml"), text, &()).unwrap_err();
            let excerpt = error.excerpt().unwrap();
            assert!(excerpt.ends_with(marked), "{excerpt}");
            assert!(!excerpt.contains("parse error") && !excerpt.contains("unknown"), "{excerpt}");
        }
        let refused = parse(Path::new("c.toml"), "interval = \"0s\"\n", &()).unwrap_err();
        assert_eq!(refused.excerpt(), Some("  |\n1 | interval = \"0s\"\n  |            ^^^^"));
    }

    #[test]
    fn settings_of_the_file_that_change_nothing_are_named_with_their_place() {
        let notes = |text: &str| parse(Path::new("c.toml"), text, &()).unwrap().notes;
        for (text, expected) in [
            ("[placement.hints]\nprofile = 'kubelet'\npolicy = 'restricted'\n", vec![]),
            (
                "[placement.hints]\nprofile = 'kubelet'\nnuma-allocation-strategy = 'most-allocated'\n",
                vec!["c.toml:3:28: placement.hints.numa_allocation_strategy: no effect: "],
            ),
            (
                "[placement.hints]\nprofile = 'kubelet'\nalign_all_qos = true\n[[placement.rule]]\nscope = 'pod'\n",
                vec![
                    "c.toml:3:17: placement.hints.align_all_qos: no effect: ",
                    "c.toml:4:1: placement.rule[0]: no effect: ",
                ],
            ),
            ("[memory.demotion]\nidle = '5m'\n", vec!["c.toml:2:8: memory.demotion.idle: no effect: "]),
            (
                "[memory.demotion]\nenabled = false\nidle = '5m'\n",
                vec!["c.toml:3:8: memory.demotion.idle: no effect: "],
            ),
            (
                "[metrics]\nenabled = false\nlisten = '127.0.0.1:1'\nprobes = '127.0.0.1:2'\n",
                vec!["c.toml:3:10: metrics.listen: no effect: metrics.enabled is false"],
            ),
            (
                "[[workload]]\nname = 'a'\ncgroup = '/a/*'\ncpus = 1\n\
                 [[workload]]\nname = 'b'\ncgroup = '/a/b'\ncpus = 1\n",
                vec!["c.toml:5:1: workload[1]: no effect: [[workload]] \"a\" comes first"],
            ),
            ("interval = '10m'\n", vec![]),
            ("interval = '10m'\nidle_interval = '5m'\n", vec!["c.toml:2:17: idle_interval: no effect: "]),
            ("[placement.pools]\nreservedPoolNamespaces = ['[']\n", vec!["c.toml: ", "c.toml:2:26: "]),
        ] {
            let found = notes(text);
            let begin_so = found.iter().zip(&expected).all(|(note, start)| note.starts_with(start));
            assert!(found.len() == expected.len() && begin_so, "{text}: {found:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let message = read_config(Path::new("/no/such/file.toml")).unwrap_err().to_string();
        assert!(message.starts_with("reading /no/such/file.toml: "), "{message}");
    }
}
