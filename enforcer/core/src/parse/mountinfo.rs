//! `/proc/PID/mountinfo`, as far as cgroup mounts are concerned
//! (Documentation/filesystems/proc.rst, section 3.5).

use super::ParseError;

/// A mounted cgroup hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupMount {
    /// Mount point, unescaped.
    pub mount_point: String,
    /// Cgroup at the mount point, as the reader's cgroup namespace names it: usually `/`; `/docker/ID`
    /// without a namespace; `/../..` for a mount made outside of it.
    pub root: String,
    /// The hierarchy.
    pub hierarchy: Hierarchy,
}

/// The two kinds of cgroup hierarchies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hierarchy {
    /// `cgroup2`.
    Unified,
    /// `cgroup`, with its controllers (`cpu`, `cpuset`) or its name (`name=systemd`).
    V1(Vec<String>),
}

/// The cgroup mounts of a mountinfo text, in order; a later mount may hide an earlier one.
pub fn parse_cgroup_mounts(text: &str) -> Result<Vec<CgroupMount>, ParseError> {
    text.lines().filter(|line| !line.is_empty()).filter_map(|line| cgroup_mount(line).transpose()).collect()
}

fn cgroup_mount(line: &str) -> Result<Option<CgroupMount>, ParseError> {
    let malformed = || ParseError::new("a line of mountinfo", line);
    let (mount, source) = line.split_once(" - ").ok_or_else(malformed)?;
    let mut source = source.split(' ');
    let kind = source.next().ok_or_else(malformed)?;
    let hierarchy = match kind {
        "cgroup2" => Hierarchy::Unified,
        "cgroup" => Hierarchy::V1(options(source.nth(1).ok_or_else(malformed)?)),
        _ => return Ok(None),
    };
    // ID, parent ID, major:minor, root, mount point.
    let mut fields = mount.split(' ').skip(3);
    let root = unescape(fields.next().ok_or_else(malformed)?);
    let mount_point = unescape(fields.next().ok_or_else(malformed)?);
    Ok(Some(CgroupMount { mount_point, root, hierarchy }))
}

/// Controllers and names among the options of the super block.
fn options(text: &str) -> Vec<String> {
    text.split(',')
        .filter(|option| !matches!(*option, "rw" | "ro" | "xattr" | "noprefix" | "clone_children"))
        .map(str::to_owned)
        .collect()
}

/// Undoes the octal escapes of `seq_path` (space, tab, newline, backslash).
fn unescape(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = code.filter(u8::is_ascii) {
            text.push(char::from(byte));
            rest = &rest[at + 4..];
        } else {
            text.push('\\');
            rest = &rest[at + 1..];
        }
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HYBRID: &str = "\
23 1 254:0 / / rw,noatime shared:1 - ext4 /dev/vda rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset,clone_children
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 master:2 - cgroup2 cgroup2 rw,nsdelegate
";

    fn v1(mount_point: &str, options: &[&str]) -> CgroupMount {
        CgroupMount {
            mount_point: mount_point.into(),
            root: "/".into(),
            hierarchy: Hierarchy::V1(options.iter().map(|&o| o.into()).collect()),
        }
    }

    #[test]
    fn finds_the_hierarchies_of_a_hybrid_host() {
        assert_eq!(
            parse_cgroup_mounts(HYBRID).unwrap(),
            [
                v1("/sys/fs/cgroup/cpu,cpuacct", &["cpu", "cpuacct"]),
                v1("/sys/fs/cgroup/cpuset", &["cpuset"]),
                v1("/sys/fs/cgroup/systemd", &["name=systemd"]),
                CgroupMount {
                    mount_point: "/sys/fs/cgroup/unified".into(),
                    root: "/".into(),
                    hierarchy: Hierarchy::Unified,
                },
            ]
        );
    }

    #[test]
    fn keeps_the_root_of_a_mount_from_outside_the_namespace() {
        let text = r"900 899 0:26 /../../.. /mnt/with\040space ro - cgroup2 cgroup rw";
        let mounts = parse_cgroup_mounts(text).unwrap();
        assert_eq!(
            (mounts[0].root.as_str(), mounts[0].mount_point.as_str()),
            ("/../../..", "/mnt/with space")
        );
    }

    #[test]
    fn names_the_malformed_line() {
        let error = parse_cgroup_mounts("31 23 0:28 / /sys\n").unwrap_err();
        assert_eq!(error.to_string(), "a line of mountinfo expected, found `31 23 0:28 / /sys`");
        assert!(parse_cgroup_mounts("1 2 - cgroup2 x rw").is_err());
        assert!(parse_cgroup_mounts("1 2 0:3 / /m rw - cgroup").is_err());
    }

    #[test]
    fn unescapes_only_what_is_an_escape() {
        for (escaped, text) in
            [(r"a\040b", "a b"), (r"\134x", r"\x"), (r"\9", r"\9"), (r"\", r"\"), (r"\é1", r"\é1")]
        {
            assert_eq!(unescape(escaped), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_mounts_or_an_error(text in any::<String>(), noise in "[0-9 :/\\\\a-z,=-]{0,80}") {
            let _ = parse_cgroup_mounts(&text);
            if let Ok(mounts) = parse_cgroup_mounts(&format!("{noise} - cgroup2 cgroup rw")) {
                prop_assert!(mounts.len() <= 1);
            }
        }
    }
}
