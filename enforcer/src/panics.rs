//! A panic of any thread ends the process, in every build profile.
//!
//! Problem: the release profile aborts, a development build unwinds, and a thread that unwinds dies alone
//! while the others go on without it. The scenarios play the development build, so they would test another
//! program than the one that ships. Idea: the panic hook aborts. It runs before anything unwinds, so both
//! builds behave alike; the supervisor starts another daemon, which goes on from the journal.
//!
//! Invariant: the message of the panic is printed before the process ends.

use std::{panic, process};

/// From now on a panic of any thread prints its message and aborts the process.
pub fn abort_the_process() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        print(panicked);
        process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::{env, os::unix::process::ExitStatusExt, process::Command, thread, time::Duration};

    use super::*;

    const CHILD: &str = "NUMA_ENFORCER_TEST_PANICS";
    const SIGABRT: i32 = 6;

    /// The child is this test once more, in a process of its own.
    #[test]
    fn panic_of_one_thread_ends_the_process() {
        if env::var_os(CHILD).is_some() {
            abort_the_process();
            thread::spawn(|| panic!("on purpose"));
            thread::sleep(Duration::from_mins(10));
        }
        let own = env::current_exe().expect("own path");
        let name = "panics::tests::panic_of_one_thread_ends_the_process";
        let child = Command::new(own).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output();
        let child = child.expect("the child starts");
        let printed = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.signal(), Some(SIGABRT), "{printed}");
        assert!(printed.contains("on purpose"), "{printed}");
    }
}
