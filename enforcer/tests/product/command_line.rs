//! What the command line promises: exit codes, messages, and manners in a pipe.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    process::{Command, Stdio},
};

use crate::common::{finish, program, run, unprivileged};
use enforcer_act::{
    cpuset::ManagedFile,
    journal::{BrakeRecord, RecordedBrake},
};
use enforcer_core::workload::CgroupPath;

#[test]
fn help_and_version_are_a_success() {
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["--version"],
        &["help"],
        &["audit", "--help"],
        &["topology", "--help"],
        &["plan", "--help"],
        &["capture", "--help"],
        &["doctor", "--help"],
        &["publish", "--help"],
        &["run", "--help"],
        &["exec", "--help"],
        &["restore", "--help"],
        &["install-seccomp", "--help"],
        &["top", "--help"],
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
        assert!(!ended.stdout.is_empty() && ended.stderr.is_empty(), "{arguments:?}");
        if arguments.contains(&"--help") {
            assert!(ended.stdout.contains("Examples:"), "{arguments:?}: {}", ended.stdout);
        }
    }
}

/// Lines of a screen, and its columns.
const SCREEN: usize = 50;
const COLUMNS: usize = 80;

#[test]
fn settings_without_effect_are_named_by_commands_that_read_them() {
    let dir = tempfile::tempdir().unwrap();
    let [config, pods] = ["config.toml", "pods.yaml"].map(|name| dir.path().join(name));
    fs::write(&config, "[placement.hints]\nprofile = 'kubelet'\nalign_all_qos = true\n").unwrap();
    fs::write(&pods, "workloads: [{ name: db, cpus: 1, memory: 1GiB }]\n").unwrap();
    let [config, pods] = [&config, &pods].map(|path| path.to_str().unwrap());
    let said = format!("numa-enforcer: {config}:3:17: placement.hints.align_all_qos: no effect: ");
    for arguments in [
        &["run", "--check", "--config", config][..],
        &["plan", pods, "--synthetic", "cores:2", "--config", config],
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.starts_with(&said), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn audit_names_what_entries_want_that_the_machine_lacks_and_entries_that_match_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let entry = "[[workload]]\nname = \"a\"\ncgroup = \"/no/such/cgroup\"\ncpus = 1\n";
    let wishes = "numa_nodes = \"900-901\"\ndevices = [\"nope0\"]\n";
    let of_pods = "[[workload]]\nname = \"b\"\nnamespace = \"x\"\ncpus = 1\n";
    fs::write(file.path(), format!("{entry}{wishes}{of_pods}")).unwrap();
    let ended = run(&["audit", "--config", file.path().to_str().unwrap()]);
    for said in [
        "[[workload]] \"a\": there is no device \"nope0\"\n",
        "[[workload]] \"a\": numa_nodes is 900-901, and the machine has NUMA nodes ",
        "[[workload]] \"a\": nothing that runs matches\n",
    ] {
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("\"b\""), "{}", ended.stderr);
}

#[test]
fn help_of_every_command_is_one_screen_with_examples() {
    let all = enforcer::cli::args::command();
    let parts = all.get_subcommands().filter(|one| !one.is_hide_set()).map(clap::Command::get_name);
    for name in std::iter::once(None).chain(parts.map(Some)) {
        let arguments: Vec<&str> = name.into_iter().chain(["--help"]).collect();
        let mut command = program(&arguments);
        command.env("COLUMNS", COLUMNS.to_string());
        let help = finish(command).stdout;
        let lines = help.lines().count();
        assert!(lines <= SCREEN, "{name:?} has {lines} lines:\n{help}");
        let (_, examples) = help.split_once("Examples:\n").unwrap_or_else(|| panic!("{name:?}: {help}"));
        assert!(examples.contains("numa-enforcer"), "{name:?}: {help}");
        assert!(help.lines().all(|line| line.chars().count() <= COLUMNS), "{name:?}: {help}");
        // What has lines of its own keeps them.
        let one = name.map_or(&all, |name| all.find_subcommand(name).unwrap());
        for line in one.get_after_help().unwrap().to_string().lines() {
            assert!(help.lines().any(|shown| shown == line), "{name:?} breaks {line:?}: {help}");
        }
        assert_eq!(run(&[&arguments[..arguments.len() - 1], &["-h"]].concat()).code, Some(0));
    }
}

#[test]
fn every_shell_gets_completions_of_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = run(&["completions", shell]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{shell}");
        // PowerShell's completes no values.
        let code = if shell == "powershell" || shell == "elvish" { "explain" } else { "remote-residency" };
        for word in ["audit", "explain", "config-if-present", "completions", code] {
            assert!(ended.stdout.contains(word), "{shell}: no {word}");
        }
        for hidden in ["hold-memory", "watch-brake"] {
            assert!(!ended.stdout.contains(hidden), "{shell}: {hidden}");
        }
    }
    assert_eq!(run(&["completions", "cmd"]).code, Some(64));
}

