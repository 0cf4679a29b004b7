//! Properties of patches: they add requirements, remove one gate, and leave exactly the chosen node.

use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};

use super::*;

const NODES: [&str; 3] = ["a", "b", "c"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

fn requirement(keys: &'static [&'static str]) -> impl Strategy<Value = NodeRequirement> {
    let operators = select(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Later", ""][..]);
    let values = vec(select(&["a", "b", "c", "1", "2"][..]), 0..3);
    (select(keys), operators, values).prop_map(|(key, operator, values)| NodeRequirement {
        key: key.into(),
        operator: operator.into(),
        values: values.into_iter().map(str::to_owned).collect(),
    })
}

fn affinity() -> impl Strategy<Value = AffinityTerms> {
    let term = (
        vec(requirement(&["zone", "size", "none"]), 0..3),
        vec(requirement(&["metadata.name", "metadata.name", "metadata.uid"]), 0..3),
    );
    let term = term.prop_map(|(labels, fields)| NodeTerm { labels, fields });
    prop_oneof![
        Just(AffinityTerms::NoAffinity),
        Just(AffinityTerms::NoNodeAffinity),
        Just(AffinityTerms::NoRequirement),
        vec(term, 0..4).prop_map(AffinityTerms::Terms),
    ]
}

fn pod() -> impl Strategy<Value = PodObject> {
    let zone = option::of(select(&NODES[..]));
    (affinity(), 0_usize..100, any::<bool>(), zone).prop_map(|(affinity, at, has_annotations, zone)| {
        let mut pod = gated("p", 2, 7);
        let selector = zone.into_iter().map(|zone| ("zone".to_owned(), zone.to_owned())).collect();
        pod.scheduling.required = RequiredNodes { selector, affinity };
        pod.scheduling.gates = PodGates { ours: vec![at], has_annotations, ..PodGates::default() };
        pod
    })
}

/// Names of its gates: that of this program, one behind it, and others before it.
fn names(pod: &PodObject) -> Vec<String> {
    let at = pod.scheduling.gates.ours[0];
    let name = |other| if other == at { GATE.to_owned() } else { format!("example.org/{other}") };
    (0..at + 2).map(name).collect()
}

/// The pod as the API server has it.
fn object(pod: &PodObject) -> Value {
    let requirement =
        |one: &NodeRequirement| json!({"key": one.key, "operator": one.operator, "values": one.values});
    let list = |all: &[NodeRequirement]| all.iter().map(requirement).collect::<Vec<_>>();
    let term = |term: &NodeTerm| {
        let mut object = json!({"later": "kept"});
        for (name, all) in [("matchExpressions", &term.labels), ("matchFields", &term.fields)] {
            if !all.is_empty() {
                object[name] = json!(list(all));
            }
        }
        object
    };
    let gates = names(pod).iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
    let mut object = json!({
        "metadata": {"uid": pod.uid, "resourceVersion": pod.arrival.version.to_string()},
        "spec": {"schedulingGates": gates},
    });
    if pod.scheduling.gates.has_annotations {
        object["metadata"]["annotations"] = json!({"other": "kept"});
    }
    match &pod.scheduling.required.affinity {
        AffinityTerms::NoAffinity => {}
        AffinityTerms::NoNodeAffinity => object["spec"]["affinity"] = json!({"podAffinity": {}}),
        AffinityTerms::NoRequirement => {
            object["spec"]["affinity"] = json!({"nodeAffinity": {"preferred": ["kept"]}});
        }
        AffinityTerms::Terms(terms) => {
            let terms: Vec<Value> = terms.iter().map(term).collect();
            object["spec"]["affinity"] = json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}});
        }
    }
    object
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn terms_of(object: &Value) -> Vec<NodeTerm> {
    let texts = |list: &Value| list.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let all = |list: &Value| {
        let list = list.as_array().into_iter().flatten();
        let one = |one: &Value| NodeRequirement {
            key: text(&one["key"]),
            operator: text(&one["operator"]),
            values: texts(&one["values"]),
        };
        list.map(one).collect::<Vec<_>>()
    };
    let terms = object["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].as_array();
    let term =
        |term: &Value| NodeTerm { labels: all(&term["matchExpressions"]), fields: all(&term["matchFields"]) };
    terms.into_iter().flatten().map(term).collect()
}

/// Applies operations as RFC 6902 has them.
fn apply(object: &mut Value, patch: &PodPatch) {
    for PatchOperation { op, path, value } in &patch.0 {
        let (parent, last) = path.rsplit_once('/').unwrap();
        let last = last.replace("~1", "/");
        let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("{path} has no parent"));
        match (*op, parent) {
            ("test", Value::Object(map)) => assert_eq!(map.get(&last), value.as_ref(), "{path}"),
            ("replace", Value::Object(map)) => assert!(map.insert(last, value.clone().unwrap()).is_some()),
            ("add", Value::Object(map)) => {
                map.insert(last, value.clone().unwrap());
            }
            ("add", Value::Array(list)) if last == "-" => list.push(value.clone().unwrap()),
            ("remove", Value::Array(list)) => {
                list.remove(last.parse().unwrap());
            }
            (op, _) => panic!("{op} {path}"),
        }
    }
}

