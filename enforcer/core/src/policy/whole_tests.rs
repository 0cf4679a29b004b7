//! Messages about numbers out of range, from the configuration as a whole.

use crate::policy::Policy;

#[test]
fn error_for_an_invalid_number_names_the_accepted_range() {
    let cpus = |cpus: &str| format!("[[workload]]\nname = \"a\"\ncgroup = \"/a\"\ncpus = {cpus}\n");
    let huge = "99999999999999999999";
    for (text, range) in [
        (cpus("4294967296"), "integer `4294967296`, expected a whole number from 1 to 4294967295"),
        (cpus("0"), "integer `0`, expected a whole number from 1 to 4294967295"),
        (cpus("-4"), "integer `-4`, expected a whole number from 1 to 4294967295"),
        (cpus("1.5"), "floating point `1.5`, expected a whole number from 1 to 4294967295"),
        (cpus("\"8\""), "string \"8\", expected a whole number from 1 to 4294967295"),
        (cpus("\"0-3\""), "to 4294967295: how many CPUs; numa_nodes says where"),
        (cpus(huge), "99999999999999999999"),
        ("[nri]\nindex = 100\n".into(), "integer `100`, expected a whole number from 0 to 99"),
        ("[nri]\nindex = 256\n".into(), "integer `256`, expected a whole number from 0 to 99"),
        ("[rebalance]\nmax_moves = 65\n".into(), "expected a whole number from 1 to 64"),
        ("[rebalance]\nmin_samples = -1\n".into(), "expected a whole number from 0 to 9223372036854775807"),
        (format!("[thresholds]\nmin_samples = {huge}\n"), "99999999999999999999"),
        (
            "[memory.widening]\narm_percent = 300\n".into(),
            "integer `300`, expected a whole number from 1 to 90",
        ),
        (
            "[placement.hints]\nmax_allowable_numa_nodes = 7\n".into(),
            "integer `7`, expected a whole number from 8 to 4294967295",
        ),
    ] {
        let error = toml::from_str::<Policy>(&text).unwrap_err().message().to_owned();
        assert!(error.contains(range), "{text}: {error}");
        for of_the_program in ["u8", "u32", "u64", "i64", "i128", "nonzero"] {
            assert!(!error.contains(of_the_program), "{text}: {error}");
        }
    }
    let most: Policy = toml::from_str(&cpus("4294967295")).unwrap();
    assert_eq!(most.workloads[0].cpus.unwrap().get(), u32::MAX);
}
