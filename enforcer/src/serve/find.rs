//! Finds the workload that a user means by a name.
//!
//! A full match counts before a match of the end or the beginning, and running workloads before ended ones.
//! Among equal matches none is chosen: the answer lists them.

use enforcer_core::workload::printable;

use super::api::{Problem, ProblemCode};
use enforcer_report::decision::DecisionSubject;

/// Most names in a problem.
const LISTED: usize = 20;
/// Shortest prefix of an id that counts.
const LEAST_OF_AN_ID: usize = 6;
/// Longest name that is quoted.
const QUOTED: usize = 200;

/// A workload that a name may mean.
#[derive(Debug, Clone)]
pub(crate) struct NameCandidate {
    pub(crate) subject: DecisionSubject,
    /// Name of the rule that declares it.
    pub(crate) rule: Option<String>,
    /// A single process of the cgroup, and its name in findings: `/#77`.
    pub(crate) process: Option<(u32, String)>,
}

/// Index in `known` of the workload that is meant.
pub(crate) fn find(wanted: &str, known: &[NameCandidate]) -> Result<usize, Problem> {
    let ways: [fn(&str, &NameCandidate) -> bool; 3] = [is_named, is_declared_as, is_named_in_part];
    let found = ways.iter().map(|fits| those(known, |one| fits(wanted, one))).find(|found| !found.is_empty());
    let Some(mut found) = found.filter(|_| !wanted.is_empty()) else { return Err(unknown(wanted, known)) };
    if found.iter().any(|at| !known[*at].subject.ended) {
        found.retain(|at| !known[*at].subject.ended);
    }
    match found.as_slice() {
        [one] => Ok(*one),
        several => Err(Problem {
            code: ProblemCode::AmbiguousWorkload,
            message: format!("{} may be {} workloads; name one of them", quoted(wanted), several.len()),
            candidates: listed(several.iter().map(|at| &known[*at])),
        }),
    }
}

fn those(known: &[NameCandidate], fits: impl Fn(&NameCandidate) -> bool) -> Vec<usize> {
    (0..known.len()).filter(|at| fits(&known[*at])).collect()
}

fn is_named(wanted: &str, one: &NameCandidate) -> bool {
    let DecisionSubject { name, cgroup, container_id, .. } = &one.subject;
    if let Some((_, object)) = &one.process {
        // The process shares its cgroup.
        return name == wanted || object == wanted;
    }
    name == wanted
        || cgroup.as_ref().is_some_and(|path| path.as_str() == wanted)
        || container_id.as_ref().is_some_and(|id| id == wanted)
}

fn is_declared_as(wanted: &str, one: &NameCandidate) -> bool {
    one.rule.as_ref().is_some_and(|rule| rule == wanted)
}

/// Matches the last elements of the path or name, or the beginning of the id.
fn is_named_in_part(wanted: &str, one: &NameCandidate) -> bool {
    if one.process.is_some() {
        return false;
    }
    let DecisionSubject { name, cgroup, container_id, .. } = &one.subject;
    let ends = |text: &str| text.strip_suffix(wanted).is_some_and(|before| before.ends_with('/'));
    ends(name)
        || cgroup.as_ref().is_some_and(|path| ends(path.as_str()))
        || (wanted.len() >= LEAST_OF_AN_ID && container_id.as_ref().is_some_and(|id| id.starts_with(wanted)))
}

fn unknown(wanted: &str, known: &[NameCandidate]) -> Problem {
    let lower = wanted.to_lowercase();
    let resembles =
        |one: &&NameCandidate| !lower.is_empty() && one.subject.name.to_lowercase().contains(&lower);
    let mut candidates = listed(known.iter().filter(resembles));
    if candidates.is_empty() {
        // Workloads with decisions are likelier to be meant than others.
        candidates = listed(known.iter().filter(|one| !one.subject.ended));
    }
    let message = format!("no workload is called {}", quoted(wanted));
    Problem { code: ProblemCode::UnknownWorkload, message, candidates }
}

fn quoted(wanted: &str) -> String {
    format!("`{}`", printable(&wanted.chars().take(QUOTED).collect::<String>()))
}

/// Unambiguous names of these.
fn listed<'a>(known: impl Iterator<Item = &'a NameCandidate>) -> Vec<String> {
    let one = |NameCandidate { subject, process, .. }: &NameCandidate| {
        let DecisionSubject { name, cgroup, container_id, ended } = subject;
        let object = process.as_ref().map(|(_, object)| object.clone());
        let path = || cgroup.as_ref().map(ToString::to_string);
        let exact = object.or_else(path).or_else(|| container_id.clone());
        let also = exact.filter(|exact| exact != name).map(|exact| format!(" ({exact})"));
        let ended = if *ended { ", ended" } else { "" };
        printable(&format!("{name}{}{ended}", also.unwrap_or_default()))
    };
    let mut all: Vec<String> = known.map(one).collect();
    let more = all.len().saturating_sub(LISTED);
    all.truncate(LISTED);
    all.extend((more > 0).then(|| format!("and {more} more")));
    all
}

