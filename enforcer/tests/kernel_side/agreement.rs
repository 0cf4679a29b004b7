//! Every field of the task iterator's record against the file of `/proc` that has the same.
//!
//! On threads that do nothing, so that the files say the same before and after, and each value can be
//! compared for equality. `utime` and `stime` are left out: `/proc` scales them to the exact run time
//! (`cputime_adjust` in `kernel/sched/cputime.c`), so what the kernel sampled is in no file.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    sync::{Arc, Barrier, mpsc},
    thread,
};

use enforcer_core::parse::task_sched::TaskSched;
use enforcer_kernel::bpf::{IteratedTask, TaskIterator};
use numa_topology::{id::CpuId, set::CpuSet};

use crate::{axis, own_cgroup, permitted, possible, possible_nodes, refused, run_on, thread_id};

/// What `/proc` says of a thread, by the names of the files.
#[derive(Debug, PartialEq, Eq)]
struct Files {
    stat: Vec<String>,
    comm: String,
    status: String,
    sched: Option<String>,
}

impl Files {
    fn read(tid: u32) -> Self {
        let file = |name: &str| fs::read(format!("/proc/self/task/{tid}/{name}"));
        let text = |name: &str| String::from_utf8_lossy(&file(name).unwrap()).into_owned();
        let stat = text("stat");
        let fields = stat[stat.rfind(')').unwrap() + 2..].split(' ').map(|field| field.trim().to_owned());
        Self {
            stat: fields.collect(),
            comm: text("comm").strip_suffix('\n').unwrap().to_owned(),
            status: text("status"),
            // Reading the file takes the time that it tells in this line.
            sched: file("sched").is_ok().then(|| {
                let lines = text("sched");
                lines.lines().filter(|line| !line.starts_with("clock-delta")).collect::<Vec<_>>().join("\n")
            }),
        }
    }

    /// Field by its number in `proc_pid_stat(5)`.
    fn stat(&self, number: usize) -> &str {
        &self.stat[number - 3]
    }

    fn status(&self, name: &str) -> &str {
        self.status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t")).unwrap()
    }

    /// A line of `sched`; `None` where this kernel does not write it.
    fn sched(&self, name: &str) -> Option<&str> {
        let lines = self.sched.as_deref()?.lines();
        let mut values = lines.filter_map(|line| line.split_once(':'));
        values.find(|(start, _)| start.trim_end() == name).map(|(_, value)| value.trim())
    }
}

/// Compares every field that a file has; `files` were the same before and after the record was taken.
fn compare(task: &IteratedTask, files: &Files) {
    assert_eq!(task.command, files.comm);
    assert_eq!(task.pid.to_string(), files.status("Tgid"));
    assert_eq!(task.tid.to_string(), files.status("Pid"));
    assert_eq!(task.cpus_allowed, Some(files.status("Cpus_allowed_list").parse::<CpuSet>().unwrap()));
    assert_eq!(task.voluntary_switches.to_string(), files.status("voluntary_ctxt_switches"));
    assert_eq!(task.involuntary_switches.to_string(), files.status("nonvoluntary_ctxt_switches"));
    // Bits above are no states of their own, such as TASK_FREEZABLE (TASK_REPORT in include/linux/sched.h).
    assert_eq!((task.state & 0x7f, files.stat(3)), (1, "S"), "TASK_INTERRUPTIBLE is S");
    assert_eq!(task.kernel_thread, files.stat(9).parse::<u32>().unwrap() & 0x0020_0000 != 0);
    assert_eq!(task.cpu, Some(CpuId(files.stat(39).parse().unwrap())));
    assert_eq!(task.policy.to_string(), files.stat(41));
    let ticks = files.stat(14).parse::<u64>().unwrap() + files.stat(15).parse::<u64>().unwrap();
    assert!(task.run_ns / 10_000_000 >= ticks && task.run_ns / 10_000_000 <= ticks + 2, "{task:?} {ticks}");
    let (_, mount) = axis();
    assert_eq!(task.cgroup, Some(fs::metadata(mount.join(own_cgroup())).unwrap().ino()));

    if let Some(milliseconds) = files.sched("se.sum_exec_runtime") {
        assert_eq!(task.run_ns.to_string(), milliseconds.replace('.', "").trim_start_matches('0'));
    } else {
        println!("not compared: this kernel has no `sched`");
    }
    compare_balancer(task, files.sched.as_deref().unwrap_or_default());
}

/// The balancer's part of `sched`, which a kernel without NUMA balancing does not write.
pub(crate) fn compare_balancer(task: &IteratedTask, sched: &str) {
    let mut balancer = TaskSched::default();
    sched.lines().for_each(|line| balancer.add_line(line).unwrap());
    let Some(preferred_node) = balancer.preferred_node else {
        println!("not compared: this kernel's `sched` says nothing of NUMA balancing");
        return;
    };
    assert_eq!(task.preferred_node, preferred_node);
    assert_eq!(task.numa_faults, balancer.faults);
    assert_eq!(task.faults_by_node, balancer.faults_by_node);
}

