//! Globs over cgroup paths.
//!
//! `*` and `?` stay within one path element, `**` crosses elements: `/kubepods.slice/**` is everything below
//! that slice. A glob is compiled when the configuration is read, so an invalid one is refused there and
//! matching cannot fail later. Matching takes time linear in the path.

use std::{fmt, str::FromStr};

use thiserror::Error;

use super::{
    covering::{self, Effort},
    glob_matcher::GlobMatcher,
};
use crate::CgroupPath;

/// Usual mount point of the tree.
const MOUNTED: &str = "/sys/fs/cgroup";

/// A compiled glob; two are equal when their texts are.
#[derive(Clone)]
pub struct CgroupGlob {
    matcher: GlobMatcher,
    /// For each depth from 1 on, matches cgroups at that depth that may have matching descendants.
    above: Vec<GlobMatcher>,
    /// May a match be at any depth below the last of these?
    open: bool,
}

/// A text that is not a glob over cgroup paths.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{glob}` is not a glob over cgroup paths: {problem}")]
pub struct GlobError {
    glob: String,
    problem: String,
}

impl CgroupGlob {
    /// Does the path match?
    pub fn matches(&self, cgroup: &CgroupPath) -> bool {
        self.matcher.is_match(cgroup.as_str())
    }

    /// May a path below this one match?
    pub fn may_match_below(&self, cgroup: &CgroupPath) -> bool {
        let Some(deeper) = cgroup.depth().checked_sub(self.above.len()) else {
            return cgroup.is_root() || self.above[cgroup.depth() - 1].is_match(cgroup.as_str());
        };
        let Some(last) = self.above.last() else { return cgroup.is_root() || self.open };
        if deeper > 0 && !self.open {
            return false;
        }
        let at = std::iter::once(cgroup.clone()).chain(cgroup.ancestors()).nth(deeper);
        at.is_some_and(|path| last.is_match(path.as_str()))
    }

    /// Does it match every path that the other one matches? False if unknown.
    pub fn covers(&self, other: &Self, effort: &mut Effort) -> bool {
        let (own, others) = (self.as_str(), other.as_str());
        covering::covers(own, others, true, |path| self.matches(&CgroupPath::new(path)), effort)
    }

    /// Does it match only its own text?
    pub fn is_literal(&self) -> bool {
        !self.as_str().contains(['*', '?', '[', ']', '{', '}', '\\'])
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        self.matcher.text()
    }
}

impl FromStr for CgroupGlob {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        let refused = |problem: String| GlobError { glob: text.chars().take(80).collect(), problem };
        if !text.starts_with('/') {
            return Err(refused("it must start with `/`, the root of the cgroup tree".into()));
        }
        // No cgroup of systemd or the kernel has that path.
        if text.strip_prefix(MOUNTED).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            return Err(refused(format!("`/` is the root of the cgroup tree, so leave `{MOUNTED}` out")));
        }
        if text == "/" {
            return Err(refused(
                "the root cgroup has no cpuset of its own, and no process in it is placed".into(),
            ));
        }
        if names(text).any(|name| matches!(name, "" | "." | "..")) {
            let problem = "no cgroup is called `.` or `..` or nothing, and no `/` is behind the last name";
            return Err(refused(problem.into()));
        }
        let compile = |text: &str| GlobMatcher::of_paths(text).map_err(|fault| refused(fault.to_string()));
        let matcher = compile(text)?;
        let names: Vec<&str> = text[1..].split('/').collect();
        // A class or alternatives may have a `/` in them.
        let is_simple = |name: &str| name != "**" && !name.contains(['[', ']', '{', '}', '\\']);
        let simple = names.iter().take_while(|name| is_simple(name)).count();
        let open = simple < names.len();
        let depths = if open { simple } else { names.len() - 1 };
        let prefix = |depth| compile(&format!("/{}", names[..depth].join("/")));
        let above = (1..=depths).map(prefix).collect::<Result<_, _>>()?;
        Ok(Self { matcher, above, open })
    }
}

/// Names between the slashes, after the first one; alternatives (`{a/b,c}`) are part of one name.
fn names(glob: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let apart = move |c| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == '/' && depth == 0
    };
    glob.split(apart).skip(1)
}