#[cfg(test)]
mod tests {
    use enforcer_core::workload::CgroupPath;

    use super::*;

    fn container(name: &str, id: &str, ended: bool) -> NameCandidate {
        let cgroup = Some(CgroupPath::new(&format!("/kubepods/{id}")));
        NameCandidate {
            subject: DecisionSubject { name: name.into(), cgroup, container_id: Some(id.into()), ended },
            rule: None,
            process: None,
        }
    }

    fn cgroup(path: &str, rule: &str) -> NameCandidate {
        let cgroup = Some(CgroupPath::new(path));
        let subject = DecisionSubject { name: path.into(), cgroup, container_id: None, ended: false };
        NameCandidate { subject, rule: Some(rule.into()), process: None }
    }

    fn all() -> Vec<NameCandidate> {
        vec![
            container("shop/web-1/main", "aaaaaa111111", false),
            container("shop/web-2/main", "aaaaaa222222", false),
            container("shop/web-3/main", "bbbbbb333333", true),
            container("shop/web-3/main", "bbbbbb444444", false),
            container("shop/old/main", "cccccc555555", true),
            container("shop/old/main", "cccccc666666", true),
            cgroup("/shop/orders", "orders"),
            cgroup("/dev/orders", "orders-dev"),
            cgroup("/cache/a", "cache"),
            cgroup("/cache/b", "cache"),
        ]
    }

    #[test]
    fn a_name_is_found_by_what_tells_it_from_others() {
        for (wanted, found) in [
            ("shop/web-1/main", Ok(0)),
            ("web-2/main", Ok(1)),
            ("aaaaaa111111", Ok(0)),
            ("aaaaaa2", Ok(1)),
            ("/kubepods/aaaaaa222222", Ok(1)),
            // The running one, not the one that it replaced.
            ("shop/web-3/main", Ok(3)),
            ("bbbbbb333333", Ok(2)),
            ("/shop/orders", Ok(6)),
            ("orders", Ok(6)),
            ("orders-dev", Ok(7)),
            ("b", Ok(9)),
            ("main", Err(ProblemCode::AmbiguousWorkload)),
            ("aaaaaa", Err(ProblemCode::AmbiguousWorkload)),
            ("shop/old/main", Err(ProblemCode::AmbiguousWorkload)),
            ("cache", Err(ProblemCode::AmbiguousWorkload)),
            ("aaaa", Err(ProblemCode::UnknownWorkload)),
            ("eb-1/main", Err(ProblemCode::UnknownWorkload)),
            ("", Err(ProblemCode::UnknownWorkload)),
            ("/", Err(ProblemCode::UnknownWorkload)),
        ] {
            assert_eq!(find(wanted, &all()).map_err(|problem| problem.code), found, "{wanted}");
        }
    }

    #[test]
    fn a_process_is_found_by_what_reports_and_findings_call_it() {
        let process = |name: &str, pid: u32| {
            let subject = DecisionSubject {
                name: format!("{name} ({pid})"),
                cgroup: Some(CgroupPath::root()),
                container_id: None,
                ended: false,
            };
            NameCandidate { subject, rule: None, process: Some((pid, format!("/#{pid}"))) }
        };
        let known = [process("a", 1), process("a", 11), process("b/main", 2)];
        for (wanted, found) in [("a (1)", Some(0)), ("/#1", Some(0)), ("/#11", Some(1)), ("a (11)", Some(1))]
        {
            assert_eq!(find(wanted, &known).ok(), found, "{wanted}");
        }
        for unknown in ["/", "/#", "1", "main (2)", "#1"] {
            assert!(find(unknown, &known).is_err(), "{unknown}");
        }
        assert_eq!(
            find("a", &known).unwrap_err().candidates,
            ["a (1) (/#1)", "a (11) (/#11)", "b/main (2) (/#2)"]
        );
    }

    #[test]
    fn what_may_be_meant_is_told() {
        let problem = find("cache", &all()).unwrap_err();
        assert_eq!(problem.message, "`cache` may be 2 workloads; name one of them");
        assert_eq!(problem.candidates, ["/cache/a", "/cache/b"]);
        let problem = find("shop/old/main", &all()).unwrap_err();
        assert_eq!(problem.candidates[0], "shop/old/main (/kubepods/cccccc555555), ended");
        assert_eq!(find("WEB-", &all()).unwrap_err().candidates.len(), 4);
        assert!(find("nothing", &all()).unwrap_err().candidates.len() > 4);
        let many: Vec<NameCandidate> = (0..1000).map(|n| cgroup(&format!("/c{n}"), "x")).collect();
        let problem = find("nothing", &many).unwrap_err();
        assert_eq!(
            (problem.candidates.len(), problem.candidates[LISTED].as_str()),
            (LISTED + 1, "and 980 more")
        );
    }

    #[test]
    fn hostile_names_are_neither_echoed_whole_nor_as_they_are() {
        let problem = find(&"\u{1b}[2J".repeat(10_000), &all()).unwrap_err();
        assert!(problem.message.len() < 2_000 && !problem.message.contains('\u{1b}'), "{}", problem.message);
    }
}