#[test]
fn bash_completes_options_and_values_of_each_command() {
    let script = run(&["completions", "bash"]).stdout;
    let complete = |words: &[&str]| {
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let ask = format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD={at}; $(complete -p numa-enforcer | grep -o '_numa[^ ]*') \
             numa-enforcer '{last}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
            words = words.join(" "),
            at = words.len() - 1,
        );
        let told = Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8(told.stdout).unwrap().trim_end().to_owned()
    };
    for (words, told) in [
        (&["numa-enforcer", "aud"][..], "audit"),
        (&["numa-enforcer", "audit", "--bas"], "--baseline"),
        (&["numa-enforcer", "audit", "-o", "j"], "json junit"),
        (&["numa-enforcer", "run", "--config-if"], "--config-if-present"),
        (&["numa-enforcer", "completions", "z"], "zsh"),
        (&["numa-enforcer", "h"], "help"),
    ] {
        assert_eq!(complete(words), told, "{words:?}");
    }
}

#[test]
fn exit_codes_are_those_that_are_documented() {
    let empty = tempfile::tempdir().unwrap();
    let pod = |name: &str, cpus: u32| {
        let path = empty.path().join(name);
        let text = format!(
            "{{kind: Pod, metadata: {{name: p}}, spec: {{containers: [{{name: c, resources: {{limits: {{cpu: {cpus}, \
             memory: 1Gi}}}}}}]}}}}\n"
        );
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (fits, much) = (pod("fits.yaml", 1), pod("much.yaml", 4000));
    let no_daemon = empty.path().join("no.sock");
    let no_daemon = no_daemon.to_str().unwrap();
    for (arguments, code) in [
        (&["plan", &fits, "--synthetic", "sockets:2"][..], 0),
        (&["plan", &much, "--synthetic", "sockets:2"], 1),
        (&["plan", "/no/such/file.yaml", "--synthetic", "sockets:2"], 2),
        (&["audit", "--root", "/no/such/root"], 2),
        (&["audit", "--frobnicate"], 64),
        (&["status", "--socket", no_daemon], 69),
        (&["explain", "x", "--socket", no_daemon], 69),
        (&["pause", "--socket", no_daemon], 69),
        (&["resume", "--socket", no_daemon], 69),
        (&["log-level", "--socket", no_daemon], 69),
    ] {
        assert_eq!(run(arguments).code, Some(code), "{arguments:?}");
    }
}

#[test]
fn wrong_usage_is_64_and_names_the_value_and_the_cause() {
    for (arguments, said) in [
        (&[][..], "Usage: numa-enforcer"),
        (&["frobnicate"], "unrecognized subcommand 'frobnicate'"),
        (&["audit", "--nope"], "unexpected argument '--nope'"),
        (&["audit", "-o", "yaml"], "invalid value 'yaml' for '--output"),
        (&["audit", "--fail-on", "fatal"], "invalid value 'fatal' for '--fail-on"),
        (&["audit", "--sample", "10"], "invalid value '10' for '--sample"),
        (&["audit", "--sample", "10x"], "a whole number and one of ms, s, m, h"),
        (&["audit", "--sample", "0s"], "must be longer than zero"),
        (&["audit", "--sample", "99h"], "must not be longer than 24h"),
        (&["audit", "--sample", "1s", "--root", "/"], "cannot be used with '--root"),
        (&["audit", "--explain", "remote"], "no rule has the code `remote`"),
        (&["audit", "--explain", "drift", "-o", "json"], "cannot be used with"),
        (&["audit", "--baseline", "/dev/null"], "/dev/null"),
        (&["run", "--mode", "destroy"], "invalid value 'destroy' for '--mode"),
        (&["run", "--interval", "soon"], "invalid value 'soon' for '--interval"),
        (&["run", "--metrics-listen", "nowhere"], "invalid value 'nowhere' for '--metrics-listen"),
        (&["run", "--metrics-listen", "127.0.0.1"], "not an address and a port, as in `127.0.0.1:9477`"),
        (&["run", "--probes-listen", "127.0.0.1"], "not an address and a port, as in `127.0.0.1:9477`"),
        (
            &["run", "--check", "--probes-listen", "127.0.0.1:9477"],
            "--probes-listen = \"127.0.0.1:9477\": it cannot be used with metrics.listen, which is \
             \"127.0.0.1:9477\": both would listen",
        ),
        (
            &["run", "--check", "--reports-listen", "0.0.0.0:9479"],
            "--reports-listen = \"0.0.0.0:9479\": an address on loopback is expected",
        ),
        (&["run", "--check", "--state-dir", "state"], "an absolute path is expected"),
        (&["run", "--check", "--state-dir", "/"], "a directory of its own is expected"),
        (&["run", "--check", "--state-dir", ""], "a value is required for '--state-dir"),
        (&["capture"], "<DIR>"),
        (&["install-seccomp"], "<DIR>"),
        (&["install-seccomp", ""], "a value is required for '<DIR>'"),
        (&["restore", ""], "a value is required for '[WORKLOAD]' but none was supplied"),
        (&["top", "--interval", "10ms"], "must not be shorter than 500ms"),
        (&["top", "--no-daemon", "--socket", "/x"], "cannot be used with"),
        (&["top"], "`top --once` prints one frame as text"),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(64), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(said), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
}

#[test]
fn a_file_that_is_no_text_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("latin1");
    fs::write(&file, b"# \xe4\n").unwrap();
    let file = file.to_str().unwrap();
    for arguments in [
        &["audit", "--config", file][..],
        &["run", "--check", "--config", file],
        &["plan", file, "--synthetic", "sockets:2"],
        &["audit", "--baseline", file],
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(64), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("latin1"), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn help_that_cannot_be_written_has_failed() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let ended = program(&["--help"]).stdout(full).spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("No space left"), "{:?}", ended.stderr);
}

#[test]
fn a_root_that_is_not_a_machine_is_2_in_one_line() {
    let empty = tempfile::tempdir().unwrap();
    let file = empty.path().join("file");
    fs::write(&file, "").unwrap();
    let (empty, file) = (empty.path().to_str().unwrap(), file.to_str().unwrap());
    for (root, said) in [
        ("/no/such/root", "/no/such/root: No such file or directory"),
        (file, "not a directory"),
        (empty, "sys/devices/system: No such file or directory"),
    ] {
        for command in ["audit", "topology"] {
            let ended = run(&[command, "--root", root]);
            assert_eq!(ended.code, Some(2), "{command} {root}: {}", ended.stderr);
            assert_eq!(ended.stderr.lines().count(), 1, "{command} {root}: {}", ended.stderr);
            assert!(ended.stderr.contains(said), "{command} {root}: {}", ended.stderr);
            assert_eq!(ended.stdout, "", "{command} {root}");
        }
    }
}

#[test]
fn a_configuration_is_checked_without_running() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.toml");
    let path = config.to_str().unwrap();
    for (text, code, said) in [
        ("", 0, "valid"),
        (
            "mode = \"enforce\"\n[[workload]]\nname = \"db\"\ncgroup = \"/db\"\ncpus = 4\nmemory = \"1GiB\"\n",
            0,
            "valid",
        ),
        ("\n\nfrobnicate = 1\n", 64, "config.toml:3:1: unknown field `frobnicate`"),
        ("mode = \"destroy\"\n", 64, "config.toml:1:8: unknown variant `destroy`"),
        ("[[workload]]\nname = \"db\"\ncgroup = \"/db\"\ncpus = -4\n", 64, "config.toml:4:"),
        ("[[workload]\n", 64, "config.toml:1:"),
        ("mode = \"\u{1b}[31m\"\n", 64, "config.toml:1:"),
    ] {
        fs::write(&config, text).unwrap();
        let ended = run(&["run", "--check", "--config", path]);
        assert_eq!(ended.code, Some(code), "{text}: {}", ended.stderr);
        assert!(format!("{}{}", ended.stdout, ended.stderr).contains(said), "{text}: {ended:?}");
        assert!(!ended.stderr.contains('\u{1b}'), "{text}: {}", ended.stderr);
        let marked = ended.stderr.lines().any(|line| line.starts_with("  | ") && line.ends_with('^'));
        assert_eq!(marked, code != 0, "{text}: {}", ended.stderr);
        assert!(code == 0 || ended.stderr.contains(path), "{text}: {}", ended.stderr);
    }
    let absent = directory.path().join("absent.toml");
    let ended = run(&["run", "--check", "--config-if-present", absent.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("valid: mode observe, 0 declared workloads"), "{}", ended.stdout);
    // One that is there counts, and is refused when it is wrong.
    fs::write(&config, "frobnicate = 1\n").unwrap();
    assert_eq!(run(&["run", "--check", "--config-if-present", path]).code, Some(64));
    assert_eq!(run(&["run", "--config", path, "--config-if-present", path]).code, Some(64));
    fs::write(&config, [0xff, 0xfe]).unwrap();
    assert_eq!(run(&["run", "--check", "--config-if-present", path]).code, Some(64));
    assert_eq!(run(&["run", "--check", "--config", path]).code, Some(64));
    let ended = run(&["run", "--check", "--config", "/no/such/config"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("/no/such/config: No such file or directory"), "{}", ended.stderr);
}

#[test]
fn an_address_that_cannot_be_served_is_said() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = run(&["run", "--once", "--metrics-listen", &address]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains(&format!("metrics: listening on {address}: ")), "{}", ended.stdout);
    let logged = format!("ERROR no metrics are served: listening on {address}: ");
    assert!(ended.stderr.contains(&logged), "{}", ended.stderr);
}

#[test]
fn an_audit_goes_into_a_file_as_a_whole_or_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numa.prom");
    let path = path.to_str().unwrap();
    let ended = run(&["audit", "-o", "prometheus", "--write", path]);
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{error}: {}", ended.stderr));
    assert!(text.contains("\nnuma_enforcer_build_info{commit=") && text.ends_with('\n'), "{text}");
    assert!(ended.stdout.is_empty() && !text.contains("ticks"), "{}", ended.stdout);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");

    let ended = run(&["audit", "--write", &format!("{path}/below")]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("{path}/")), "{}", ended.stderr);
}