fn open_iterator() -> Option<TaskIterator> {
    TaskIterator::open(axis().0, possible(), &possible_nodes())
        .map_err(|error| refused(&error.to_string()))
        .ok()
}

pub(crate) fn read_tasks() -> Option<Vec<IteratedTask>> {
    Some(open_iterator()?.read().unwrap())
}

/// Threads that sleep until this is dropped.
struct Sleepers {
    tids: Vec<u32>,
    wake: Vec<mpsc::Sender<()>>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Sleepers {
    /// Starts threads; each does `prepare` with its number first.
    fn start(count: usize, prepare: fn(usize)) -> Self {
        let (tell, told) = mpsc::channel();
        let ready = Arc::new(Barrier::new(count + 1));
        let mut sleepers = Self { tids: Vec::new(), wake: Vec::new(), threads: Vec::new() };
        for number in 0..count {
            let (wake, woken) = mpsc::channel();
            let (tell, ready) = (tell.clone(), Arc::clone(&ready));
            let sleeper = thread::Builder::new().stack_size(64 * 1024).spawn(move || {
                prepare(number);
                tell.send((number, thread_id())).unwrap();
                ready.wait();
                // Ends when the sender is dropped.
                let _ = woken.recv();
            });
            sleepers.wake.push(wake);
            sleepers.threads.push(sleeper.unwrap());
        }
        ready.wait();
        let mut tids: Vec<(usize, u32)> = told.iter().take(count).collect();
        tids.sort_unstable();
        sleepers.tids = tids.into_iter().map(|(_, tid)| tid).collect();
        sleepers
    }

    /// All are gone, from the kernel's lists as well.
    fn end(mut self) {
        self.wake.clear();
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        while self.tids.iter().any(|tid| fs::exists(format!("/proc/self/task/{tid}")).unwrap()) {
            thread::yield_now();
        }
    }
}

/// Each has another affinity and a name that is hard to read.
fn odd(number: usize) {
    let names: [&[u8]; 3] = [b"a) S 1 (b", b"x\ny 0 0 0 0 0 0", b"\xff\xfe\x1b[2J"];
    let tid = thread_id();
    fs::write(format!("/proc/self/task/{tid}/comm"), names[number % names.len()]).unwrap();
    let cpus = possible();
    run_on(cpus.iter().nth(number % cpus.len()).unwrap());
}

#[test]
fn every_field_of_a_task_is_what_proc_says() {
    if !permitted() {
        return;
    }
    let sleepers = Sleepers::start(6, odd);
    let Some(iterator) = open_iterator() else { return };
    let mut compared = 0;
    for &tid in &sleepers.tids {
        // The thread may be on its way to sleep.
        for _ in 0..50 {
            let before = Files::read(tid);
            let tasks = iterator.read().unwrap();
            let after = Files::read(tid);
            if before.stat(3) == "S" && after == before {
                compare(tasks.iter().find(|task| task.tid == tid).unwrap(), &before);
                compared += 1;
                break;
            }
        }
    }
    assert_eq!(compared, sleepers.tids.len(), "all came to rest");
    sleepers.end();
}

/// Some kernels of managed virtual machines hide the host's own init from BPF.
fn tasks_of_proc(without_init: bool) -> usize {
    let entries = |path: String| fs::read_dir(path).into_iter().flatten().flatten();
    entries("/proc".into())
        .filter(|entry| {
            entry.file_name().to_string_lossy().parse::<u32>().is_ok_and(|pid| pid != 1 || !without_init)
        })
        .map(|entry| entries(format!("{}/task", entry.path().display())).count())
        .sum()
}

#[test]
fn a_thousand_threads_are_listed_once_each_and_none_after_their_end() {
    if !permitted() {
        return;
    }
    let sleepers = Sleepers::start(1_000, |_| ());
    let Some(tasks) = read_tasks() else { return };
    let in_proc = tasks_of_proc(tasks.iter().all(|task| task.tid != 1));
    let ours: BTreeSet<u32> = sleepers.tids.iter().copied().collect();
    let listed = |tasks: &[IteratedTask]| tasks.iter().filter(|task| ours.contains(&task.tid)).count();
    assert_eq!(listed(&tasks), 1_000);
    assert!(tasks.len().abs_diff(in_proc) * 100 <= in_proc, "{} of {in_proc} in /proc", tasks.len());
    sleepers.end();
    assert_eq!(listed(&read_tasks().unwrap()), 0);
}

#[test]
fn a_walk_over_threads_that_come_and_go_gives_each_once() {
    if !permitted() {
        return;
    }
    let sleepers = Sleepers::start(50, |_| ());
    let ours: BTreeSet<u32> = sleepers.tids.iter().copied().collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = thread::spawn(|| ()).join();
            }
        });
        for _ in 0..20 {
            let Some(tasks) = read_tasks() else { break };
            let tids: BTreeSet<u32> = tasks.iter().map(|task| task.tid).collect();
            assert_eq!(tids.len(), tasks.len(), "no thread comes twice");
            assert!(ours.is_subset(&tids), "long-lived threads are always listed");
            assert!(tasks.iter().all(|task| task.pid != 0 && task.tid != 0));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    sleepers.end();
}
