//! `exec`: the program has the policy, and is the process that was started.

use crate::common::{Ended, run};

fn under(policy: &[&str], command: &[&str]) -> Ended {
    run(&[&["exec"], policy, &["--"], command].concat())
}

#[test]
fn program_and_what_it_starts_have_the_policy() {
    let read = ["sh", "-c", "cat /proc/self/numa_maps"];
    for (policy, shown) in [
        (&["--policy", "interleave"][..], "interleave:"),
        (&["--policy", "bind", "--nodes", "0"], "bind:0"),
        (&["--policy", "bind", "--nodes", "0", "--keep-nodes"], "bind=static:0"),
        (&["--policy", "preferred-many", "--memory-types", "dram"], "prefer (many):"),
        (&["--policy", "local"], "local"),
    ] {
        let ended = under(policy, &read);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{policy:?}");
        let has = |line: &str| line.split_once(' ').is_some_and(|(_, policy)| policy.starts_with(shown));
        assert!(ended.stdout.lines().any(has), "{policy:?}: {}", ended.stdout);
    }
    let plain = std::fs::read_to_string("/proc/self/numa_maps").unwrap();
    assert!(!plain.contains("interleave:"), "this test has none itself");
}

#[test]
fn end_and_signals_are_those_of_the_program() {
    assert_eq!(under(&["--policy", "local"], &["sh", "-c", "exit 7"]).code, Some(7));
    // The kernel's signal for files that are too large is not ignored there.
    let ignored = under(&["--policy", "local"], &["sh", "-c", "grep SigIgn /proc/self/status"]);
    let mask = u64::from_str_radix(ignored.stdout.split_whitespace().last().unwrap(), 16).unwrap();
    assert_eq!(mask & (1 << (25 - 1)), 0, "SIGXFSZ: {mask:x}");
}

#[test]
fn ignored_signals_are_those_that_it_was_started_with() {
    let program = env!("CARGO_BIN_EXE_numa-enforcer");
    for (trap, ignored) in [("-", [false; 2]), ("''", [true; 2])] {
        let shell = format!(
            "trap {trap} PIPE XFSZ; exec {program} exec --policy local -- grep SigIgn /proc/self/status"
        );
        // The standard library resets SIGPIPE of what it starts.
        let out = std::process::Command::new("sh").args(["-c", &shell]).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let mask = u64::from_str_radix(text.split_whitespace().last().unwrap(), 16).unwrap();
        assert_eq!([13, 25].map(|signal| mask & (1 << (signal - 1)) != 0), ignored, "trap {trap}: {text}");
    }
}

#[test]
fn what_cannot_be_is_refused_before_the_program_runs() {
    let echo = ["echo", "ran"];
    for (policy, code, said) in [
        (&["--policy", "bind", "--nodes", "63"][..], 64, "the cpuset allows memory of NUMA nodes"),
        (&["--policy", "bind", "--memory-types", "hbm"], 64, "none has such memory"),
        (&["--policy", "local", "--nodes", "0"], 64, "the policy local has no nodes"),
        (&["--policy", "bind", "--nodes", "0", "--memory-types", "dram"], 64, "cannot be used with"),
        (&["--policy", "spread"], 64, "invalid value 'spread'"),
        (&[], 64, "--policy"),
    ] {
        let ended = under(policy, &echo);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{policy:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(said), "{policy:?}: {}", ended.stderr);
    }
    let missing = under(&["--policy", "local"], &["/no/such/program"]);
    assert_eq!(missing.code, Some(127));
    let no_program = under(&["--policy", "local"], &["/etc/passwd"]);
    assert_eq!(no_program.code, Some(126), "{}", no_program.stderr);
    assert!(missing.stderr.contains("run /no/such/program: No such file"), "{}", missing.stderr);
    assert_eq!(run(&["exec", "--policy", "local"]).code, Some(64), "no program");
}