#[test]
fn seccomp_profile_is_written_as_a_whole_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let profile = include_str!("../../../deploy/seccomp/numa-enforcer.json");
    // As a new node has it: the kubelet makes no such folder.
    let below = folder.path().join("seccomp/profiles");
    let (file, below) = (below.join("numa-enforcer.json"), below.to_str().unwrap());
    for (before, said) in
        [(None, "written, "), (None, "unchanged, "), (Some("{}"), "written, "), (Some(""), "written, ")]
    {
        if let Some(text) = before {
            fs::write(&file, text).unwrap();
        }
        let ended = run(&["install-seccomp", below]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{before:?}");
        assert!(ended.stdout.starts_with(&format!("{}: {said}", file.display())), "{}", ended.stdout);
        assert_eq!(fs::read_to_string(&file).unwrap(), profile);
        assert_eq!(fs::read_dir(below).unwrap().count(), 1, "nothing is left beside it");
    }
    // The runtime reads it, as root; a user who debugs a pod may too.
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
}

#[test]
fn seccomp_profile_that_cannot_be_written_is_an_error_that_names_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("taken/numa-enforcer.json")).unwrap();
    fs::create_dir(at("linked")).unwrap();
    fs::write(at("other"), "mine").unwrap();
    std::os::unix::fs::symlink(at("other"), at("linked/numa-enforcer.json")).unwrap();
    for (directory, said) in [
        ("other", "creating "),
        ("other/below", "creating "),
        ("taken", "not a regular file"),
        ("linked", "not a regular file"),
    ] {
        let directory = at(directory);
        let ended = run(&["install-seccomp", directory.to_str().unwrap()]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
        assert!(
            ended.stderr.contains(said) && ended.stderr.contains(directory.to_str().unwrap()),
            "{}",
            ended.stderr
        );
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    }
    assert_eq!(fs::read_to_string(at("other")).unwrap(), "mine", "no link is followed");
    let (mut command, open) = unprivileged(&["install-seccomp", "seccomp"]);
    let read_only = open.path().join("seccomp");
    fs::create_dir(&read_only).unwrap();
    fs::set_permissions(&read_only, fs::Permissions::from_mode(0o555)).unwrap();
    command.current_dir(open.path());
    let ended = finish(command);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("Permission denied"), "{}", ended.stderr);
}

