//! Flat keyed files: `name value` lines, as in vmstat, numastat, `memory.events`
//! (Documentation/admin-guide/cgroup-v2.rst, "Format").

use std::collections::BTreeMap;

use super::{ParseError, scalar};

/// Maximum number of lines kept; vmstat has about 200.
const LIMIT: usize = 4_096;

/// Every line, by name.
pub fn parse_keyed(text: &str) -> Result<BTreeMap<String, u64>, ParseError> {
    text.lines().filter(|line| !line.is_empty()).take(LIMIT).map(pair).collect()
}

fn pair(line: &str) -> Result<(String, u64), ParseError> {
    let malformed = || ParseError::new("a name and a number", line);
    let (name, value) = line.split_once(' ').ok_or_else(malformed)?;
    Ok((name.to_owned(), scalar::unsigned(value).ok().ok_or_else(malformed)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_events_and_counters() {
        let events = parse_keyed("low 0\nhigh 12\nmax 0\noom 0\noom_kill 1\noom_group_kill 0\n").unwrap();
        assert_eq!((events["high"], events["oom_kill"], events.len()), (12, 1, 6));
        let numastat =
            "numa_hit 43885563\nnuma_miss 0\nnuma_foreign 0\ninterleave_hit 1136\nlocal_node 43885563\n";
        assert_eq!(parse_keyed(numastat).unwrap()["local_node"], 43_885_563);
        assert!(parse_keyed("").unwrap().is_empty());
    }

    #[test]
    fn names_the_line_that_is_none() {
        for line in ["high", "high x", "high -1", "high 99999999999999999999", "high 1 2"] {
            let error = parse_keyed(&format!("low 0\n{line}\n")).unwrap_err();
            assert_eq!(error.found, line);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(pairs in proptest::collection::btree_map("[a-z_]{1,12}", any::<u64>(), 0..20)) {
            let text: Vec<String> = pairs.iter().map(|(name, value)| format!("{name} {value}")).collect();
            prop_assert_eq!(parse_keyed(&text.join("\n")).unwrap(), pairs);
        }

        #[test]
        fn any_text_is_pairs_or_an_error(text in any::<String>()) {
            let _ = parse_keyed(&text);
        }
    }
}
