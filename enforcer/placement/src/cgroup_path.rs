//! Paths of cgroups, which containers can influence: shown and compared, never opened as they are.

use std::{fmt, iter, sync::Arc};

use numa_topology::text::printable;

/// Path of a cgroup from the root of its hierarchy: `/`, `/system.slice/cron.service`.
// Clones share the text: samples have one path for each thread, and a container may have 100,000 threads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema), schemars(transparent))]
pub struct CgroupPath(#[cfg_attr(feature = "schemars", schemars(with = "String"))] Arc<str>);

impl CgroupPath {
    /// Normalizes a path: one `/` before each name and none at the end. `.` and `..` are dropped: no cgroup
    /// has such a name, and a path must not leave its hierarchy.
    pub fn new(path: &str) -> Self {
        let mut joined = String::with_capacity(path.len() + 1);
        for name in path.split('/').filter(|name| !matches!(*name, "" | "." | "..")) {
            joined.push('/');
            joined.push_str(name);
        }
        if joined.is_empty() { Self::root() } else { Self(joined.into()) }
    }

    /// The root cgroup.
    pub fn root() -> Self {
        Self("/".into())
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Path relative to the mount point of the hierarchy; empty for the root.
    pub fn relative(&self) -> &str {
        self.0.trim_start_matches('/')
    }

    /// Is it the root?
    pub fn is_root(&self) -> bool {
        &*self.0 == "/"
    }

    /// Path of the child cgroup `name`.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self::new(&format!("{}/{name}", self.0))
    }

    /// Is it `top`, or a descendant of it?
    pub fn is_within(&self, top: &Self) -> bool {
        let below = self.0.strip_prefix(top.0.trim_end_matches('/'));
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Path of the parent cgroup.
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/').filter(|_| !self.is_root())?;
        // What is before a name of a normalized path is normalized.
        Some(if parent.is_empty() { Self::root() } else { Self(parent.into()) })
    }

    /// Paths of all ancestors, from the parent to the root.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> + use<> {
        iter::successors(self.parent(), Self::parent)
    }

    /// Number of ancestors: 0 for the root.
    pub fn depth(&self) -> usize {
        self.relative().split_terminator('/').count()
    }
}

impl fmt::Display for CgroupPath {
    /// Escapes characters that would disturb a terminal or a line of text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_path_share_its_text() {
        let path = CgroupPath::new("/kubepods.slice/pod");
        let of_threads: Vec<CgroupPath> = (0..1_000).map(|_thread| path.clone()).collect();
        assert!(of_threads.iter().all(|own| std::ptr::eq(own.as_str(), path.as_str())));
        assert_eq!(serde_json::to_string(&path).unwrap(), "\"/kubepods.slice/pod\"");
    }

    #[test]
    fn the_nearest_above_comes_first_and_the_root_last() {
        for (path, above) in
            [("/", &[][..]), ("/a", &["/"]), ("/a/b", &["/a", "/"]), ("/a/b/c", &["/a/b", "/a", "/"])]
        {
            let path = CgroupPath::new(path);
            let found: Vec<CgroupPath> = path.ancestors().collect();
            let expected: Vec<CgroupPath> = above.iter().map(|path| CgroupPath::new(path)).collect();
            assert_eq!(found, expected, "{path}");
            assert_eq!(path.depth(), above.len(), "{path}");
        }
    }

    #[test]
    fn what_is_read_leads_out_of_no_hierarchy() {
        for (text, path) in [("/../../tmp/x", "/tmp/x"), ("a//b/./", "/a/b"), ("/..", "/"), ("", "/")] {
            let read: CgroupPath = serde_json::from_value(text.into()).unwrap();
            assert_eq!(read.as_str(), path, "{text:?}");
            assert_eq!(serde_json::to_value(&read).unwrap(), path, "{text:?}");
        }
    }
}