#[test]
fn an_audit_goes_on_without_a_daemon_that_does_not_answer_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, config) = (folder.path().join("deaf.sock"), folder.path().join("config.toml"));
    let _deaf = UnixListener::bind(&socket).unwrap();
    fs::write(&config, format!("[control]\nsocket = \"{}\"\n", socket.display())).unwrap();
    let ended = run(&["audit", "--config", config.to_str().unwrap()]);
    let said = "deaf.sock: the daemon does not answer within 3s; the audit goes on without knowing ";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert!(ended.stdout.starts_with("Host "), "{}", ended.stdout);
}

#[test]
fn a_finding_is_explained_by_its_id() {
    for id in ["remote-residency", "remote-residency:/system.slice/db.service"] {
        let ended = run(&["audit", "--explain", id]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(
            ended.stdout.starts_with("remote-residency: ") && ended.stdout.contains("remedy"),
            "{}",
            ended.stdout
        );
    }
}

#[test]
fn a_reader_that_goes_away_is_a_quiet_success() {
    for arguments in [&["doctor"][..], &["schema", "audit"], &["--help"]] {
        let mut command = program(arguments);
        let (reader, writer) = std::io::pipe().unwrap();
        command.stdout(writer);
        drop(reader);
        let ended = finish(command);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn a_full_disk_is_an_error_and_no_panic() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = program(&["schema", "audit"]);
    command.stdout(Stdio::from(full));
    let ended = finish(command);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("No space left"), "{}", ended.stderr);
}

#[test]
fn doctor_answers_without_root_and_in_json() {
    let (command, _copy) = unprivileged(&["doctor", "-o", "json", "--state-dir", "/no/such/dir"]);
    let ended = finish(command);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["schemaVersion"], 1);
    let status = |name: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"))["status"].clone()
    };
    assert_eq!(status("kernel"), "ok");
    assert_eq!(status("privileges"), "degraded");
    assert_eq!(status("cap-bpf"), "missing");
    for name in ["seccomp", "security-label", "processes"] {
        assert!(status(name).is_string(), "{name}: {report}");
    }
    if cfg!(feature = "bpf") {
        assert_eq!(status("task-iterator"), "missing");
    } else {
        assert_eq!(status("bpf"), "missing");
    }
    assert_eq!(status("state-dir"), "degraded");
}

