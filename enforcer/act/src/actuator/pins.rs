//! What processes have set themselves, around writes of their cpuset: the actuator's own, and those that a
//! runtime carries out on the daemon's behalf.

use enforcer_core::{
    id::Id,
    self_placement::CgroupThreads,
    set::{CpuSet, IdSet},
    workload::{CgroupPath, printable},
};

use super::{LiveActuator, SeenPins, text};
use crate::{
    cpuset::{Cpuset, CpusetFile},
    journal::EntryKey,
    pins::{self, PinsNow},
    self_placed::{self, Depth},
};

impl LiveActuator {
    /// What processes have set themselves and a write of this would change. What cannot be read is no reason
    /// to write nothing: it was looked at when it was decided.
    pub(super) fn self_placed<T: Id>(
        &self,
        cgroup: &CgroupPath,
        file: CpusetFile,
        cpuset: &Cpuset,
        wanted: &IdSet<T>,
    ) -> Vec<CgroupThreads> {
        let now = cpuset.read(file).ok().and_then(|text| text.trim().parse::<IdSet<T>>().ok());
        if now.as_ref() == Some(wanted) {
            return Vec::new();
        }
        // Also where the file is in the journal: it may be there since before a process had set anything, and
        // what has been recorded of a thread stays.
        let depth = if file == CpusetFile::Cpus { Depth::Affinity } else { Depth::AllPolicies };
        self_placed::read(&self.tree, cgroup, depth).unwrap_or_default()
    }

    /// Linux 6.1 and older forget where threads were pinned when their cpuset is written.
    pub(super) fn give_pins_back(&self, cpuset: &Cpuset, cgroup: &CgroupPath, before: &[CgroupThreads]) {
        let key = EntryKey { cgroup: cgroup.clone(), file: CpusetFile::Cpus, inode: cpuset.inode() };
        say(&self.look_at_pins(&key, before, true).failed);
    }

    fn look_at_pins(&self, key: &EntryKey, before: &[CgroupThreads], gives: bool) -> PinsNow {
        let recorded = self.journal.entries().get(key).map(|entry| entry.threads.as_slice());
        pins::look(&self.tree, before, recorded.unwrap_or_default(), gives)
    }

    /// Adds pins to what is recorded of a container, which its runtime sets, and gives them back unless its
    /// file holds what it held before that.
    pub(super) fn keep_pins_of(
        &mut self,
        cgroup: &CgroupPath,
        before: &[CgroupThreads],
        unwritten: Option<&CpuSet>,
    ) -> Result<Option<SeenPins>, String> {
        // One that has ended has nothing to lose.
        let cpuset = match self.tree.open(cgroup) {
            Err(error) if error.is_gone() || error.is_never() => return Ok(None),
            opened => opened.map_err(text)?,
        };
        let key = EntryKey { cgroup: cgroup.clone(), file: CpusetFile::Cpus, inode: cpuset.inode() };
        pins::record(&mut self.journal, &key, before).map_err(text)?;
        let now = match cpuset.read(CpusetFile::Cpus) {
            Err(error) if error.is_gone() => return Ok(None),
            read => read.map_err(text)?,
        };
        let unread = |error| format!("{cgroup}: reading cpuset.cpus, {:?}: {error}", now.trim());
        let cpus: CpuSet = now.trim().parse().map_err(unread)?;
        let PinsNow { whole, unkept, failed } = self.look_at_pins(&key, before, unwritten != Some(&cpus));
        say(&failed);
        Ok(Some(SeenPins { cpus, whole, unkept }))
    }
}

fn say(failed: &[String]) {
    for error in failed {
        tracing::warn!("{}", printable(error));
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, sync::mpsc, thread, time::Instant};

    use super::*;
    use crate::{
        Actuator as _,
        cpuset::CpusetTree,
        fixture::Fixture,
        pages::{PageBudget, PageMoveLimits, Stop},
    };
    use enforcer_host::HostRoot;
    use enforcer_kernel::{affinity, fake::FakeKernel};

    /// With a thread of this process, which is pinned, and whose pin is taken away as the kernel does.
    #[test]
    fn a_pin_is_given_back_when_a_runtime_has_written_the_cpus_of_its_cgroup() {
        let all = affinity::affinity(0).unwrap();
        let Some(cpu) = all.first().filter(|_| all.len() > 1) else {
            assert!(std::env::var_os("CI").is_none(), "a pin wants two CPUs");
            eprintln!("skipped: a pin wants two CPUs");
            return;
        };
        let pin: CpuSet = [cpu].into_iter().collect();
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let pinned = thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = ended.recv();
        });
        let tid = told.recv().unwrap();
        affinity::set_affinity(tid, &pin).unwrap();

        let host = Fixture::new(true);
        let before = format!("{all},8000");
        let set = |cpus: &str| {
            host.cgroup("/a", cpus, "0\n");
            fs::write(host.path("/a").join("cpuset.cpus.effective"), cpus).unwrap();
        };
        set(&before);
        fs::write(host.path("/a").join("cgroup.threads"), format!("{tid}\n")).unwrap();
        let cgroup = CgroupPath::new("/a");
        let tree = CpusetTree::new(&host.layout.cpuset.path, true).with_processes(Path::new("/proc"));
        let until = Instant::now() + std::time::Duration::from_hours(1);
        let (mut found, left_out) = self_placed::pinned(&tree, std::iter::once(&cgroup), until);
        let threads = found.remove(&cgroup).unwrap();
        assert_eq!(left_out, 0);
        let late = self_placed::pinned(&tree, std::iter::once(&cgroup), Instant::now());
        assert_eq!((late.0.len(), late.1), (0, 1), "what there was no time for is counted");

        let root = HostRoot { proc: "/proc".into(), ..host.host() };
        let budget = PageBudget::new(PageMoveLimits::default(), Stop::default());
        let mut actuator =
            LiveActuator::new(&root, &host.layout, host.journal(), Box::new(FakeKernel::default()), budget);
        let was: CpuSet = before.parse().unwrap();
        let mut look =
            |cgroup: &CgroupPath, unwritten| actuator.keep_pins(cgroup, &threads, unwritten).unwrap();
        let seen = look(&cgroup, Some(&was)).unwrap();
        assert_eq!((&seen.cpus, seen.whole.len()), (&was, 1), "its runtime has not written yet");
        affinity::set_affinity(tid, &all).unwrap();
        set(&all.to_string());
        look(&cgroup, Some(&all));
        assert_eq!(affinity::affinity(tid).unwrap(), all, "what it has set itself while nothing was written");
        // By a turn of ours, an administrator or the runtime: whose write it was does not matter.
        for unwritten in [Some(&was), None] {
            affinity::set_affinity(tid, &all).unwrap();
            assert_eq!(look(&cgroup, unwritten).unwrap().unkept, [""; 0]);
            assert_eq!(affinity::affinity(tid).unwrap(), pin);
        }
        let others = all.difference(&pin);
        set(&others.to_string());
        affinity::set_affinity(tid, &others).unwrap();
        let [unkept] = &look(&cgroup, Some(&was)).unwrap().unkept[..] else { panic!("it is said") };
        assert!(unkept.contains(&tid.to_string()), "{unkept}");
        assert!(unkept.ends_with(&format!("to {pin} (runs on all of them)")), "{unkept}");
        drop(end);
        pinned.join().unwrap();
        assert_eq!(look(&CgroupPath::new("/gone"), None), None);
    }
}
