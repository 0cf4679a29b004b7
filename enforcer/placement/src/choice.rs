//! Selects the engine of a pod and its settings.
//!
//! Settings come from the host, the first matching rule, the entries for its containers, and the pod's own
//! annotations; the last of these that has a setting determines it. If entries for containers of one pod
//! differ in a setting that a pod has only once, the first entry of the configuration applies. Annotation
//! keys are `engine`, `policy`, `scope` and `options` below `numa-enforcer.io`: bare or with the suffix
//! `/pod` (which takes precedence) for the whole pod, with `/container.NAME` for one container. `options` is
//! a list: `full-pcpus-only, align-by-socket=false`. Volcano's policy annotation applies if the pod has none
//! of ours. Annotations that the chosen engine does not read cause a warning ([`foreign`]).
//!
//! Annotations are untrusted text of the pod's author: an invalid one is reported once, cut to a limit, and
//! ignored.

use crate::engine_name::{HINTS, POOLS};
use std::{collections::BTreeMap, str::FromStr};

use super::{
    Allocations, Inventory, PodName, PodRequest, Rejection, Trace,
    foreign::{self, VOLCANO_POLICY},
    hints::HintsEngine,
    pools::{PoolsEngine, affinity::strangers, annotations::mistaken_keys},
};
use crate::settings::{
    HintsOptions, HintsSettings, PlacementEngine, PlacementSettings, Scope, TopologyPolicy,
};
use numa_topology::text::printable_within;

const DOMAIN: &str = ".numa-enforcer.io";

/// The engine of a pod, with its settings.
pub(super) enum PodEngine {
    Hints(HintsEngine),
    Pools(PoolsEngine),
}

impl PodEngine {
    /// Makes a grant for every container of the pod. Runs inside a transaction of the allocations: on an
    /// error the caller undoes all grants.
    pub(super) fn place(
        &self,
        inventory: &Inventory,
        allocations: &mut Allocations,
        pod: &PodRequest,
        trace: &mut Trace,
    ) -> Result<(), Rejection> {
        match self {
            Self::Hints(engine) => engine.place(inventory, allocations, pod, trace),
            Self::Pools(engine) => engine.place(inventory, allocations, pod, trace),
        }
    }
}

/// Selects the engine of a pod.
pub(super) fn engine_of(settings: &PlacementSettings, pod: &PodRequest, trace: &mut Trace) -> PodEngine {
    if settings.predicts_kubelet() {
        return PodEngine::Hints(HintsEngine::new(as_kubelet(settings, pod, trace)));
    }
    let choice = choose(settings, pod, trace);
    for mistake in mistaken_keys(pod) {
        trace.warn(mistake);
    }
    let (engine, other) = match choice {
        EngineChoice::Pools => (POOLS, HINTS),
        EngineChoice::Hints(..) => (HINTS, POOLS),
    };
    for ignored in foreign::warnings(pod, engine, other) {
        trace.warn(ignored);
    }
    match choice {
        EngineChoice::Pools => {
            for stranger in strangers(pod) {
                trace.warn(stranger);
            }
            let engine = PoolsEngine::new(settings.pools.clone());
            PodEngine::Pools(engine.with_strict_reservation(settings.hints.strict_cpu_reservation))
        }
        EngineChoice::Hints(of_pod, of_containers) => {
            PodEngine::Hints(HintsEngine::new(of_pod).with_containers(of_containers))
        }
    }
}

/// Settings under the profile `kubelet`, which are the same for all pods. Other settings of a pod or a rule
/// are ignored with a warning.
fn as_kubelet(settings: &PlacementSettings, pod: &PodRequest, trace: &mut Trace) -> HintsSettings {
    if let Some(ignored) = foreign::ignored_by_kubelet(pod) {
        trace.warn(ignored);
    }
    let PodName { namespace, name, .. } = &pod.name;
    if settings.rules.iter().any(|rule| rule.matches(namespace, name, &pod.labels)) {
        trace.warn("placement.rule: the profile is kubelet, ignored".to_owned());
    }
    settings.hints.clone().under_profile()
}

