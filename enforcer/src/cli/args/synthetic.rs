//! `--synthetic`: a machine in one line, and with `--cluster` how many of it, and the settings of their
//! kubelets.
//!
//! | word | meaning | default |
//! |---|---|---|
//! | `machines:N` | equal machines | 1 |
//! | `version:V` | version of the kubelet | v1.36.2 |
//! | `cpu-policy:P` | `cpuManagerPolicy` | static |
//! | `memory-policy:P` | `memoryManagerPolicy` | Static |
//! | `topology-policy:P` | `topologyManagerPolicy` | single-numa-node |
//! | `topology-scope:S` | `topologyManagerScope` | container |
//! | `cpu-options:A,B`, `topology-options:A,B` | options that are `true`, or `A=VALUE` | none |
//! | `reserved-cpus:CPUS` | CPUs that no pod gets exclusively | the first CPU with its siblings |
//! | `max-pods:N` | most pods | 110 |

use std::{collections::BTreeMap, str::FromStr};

use enforcer_core::cluster::described::DescribedKubelet;
use numa_topology::{
    set::CpuSet,
    synth::{Machine, line::LineError},
};

/// Most machines of a cluster.
const MACHINES: u32 = 10_000;

/// Words of a cluster.
const KEYS: [&str; 10] = [
    "machines",
    "version",
    "cpu-policy",
    "memory-policy",
    "topology-policy",
    "topology-scope",
    "cpu-options",
    "topology-options",
    "reserved-cpus",
    "max-pods",
];

/// A line behind `--synthetic`.
#[derive(Debug, Clone)]
pub struct SyntheticLine {
    /// The machine.
    pub machine: Machine,
    /// How many of it, and their kubelets; `None` if no word is about that.
    pub cluster: Option<Box<SyntheticCluster>>,
}

/// Equal machines of a cluster.
#[derive(Debug, Clone)]
pub struct SyntheticCluster {
    /// How many.
    pub machines: u32,
    /// Their kubelets.
    pub kubelet: DescribedKubelet,
}

impl Default for SyntheticCluster {
    fn default() -> Self {
        Self { machines: 1, kubelet: DescribedKubelet::default() }
    }
}

impl FromStr for SyntheticLine {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut cluster: Option<Box<SyntheticCluster>> = None;
        let mut of_machine = Vec::new();
        let mut seen = Vec::new();
        for word in line.split_whitespace() {
            let Some((key, value)) = word.split_once(':').filter(|(key, _)| is_of_cluster(key)) else {
                of_machine.push(word);
                continue;
            };
            if seen.contains(&key) {
                return Err(format!("`{}`: the key is there twice", cut(word)));
            }
            seen.push(key);
            let problem = |problem: String| format!("`{}`: {problem}", cut(word));
            cluster.get_or_insert_default().set(key, value).map_err(problem)?;
        }
        let machine = Machine::from_str(&of_machine.join(" ")).map_err(|error| match error {
            LineError::Unknown(_) => format!("{error}; with --cluster also {}", KEYS.join(", ")),
            _ => error.to_string(),
        })?;
        Ok(Self { machine, cluster })
    }
}

fn is_of_cluster(key: &str) -> bool {
    KEYS.contains(&key)
}

impl SyntheticCluster {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let one_of = |known: &[&str]| {
            let found = known.iter().find(|one| **one == value);
            let expected = || format!("one of {} is expected", known.join(", "));
            found.map(|one| (*one).to_owned()).ok_or_else(expected)
        };
        let count = |most: u32| {
            let number = value.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| format!("a number from 1 to {most} is expected"))
        };
        let profile = &mut self.kubelet.profile;
        match key {
            "machines" => self.machines = count(MACHINES)?,
            "max-pods" => self.kubelet.max_pods = count(MACHINES)?,
            "version" if value.is_empty() => return Err("a version like v1.36.2 is expected".to_owned()),
            "version" => value.clone_into(&mut profile.version),
            "cpu-policy" => profile.cpu_policy = one_of(&["none", "static"])?,
            "memory-policy" => profile.memory_policy = one_of(&["None", "Static"])?,
            "topology-policy" => {
                profile.topology_policy = one_of(&["none", "best-effort", "restricted", "single-numa-node"])?;
            }
            "topology-scope" => profile.topology_scope = one_of(&["container", "pod"])?,
            "cpu-options" => profile.cpu_options = options(value),
            "topology-options" => profile.topology_options = options(value),
            _ => {
                let cpus: CpuSet =
                    value.parse().map_err(|error| format!("a list of CPUs is expected: {error}"))?;
                self.kubelet.reserved_cpus = Some(cpus);
            }
        }
        Ok(())
    }
}

fn options(list: &str) -> BTreeMap<String, String> {
    let option = |word: &str| {
        let (name, value) = word.split_once('=').unwrap_or((word, "true"));
        (name.to_owned(), value.to_owned())
    };
    list.split(',').filter(|word| !word.is_empty()).map(option).collect()
}

/// Cuts a word: it may be as long as a command line.
fn cut(word: &str) -> String {
    word.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_cluster_stand_beside_those_of_a_machine() {
        let line: SyntheticLine = "machines:20 sockets:2 topology-policy:restricted cores:4 \
             cpu-options:full-pcpus-only,x=false reserved-cpus:0-1 version:v1.35.0"
            .parse()
            .unwrap();
        assert_eq!(line.machine.cpu_count(), 8);
        let cluster = line.cluster.unwrap();
        let profile = &cluster.kubelet.profile;
        assert_eq!((cluster.machines, profile.topology_policy.as_str()), (20, "restricted"));
        assert_eq!((profile.version.as_str(), profile.cpu_policy.as_str()), ("v1.35.0", "static"));
        assert_eq!(profile.cpu_options["x"], "false");
        assert_eq!(cluster.kubelet.reserved_cpus, Some("0-1".parse().unwrap()));
        assert!("cores:2".parse::<SyntheticLine>().unwrap().cluster.is_none());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, said) in [
            ("machines:0 cores:2", "`machines:0`: a number from 1 to 10000"),
            ("machines:-1 cores:2", "`machines:-1`: a number from 1 to 10000"),
            ("machines:2 machines:3", "`machines:3`: the key is there twice"),
            ("machines:2", "no machine is described"),
            ("cores:2 topology-policy:strict", "one of none, best-effort, restricted, single-numa-node"),
            ("cores:2 reserved-cpus:x", "`reserved-cpus:x`: a list of CPUs is expected"),
            ("cores:2 machine:3", "`machine:3`: expected KEY:VALUE"),
            ("cores:2 machine:3", "; with --cluster also machines, version"),
            ("cores:2 version:", "`version:`: a version like"),
        ] {
            let error = line.parse::<SyntheticLine>().unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
