use schemars::schema_for;

use super::*;

fn read(text: &str) -> Policy {
    let policy: Policy = toml::from_str(text).unwrap();
    policy.validate().unwrap();
    policy
}

#[test]
fn an_empty_file_is_the_default_and_never_writes() {
    let policy = read("");
    assert_eq!(policy, Policy::default());
    assert_eq!(policy.mode, Mode::Observe);
    assert_eq!(policy.metrics.listen.to_string(), "127.0.0.1:9477");
    assert_eq!(policy.state_dir, PathBuf::from("/run/numa-enforcer"));
}

#[test]
fn a_full_file_is_read_and_written_back_the_same() {
    let text = r#"
        mode = "enforce"
        interval = "2s"
        cool_down = "1m"
        state_dir = "/run/enforcer"

        [sample]
        bpf = false
        numa_maps = true

        [metrics]
        enabled = true
        listen = "[::1]:9000"

        [thresholds]
        remote_traffic_warning = 0.1
        remote_traffic_critical = 0.9
        min_memory = "1GiB"

        [[workload]]
        name = "redis"
        cgroup = "/system.slice/redis*.service"
        cpus = 4
        memory = "512MiB"

        [[workload]]
        name = "pods"
        cgroup = "/kubepods.slice/**"
        cpus = 2
        numa_nodes = "0,2-3"
        enforce = false
    "#;
    let policy = read(text);
    assert_eq!(policy.interval.get().as_secs(), 2);
    assert_eq!(policy.thresholds.min_memory, ByteSize(1 << 30));
    assert_eq!(policy.workloads[0].memory, Some(ByteSize(512 << 20)));
    assert!(policy.workloads[0].enforce);
    assert_eq!(policy.workloads[1].numa_nodes.as_ref().unwrap().to_string(), "0,2-3");
    assert!(!policy.workloads[1].enforce);
    assert_eq!(read(&toml::to_string(&policy).unwrap()), policy);
}

