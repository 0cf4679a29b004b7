//! Placement fields of `/proc/PID/status` (Documentation/filesystems/proc.rst).

use super::{ParseError, scalar};
use numa_topology::set::{CpuSet, NodeSet};

/// The lines in use; a kernel without cpusets or NUMA leaves some out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskStatus {
    /// `Tgid`: process id.
    pub process: Option<u32>,
    /// `Cpus_allowed_list`: affinity within the cpuset.
    pub cpus_allowed: Option<CpuSet>,
    /// `Mems_allowed_list`.
    pub mems_allowed: Option<NodeSet>,
}

impl TaskStatus {
    /// Parses a known line and skips others.
    pub fn add_line(&mut self, line: &str) -> Result<(), ParseError> {
        match line.split_once(':') {
            Some(("Tgid", id)) => {
                let process = scalar::unsigned(id)?.try_into();
                self.process = Some(process.ok().ok_or_else(|| ParseError::new("a process id", id))?);
            }
            Some(("Cpus_allowed_list", cpus)) => self.cpus_allowed = Some(scalar::list(cpus)?),
            Some(("Mems_allowed_list", mems)) => self.mems_allowed = Some(scalar::list(mems)?),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<TaskStatus, ParseError> {
        let mut status = TaskStatus::default();
        text.lines().try_for_each(|line| status.add_line(line)).map(|()| status)
    }

    #[test]
    fn reads_the_lines_of_use() {
        let text = "Name:\tcat\\nTgid:\t9\nTgid:\t12\nPid:\t13\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\n\
            Mems_allowed:\t00000001\nMems_allowed_list:\t0\nvoluntary_ctxt_switches:\t1\n";
        let status = read(text).unwrap();
        assert_eq!(status.process, Some(12));
        assert_eq!(status.cpus_allowed.unwrap().to_string(), "0-3,8");
        assert_eq!(status.mems_allowed.unwrap().to_string(), "0");
        assert_eq!(read("Name:\tx\n").unwrap(), TaskStatus::default());
    }

    #[test]
    fn refuses_nonsense() {
        for text in
            ["Tgid:\tx", "Tgid:\t99999999999", "Cpus_allowed_list:\t3-1", "Mems_allowed_list:\t0-999999999"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_status_or_an_error(text in any::<String>(), list in "[0-9,-]{0,12}") {
            let _ = read(&text);
            let _ = read(&format!("Cpus_allowed_list:\t{list}"));
        }
    }
}
