//! Figures for people: sizes, shares, lists of ids. Programs get the JSON, where nothing is rounded.

use std::time::Duration;

use numa_topology::{
    id::{Id, NodeId},
    set::{CpuSet, IdSet, NodeSet},
};

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A size with three digits or so: `512 B`, `1.5 GiB`, `64 GiB`.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn bytes(bytes: u64) -> String {
    let mut unit = 0;
    let mut value = bytes as f64;
    // 1023.95 would be shown as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    format!("{} {}", digits.trim_end_matches(".0"), UNITS[unit])
}

/// A frequency as people name it: `1.9 GHz`.
pub fn frequency(khz: u64) -> String {
    let (ghz, mhz) = (khz / 1_000_000, khz % 1_000_000 / 1_000);
    let digits = format!("{ghz}.{mhz:03}");
    format!("{} GHz", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// A share of 0 to 1 in percent; never rounded to all or nothing.
pub fn percent(share: f64) -> String {
    match share {
        share if share > 0.0 && share < 0.01 => "<1%".into(),
        share if share > 0.99 && share < 1.0 => ">99%".into(),
        share => format!("{:.0}%", share * 100.0),
    }
}

/// A list of ids of at most `width` characters, cut with `…`; `-` for an empty one.
pub fn ids<T: Id>(set: &IdSet<T>, width: usize) -> String {
    let text = set.to_string();
    if text.is_empty() {
        return "-".into();
    }
    if text.len() <= width {
        return text;
    }
    let room = width.saturating_sub(1);
    let end = text.match_indices(',').map(|(at, _)| at + 1).take_while(|end| *end <= room).last();
    format!("{}…", &text[..end.unwrap_or(0)])
}

/// `1 node`, `2 nodes`.
pub fn count(number: impl TryInto<usize>, one: &str) -> String {
    match number.try_into().unwrap_or(usize::MAX) {
        1 => format!("1 {one}"),
        number => format!("{number} {one}s"),
    }
}

/// The value as `show` has it, `?` where it is unknown.
pub fn known<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "?".to_owned(), show)
}

/// A size, `unknown` where it is.
pub fn size(size: Option<u64>) -> String {
    size.map_or_else(|| "unknown".to_owned(), bytes)
}

/// A share that is measured only at times: `n/a` without a measurement.
pub fn measured(share: Option<f64>) -> String {
    share.map_or_else(|| "n/a".to_owned(), percent)
}

/// `node 3`, `nodes 3-5`.
pub fn nodes(nodes: &NodeSet) -> String {
    format!("{} {nodes}", if nodes.len() == 1 { "node" } else { "nodes" })
}

/// `CPU 3`, `CPUs 0-3`.
pub fn cpus(cpus: &CpuSet) -> String {
    format!("{} {cpus}", if cpus.len() == 1 { "CPU" } else { "CPUs" })
}

/// A list of ids, `none` for an empty one.
pub fn ids_or_none<T: Id>(set: &IdSet<T>) -> String {
    if set.is_empty() { "none".to_owned() } else { set.to_string() }
}

/// `0: 3.5 GiB` for each node.
pub fn by_node<'a>(sizes: impl IntoIterator<Item = (&'a NodeId, &'a u64)>) -> impl Iterator<Item = String> {
    sizes.into_iter().map(|(node, size)| format!("{node}: {}", bytes(*size)))
}

/// The first `most` lines, and `and 3 more` for those after them.
pub fn folded(lines: impl IntoIterator<Item = String>, most: usize) -> Vec<String> {
    let mut lines = lines.into_iter();
    let mut shown: Vec<String> = lines.by_ref().take(most).collect();
    let more = lines.count();
    shown.extend((more > 0).then(|| format!("and {more} more")));
    shown
}

/// `a, b and 3 more`: the first `most` names in a sentence.
pub fn first_few(names: &[String], most: usize) -> String {
    let (shown, more) = names.split_at(names.len().min(most));
    and_more(&shown.join(", "), more.len())
}

