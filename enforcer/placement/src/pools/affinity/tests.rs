//! Which containers affinity rules apply between, and the resulting scores of pools.

use std::collections::BTreeSet;

use super::*;
use crate::QosClass;
use crate::{
    Inventory,
    pools::{annotations::tests::pod, tree::tests::server},
    settings::PlacementSettings,
};

const KEY: &str = "resource-policy.nri.io/affinity";
const ANTI: &str = "resource-policy.nri.io/anti-affinity";

fn rules(annotations: &[(&str, &str)], container: &str) -> Vec<AffinityRule> {
    let (rules, warnings) = rules_of(&pod(annotations), container, &PoolsSettings::default());
    assert_eq!(warnings, Vec::<String>::new());
    rules
}

/// Attraction of each of c1 to c5 of one pod to the others, without zeros.
fn pairs(annotations: &[(&str, &str)]) -> BTreeSet<(&'static str, &'static str, i64)> {
    let pod = pod(annotations);
    let names = ["c1", "c2", "c3", "c4", "c5"];
    let of = |container| AffinitySubject { pod: &pod.name, container, qos: None, labels: &pod.labels };
    let every = names.into_iter().flat_map(|one| names.map(|other| (one, other)));
    let drawn = every.map(|(one, other)| {
        let attraction =
            attraction((&of(one), &rules(annotations, one)), (&of(other), &rules(annotations, other)));
        (one, other, attraction)
    });
    drawn.filter(|(.., drawn)| *drawn != 0).collect()
}

