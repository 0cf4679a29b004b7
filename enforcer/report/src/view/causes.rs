//! Sources that are missing, by their cause.
//!
//! One refusal of the kernel can disable several sources. Then the reason is shown once, with all sources and
//! their effects.

use numa_topology::degraded::Degraded;

/// One line for each cause, by its first occurrence.
pub(crate) fn lines(entries: &[Degraded]) -> Vec<String> {
    let mut causes: Vec<(&str, Vec<&Degraded>)> = Vec::new();
    for entry in entries {
        match causes.iter_mut().find(|(reason, _)| *reason == entry.reason) {
            Some((_, same)) => same.push(entry),
            None => causes.push((&entry.reason, vec![entry])),
        }
    }
    causes.into_iter().map(|(reason, same)| line(reason, &same)).collect()
}

fn line(reason: &str, same: &[&Degraded]) -> String {
    let joined = |of: fn(&Degraded) -> &str, between: &str| {
        let mut parts: Vec<&str> = Vec::new();
        for part in same.iter().map(|one| of(one)) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        parts.join(between)
    };
    format!("{}: {reason}; {}", joined(|one| &one.source, ", "), joined(|one| &one.effect, "; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once_with_its_sources_and_effects() {
        let entries = [
            Degraded::new("bpf:a", "refused", "a is not told"),
            Degraded::new("hmat", "no table", "distances alone count"),
            Degraded::new("bpf:b", "refused", "b is not told"),
            Degraded::new("bpf:c", "refused", "b is not told"),
        ];
        assert_eq!(
            lines(&entries),
            [
                "bpf:a, bpf:b, bpf:c: refused; a is not told; b is not told",
                "hmat: no table; distances alone count"
            ]
        );
        assert!(lines(&[]).is_empty());
    }
}
