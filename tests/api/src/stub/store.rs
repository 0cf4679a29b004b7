//! Objects, their versions, and the changes that watches tell of.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::request::{self, StubKind, Target};

/// What distinguishes an object: plural and group of its kind, namespace, name.
type Key = (&'static str, &'static str, Option<String>, String);

/// One event of a watch.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) version: u64,
    /// `ADDED`, `MODIFIED`, `DELETED`, or `BOOKMARK` for every kind.
    pub(super) event: &'static str,
    key: Option<Key>,
    pub(super) object: Value,
}

impl Change {
    /// Whether it is of a collection.
    pub(super) fn is_of(&self, target: &Target) -> bool {
        self.key.as_ref().is_none_or(|key| is_in(key, target))
    }
}

/// All objects of a stub.
#[derive(Debug)]
pub(super) struct Store {
    kinds: Vec<StubKind>,
    objects: BTreeMap<Key, Value>,
    version: u64,
    /// Changes since the latest compaction.
    changes: Vec<Change>,
    compacted: u64,
    writes: u64,
}

impl Store {
    pub(super) fn new(kinds: Vec<StubKind>) -> Self {
        let (objects, changes) = (BTreeMap::new(), Vec::new());
        Self { kinds, objects, version: 1, changes, compacted: 0, writes: 0 }
    }

    pub(super) fn target(&self, path: &str) -> Option<Target> {
        request::target(&self.kinds, path)
    }

    /// Version of the latest change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    /// Notes that a client has changed something.
    pub(super) fn count_write(&mut self) {
        self.writes += 1;
    }

    pub(super) fn get(&self, target: &Target) -> Option<&Value> {
        self.objects.get(&key(target)?)
    }

    pub(super) fn list(&self, target: &Target) -> Vec<Value> {
        let within = self.objects.iter().filter(|(key, _)| is_in(key, target));
        within.map(|(_, object)| object.clone()).collect()
    }

    /// At most `limit` objects of a collection behind the first `from`, and how many follow.
    pub(super) fn page(&self, target: &Target, from: usize, limit: Option<usize>) -> (Vec<Value>, usize) {
        let within = || self.objects.iter().filter(|(key, _)| is_in(key, target)).skip(from);
        let all = within().count();
        let items: Vec<Value> =
            within().take(limit.unwrap_or(usize::MAX)).map(|(_, object)| object.clone()).collect();
        let rest = all - items.len();
        (items, rest)
    }

    /// Creates or replaces an object; equal content is no change. What is stored, and whether it changed.
    pub(super) fn put(&mut self, target: &Target, mut object: Value) -> (Value, bool) {
        let Some(key) = key(target) else { return (object, false) };
        let old = self.objects.get(&key);
        let next = self.version + 1;
        let uid = old.and_then(|old| old.pointer("/metadata/uid").cloned());
        let given = object.pointer("/metadata/uid").cloned();
        let uid = uid.or(given).unwrap_or_else(|| json!(format!("uid-{next}")));
        complete(&mut object, target, &uid, old.and_then(|old| old.pointer("/metadata/resourceVersion")));
        if old.is_some_and(|old| *old == object) {
            return (object, false);
        }
        let event = if old.is_some() { "MODIFIED" } else { "ADDED" };
        self.version = next;
        object["metadata"]["resourceVersion"] = json!(next.to_string());
        self.objects.insert(key.clone(), object.clone());
        self.changes.push(Change { version: next, event, key: Some(key), object: object.clone() });
        (object, true)
    }

    pub(super) fn remove(&mut self, target: &Target) -> Option<Value> {
        let key = key(target)?;
        let mut object = self.objects.remove(&key)?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let change =
            Change { version: self.version, event: "DELETED", key: Some(key), object: object.clone() };
        self.changes.push(change);
        Some(object)
    }

    pub(super) fn bookmark(&mut self) {
        let object = json!({"metadata": {"resourceVersion": self.version.to_string()}});
        self.changes.push(Change { version: self.version, event: "BOOKMARK", key: None, object });
    }

    pub(super) fn compact(&mut self) {
        self.version += 1;
        self.compacted = self.version;
        self.changes.clear();
    }

    /// The `position` of the next change to tell of to a watch from `version`; `None` if some are forgotten.
    pub(super) fn position(&self, version: u64) -> Option<usize> {
        let first = self.changes.iter().position(|change| change.version > version);
        (version >= self.compacted).then(|| first.unwrap_or(self.changes.len()))
    }

    /// Changes from a position that was found at a compaction; `None` if some are forgotten.
    pub(super) fn changes_from(&self, position: usize, compacted: u64) -> Option<&[Change]> {
        (compacted == self.compacted).then(|| self.changes.get(position..).unwrap_or_default())
    }

    /// Version of the latest compaction.
    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }
}

fn key(target: &Target) -> Option<Key> {
    Some((target.kind.plural, target.kind.group, target.namespace.clone(), target.name.clone()?))
}

fn is_in((plural, group, namespace, name): &Key, target: &Target) -> bool {
    *plural == target.kind.plural
        && *group == target.kind.group
        && (target.namespace.is_none() || *namespace == target.namespace)
        && target.name.as_ref().is_none_or(|wanted| wanted == name)
}

/// Fills in what a server fills in.
fn complete(object: &mut Value, target: &Target, uid: &Value, version: Option<&Value>) {
    let StubKind { group, version: of, kind, .. } = target.kind;
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    object["apiVersion"] = if group.is_empty() { json!(of) } else { json!(format!("{group}/{of}")) };
    object["kind"] = json!(kind);
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let metadata = &mut object["metadata"];
    metadata["name"] = json!(target.name);
    metadata["uid"] = uid.clone();
    if let Some(namespace) = &target.namespace {
        metadata["namespace"] = json!(namespace);
    }
    match version {
        Some(version) => metadata["resourceVersion"] = version.clone(),
        None => {
            metadata.as_object_mut().and_then(|metadata| metadata.remove("resourceVersion"));
        }
    }
}

/// Merges a patch (RFC 7396).
pub(super) fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Value::Object(into) = into else { return };
    for (name, value) in patch {
        if value.is_null() {
            into.remove(name);
        } else {
            merge(into.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