#[test]
fn the_simple_form_holds_for_both_sides_and_counts_once() {
    let drawn = pairs(&[(KEY, r#"{"c1": ["c2"], "c2": ["c3", "c4", "c5"], "c4": ["c5"]}"#)]);
    let partners = [("c1", "c2"), ("c2", "c3"), ("c2", "c4"), ("c2", "c5"), ("c4", "c5")];
    let expected = partners.into_iter().flat_map(|(a, b)| [(a, b, 1), (b, a, 1)]).collect();
    assert_eq!(drawn, expected);
    let drawn = pairs(&[(ANTI, r#"{"c1": ["c2"]}"#)]);
    assert_eq!(drawn, BTreeSet::from([("c1", "c2", -1), ("c2", "c1", -1)]));
    // A wish in both annotations still counts once.
    assert_eq!(pairs(&[(KEY, r#"{"c1": ["c2"], "c2": ["c1"]}"#)]).iter().map(|pair| pair.2).max(), Some(1));
}

#[test]
fn containers_that_the_pod_does_not_have_are_named() {
    let rule = r#"{"c1": ["c2", "c8"], "c9": [{"match": {"operator": "AlwaysTrue"}}]}"#;
    let pod = pod(&[(KEY, rule), (ANTI, r#"{"c1": ["c3"]}"#)]);
    assert_eq!(strangers(&pod), [format!("annotation {KEY}: the pod has no container c8, c9, ignored")]);
}

#[test]
fn every_form_of_a_rule_names_containers() {
    let named = |expression: &str| {
        let rule = format!(r#"{{"c1": [{{{expression}}}]}}"#);
        strangers(&pod(&[(ANTI, &rule)])).concat()
    };
    for (operator, values) in [
        ("Equals", r#"["c8"]"#),
        ("NotEqual", r#"["c8"]"#),
        ("In", r#"["c2", "c8"]"#),
        ("NotIn", r#"["c8", "c2"]"#),
    ] {
        for key in ["name", "labels/io.kubernetes.container.name"] {
            let rule =
                format!(r#""match": {{"key": "{key}", "operator": "{operator}", "values": {values}}}"#);
            assert_eq!(
                named(&rule),
                format!("annotation {ANTI}: the pod has no container c8, ignored"),
                "{rule}"
            );
            // In any pod of the scope.
            let scope = r#""scope": {"key": "namespace", "operator": "Equals", "values": ["db"]}"#;
            assert_eq!(named(&format!("{scope}, {rule}")), "");
        }
    }
    for other in [
        r#""match": {"key": "namespace", "operator": "Equals", "values": ["c8"]}"#,
        r#""match": {"key": ":-:name,namespace", "operator": "Equals", "values": ["c8-db"]}"#,
        r#""match": {"key": "name", "operator": "Matches", "values": ["c8*"]}"#,
        r#""match": {"key": "name", "operator": "Exists"}"#,
    ] {
        assert_eq!(named(other), "", "{other}");
    }
}

#[test]
fn affinity_rule_of_one_pod_attracts_pods_that_come_later() {
    let rule = r#"{"c1": [{"match": {"key": "name", "operator": "Equals", "values": ["c2"]}, "weight": 7}]}"#;
    assert_eq!(pairs(&[(KEY, rule)]), BTreeSet::from([("c1", "c2", 7), ("c2", "c1", 7)]));
}

fn weight_of(key: &str, weight: &str) -> i64 {
    let rule = format!(r#"{{"c1": [{{"match": {{"operator": "AlwaysTrue"}}{weight}}}]}}"#);
    rules(&[(key, &rule)], "c1")[0].weight
}

#[test]
fn weights_have_defaults_and_bounds() {
    for (weight, near, apart) in [
        ("", 1, -1),
        (r#", "weight": 0"#, 1, -1),
        (r#", "weight": 10"#, 10, -10),
        (r#", "weight": -10"#, -10, -10),
        (r#", "weight": 5000"#, 1000, -1000),
        (r#", "weight": -5000"#, -1000, -1000),
        (r#", "weight": -9223372036854775808"#, -1000, -1000),
    ] {
        assert_eq!((weight_of(KEY, weight), weight_of(ANTI, weight)), (near, apart), "{weight}");
    }
}

/// Does the expression hold for container `db` of pod shop/web-0, Burstable, with label tier=gold?
fn holds(key: &str, operator: &str, values: &[&str]) -> bool {
    let json = serde_json::json!({"key": key, "operator": operator, "values": values});
    let raw: RawExpression = serde_json::from_value(json).unwrap();
    let pod = PodName::new("shop", "web-0");
    let labels = BTreeMap::from([("tier".into(), "gold".into()), ("a.b/c".into(), "x/y".into())]);
    let subject =
        AffinitySubject { pod: &pod, container: "db", qos: Some(QosClass::Burstable), labels: &labels };
    raw.read().unwrap().holds(&subject)
}

#[test]
fn operators() {
    for (operator, values, of_name, of_missing) in [
        ("Equals", &["db"][..], true, false),
        ("Equals", &["d"], false, false),
        ("NotEqual", &["db"], false, true),
        ("NotEqual", &["d"], true, true),
        ("In", &["a", "db"], true, false),
        ("In", &[], false, false),
        ("NotIn", &["a", "db"], false, true),
        ("NotIn", &["a"], true, true),
        ("Exists", &[], true, false),
        ("NotExist", &[], false, true),
        ("AlwaysTrue", &[], true, true),
        ("Matches", &["d*"], true, false),
        ("Matches", &["?"], false, false),
        ("MatchesNot", &["d*"], false, true),
        ("MatchesAny", &["x*", "[cd]b"], true, false),
        ("MatchesAny", &["x*"], false, false),
        ("MatchesNone", &["x*", "db"], false, true),
        ("MatchesNone", &["x*"], true, true),
    ] {
        assert_eq!(holds("name", operator, values), of_name, "{operator} {values:?}");
        assert_eq!(holds("labels/none", operator, values), of_missing, "{operator} {values:?}, missing");
    }
}

#[test]
fn keys_single_and_joint() {
    for (key, value) in [
        ("name", "db"),
        ("namespace", "shop"),
        ("qosclass", "Burstable"),
        ("pod/name", "web-0"),
        ("pod/namespace", "shop"),
        ("pod/qosclass", "Burstable"),
        ("pod/labels/tier", "gold"),
        ("labels/tier", "gold"),
        ("pod/labels/a.b/c", "x/y"),
        ("labels/io.kubernetes.container.name", "db"),
        ("labels/io.kubernetes.pod.namespace", "shop"),
        (":-:namespace,pod/name,name", "shop-web-0-db"),
        (":, :namespace,name", "shop, db"),
        (":namespace,name", "shop:db"),
        (":;+namespace;name", "shop+db"),
        ("::namespace,name", "shopdb"),
    ] {
        assert!(holds(key, "Equals", &[value]), "{key}");
    }
    // A joint value exists if all its parts do.
    assert!(!holds(":-:namespace,labels/none", "Exists", &[]));
    assert!(!holds("id", "Exists", &[]));
}

#[test]
fn what_is_wrong_with_a_rule_is_reported_and_the_rest_counts() {
    let full = |expression: &str| format!(r#"{{"c2": [{{"match": {expression}}}]}}"#);
    for (annotation, problem) in [
        (
            full(r#"{"key": "name", "operator": "Equals", "values": []}"#),
            "operator Equals takes 1 values, not 0",
        ),
        (
            full(r#"{"key": "name", "operator": "Exists", "values": ["a"]}"#),
            "operator Exists takes 0 values, not 1",
        ),
        (full(r#"{"key": "name", "operator": "Like", "values": ["a"]}"#), "operator Like is not known"),
        (
            r#"{"c2": [{"match": {"operator": "AlwaysTrue"}, "weight": "much"}]}"#.to_owned(),
            "the name of a container or {scope, match, weight} was expected",
        ),
        (full(r#"{"key": "colour", "operator": "Exists"}"#), "key `colour` is not known"),
        (full(r#"{"key": "name", "operator": "Matches", "values": ["["]}"#), "error parsing glob"),
        (
            full(&format!(r#"{{"key": "name", "operator": "In", "values": {:?}}}"#, vec!["a"; 65])),
            "more than 64 values",
        ),
        ("{".into(), "EOF"),
        (r#"{"c1": "c2"}"#.into(), "invalid type"),
        (
            r#"{"c1": [{"weight": 1}]}"#.into(),
            "the name of a container or {scope, match, weight} was expected",
        ),
    ] {
        let pod = pod(&[(KEY, &annotation), (ANTI, r#"{"c1": ["c3"]}"#)]);
        let (rules, warnings) = rules_of(&pod, "c1", &PoolsSettings::default());
        assert_eq!(rules.len(), 1, "{annotation}");
        assert!(matches!(warnings.as_slice(), [one] if one.contains(problem)), "{annotation}: {warnings:?}");
    }
    let names: Vec<String> = (0..70).map(|index| format!("x{index}")).collect();
    let pod = pod(&[(KEY, &serde_json::json!({"c1": names}).to_string())]);
    let (rules, warnings) = rules_of(&pod, "c1", &PoolsSettings::default());
    assert_eq!(rules.len(), RULE_LIMIT);
    assert_eq!(warnings, ["70 affinity rules, the first 64 count"]);
}

#[test]
fn without_a_scope_a_rule_is_about_the_same_pod_of_the_same_namespace() {
    let here = PodName::new("a", "p");
    let (elsewhere, other) = (PodName::new("b", "p"), PodName::new("a", "q"));
    let labels = BTreeMap::new();
    let drawn = |annotation: &str, pod: &PodName, container: &str| {
        let rules = rules(&[(KEY, annotation)], "c1");
        let of = |pod, container| AffinitySubject { pod, container, qos: None, labels: &labels };
        attraction((&of(&here, "c1"), &rules), (&of(pod, container), &[]))
    };
    let any = r#"{"c1": [{"match": {"operator": "AlwaysTrue"}}]}"#;
    assert_eq!(drawn(any, &here, "c2"), 1);
    assert_eq!(drawn(any, &here, "c1"), 0, "itself");
    assert_eq!(drawn(any, &elsewhere, "c2"), 0);
    assert_eq!(drawn(any, &other, "c2"), 0);
    let in_a = r#"{"c1": [{"scope": {"key": "namespace", "operator": "Equals", "values": ["a"]}, "match": {"key": "name", "operator": "Equals", "values": ["c2"]}}]}"#;
    assert_eq!(drawn(in_a, &other, "c2"), 1);
    assert_eq!(drawn(in_a, &other, "c3"), 0);
    assert_eq!(drawn(in_a, &elsewhere, "c2"), 0);
    assert_eq!(drawn(r#"{"c1": ["c2"]}"#, &elsewhere, "c2"), 0);
}

#[test]
fn colocation_is_for_containers_without_rules_of_their_own_and_counts_once() {
    let settings =
        PoolsSettings { colocate_pods: true, colocate_namespaces: true, ..PoolsSettings::default() };
    let rules = |annotations: &[(&str, &str)]| rules_of(&pod(annotations), "c1", &settings).0;
    let labels = BTreeMap::new();
    let own = pod(&[]).name;
    let (of_namespace, far) =
        (PodName { name: "q".into(), ..own.clone() }, PodName { namespace: "x".into(), ..own.clone() });
    let one = AffinitySubject { pod: &own, container: "c1", qos: None, labels: &labels };
    let drawn = |mine: &[AffinityRule], pod: &PodName, theirs: &[AffinityRule]| {
        attraction(
            (&one, mine),
            (&AffinitySubject { pod, container: "c2", qos: None, labels: &labels }, theirs),
        )
    };
    let implicit = rules(&[]);
    assert_eq!(drawn(&implicit, &own, &[]), 20);
    assert_eq!(drawn(&implicit, &own, &implicit), 20);
    assert_eq!(drawn(&implicit, &of_namespace, &implicit), 10);
    assert_eq!(drawn(&implicit, &far, &[]), 0);
    let explicit = rules(&[(ANTI, r#"{"c1": ["c3"]}"#)]);
    assert_eq!(drawn(&explicit, &own, &[]), 0);
    assert_eq!(drawn(&explicit, &own, &implicit), 0, "what it was asked to stay away from would draw it");
    assert_eq!(drawn(&implicit, &own, &explicit), 0, "in whichever order they come");
}

/// The pool that containers in the pools of these names attract a new one to; the deepest of several.
fn drawn_to(weights: &[(&str, i64)]) -> String {
    let inventory = Inventory::new(server(), Vec::new(), &PlacementSettings::default()).unwrap();
    let tree = PoolTree::new(&inventory);
    let of = |name: &str| weights.iter().find(|(pool, _)| *pool == name).map_or(0, |(_, weight)| *weight);
    let drawn: Vec<i64> = tree.pools().iter().map(|pool| of(&pool.name)).collect();
    let scores = score(&tree, &drawn);
    let best = tree.pools().iter().max_by_key(|pool| (scores[pool.id], pool.depth)).unwrap();
    best.name.clone()
}

#[test]
fn pools_above_collect_what_is_below() {
    let (numa0, numa1, numa3, socket1) = ("NUMA node #0", "NUMA node #1", "NUMA node #3", "socket #1");
    for (weights, best) in [
        (&[(numa1, 1)][..], numa1),
        (&[(socket1, 1)], socket1),
        (&[(numa1, 1), (socket1, 1)], numa1),
        (&[(numa1, 1), (numa3, 1)], socket1),
        (&[(numa1, 2), (numa3, 1)], socket1),
        (&[(numa1, 3), (numa3, 1)], numa1),
        (&[(numa0, 2), (numa3, 2), (socket1, 1)], "root"),
        (&[(numa0, 1), (numa3, 1), (socket1, 1)], "root"),
        (&[(numa0, 1), (numa3, 1), (socket1, 2)], socket1),
    ] {
        assert_eq!(drawn_to(weights), best, "{weights:?}");
    }
}

#[test]
fn scores_are_exact() {
    let inventory = Inventory::new(server(), Vec::new(), &PlacementSettings::default()).unwrap();
    let tree = PoolTree::new(&inventory);
    // 3 at one node and 1 at its neighbour: the node and the socket are equal.
    let scores = score(&tree, &[0, 0, 0, 3, 1, 0, 0]);
    assert_eq!(scores, [0, 0, 0, 48, 16, 48, 36]);
    assert_eq!(score(&tree, &[i64::MAX; 7])[6], i64::MAX);
}
