//! The rules of deploy/prometheus and their tests, as YAML.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::DeserializeOwned};

#[derive(Deserialize)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

/// A rule: an alert or a recording.
#[derive(Deserialize)]
pub(crate) struct Rule {
    pub(crate) alert: Option<String>,
    pub(crate) record: Option<String>,
    pub(crate) expr: String,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Rule {
    pub(crate) fn name(&self) -> &str {
        self.alert.as_deref().or(self.record.as_deref()).unwrap()
    }
}

/// What a test expects of an alert at one time.
#[derive(Deserialize)]
pub(crate) struct Expectation {
    pub(crate) alertname: String,
    #[serde(default)]
    pub(crate) exp_alerts: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct TestFile {
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    #[serde(default)]
    alert_rule_test: Vec<Expectation>,
}

/// A folder of `deploy`.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

/// Files of a folder of `deploy` with this extension, by name.
pub(crate) fn files(name: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|ends| ends == extension)).collect();
    files.sort();
    files
}

fn read<T: DeserializeOwned>(path: &Path) -> T {
    let text = fs::read_to_string(path).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All rules, in the order in which they may name one another.
pub(crate) fn all() -> Vec<Rule> {
    let files = ["parameters", "recording", "alerts"]
        .map(|name| folder("prometheus").join(name).with_extension("yml"));
    let groups = files.iter().flat_map(|path| read::<RuleFile>(path).groups);
    groups.flat_map(|group| group.rules).collect()
}

/// All alerts.
pub(crate) fn alerts() -> Vec<Rule> {
    all().into_iter().filter(|rule| rule.alert.is_some()).collect()
}

/// What all tests expect of alerts.
pub(crate) fn expectations() -> Vec<Expectation> {
    let tests = files("prometheus/tests", "yml").into_iter().flat_map(|path| read::<TestFile>(&path).tests);
    tests.flat_map(|test| test.alert_rule_test).collect()
}