#[test]
fn output_into_a_pipe_has_no_colour_and_fits_the_width() {
    for columns in ["60", "100", "140"] {
        let mut command = program(&["doctor"]);
        command.env("COLUMNS", columns).env("TERM", "xterm-256color");
        let ended = finish(command);
        assert!(!ended.stdout.contains('\u{1b}'), "{}", ended.stdout);
        let width = columns.parse().unwrap();
        // A path that is longer than a line is whole.
        let is_path = |line: &str| line.rsplit(' ').next().is_some_and(|word| word.contains('/'));
        let fits = |line: &str| line.chars().count() <= width || is_path(line);
        assert!(ended.stdout.lines().all(fits), "{}", ended.stdout);
    }
}

#[test]
fn restore_without_a_journal_has_nothing_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    fs::create_dir(&state).unwrap();
    for arguments in [&["restore"][..], &["restore", "--dry-run"]] {
        let mut command = program(arguments);
        command.arg("--state-dir").arg(&state);
        let ended = finish(command);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stdout.contains("nothing to put back"), "{}", ended.stdout);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    }
    for (path, said) in [(state.join("typo"), "typo: No such file"), ("/dev/null".into(), "null: not a dir")]
    {
        let ended = run(&["restore", "--state-dir", path.to_str().unwrap()]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    }
    let ended = run(&["restore", "/of-no-such-name", "--state-dir", state.to_str().unwrap()]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("of-no-such-name: there is no such cgroup"), "{}", ended.stderr);
    let ended = run(&["restore", "of-no-such-name", "--state-dir", state.to_str().unwrap()]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
    let named =
        "numa-enforcer: restore of-no-such-name: no workload of the journal and no cgroup has this name";
    assert!(ended.stderr.starts_with(named), "{}", ended.stderr);
}

/// Its files are as they were, and it is slowed down still.
#[test]
fn restore_finds_a_workload_by_its_name_that_only_the_record_of_the_brake_has() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    fs::create_dir(&state).unwrap();
    let brake = RecordedBrake {
        id: 1,
        cgroup: CgroupPath::new("/nowhere/frozen"),
        inode: 1,
        file: ManagedFile::Freeze,
        set: "1".into(),
        original: "0\n".into(),
        boot_id: None,
    };
    BrakeRecord::open(&state).unwrap().slowed(&brake).unwrap();
    for (name, found) in [("frozen", true), ("another", false)] {
        let ended = run(&["restore", name, "--dry-run", "--state-dir", state.to_str().unwrap()]);
        assert_eq!(ended.stdout.contains("/nowhere/frozen"), found, "{name}: {ended:?}");
    }
}

