//! A check of a cluster as text: findings grouped by their kind.

use std::io::{self, Write};

use enforcer_core::cluster::check::{ClusterCheckReport, ClusterFinding, ClusterFindingKind};
use strum::IntoEnumIterator as _;

use super::{
    style::{Style, Tone},
    text,
};

/// Writes all findings, and the numbers of what was compared.
pub fn render(report: &ClusterCheckReport, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let ClusterCheckReport { nodes, states, pods, findings, .. } = report;
    for kind in ClusterFindingKind::iter() {
        let of_kind: Vec<&ClusterFinding> = findings.iter().filter(|one| one.finding == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        let heading = style.paint(Tone::Bad, kind.as_str());
        writeln!(out, "{heading}: {}", kind.meaning())?;
        for ClusterFinding { node, pod, reason, .. } in of_kind {
            let pod = pod.as_ref().map(|pod| format!(" {pod}")).unwrap_or_default();
            let line = format!("{node}{pod}: {reason}");
            let mut wrapped = String::new();
            text::wrap(&mut wrapped, &text::escape(&line), style.width, "  ", "    ");
            out.write_all(wrapped.as_bytes())?;
        }
    }
    let count = match findings.len() {
        0 => style.paint(Tone::Good, "no finding").to_string(),
        1 => "1 finding".to_owned(),
        more => format!("{more} findings"),
    };
    let plural = |number: u64, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
    let compared = [plural(*nodes, "node"), plural(*states, "state"), plural(*pods, "pod")];
    writeln!(out, "{count} on {}", compared.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(findings: Vec<ClusterFinding>) -> String {
        let report = ClusterCheckReport { schema_version: 1, nodes: 1, states: 2, pods: 3, findings };
        let mut out = Vec::new();
        render(&report, Style { colour: false, width: 56 }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn findings_are_grouped_and_escaped() {
        let finding = |finding, pod: Option<&str>, reason: &str| ClusterFinding {
            finding,
            node: "a".into(),
            pod: pod.map(str::to_owned),
            reason: reason.into(),
        };
        let found = rendered(vec![
            finding(ClusterFindingKind::Stale, None, "old"),
            finding(
                ClusterFindingKind::Leaked,
                Some("d/\u{1b}p"),
                "holds CPUs 1-2, and the API has no such pod",
            ),
        ]);
        assert_eq!(
            found,
            "stale: states that are older than what they describe\n  a: old\n\
             leaked: what pods hold and do not need\n  a d/\\u{1b}p: holds CPUs 1-2, and the API has no such\n    pod\n\
             2 findings on 1 node, 2 states, 3 pods\n"
        );
        assert_eq!(rendered(Vec::new()), "no finding on 1 node, 2 states, 3 pods\n");
    }
}