/// The selected engine, with the settings of the pod and of containers with their own.
#[derive(Debug, PartialEq, Eq)]
enum EngineChoice {
    Hints(HintsSettings, BTreeMap<String, HintsSettings>),
    Pools,
}

fn choose(settings: &PlacementSettings, pod: &PodRequest, trace: &mut Trace) -> EngineChoice {
    let PodName { namespace, name, .. } = &pod.name;
    let rule = settings.rules.iter().find(|rule| rule.matches(namespace, name, &pod.labels));
    let annotations = Annotations::read(pod, trace);
    let wished = pod.wished(|wishes| wishes.engine);
    let engine = wished.or(rule.and_then(|rule| rule.engine)).unwrap_or(settings.engine);
    match annotations.for_pod("engine", trace).unwrap_or(engine) {
        PlacementEngine::Pools => EngineChoice::Pools,
        PlacementEngine::Hints => {
            let host = rule.map_or_else(|| settings.hints.clone(), |rule| rule.hints(&settings.hints));
            let (of_pod, of_containers) = hints_settings(&host, pod, &annotations, trace);
            EngineChoice::Hints(of_pod, of_containers)
        }
    }
}

/// Settings of the pod, and of containers with different ones.
fn hints_settings(
    host: &HintsSettings,
    pod: &PodRequest,
    annotations: &Annotations<'_>,
    trace: &mut Trace,
) -> (HintsSettings, BTreeMap<String, HintsSettings>) {
    let annotated = annotations.for_pod("policy", trace).or_else(|| annotations.volcano_policy(trace));
    let scope = annotations.for_pod("scope", trace).unwrap_or(host.scope);
    let options = pod.wished(|wishes| Some(wishes.options.clone()).filter(|options| !options.is_empty()));
    let wished = pod.wished(|wishes| wishes.policy).filter(|_| scope == Scope::Pod);
    let of_scope = options.filter(|_| scope == Scope::Pod).map(|options| {
        let policy = wished.unwrap_or(host.policy);
        with_declared(HintsSettings { policy, ..host.clone() }, &options, trace)
    });
    let host = of_scope.as_ref().unwrap_or(host);
    let policy = annotated.or(wished).unwrap_or(host.policy);
    let mut of_pod = HintsSettings { policy, scope, ..host.clone() };
    if of_pod.validate("").is_err() {
        let said = if annotated.is_some() { "annotation" } else { "declared" };
        trace.warn(format!(
            "{said} policy{DOMAIN}: {} does not go with the options, ignored",
            of_pod.policy.as_str()
        ));
        of_pod.policy = host.policy;
    }
    if let Some((key, text)) = annotations.of_pod("options") {
        of_pod = with_options(of_pod, key, text, trace);
    }
    let mut of_containers = BTreeMap::new();
    for container in &pod.containers {
        let (name, wished) = (container.name.as_str(), container.wishes.policy);
        let options = Some(&container.wishes.options);
        let options = options.filter(|options| !options.is_empty() && of_pod.scope == Scope::Container);
        if wished.is_none() && options.is_none() && !annotations.containers.contains(&name) {
            continue;
        }
        let mut own = of_pod.clone();
        if let Some(options) = options {
            let policy = wished.filter(|_| annotated.is_none()).unwrap_or(own.policy);
            own = with_declared(HintsSettings { policy, scope, ..host.clone() }, options, trace);
            if let Some((key, text)) = annotations.of_pod("options") {
                // What is wrong with it has been told.
                own = with_options(own, key, text, &mut Trace::default());
            }
        }
        if let Some(policy) = wished.filter(|_| annotated.is_none() && of_pod.scope == Scope::Container) {
            own.policy = policy;
        }
        if let Some((key, text)) = annotations.of_container("policy", name) {
            match parsed(key, text, trace) {
                Some(_) if of_pod.scope == Scope::Pod => {
                    trace.warn(format!("annotation {}: the scope is the pod, ignored", shown(key)));
                }
                Some(policy) => own.policy = policy,
                None => {}
            }
        }
        if own.validate("").is_err() {
            let policy = own.policy.as_str();
            trace.warn(format!(
                "container {}: policy {policy} does not go with the options, ignored",
                shown(name)
            ));
            own.policy = of_pod.policy;
        }
        if let Some((key, text)) = annotations.of_container("options", name) {
            own = with_options(own, key, text, trace);
        }
        if own != of_pod {
            of_containers.insert(name.to_owned(), own);
        }
    }
    (of_pod, of_containers)
}

