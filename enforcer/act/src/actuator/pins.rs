//! Pins and policies of processes around writes of their cpuset, by the actuator or by a runtime on its
//! behalf.

use enforcer_core::{
    self_placement::{CgroupThreads, SelfPlacedThread},
    workload::{CgroupPath, printable},
};
use numa_topology::{
    id::Id,
    set::{CpuSet, IdSet},
};

use super::{LiveActuator, SeenPins, text};
use crate::{
    cpuset::{ManagedFile, OpenCpuset},
    journal::EntryKey,
    pins::{self, Gives, PinsNow},
    self_placed::{self, Depth},
};

impl LiveActuator {
    /// Pins and policies of processes that a write of this would change. Unreadable ones do not prevent the
    /// write: the decision has checked them.
    pub(super) fn self_placed<T: Id>(
        &self,
        cgroup: &CgroupPath,
        file: ManagedFile,
        cpuset: &OpenCpuset,
        wanted: &IdSet<T>,
    ) -> Vec<CgroupThreads> {
        let now = cpuset.read(file).ok().and_then(|text| text.trim().parse::<IdSet<T>>().ok());
        if now.as_ref() == Some(wanted) {
            return Vec::new();
        }
        // Also where the file is in the journal: it may be there since before a process had set anything, and
        // what has been recorded of a thread stays.
        let depth = if file == ManagedFile::Cpus { Depth::Affinity } else { Depth::AllPolicies };
        self_placed::read(&self.tree, cgroup, depth).unwrap_or_default()
    }

    /// Linux 6.1 and older forget where threads were pinned when their cpuset is written.
    pub(super) fn give_pins_back(&self, cpuset: &OpenCpuset, cgroup: &CgroupPath, before: &[CgroupThreads]) {
        let key = EntryKey { cgroup: cgroup.clone(), file: ManagedFile::Cpus, inode: cpuset.inode() };
        say(&pins::restore_pins(&self.tree, before, self.recorded(&key), Gives::WhereChanged).failed);
    }

    fn recorded(&self, key: &EntryKey) -> &[SelfPlacedThread] {
        self.journal.entries().get(key).map(|entry| entry.threads.as_slice()).unwrap_or_default()
    }

    /// Adds pins to what is recorded of a container, which its runtime sets, and gives them back where what
    /// its file holds says so. To give them back nothing has to be recorded.
    pub(super) fn keep_pins_of(
        &mut self,
        cgroup: &CgroupPath,
        before: &[CgroupThreads],
        gives: &dyn Fn(&CpuSet) -> Gives,
    ) -> Result<Option<SeenPins>, String> {
        // One that has ended has nothing to lose.
        let cpuset = match self.tree.open(cgroup) {
            Err(error) if error.is_gone() || error.is_never() => return Ok(None),
            opened => opened.map_err(text)?,
        };
        let key = EntryKey { cgroup: cgroup.clone(), file: ManagedFile::Cpus, inode: cpuset.inode() };
        let unrecorded = pins::record(&mut self.journal, &key, before).map_err(text).err();
        let now = match cpuset.read(ManagedFile::Cpus) {
            Err(error) if error.is_gone() => return Ok(None),
            read => read.map_err(text)?,
        };
        let unread = |error| format!("{cgroup}: reading cpuset.cpus, {:?}: {error}", now.trim());
        let cpus: CpuSet = now.trim().parse().map_err(unread)?;
        let (gives, recorded) = (gives(&cpus), self.recorded(&key));
        let PinsNow { mut whole, unkept, failed } = pins::restore_pins(&self.tree, before, recorded, gives);
        say(&failed);
        let known = pins::known(&self.tree, cgroup, before, recorded);
        if gives == Gives::Nowhere {
            whole.extend(known);
        } else {
            say(&pins::restore_pins(&self.tree, &known, recorded, Gives::Everywhere).failed);
        }
        Ok(Some(SeenPins { cpus, whole, unkept, unrecorded }))
    }
}

