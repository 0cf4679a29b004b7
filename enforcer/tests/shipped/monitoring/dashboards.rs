//! The dashboards: what Grafana would only show as an empty panel.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use super::{
    known::Known,
    rules::{alerts, files},
};

const NAMES: [&str; 6] = ["actions", "agent", "node", "overview", "scheduler", "workload"];

/// Columns of a dashboard.
const COLUMNS: u64 = 24;

fn all() -> Vec<(String, Value)> {
    let read = files("grafana", "json").into_iter().map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let json = serde_json::from_str(&fs::read_to_string(&path).unwrap());
        (name, json.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    });
    read.collect()
}

fn list<'a>(of: &'a Value, pointer: &str) -> &'a [Value] {
    of.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(of: &'a Value, pointer: &str) -> &'a str {
    of.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer} of {of}"))
}

/// Names behind `$`, without those that Grafana has for all.
fn variables(expression: &str) -> impl Iterator<Item = &str> {
    let names = expression.split('$').skip(1).map(|after| {
        let after = after.trim_start_matches('{');
        after.split(|one: char| !one.is_ascii_alphanumeric() && one != '_').next().unwrap()
    });
    names.filter(|name| !name.starts_with("__"))
}

fn expressions(board: &Value) -> impl Iterator<Item = &str> {
    list(board, "/panels")
        .iter()
        .flat_map(|panel| list(panel, "/targets"))
        .map(|target| text(target, "/expr"))
}

/// Does it have a series of each workload? Those are of a namespace and a pod, which the series of
/// information name.
fn is_of_workloads(expression: &str) -> bool {
    expression.contains("numa_enforcer_workload_")
}

#[test]
fn what_is_of_single_workloads_can_be_cut_down_to_a_pod() {
    for (name, board) in all() {
        for expression in expressions(&board).filter(|expression| is_of_workloads(expression)) {
            let chosen: BTreeSet<_> = variables(expression).collect();
            assert!(chosen.contains("workload") || chosen.contains("pod"), "{name}: {expression}");
        }
    }
}

#[test]
fn each_is_there_once_with_its_variables() {
    let boards = all();
    assert_eq!(boards.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), NAMES);
    let unique =
        |pointer| boards.iter().map(|(_, board)| text(board, pointer)).collect::<BTreeSet<_>>().len();
    assert_eq!((unique("/uid"), unique("/title")), (NAMES.len(), NAMES.len()));
    for (name, board) in &boards {
        let declared: BTreeSet<_> =
            list(board, "/templating/list").iter().map(|variable| text(variable, "/name")).collect();
        let mut wanted = vec!["datasource", "instance"];
        if expressions(board).any(is_of_workloads) {
            wanted.extend(["namespace", "pod"]);
        }
        assert!(wanted.iter().all(|variable| declared.contains(variable)), "{name}: {declared:?}");
        for variable in variables(&board.to_string()) {
            assert!(declared.contains(variable), "{name}: ${variable} is not declared");
        }
    }
}

#[test]
fn panels_have_ids_and_places_of_their_own_and_the_data_source_of_the_variable() {
    for (name, board) in all() {
        let panels = list(&board, "/panels");
        assert!(!panels.is_empty());
        let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len(), "{name}");
        let sources = panels.iter().chain(panels.iter().flat_map(|panel| list(panel, "/targets")));
        let queries = list(&board, "/templating/list").iter().filter(|variable| variable["type"] == "query");
        for one in sources.chain(queries) {
            assert_eq!(text(one, "/datasource/uid"), "${datasource}", "{name}: {one}");
        }
        let places: Vec<[u64; 4]> = panels
            .iter()
            .map(|panel| ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap()))
            .collect();
        for (at, [x, y, w, h]) in places.iter().enumerate() {
            assert!(x + w <= COLUMNS && *w > 0 && *h > 0, "{name}: panel {at}");
            let over = places[..at].iter().position(|[a, b, wide, high]| {
                x < &(a + wide) && a < &(x + w) && y < &(b + high) && b < &(y + h)
            });
            assert_eq!(over, None, "{name}: panel {at} covers another one");
        }
    }
}

#[test]
fn panels_and_variables_name_what_there_is() {
    let known = Known::read();
    for (name, board) in all() {
        for panel in list(&board, "/panels") {
            let title = text(panel, "/title");
            assert!(!list(panel, "/targets").is_empty(), "{name}: {title}");
            for target in list(panel, "/targets") {
                let labels =
                    known.of(text(target, "/expr")).unwrap_or_else(|why| panic!("{name}: {title}: {why}"));
                for label in text(target, "/legendFormat").split("{{").skip(1) {
                    let label = label.split("}}").next().unwrap();
                    assert!(labels.contains(label), "{name}: {title}: no label {label}");
                }
            }
        }
        for variable in list(&board, "/templating/list").iter().filter(|variable| variable["type"] == "query")
        {
            let inside = text(variable, "/query/query")
                .strip_prefix("label_values(")
                .unwrap()
                .strip_suffix(')')
                .unwrap();
            let (series, label) = inside.rsplit_once(',').unwrap();
            let labels = known.of(series).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert!(labels.contains(label.trim()), "{name}: {inside}");
        }
    }
}

#[test]
fn the_panel_of_alerts_that_fire_counts_each_of_them() {
    let boards = all();
    let expression =
        boards.iter().flat_map(|(_, board)| expressions(board)).find(|one| one.contains("ALERTS"));
    let (_, names) = expression.unwrap().split_once("alertname=~\"").unwrap();
    let names: Vec<&str> = names.split_once('"').unwrap().0.split('|').collect();
    let is = |name: &str, pattern: &str| match (pattern.strip_suffix(".*"), pattern.strip_prefix(".*")) {
        (Some(start), None) => name.starts_with(start),
        (None, Some(end)) => name.ends_with(end),
        _ => name == pattern,
    };
    for alert in alerts() {
        let name = alert.name();
        assert!(names.iter().any(|pattern| is(name, pattern)), "{name} is in none of {names:?}");
    }
}