/// The project's annotations, by subject.
struct Annotations<'a> {
    all: &'a BTreeMap<String, String>,
    /// Names of the containers that have one.
    containers: Vec<&'a str>,
}

impl<'a> Annotations<'a> {
    fn read(pod: &'a PodRequest, trace: &mut Trace) -> Self {
        let mut containers = Vec::new();
        for key in pod.annotations.keys() {
            let Some((family, about)) = key.split_once('/') else { continue };
            let subject = family.strip_suffix(DOMAIN);
            let Some(subject @ ("engine" | "policy" | "scope" | "options")) = subject else { continue };
            match (about, about.strip_prefix("container.")) {
                ("pod", _) => {}
                (_, Some(_)) if matches!(subject, "engine" | "scope") => {
                    trace.warn(format!("annotation {}: {subject} is the pod's, ignored", shown(key)));
                }
                (_, Some(name)) if pod.container(name).is_some() => containers.push(name),
                (_, Some(_)) => {
                    trace.warn(format!("annotation {}: the pod has no such container", shown(key)));
                }
                _ => trace.warn(format!(
                    "annotation {}: /pod or /container.NAME is expected after {DOMAIN}, ignored",
                    shown(key)
                )),
            }
        }
        Self { all: &pod.annotations, containers }
    }

    fn of_pod(&self, subject: &str) -> Option<(&'a str, &'a str)> {
        let find =
            |key: String| self.all.get_key_value(&key).map(|(key, text)| (key.as_str(), text.as_str()));
        find(format!("{subject}{DOMAIN}/pod")).or_else(|| find(format!("{subject}{DOMAIN}")))
    }

    fn of_container(&self, subject: &str, name: &str) -> Option<(&'a str, &'a str)> {
        let key = format!("{subject}{DOMAIN}/container.{name}");
        self.all.get_key_value(&key).map(|(key, text)| (key.as_str(), text.as_str()))
    }

    /// Volcano's policies are these four, with the same names.
    fn volcano_policy(&self, trace: &mut Trace) -> Option<TopologyPolicy> {
        let text = self.all.get(VOLCANO_POLICY)?;
        parsed(VOLCANO_POLICY, text, trace)
    }

    fn for_pod<T: FromStr>(&self, subject: &str, trace: &mut Trace) -> Option<T> {
        let (key, text) = self.of_pod(subject)?;
        parsed(key, text, trace)
    }
}

/// Parses a value in the spelling of the configuration.
fn parsed<T: FromStr>(key: &str, text: &str, trace: &mut Trace) -> Option<T> {
    let value = text.trim().parse().ok();
    if value.is_none() {
        trace.warn(format!("annotation {} = {}: no such value, ignored", shown(key), shown(text)));
    }
    value
}

/// The settings with the options of an entry; unchanged if these conflict.
fn with_declared(settings: HintsSettings, options: &HintsOptions, trace: &mut Trace) -> HintsSettings {
    let mut own = settings.clone();
    options.apply(&mut own);
    match own.validate(HINTS) {
        Ok(()) => own,
        Err(error) => {
            trace.warn(format!("declared options {options}: {error}, ignored"));
            settings
        }
    }
}

/// Maximum number of invalid options of one annotation that are reported separately.
const BAD_OPTIONS: usize = 8;