/// `a, b and 3 more` of what is listed already.
pub fn and_more(listed: &str, more: usize) -> String {
    if more == 0 { listed.to_owned() } else { format!("{listed} and {more} more") }
}

/// The time from one moment to another, both in milliseconds since 1970, as [`span`]; a clock that went back
/// gives `0s`.
pub fn ago(now_unix_ms: u64, then_unix_ms: u64) -> String {
    span(now_unix_ms.saturating_sub(then_unix_ms) / 1000)
}

/// A length of time in its two largest units: `0s`, `5m 3s`, `2d 4h`.
pub fn span(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let first = units.iter().position(|(_, length)| seconds >= *length).unwrap_or(units.len() - 1);
    let mut left = seconds;
    let mut parts = Vec::new();
    for (name, length) in units.iter().skip(first).take(2) {
        if left / length > 0 || parts.is_empty() {
            parts.push(format!("{}{name}", left / length));
        }
        left %= length;
    }
    parts.join(" ")
}

/// A length of time that may be short: `500ms`, `2.5s`, from ten seconds on as [`span`].
pub fn short_span(length: Duration) -> String {
    match length.as_secs_f64() {
        seconds if seconds < 0.9995 => format!("{:.0}ms", seconds * 1000.0),
        seconds if seconds < 9.95 => format!("{}s", format!("{seconds:.1}").trim_end_matches(".0")),
        _ => span(length.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_are_in_ghz() {
        for (khz, shown) in [
            (1_900_000, "1.9 GHz"),
            (3_000_000, "3 GHz"),
            (2_495_998, "2.495 GHz"),
            (800_000, "0.8 GHz"),
            (0, "0 GHz"),
        ] {
            assert_eq!(frequency(khz), shown);
        }
    }

    #[test]
    fn short_spans_are_not_rounded_to_seconds() {
        for (millis, shown) in [
            (500, "500ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (2_500, "2.5s"),
            (9_940, "9.9s"),
            (9_960, "9s"),
            (10_900, "10s"),
            (90_000, "1m 30s"),
        ] {
            assert_eq!(short_span(Duration::from_millis(millis)), shown);
        }
    }

    #[test]
    fn spans_have_their_two_largest_units() {
        for (seconds, shown) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (303, "5m 3s"),
            (3_600, "1h"),
            (7_325, "2h 2m"),
            (187_200, "2d 4h"),
            (86_401, "1d"),
        ] {
            assert_eq!(span(seconds), shown, "{seconds}");
        }
    }

    #[test]
    fn sizes_have_about_three_digits() {
        for (size, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1 MiB"),
            (64 << 30, "64 GiB"),
            (67_448_123_392, "62.8 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(size), shown, "{size}");
        }
    }

    #[test]
    fn a_little_is_not_nothing_and_most_is_not_all() {
        for (share, shown) in
            [(0.0, "0%"), (0.004, "<1%"), (0.5, "50%"), (0.975, "98%"), (0.999, ">99%"), (1.0, "100%")]
        {
            assert_eq!(percent(share), shown, "{share}");
        }
    }

    #[test]
    fn lists_are_cut_at_a_comma() {
        let cpus: CpuSet = "0-3,8,10-11,64".parse().unwrap();
        assert_eq!(ids(&cpus, 14), "0-3,8,10-11,64");
        assert_eq!(ids(&cpus, 10), "0-3,8,…");
        assert_eq!(ids(&cpus, 3), "…");
        assert_eq!(ids(&CpuSet::new(), 3), "-");
    }
    #[test]
    fn long_lists_say_how_much_is_left_out() {
        let names = |number: usize| -> Vec<String> { (0..number).map(|name| name.to_string()).collect() };
        for (number, few, lines) in [
            (0, "", vec![]),
            (2, "0, 1", vec!["0", "1"]),
            (5, "0, 1 and 3 more", vec!["0", "1", "and 3 more"]),
        ] {
            assert_eq!(first_few(&names(number), 2), few);
            assert_eq!(folded(names(number), 2), lines);
        }
    }
}