#[test]
fn a_note_names_the_flag_that_makes_a_setting_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("c.toml");
    fs::write(&file, "[metrics]\nlisten = '127.0.0.1:1'\n[nri]\nplace = true\n").unwrap();
    let check = ["run", "--check", "--config", file.to_str().unwrap()];
    for (flags, expected) in [
        (
            &["--metrics-listen", "off", "--mode", "enforce"][..],
            "c.toml:2:10: metrics.listen: no effect: --metrics-listen off",
        ),
        (&["--mode", "observe"], "c.toml:4:9: nri.place: no effect: --mode observe"),
    ] {
        let ended = run(&[&check[..], flags].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.trim_end().ends_with(expected), "{}", ended.stderr);
    }
    let ended = run(&["run", "--check", "--mode", "enforce"]);
    let expected = "--mode enforce: no effect: there is no [[workload]] entry and nri.place is false";
    assert!(ended.code == Some(0) && ended.stderr.contains(expected), "{ended:?}");
}

#[test]
fn restore_by_a_configuration_needs_no_daemon_that_ever_ran() {
    let directory = tempfile::tempdir().unwrap();
    let (state, config) = (directory.path().join("not-yet"), directory.path().join("c.toml"));
    let entry = "[[workload]]\nname = 'database'\ncgroup = '/nowhere'\ncpus = 1\n";
    fs::write(&config, format!("state_dir = {state:?}\n{entry}")).unwrap();
    for (workload, of) in [(None, ""), (Some("database"), " of database")] {
        let arguments = ["restore", "--config", config.to_str().unwrap()].into_iter().chain(workload);
        let ended = run(&arguments.collect::<Vec<_>>());
        let expected = format!("nothing to put back{of} in {}\n", state.display());
        assert_eq!((ended.code, ended.stdout), (Some(0), expected), "{}", ended.stderr);
        assert!(!state.exists());
    }
}