impl PartialEq for CgroupGlob {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for CgroupGlob {}

impl fmt::Debug for CgroupGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CgroupGlob({:?})", self.as_str())
    }
}

impl fmt::Display for CgroupGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::settings::glob_matcher::LONGEST;

    #[test]
    fn a_star_stays_within_one_element() {
        for (glob, path, matches) in [
            ("/system.slice/*.service", "/system.slice/redis.service", true),
            ("/system.slice/*.service", "/system.slice/a/redis.service", false),
            ("/kubepods.slice/**", "/kubepods.slice/pod1/abc", true),
            ("/kubepods.slice/**", "/kubepods.slicer/pod1", false),
            ("/**/db-?", "/a/b/db-1", true),
            ("/db", "/db", true),
            ("/db", "/db/child", false),
            ("/{a,b}/x", "/b/x", true),
            ("/**", "/", true),
            ("/{a/,b}x", "/a/x", true),
            ("/a/.b/..c", "/a/.b/..c", true),
        ] {
            let compiled: CgroupGlob = glob.parse().unwrap();
            assert_eq!(compiled.matches(&CgroupPath::new(path)), matches, "{glob} on {path}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_glob_and_names_it() {
        for glob in [
            "",
            "redis",
            "/[",
            "/{a",
            "/a]b[",
            "*",
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/a.slice/**",
            "/",
            "/b/",
            "//",
            "//b",
            "/a//b",
            "/../b",
            "/a/./b",
            "/a/..",
            "/{a,b}/",
        ] {
            let error = glob.parse::<CgroupGlob>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{glob}`")), "{error}");
        }
    }

    #[test]
    fn whatever_is_asked_for_is_compiled_or_refused() {
        let deep = |depth: usize| format!("/{}a{}", "{".repeat(depth), "}".repeat(depth));
        for glob in [deep(400), format!("/{}", "x".repeat(LONGEST)), "/[é-ü]".into(), "/[\\u{10ffff}]".into()]
        {
            if let Ok(compiled) = glob.parse::<CgroupGlob>() {
                let _any = compiled.matches(&CgroupPath::new("/é"));
            }
        }
        let refused = |glob: String| glob.parse::<CgroupGlob>().unwrap_err().to_string();
        assert!(refused(deep(400)).contains("too complicated"), "{}", refused(deep(400)));
        assert!(refused(format!("/{}", "x".repeat(LONGEST))).len() < 200);
    }

    proptest! {
        #[test]
        fn no_glob_panics(glob in r"/[a\{\}\[\],*?\\!é^-]{0,60}", path in "/[aé/]{0,20}") {
            if let Ok(compiled) = glob.parse::<CgroupGlob>() {
                let _any = compiled.matches(&CgroupPath::new(&path));
            }
        }
    }

    #[test]
    fn its_text_survives_serde() {
        let glob: CgroupGlob = serde_json::from_str(r#""/a/**""#).unwrap();
        assert_eq!(serde_json::to_string(&glob).unwrap(), r#""/a/**""#);
    }

    #[test]
    fn a_path_may_have_matches_below_it_or_not() {
        for (glob, yes, no) in [
            ("/a", vec!["/"], vec!["/a", "/b"]),
            ("/a/b/c", vec!["/", "/a", "/a/b"], vec!["/b", "/a/c", "/a/b/c", "/a/b/c/d"]),
            ("/a/*/c", vec!["/", "/a", "/a/x"], vec!["/b", "/a/x/c", "/a/x/y"]),
            ("/a/**", vec!["/", "/a", "/a/b", "/a/b/c"], vec!["/b", "/ab", "/b/a"]),
            ("/**", vec!["/", "/a", "/a/b"], vec![]),
            ("/a/**/c", vec!["/", "/a", "/a/b/c"], vec!["/b/a"]),
            ("/a/{b/c,d}/e", vec!["/", "/a", "/a/x", "/a/b/c"], vec!["/b"]),
            ("/{a,b}", vec!["/", "/a", "/c"], vec![]),
        ] {
            let glob: CgroupGlob = glob.parse().unwrap();
            for path in yes {
                assert!(glob.may_match_below(&CgroupPath::new(path)), "{} {path}", glob.as_str());
            }
            for path in no {
                assert!(!glob.may_match_below(&CgroupPath::new(path)), "{} {path}", glob.as_str());
            }
        }
    }
}