/// The settings with the options of a list; unchanged if these conflict.
fn with_options(settings: HintsSettings, key: &str, text: &str, trace: &mut Trace) -> HintsSettings {
    let mut own = settings.clone();
    let options = text.split(',').map(str::trim).filter(|option| !option.is_empty());
    let bad: Vec<&str> = options.filter(|option| !own.set_option(option)).collect();
    for option in bad.iter().take(BAD_OPTIONS) {
        trace.warn(format!("annotation {}: bad option {}, ignored", shown(key), shown(option)));
    }
    if let Some(more) = bad.len().checked_sub(BAD_OPTIONS).filter(|more| *more > 0) {
        trace.warn(format!("annotation {}: {more} more bad options, ignored", shown(key)));
    }
    match own.validate(HINTS) {
        Ok(()) => own,
        Err(error) => {
            trace.warn(format!("annotation {}: {error}, ignored", shown(key)));
            settings
        }
    }
}

/// Untrusted text, cut and escaped.
fn shown(text: &str) -> String {
    printable_within(text, 80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        samples,
        settings::{NumaAllocationStrategy, TopologyPolicy},
    };

    const RULES: &str = r#"
        [hints]
        policy = "none"
        [[rule]]
        namespace = "db-*"
        labels = { tier = "gold" }
        policy = "single-numa-node"
        scope = "pod"
        full-pcpus-only = true
        [[rule]]
        namespace = "batch"
        engine = "pools"
    "#;

    fn pod(namespace: &str, annotations: &[(&str, &str)]) -> PodRequest {
        let containers = ["a", "b"].map(|name| samples::container(name, 0, 0));
        PodRequest {
            name: PodName::new(namespace, "p"),
            labels: BTreeMap::from([("tier".into(), "gold".into())]),
            annotations: annotations.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            ..samples::pod("p", containers.to_vec())
        }
    }

    fn chosen(namespace: &str, annotations: &[(&str, &str)]) -> (EngineChoice, Vec<String>) {
        let settings: PlacementSettings = toml::from_str(RULES).unwrap();
        settings.validate().unwrap();
        let mut trace = Trace::default();
        let choice = choose(&settings, &pod(namespace, annotations), &mut trace);
        (choice, trace.into_parts().1)
    }

    fn hints(
        namespace: &str,
        annotations: &[(&str, &str)],
    ) -> (HintsSettings, BTreeMap<String, HintsSettings>) {
        match chosen(namespace, annotations) {
            (EngineChoice::Hints(pod, containers), warnings) if warnings.is_empty() => (pod, containers),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_matching_rule_changes_what_it_names() {
        assert_eq!(hints("other", &[]).0.policy, TopologyPolicy::None);
        let (gold, _) = hints("db-1", &[]);
        assert_eq!((gold.policy, gold.scope), (TopologyPolicy::SingleNumaNode, Scope::Pod));
        assert!(gold.full_pcpus_only && gold.prefer_closest());
        assert_eq!(chosen("batch", &[]).0, EngineChoice::Pools);
    }

    #[test]
    fn annotations_win_over_rules_and_the_narrower_over_the_wider() {
        assert_eq!(chosen("x", &[("engine.numa-enforcer.io", "topology-aware")]).0, EngineChoice::Pools);
        let (own, _) = hints("batch", &[("engine.numa-enforcer.io/pod", "hints")]);
        assert_eq!(own.policy, TopologyPolicy::None);
        let (own, containers) = hints(
            "db-1",
            &[
                ("scope.numa-enforcer.io", "container"),
                ("policy.numa-enforcer.io", "none"),
                ("policy.numa-enforcer.io/pod", "restricted"),
                ("policy.numa-enforcer.io/container.b", "best-effort"),
                (
                    "options.numa-enforcer.io",
                    "full-pcpus-only=false, numa-allocation-strategy=least-allocated",
                ),
                ("options.numa-enforcer.io/container.b", "align_by_socket"),
            ],
        );
        assert_eq!((own.policy, own.scope), (TopologyPolicy::Restricted, Scope::Container));
        assert_eq!(own.numa_allocation_strategy, NumaAllocationStrategy::LeastAllocated);
        assert!(!own.full_pcpus_only && !own.align_by_socket);
        assert_eq!(containers.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(containers["b"].policy, TopologyPolicy::BestEffort);
        assert!(containers["b"].align_by_socket);
    }

    #[test]
    fn what_cannot_be_is_reported_and_ignored() {
        let long = "x".repeat(10_000);
        for (key, value, said) in [
            ("policy.numa-enforcer.io", "strict", "strict: no such value"),
            ("engine.numa-enforcer.io/pod", "\u{1b}[31m", "\\u{1b}[31m"),
            ("scope.numa-enforcer.io", long.as_str(), "…"),
            ("scope.numa-enforcer.io/container.a", "pod", "scope is the pod's"),
            ("policy.numa-enforcer.io/container.z", "none", "no such container"),
            ("policy.numa-enforcer.io/containers.a", "none", "/container.NAME"),
            ("options.numa-enforcer.io", "full-pcpus", "bad option full-pcpus"),
            ("options.numa-enforcer.io", "full-pcpus-only=1", "bad option full-pcpus-only=1"),
            ("options.numa-enforcer.io", "numa-allocation-strategy", "bad option"),
            (
                "options.numa-enforcer.io/container.a",
                "full-pcpus-only,distribute-cpus-across-cores",
                "cannot be used with",
            ),
        ] {
            let (choice, warnings) = chosen("x", &[(key, value)]);
            assert_eq!(choice, chosen("x", &[]).0, "{key}");
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(warnings[0].contains(said) && warnings[0].len() < 300, "{warnings:?}");
        }
    }

    #[test]
    fn every_bad_option_is_told_up_to_a_number() {
        let bad: Vec<String> = (0..12).map(|number| format!("nonsense-{number}")).collect();
        let text = format!("full-pcpus-only,{}", bad.join(","));
        let (choice, warnings) = chosen("x", &[("options.numa-enforcer.io", text.as_str())]);
        assert_eq!(warnings.len(), 9, "{warnings:?}");
        assert!(
            warnings[7].contains("nonsense-7") && warnings[8].contains("4 more bad options"),
            "{warnings:?}"
        );
        assert_ne!(choice, chosen("x", &[]).0, "the good one counts");
    }

    #[test]
    fn declared_options_count_before_annotations_and_only_where_they_can() {
        let hints = |scope: &str, list: &[&str], annotations: &[(&str, &str)]| {
            let settings: PlacementSettings =
                toml::from_str(&format!("[hints]\nscope = '{scope}'\n")).unwrap();
            let mut pod = pod("x", annotations);
            let list: Vec<String> = list.iter().map(|&option| option.to_owned()).collect();
            pod.containers[0].wishes.options = list.try_into().unwrap();
            pod.containers[0].wishes.policy = Some(TopologyPolicy::BestEffort);
            let mut trace = Trace::default();
            let EngineChoice::Hints(of_pod, of_containers) = choose(&settings, &pod, &mut trace) else {
                panic!("other engine")
            };
            let of_a = of_containers.get("a").unwrap_or(&of_pod).clone();
            assert!(!of_containers.contains_key("b"), "{of_containers:?}");
            (of_pod, of_a, trace.into_parts().1)
        };
        let (of_pod, of_a, warnings) = hints("container", &["full-pcpus-only", "align-by-socket"], &[]);
        assert!(!of_pod.full_pcpus_only && of_a.full_pcpus_only && of_a.align_by_socket, "{of_a:?}");
        assert!(warnings.is_empty(), "{warnings:?}");
        let (of_pod, ..) = hints("pod", &["full-pcpus-only"], &[]);
        assert!(of_pod.full_pcpus_only);
        let annotated = [("options.numa-enforcer.io", "full-pcpus-only=false, bad")];
        let (_, of_a, warnings) = hints("container", &["full-pcpus-only", "align-by-socket"], &annotated);
        assert!(!of_a.full_pcpus_only && of_a.align_by_socket, "the annotation takes precedence");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for scope in ["container", "pod"] {
            let both = ["full-pcpus-only", "distribute-cpus-across-cores"];
            let (_, of_a, warnings) = hints(scope, &both, &[]);
            assert!(!of_a.full_pcpus_only && !of_a.distribute_cpus_across_cores);
            assert!(warnings[0].starts_with("declared options full-pcpus-only, distribute"), "{warnings:?}");
        }
    }

    #[test]
    fn a_policy_that_does_not_go_with_the_options_is_ignored() {
        let annotations = [
            ("options.numa-enforcer.io", "align-by-socket"),
            ("policy.numa-enforcer.io/container.a", "single-numa-node"),
        ];
        let (choice, warnings) = chosen("x", &annotations);
        let EngineChoice::Hints(own, containers) = choice else { panic!() };
        assert!(own.align_by_socket && containers.is_empty());
        assert!(warnings[0].contains("does not go with the options"), "{warnings:?}");
    }

    #[test]
    fn settings_that_exclude_one_another_are_refused_with_their_key() {
        for (text, key) in [
            (
                "[hints]\nfull_pcpus_only = true\ndistribute_cpus_across_cores = true",
                "placement.hints.full_pcpus_only",
            ),
            (
                "[hints]\nalign_by_socket = true\n[[rule]]\npolicy = 'single-numa-node'",
                "placement.hints.align_by_socket = true: it cannot be used with placement.rule[0].policy",
            ),
            ("[reserved.memory.x]\nmemory = '1G'", "placement.reserved.memory"),
            ("[reserved.memory.0]\nhugepages-2Mo = '1G'", "placement.reserved.memory.0"),
        ] {
            let settings: PlacementSettings = toml::from_str(text).unwrap();
            let error = settings.validate().unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
        let mut settings = PlacementSettings::default();
        settings.hints.max_allowable_numa_nodes = Some(7);
        let error = settings.validate().unwrap_err().to_string();
        assert!(error.contains("placement.hints.max_allowable_numa_nodes = 7"), "{error}");
        let error = toml::from_str::<PlacementSettings>("[[rule]]\npod = '['").unwrap_err().to_string();
        assert!(error.contains("pod = '['"), "{error}");
    }

    #[test]
    fn the_policy_of_volcano_counts_where_ours_says_nothing() {
        let (own, _) = hints("other", &[(VOLCANO_POLICY, "single-numa-node")]);
        assert_eq!(own.policy, TopologyPolicy::SingleNumaNode);
        let (own, _) = hints(
            "other",
            &[(VOLCANO_POLICY, "single-numa-node"), ("policy.numa-enforcer.io", "restricted")],
        );
        assert_eq!(own.policy, TopologyPolicy::Restricted);
        let (_, warnings) = chosen("other", &[(VOLCANO_POLICY, "closest")]);
        assert_eq!(warnings, [format!("annotation {VOLCANO_POLICY} = closest: no such value, ignored")]);
    }

    #[test]
    fn unknown_annotations_are_reported_by_both_engines() {
        for (engine, key) in [
            (PlacementEngine::Pools, "prefer-shared-cpu.resource-policy.nri.io"),
            (PlacementEngine::Hints, "prefer-shared-cpu.resource-policy.nri.io"),
            (PlacementEngine::Hints, "polcy.numa-enforcer.io"),
        ] {
            let settings = PlacementSettings { engine, ..PlacementSettings::default() };
            let known = ("prefer-shared-cpus.resource-policy.nri.io", "true");
            let mut trace = Trace::default();
            engine_of(&settings, &pod("default", &[(key, "true"), known]), &mut trace);
            let mut said = vec![format!("annotation {key}: there is no such key, ignored")];
            if engine == PlacementEngine::Hints {
                said.extend(foreign::warnings(&pod("default", &[known]), "hints", "pools"));
            }
            assert_eq!(trace.into_parts().1, said, "{engine:?}");
        }
    }
}