#[test]
fn restore_and_doctor_take_a_state_directory_beside_where_they_are_started() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("state")).unwrap();
    let mut command = program(&["restore", "--state-dir", "state"]);
    command.current_dir(directory.path());
    let ended = finish(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("nothing to put back in state"), "{ended:?}");
}

#[test]
fn a_state_directory_that_cannot_be_used_is_all_that_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let mut command =
        program(&["run", "--once", "--mode", "enforce", "--metrics-listen", "off", "--state-dir"]);
    command.arg(&file);
    let ended = finish(command);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("enforce mode needs its journal"), "{ended:?}");
    assert!(!ended.stderr.contains("paused"), "{ended:?}");
}

#[test]
fn restore_says_what_it_leaves_out_of_the_records_beside_the_journal() {
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join("making"), "{\"version\":1,\"rec").unwrap();
    let mut command = program(&["restore", "--state-dir"]);
    command.arg(state.path());
    let ended = finish(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("making line 1 was cut and is left out"), "{ended:?}");
}

#[test]
fn journal_that_was_set_aside_is_named_until_it_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    fs::create_dir(&state).unwrap();
    for name in ["journal.damaged", "journal.damaged.2"] {
        fs::write(state.join(name), "rubbish\n").unwrap();
    }
    for dry_run in [true, false] {
        let mut command = program(&["restore", "--state-dir"]);
        command.arg(&state).args(dry_run.then_some("--dry-run"));
        let ended = finish(command);
        assert_eq!(ended.code, Some(2), "{} {}", ended.stdout, ended.stderr);
        for name in ["journal.damaged:", "journal.damaged.2:"] {
            let path = format!("{}/{name}", state.display());
            assert!(ended.stdout.lines().any(|line| line.starts_with(&path)), "{}", ended.stdout);
        }
        assert!(ended.stdout.contains("remove it"), "{}", ended.stdout);
    }
    fs::remove_file(state.join("journal.damaged")).unwrap();
    fs::remove_file(state.join("journal.damaged.2")).unwrap();
    let ended = run(&["restore", "--state-dir", state.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{} {}", ended.stdout, ended.stderr);
}

#[test]
fn check_names_what_this_machine_can_never_give_to_an_entry() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let entry =
        "[[workload]]\nname = 'a'\ncgroup = '/no-such-group'\ncpus = 1000000\nnuma_nodes = '0-1023'\n";
    std::fs::write(file.path(), entry).unwrap();
    let ended = Command::new(env!("CARGO_BIN_EXE_numa-enforcer"))
        .args(["run", "--check", "--config"])
        .arg(file.path())
        .output()
        .unwrap();
    let notes = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "it may be meant for another machine: {notes}");
    for said in ["numa_nodes is 0-1023, and the machine has NUMA nodes", "of 1000000 cpu on node"] {
        assert!(notes.contains(said), "{said}: {notes}");
    }
}