proptest! {
    #[test]
    fn patch_only_adds_requirements_and_removes_only_the_gate(pod in pod(), node in select(&NODES[..])) {
        let before = object(&pod);
        let decision = GateDecision::Place { node: node.to_owned() };
        let mut after = before.clone();
        apply(&mut after, &PodPatch::new(&pod, &decision, 5).unwrap());

        let (old, new) = (terms_of(&before), terms_of(&after));
        let own = NodeRequirement::of_name(node);
        let had_terms = matches!(pod.scheduling.required.affinity, AffinityTerms::Terms(_));
        if had_terms {
            prop_assert_eq!(old.len(), new.len());
            for (old, new) in old.iter().zip(&new) {
                prop_assert_eq!(&old.labels, &new.labels);
                let mut expected = old.fields.clone();
                if !old.is_empty() && !old.names(node) {
                    expected.push(own.clone());
                }
                prop_assert_eq!(&expected, &new.fields);
            }
        } else {
            prop_assert_eq!(new, [NodeTerm { labels: Vec::new(), fields: vec![own] }]);
        }
        let others: Vec<String> = names(&pod).into_iter().filter(|name| *name != GATE).collect();
        let left: Vec<String> =
            after["spec"]["schedulingGates"].as_array().unwrap().iter().map(|gate| text(&gate["name"])).collect();
        prop_assert_eq!(left, others);

        // Nothing else has changed.
        let mut same = after.clone();
        same["spec"]["schedulingGates"] = before["spec"]["schedulingGates"].clone();
        match before["spec"].get("affinity") {
            Some(affinity) => {
                let kept = affinity.clone();
                if had_terms {
                    same["spec"]["affinity"] = kept;
                } else if let Some(of_nodes) = same["spec"]["affinity"]["nodeAffinity"].as_object_mut() {
                    of_nodes.remove(REQUIRED);
                    prop_assert!(kept.get("nodeAffinity").is_none_or(|old| *old == json!(of_nodes)));
                    prop_assert_eq!(kept.get("podAffinity"), same["spec"]["affinity"].get("podAffinity"));
                    same["spec"]["affinity"] = kept;
                }
            }
            None => drop(same["spec"].as_object_mut().unwrap().remove("affinity")),
        }
        let mark = same["metadata"]["annotations"].as_object_mut().unwrap().remove(PlacedMark::ANNOTATION);
        let mark = PlacedMark::read(mark.unwrap().as_str().unwrap()).unwrap();
        prop_assert_eq!(mark, PlacedMark { node: node.to_owned(), at: 5 });
        if !pod.scheduling.gates.has_annotations {
            same["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        prop_assert_eq!(same, before);
    }

    #[test]
    fn patched_pod_goes_to_the_chosen_node_or_nowhere(pod in pod(), node in select(&NODES[..])) {
        let before = object(&pod);
        let decision = GateDecision::Place { node: node.to_owned() };
        let mut after = before.clone();
        apply(&mut after, &PodPatch::new(&pod, &decision, 5).unwrap());
        let required = RequiredNodes {
            selector: pod.scheduling.required.selector.clone(),
            affinity: AffinityTerms::Terms(terms_of(&after)),
        };
        for (name, size) in NODES.iter().flat_map(|name| [(*name, "1"), (*name, "2")]) {
            let labels =
                [("zone", name), ("size", size)].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
            let expected = name == node && pod.scheduling.required.allow(name, &labels);
            prop_assert_eq!(required.allow(name, &labels), expected, "{} {}", name, size);
        }

        // Again it changes no term, and finds the same node.
        let mut again = pod.clone();
        again.scheduling.required = required;
        again.scheduling.gates.has_annotations = true;
        let mut twice = after.clone();
        twice["spec"]["schedulingGates"] = before["spec"]["schedulingGates"].clone();
        apply(&mut twice, &PodPatch::new(&again, &decision, 5).unwrap());
        prop_assert_eq!(&twice, &after);
        let has_terms = terms_of(&after).iter().any(|term| !term.is_empty());
        again.scheduling.gates.ours.clear();
        again.scheduling.gates.placed = Some(PlacedMark { node: node.to_owned(), at: 5 });
        prop_assert_eq!(again.scheduling.placed_on().is_some(), has_terms);
    }

    #[test]
    fn release_without_a_node_removes_the_gate_alone(pod in pod()) {
        let before = object(&pod);
        let mut after = before.clone();
        let decision = GateDecision::Release(ReleaseCause::NotConcerned);
        apply(&mut after, &PodPatch::new(&pod, &decision, 5).unwrap());
        let gates = after["spec"]["schedulingGates"].as_array().unwrap();
        prop_assert!(gates.iter().all(|gate| gate["name"] != GATE));
        prop_assert_eq!(gates.len() + 1, names(&pod).len());
        after["spec"]["schedulingGates"] = before["spec"]["schedulingGates"].clone();
        prop_assert_eq!(after, before);
    }
}