#[test]
fn bad_values_are_refused_with_their_key_and_value() {
    let workload = "[[workload]]\nname = 'a'\ncgroup = '/a'\ncpus = 1\n";
    for (text, named) in [
        ("intervall = '10s'".to_owned(), vec!["intervall"]),
        ("interval = 10".to_owned(), vec!["interval", "10"]),
        ("interval = '-1s'".to_owned(), vec!["interval", "-1s"]),
        ("interval = '0s'".to_owned(), vec!["interval", "0s"]),
        ("interval = '25h'".to_owned(), vec!["interval", "25h", "24h"]),
        ("idle_interval = '25h'".to_owned(), vec!["idle_interval", "25h", "24h"]),
        ("state_dir = ''".to_owned(), vec!["state_dir", "\"\"", "absolute"]),
        ("state_dir = 'run/enforcer'".to_owned(), vec!["state_dir", "run/enforcer", "absolute"]),
        ("state_dir = '/'".to_owned(), vec!["state_dir", "\"/\"", "of its own"]),
        ("state_dir = '/run/..'".to_owned(), vec!["state_dir", "of its own"]),
        ("state_dir = \"/a\\u0000b\"".to_owned(), vec!["state_dir", "NUL"]),
        ("[control]\nsocket = \"/a\\u0000b\"".to_owned(), vec!["control.socket", "NUL"]),
        ("[nri]\nsocket = \"/a\\u0000b\"".to_owned(), vec!["nri.socket", "NUL"]),
        ("[kubelet]\nroot_dir = \"/a\\u0000b\"".to_owned(), vec!["kubelet.root_dir", "NUL"]),
        ("mode = 'write'".to_owned(), vec!["mode", "write"]),
        ("[metrics]\nlisten = 'here'".to_owned(), vec!["listen", "here"]),
        ("[control]\nsocket = 'run/c.sock'".to_owned(), vec!["control.socket", "run/c.sock", "absolute"]),
        (format!("[control]\nsocket = '/{}'", "x".repeat(107)), vec!["control.socket", "107 bytes"]),
        ("[control]\nsocket = '/'".to_owned(), vec!["control.socket", "file name"]),
        ("[thresholds]\nremote_traffic_warning = 20.0".to_owned(), vec!["remote_traffic_warning", "20"]),
        ("[thresholds]\nremote_traffic_warning = nan".to_owned(), vec!["remote_traffic_warning", "NaN"]),
        (
            "[thresholds]\nremote_residency_critical = 0.1".to_owned(),
            vec!["remote_residency_critical", "0.1"],
        ),
        (workload.replace("cpus = 1", "cpus = 0"), vec!["cpus", "0"]),
        ("placement.reserved.cpus = '0'".to_owned(), vec!["placement.reserved.cpus", "amount", "cpuset:0"]),
        (workload.replace("cpus = 1", "cpus = -4"), vec!["cpus", "-4"]),
        (workload.replace("'/a'", "'/a['"), vec!["cgroup", "/a["]),
        (workload.replace("'/a'", "'a'"), vec!["cgroup", "`a`"]),
        (workload.replace("'a'", "' '"), vec!["workload[0].name"]),
        (format!("{workload}memory = '1 loaf'"), vec!["memory", "1 loaf"]),
        (format!("{workload}numa_nodes = '3-1'"), vec!["numa_nodes", "3-1"]),
        (format!("{workload}numa_nodes = ''"), vec!["workload[0].numa_nodes"]),
        (format!("{workload}{workload}"), vec!["workload[1].name", "\"a\"", "twice"]),
        (format!("{workload}colour = 1"), vec!["colour"]),
    ] {
        let error = match toml::from_str::<Policy>(&text) {
            Err(error) => error.to_string(),
            Ok(policy) => policy.validate().expect_err(&text).to_string(),
        };
        for part in named {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    }
}

#[test]
fn a_bare_number_where_text_belongs_is_told_what_is_written_there() {
    for (text, expected) in [
        ("interval = 5", "a length of time in quotes, as in \"5s\""),
        ("[placement.available]\ncpus = 3", "CPUs in quotes, as in \"cpuset:0-3\""),
        (
            "[placement.reserved]\ncpus = 1",
            "an amount of CPUs or CPUs in quotes, as in \"750m\" or \"cpuset:0-3\"",
        ),
        ("[[workload]]\nnuma_nodes = 0", "a list of ids in quotes, as in \"0-3,8\""),
        ("[[workload]]\ncgroup = 7", "a glob over cgroup paths in quotes, as in \"/system.slice/**\""),
    ] {
        let error = toml::from_str::<Policy>(text).unwrap_err();
        assert!(error.message().ends_with(&format!("expected {expected}")), "{text}: {error}");
    }
}

#[test]
fn the_schema_refuses_unknown_keys() {
    let schema = serde_json::to_value(schema_for!(Policy)).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"]["interval"]["$ref"], "#/$defs/Duration");
}

#[test]
fn reports_listen_on_loopback_on_a_port_of_their_own() {
    for (listen, probes, reports, refused) in [
        ("0.0.0.0:9477", "0.0.0.0:9478", "127.0.0.1:9479", None),
        ("0.0.0.0:9477", "0.0.0.0:9478", "[::1]:9479", None),
        ("0.0.0.0:9477", "0.0.0.0:9478", "[::ffff:127.0.0.1]:9479", None),
        ("0.0.0.0:9477", "0.0.0.0:9478", "0.0.0.0:9479", Some("an address on loopback is expected")),
        ("0.0.0.0:9477", "0.0.0.0:9478", "[::]:9479", Some("an address on loopback is expected")),
        ("0.0.0.0:9477", "0.0.0.0:9478", "10.0.0.7:9479", Some("an address on loopback is expected")),
        ("0.0.0.0:9477", "0.0.0.0:9478", "127.0.0.1:9477", Some("metrics.listen, which is")),
        ("0.0.0.0:9477", "0.0.0.0:9478", "127.0.0.1:9478", Some("metrics.probes, which is")),
        ("127.0.0.1:9477", "127.0.0.2:9478", "127.0.0.1:9478", None),
    ] {
        let text = format!("[metrics]\nlisten = '{listen}'\nprobes = '{probes}'\nreports = '{reports}'\n");
        let policy: Policy = toml::from_str(&text).unwrap();
        let error = policy.validate().err();
        assert_eq!(
            error.as_ref().map(|error| error.key.as_str()),
            refused.map(|_| "metrics.reports"),
            "{text}"
        );
        if let (Some(error), Some(said)) = (error, refused) {
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}

#[test]
fn the_probes_have_a_port_of_their_own() {
    for (listen, probes, enabled, refused) in [
        ("127.0.0.1:9477", "127.0.0.1:9477", true, true),
        ("0.0.0.0:9477", "127.0.0.1:9477", true, true),
        ("127.0.0.1:9477", "0.0.0.0:9477", true, true),
        ("[::]:9477", "127.0.0.1:9477", true, true),
        ("0.0.0.0:9477", "[::]:9477", true, true),
        ("127.0.0.1:9477", "[::ffff:127.0.0.1]:9477", true, true),
        ("0.0.0.0:9477", "[::1]:9477", true, false),
        ("127.0.0.1:9477", "127.0.0.2:9477", true, false),
        ("127.0.0.1:9477", "127.0.0.1:9478", true, false),
        ("127.0.0.1:0", "127.0.0.1:0", true, false),
        ("127.0.0.1:9477", "127.0.0.1:9477", false, false),
    ] {
        let text = format!("[metrics]\nenabled = {enabled}\nlisten = '{listen}'\nprobes = '{probes}'\n");
        let policy: Policy = toml::from_str(&text).unwrap();
        let error = policy.validate().err();
        assert_eq!(
            error.as_ref().map(|error| error.key.as_str()),
            refused.then_some("metrics.probes"),
            "{text}"
        );
        if let Some(error) = error {
            assert!(error.to_string().contains("another port is expected"), "{error}");
        }
    }
}
