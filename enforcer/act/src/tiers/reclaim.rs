//! Asks the kernel to reclaim memory of a cgroup (`memory.reclaim`), which takes pages down where its
//! demotion is on.
//!
//! A write returns when the amount was reclaimed, or with `EAGAIN` when the kernel gave up with less. It may
//! also reclaim more. So each write asks for little, and the progress is read from `memory.numa_stat` in
//! between.

use std::{fs, io, path::Path};

use rustix::io::Errno;

use super::{Carried, Deadline, Sides, memory, shift_since};
use enforcer_host::HostPath;

/// Bytes of one write.
const PART: u64 = 8 << 20;
/// Name of the file.
const FILE: &str = "memory.reclaim";

/// Writes a text into a file of the kernel.
pub fn to_file(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)
}

/// Asks for `bytes` of the cgroup (its directory); `write` writes a text into a file. The error says why
/// nothing could be done.
pub fn reclaim(
    cgroup: &HostPath,
    bytes: u64,
    sides: &Sides,
    deadline: &Deadline,
    write: &mut dyn FnMut(&Path, &str) -> io::Result<()>,
) -> Result<Carried, String> {
    let path = cgroup.join(FILE);
    let before = memory(cgroup)?;
    let (mut carried, mut asked) = (Carried::default(), 0);
    while carried.less.is_none() && carried.shift.outside == 0 && !deadline.is_over() {
        // What went down beyond what was asked for counts as well.
        let left = bytes.saturating_sub(carried.shift.down.max(asked));
        if left == 0 {
            break;
        }
        let part = left.min(PART);
        let written = write(path.as_path(), &part.to_string());
        match written.as_ref().err().map(Errno::from_io_error) {
            None => {}
            Some(Some(Errno::AGAIN | Errno::INTR)) => {
                carried.less = Some("the kernel found no more that it could take".into());
            }
            Some(_) if asked > 0 => carried.less = written.err().map(|error| error.to_string()),
            Some(_) => {
                let error = written.err().map_or_else(String::new, |error| error.to_string());
                return Err(format!("writing {part} to {}: {error}", path.display()));
            }
        }
        asked += part;
        carried.shift = shift_since(&before, cgroup, sides)?;
    }
    Ok(carried)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::pages::Stop;
    use enforcer_host::HostRoot;

    const MIB: u64 = 1 << 20;

    /// A cgroup with so many bytes on nodes 0, 2 and 3, and a kernel that takes from the first.
    struct Cgroup(tempfile::TempDir);

    impl Cgroup {
        fn new(upper: u64) -> Self {
            let cgroup = Self(tempfile::tempdir().unwrap());
            cgroup.put([upper, 0, 0]);
            cgroup
        }

        fn put(&self, [first, second, third]: [u64; 3]) {
            let text = format!("anon N0={first} N2={second} N3={third}\nfile N0=0 N2=0 N3=0\n");
            fs::write(self.0.path().join("memory.numa_stat"), text).unwrap();
        }

        fn dir(&self) -> HostPath {
            HostRoot::live().at(self.0.path())
        }

        fn bytes(&self) -> [u64; 3] {
            let by_node = memory(&self.dir()).unwrap();
            [0, 2, 3].map(|node| by_node[&numa_topology::id::NodeId(node)].anon)
        }

        /// Takes so many percent of what it is asked for to the second node, and bytes of it to the third.
        fn take(&self, path: &Path, text: &str, percent: u64, astray: u64) {
            assert_eq!(path, self.0.path().join("memory.reclaim"));
            let [first, second, third] = self.bytes();
            let taken = (text.parse::<u64>().unwrap() * percent / 100).min(first);
            let astray = astray.min(taken);
            self.put([first - taken, second + taken - astray, third + astray]);
        }
    }

    fn sides() -> Sides {
        let set = |text: &str| text.parse().unwrap();
        Sides { upper: set("0"), lower: set("2"), allowed: set("0,2") }
    }

    fn long() -> Deadline {
        Deadline::after(Duration::from_mins(10), &Stop::default())
    }

    #[test]
    fn it_is_asked_for_a_little_at_a_time_and_for_no_more_than_wanted() {
        let cgroup = Cgroup::new(100 * MIB);
        let mut asked = Vec::new();
        let carried = reclaim(&cgroup.dir(), 20 * MIB, &sides(), &long(), &mut |path, text| {
            asked.push(text.parse::<u64>().unwrap() / MIB);
            cgroup.take(path, text, 100, 0);
            Ok(())
        });
        assert_eq!((asked, carried.unwrap().shift.down), (vec![8, 8, 4], 20 * MIB));
        assert_eq!(cgroup.bytes(), [80 * MIB, 20 * MIB, 0]);
    }

    #[test]
    fn what_moved_is_what_memory_shows_and_not_what_the_call_says() {
        let cgroup = Cgroup::new(100 * MIB);
        let carried = reclaim(&cgroup.dir(), 20 * MIB, &sides(), &long(), &mut |_, _| Ok(())).unwrap();
        assert_eq!((carried.shift.down, carried.less), (0, None));
    }

    #[test]
    fn less_than_was_asked_for_ends_it_and_what_went_down_counts() {
        let cgroup = Cgroup::new(10 * MIB);
        let mut writes = 0;
        let carried = reclaim(&cgroup.dir(), 50 * MIB, &sides(), &long(), &mut |path, text| {
            writes += 1;
            cgroup.take(path, text, 100, 0);
            if writes == 2 { Err(Errno::AGAIN.into()) } else { Ok(()) }
        });
        let carried = carried.unwrap();
        assert_eq!((writes, carried.shift.down), (2, 10 * MIB));
        assert!(carried.less.unwrap().contains("no more that it could take"));
    }

    #[test]
    fn a_page_on_a_node_that_is_not_allowed_ends_it() {
        let cgroup = Cgroup::new(100 * MIB);
        let mut writes = 0;
        let carried = reclaim(&cgroup.dir(), 50 * MIB, &sides(), &long(), &mut |path, text| {
            writes += 1;
            cgroup.take(path, text, 100, 4096);
            Ok(())
        });
        assert_eq!((writes, carried.unwrap().shift.outside), (1, 4096));
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error_and_one_whose_time_is_over_is_not_written() {
        let cgroup = Cgroup::new(100 * MIB);
        let refused = reclaim(&cgroup.dir(), MIB, &sides(), &long(), &mut |_, _| Err(Errno::NOENT.into()));
        assert!(refused.unwrap_err().contains("memory.reclaim"), "its name is told");
        let over = Deadline::after(Duration::ZERO, &Stop::default());
        let carried = reclaim(&cgroup.dir(), MIB, &sides(), &over, &mut |_, _| panic!("it is over"));
        assert_eq!(carried.unwrap(), Carried::default());
    }

    proptest! {
        #[test]
        fn never_more_is_asked_for_than_wanted_whatever_the_kernel_takes(
            wanted in 0u64..64 * MIB, percent in 0u64..300, upper in 0u64..128 * MIB,
        ) {
            let cgroup = Cgroup::new(upper);
            let mut asked = 0;
            let carried = reclaim(&cgroup.dir(), wanted, &sides(), &long(), &mut |path, text| {
                asked += text.parse::<u64>().unwrap();
                cgroup.take(path, text, percent, 0);
                Ok(())
            });
            prop_assert!(asked <= wanted);
            let [left, down, _] = cgroup.bytes();
            prop_assert_eq!(carried.unwrap().shift.down, down);
            prop_assert_eq!(left + down, upper);
            // The kernel may take more than it was asked for, in one write.
            prop_assert!(down <= wanted.max(PART) * percent.max(100) / 100);
        }
    }
}