fn say(failed: &[String]) {
    for error in failed {
        tracing::warn!("{}", printable(error));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        sync::mpsc::{self, Sender},
        thread::{self, JoinHandle},
        time::{Duration, Instant},
    };

    use super::*;
    use crate::{
        Actuator as _, Journal,
        cpuset::CpusetTree,
        fixture::Fixture,
        journal::fake_disk::FakeDisk,
        pages::{PageBudget, PageMoveLimits, Stop},
    };
    use enforcer_kernel::{affinity, fake::FakeKernel};

    /// A thread of this process, alone in a cgroup of a host. The test plays a kernel that forgets pins.
    struct Pinned {
        host: Fixture,
        cgroup: CgroupPath,
        /// CPUs of this process.
        all: CpuSet,
        /// The one that the thread pins itself to.
        pin: CpuSet,
        tid: i32,
        thread: Option<(Sender<()>, JoinHandle<()>)>,
    }

    impl Drop for Pinned {
        fn drop(&mut self) {
            if let Some((end, thread)) = self.thread.take() {
                drop(end);
                thread.join().unwrap();
            }
        }
    }

    impl Pinned {
        /// `None` where there is one CPU.
        fn new(release: &str) -> Option<Self> {
            let all = affinity::affinity(0).unwrap();
            let Some(cpu) = all.first().filter(|_| all.len() > 1) else {
                assert!(std::env::var_os("CI").is_none(), "a pin wants two CPUs");
                eprintln!("skipped: a pin wants two CPUs");
                return None;
            };
            let pin: CpuSet = [cpu].into_iter().collect();
            let (tell, told) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let thread = thread::spawn(move || {
                tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                let _ = ended.recv();
            });
            let tid = told.recv().unwrap();
            let host = Fixture::new(true);
            let proc = host.host().proc.as_path().to_owned();
            fs::write(proc.join("sys/kernel/osrelease"), release).unwrap();
            symlink(format!("/proc/{tid}"), proc.join(tid.to_string())).unwrap();
            let thread = Some((end, thread));
            let one = Self { host, cgroup: CgroupPath::new("/a"), all, pin, tid, thread };
            one.run_on(&one.pin);
            Some(one)
        }

        fn run_on(&self, cpus: &CpuSet) {
            affinity::set_affinity(self.tid, cpus).unwrap();
        }

        fn runs_on(&self) -> CpuSet {
            affinity::affinity(self.tid).unwrap()
        }

        fn has(&self, cpus: &str) {
            self.host.cgroup("/a", cpus, "0\n");
            fs::write(self.host.path("/a").join("cpuset.cpus.effective"), cpus).unwrap();
            fs::write(self.host.path("/a").join("cgroup.threads"), format!("{}\n", self.tid)).unwrap();
        }

        /// Its cpuset is written, and the kernel forgets where the thread had pinned itself.
        fn is_set(&self, cpus: &CpuSet) {
            self.has(&cpus.to_string());
            self.run_on(cpus);
        }

        fn tree(&self) -> CpusetTree {
            CpusetTree::new(&self.host.layout.cpuset.path, true).with_processes(&self.host.host().proc)
        }

        /// What an answer finds of it.
        fn noted(&self) -> Vec<CgroupThreads> {
            let until = Instant::now() + Duration::from_hours(1);
            let (mut found, left_out) =
                self_placed::pinned(&self.tree(), std::iter::once(&self.cgroup), until);
            assert_eq!(left_out, 0);
            found.remove(&self.cgroup).unwrap_or_default()
        }

        /// With an entry for its cpuset.
        fn actuator(&self, journal: Journal) -> LiveActuator {
            let budget = PageBudget::new(PageMoveLimits::default(), Stop::default());
            let (root, kernel) = (self.host.host(), Box::new(FakeKernel::default()));
            let mut actuator = LiveActuator::new(&root, &self.host.layout, journal, kernel, budget);
            actuator
                .record(&[(self.cgroup.clone(), enforcer_core::hosted::Cpuset::default())].into())
                .unwrap();
            actuator
        }
    }

    fn threads(whole: &[CgroupThreads]) -> usize {
        whole.iter().map(|one| one.threads.len()).sum()
    }

    #[test]
    fn a_pin_is_given_back_when_the_cpus_of_its_cgroup_were_written() {
        let Some(thread) = Pinned::new("6.1.0-40-amd64\n") else { return };
        let Pinned { cgroup, all, pin, tid, .. } = &thread;
        let was: CpuSet = format!("{all},8000").parse().unwrap();
        thread.has(&was.to_string());
        let late = self_placed::pinned(&thread.tree(), std::iter::once(cgroup), Instant::now());
        assert_eq!((late.0.len(), late.1), (0, 1), "what there was no time for is counted");
        let noted = thread.noted();
        let mut actuator = thread.actuator(thread.host.journal());
        let mut look = |cgroup: &CgroupPath, gives| actuator.keep_pins(cgroup, &noted, &|_| gives).unwrap();
        let seen = look(cgroup, Gives::Nowhere).unwrap();
        assert_eq!((&seen.cpus, threads(&seen.whole)), (&was, 1), "its runtime has not written yet");
        thread.is_set(all);
        look(cgroup, Gives::Nowhere);
        assert_eq!(thread.runs_on(), *all, "what it has set itself while nothing was written");
        for gives in [Gives::WhereChanged, Gives::Everywhere] {
            thread.run_on(all);
            assert_eq!(look(cgroup, gives).unwrap().unkept, [""; 0]);
            assert_eq!(thread.runs_on(), *pin);
        }
        let others = all.difference(pin);
        thread.is_set(&others);
        let [unkept] = &look(cgroup, Gives::WhereChanged).unwrap().unkept[..] else { panic!("it is said") };
        assert!(unkept.contains(&tid.to_string()), "{unkept}");
        assert!(unkept.ends_with(&format!("to {pin} (runs on all of them)")), "{unkept}");
        assert_eq!(look(&CgroupPath::new("/gone"), Gives::Everywhere), None);
    }

    /// The journal alone knows it then. Whether a runtime gives the CPUs back or a turn does not matter.
    #[test]
    fn a_pin_of_which_nothing_was_left_is_given_back_with_its_cpus_where_the_kernel_has_forgotten_it() {
        for (release, forgets) in [("5.10.0\n", true), ("6.1.0-40-amd64\n", true), ("6.2.0\n", false)] {
            let Some(thread) = Pinned::new(release) else { return };
            let Pinned { cgroup, all, pin, .. } = &thread;
            let others = all.difference(pin);
            thread.has(&all.to_string());
            let noted = thread.noted();
            let mut actuator = thread.actuator(thread.host.journal());
            thread.is_set(&others);
            actuator.keep_pins(cgroup, &noted, &|_| Gives::WhereChanged).unwrap();
            assert!(thread.noted().is_empty(), "it runs on all that there is");

            let mut look = |gives| actuator.keep_pins(cgroup, &[], &|_| gives).unwrap().unwrap();
            assert_eq!(threads(&look(Gives::Nowhere).whole), usize::from(forgets), "it waits for a write");
            assert_eq!(thread.runs_on(), others);
            thread.is_set(all);
            look(Gives::WhereChanged);
            assert_eq!(thread.runs_on(), if forgets { pin } else { all }.clone(), "{release}");
        }
    }

    /// Where nothing was written in between what it has set itself stays.
    #[test]
    fn a_thread_that_has_unpinned_itself_is_left_alone_in_a_cgroup_that_has_the_cpus_of_before() {
        let Some(thread) = Pinned::new("6.1.0\n") else { return };
        let Pinned { cgroup, all, pin, .. } = &thread;
        thread.has(&all.to_string());
        let noted = thread.noted();
        let mut actuator = thread.actuator(thread.host.journal());
        thread.run_on(all);
        for (gives, expected) in [(Gives::WhereChanged, all), (Gives::Everywhere, pin)] {
            actuator.keep_pins(cgroup, &noted, &|_| gives).unwrap();
            assert_eq!(thread.runs_on(), *expected, "{gives:?}");
        }
    }

    /// Its first pin is not what it wants any more.
    #[test]
    fn a_thread_that_pins_itself_anew_gets_that_back() {
        let Some(thread) = Pinned::new("6.1.0\n") else { return };
        let Pinned { cgroup, all, pin, .. } = &thread;
        let anew = all.difference(pin).first().map(|cpu| [cpu].into_iter().collect::<CpuSet>()).unwrap();
        thread.has(&format!("{all},8000"));
        let mut actuator = thread.actuator(thread.host.journal());
        let mut note = || actuator.keep_pins(cgroup, &thread.noted(), &|_| Gives::Nowhere).unwrap();
        note();
        thread.run_on(&anew);
        note();
        thread.is_set(all);
        actuator.keep_pins(cgroup, &[], &|_| Gives::Everywhere).unwrap();
        assert_eq!(thread.runs_on(), anew);
    }

    #[test]
    fn a_full_disk_keeps_no_pin_from_being_given_back_and_is_told() {
        let Some(thread) = Pinned::new("6.1.0\n") else { return };
        let Pinned { cgroup, all, pin, .. } = &thread;
        thread.has(&format!("{all},8000"));
        let disk = FakeDisk::default();
        let mut actuator = thread.actuator(thread.host.journal().appending_to(&disk));
        let noted = thread.noted();
        thread.is_set(all);
        disk.leave_room(Some(0));
        let seen = actuator.keep_pins(cgroup, &noted, &|_| Gives::WhereChanged).unwrap().unwrap();
        assert_eq!(thread.runs_on(), *pin);
        let error = seen.unrecorded.unwrap();
        assert!(error.contains("journal"), "{error}");
    }
}
