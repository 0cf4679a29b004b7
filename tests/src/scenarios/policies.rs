//! Every policy on a real node: do containers get what `plan --steps` says of the same pods?
//!
//! Each pod chooses its policy or engine by annotation. After each step every container that is there is
//! compared with what the plan has said of it so far. The plan is asked on the same machine and knows nothing
//! of the daemon.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::pods::{LIMIT, MEBIBYTES, placing, told};
use crate::{
    check::Checks,
    containerd::Containerd,
    cri::{Amounts, Container, Cri, Plan, Pod},
    ids::{self, Ids},
    product,
    topology::Topology,
    wait,
};

/// Where the plan reads its steps.
const STEPS: &str = "/tmp/steps.json";

const POLICY: &str = "policy.numa-enforcer.io";
const ENGINE: &str = "engine.numa-enforcer.io";

enum Step {
    /// A pod with one container of so many CPUs to itself; with 0 it shares.
    Create(&'static str, (&'static str, &'static str), i64),
    Delete(&'static str),
}

/// Six kinds of pods; the last one but one finds what an earlier one left, and the last one needs more than a
/// node.
const STORY: &[Step] = &[
    Step::Create("free", (POLICY, "none"), 0),
    Step::Create("near", (POLICY, "best-effort"), 0),
    Step::Create("single", (POLICY, "single-numa-node"), 2),
    Step::Create("restricted", (POLICY, "restricted"), 2),
    Step::Create("pooled", (ENGINE, "pools"), 1),
    Step::Delete("single"),
    Step::Create("again", (POLICY, "single-numa-node"), 1),
    Step::Delete("restricted"),
    Step::Delete("again"),
    Step::Create("wide", (POLICY, "best-effort"), 5),
];

/// Two nodes of four CPUs.
pub(super) fn on_two_nodes(checks: &mut Checks) -> Result<()> {
    told(checks, |checks| story(checks, "ccx"))
}

/// Four nodes of two CPUs.
pub(super) fn on_four_nodes(checks: &mut Checks) -> Result<()> {
    told(checks, |checks| story(checks, "4s"))
}

fn story(checks: &mut Checks, topology: &str) -> Result<()> {
    let machine = Topology::load(topology)?;
    let planned = planned(&machine)?;
    let (containerd, cri) = Containerd::start()?;
    let daemon = placing()?;
    let mut there: BTreeMap<&str, (Pod, Container)> = BTreeMap::new();
    for (step, expected) in STORY.iter().zip(&planned) {
        match *step {
            Step::Create(name, annotation, cpus) => {
                there.insert(name, create(&cri, name, annotation, &amounts(cpus))?);
            }
            Step::Delete(name) => {
                let (pod, container) = there.remove(name).context("a pod that is not there")?;
                container.stop()?;
                pod.remove()?;
            }
        }
        compare(checks, step, expected, &there);
    }
    let mut different: Vec<&Places> = planned.iter().collect();
    different.dedup();
    // The control: a plan that never changes anything would be easy to follow.
    checks.holds("the plan changes with most steps", different.len() * 2 > STORY.len(), different.len());
    daemon.ends_well(checks)?;
    containerd.stop()
}

fn create<'a>(
    cri: &'a Cri,
    name: &str,
    annotation: (&str, &str),
    amounts: &Amounts,
) -> Result<(Pod<'a>, Container<'a>)> {
    let plan = Plan { name, annotations: &[annotation], containers: std::slice::from_ref(amounts) };
    let pod = Pod::run(cri, &plan)?;
    let container = pod.start("main", amounts)?;
    Ok((pod, container))
}

fn amounts(cpus: i64) -> Amounts {
    if cpus > 0 { Amounts::guaranteed(cpus, MEBIBYTES) } else { Amounts::burstable(500, MEBIBYTES) }
}

/// CPUs and memory nodes of each pod's container.
type Places = BTreeMap<String, (Ids, Ids)>;

/// What `plan` says of every pod after each step.
fn planned(machine: &Topology) -> Result<Vec<Places>> {
    let steps: Vec<Value> = STORY.iter().map(step_of_plan).collect();
    fs::write(STEPS, serde_json::to_vec(&steps)?).context("write the steps")?;
    let output = product::run(&["plan", "--steps", STEPS, "-o", "json"])?;
    anyhow::ensure!(output.status == Some(0), "plan failed: {}{}", output.stderr, output.stdout);
    let report: Value = serde_json::from_str(&output.stdout).context("read the plan")?;
    let steps = report["steps"].as_array().context("a plan without steps")?;
    let nodes: Ids = (0..u32::try_from(machine.nodes.len())?).collect();
    let mut places = Places::new();
    let mut after = Vec::new();
    for step in steps {
        let pod = step["pod"].as_str().context("a step without a pod")?.to_owned();
        places.remove(&pod);
        for container in list(step, "containers") {
            let cpus = if container["pinnedCpus"] == true { read(container, "cpus")? } else { None };
            let mems = if container["pinnedMems"] == true { read(container, "mems")? } else { None };
            let place = (cpus.unwrap_or_else(|| machine.cpus()), mems.unwrap_or_else(|| nodes.clone()));
            places.insert(pod.clone(), place);
        }
        for update in list(step, "updates") {
            let container =
                update["who"].as_str().context("an update without a container")?.trim_end_matches("/main");
            let place = places.get_mut(container).with_context(|| format!("{container} is not there"))?;
            place.0 = read(update, "cpus")?.unwrap_or_else(|| place.0.clone());
            place.1 = read(update, "mems")?.unwrap_or_else(|| place.1.clone());
        }
        after.push(places.clone());
    }
    Ok(after)
}

fn step_of_plan(step: &Step) -> Value {
    let (name, (key, value), cpus) = match *step {
        Step::Create(name, annotation, cpus) => (name, annotation, cpus),
        Step::Delete(name) => return json!({ "delete": format!("default/{name}") }),
    };
    let memory = format!("{MEBIBYTES}Mi");
    let resources = if cpus > 0 {
        let both = json!({ "cpu": cpus.to_string(), "memory": memory });
        json!({ "requests": both, "limits": both })
    } else {
        // A runtime is not told the memory request of a Burstable container.
        json!({ "requests": { "cpu": "500m" } })
    };
    json!({ "create": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "annotations": { key: value } },
        "spec": { "containers": [{ "name": "main", "resources": resources }] },
    } })
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn read(value: &Value, key: &str) -> Result<Option<Ids>> {
    value[key].as_str().map(ids::parse).transpose()
}

/// Others are told within the answer or by the daemon's next turn.
fn compare(checks: &mut Checks, step: &Step, expected: &Places, there: &BTreeMap<&str, (Pod, Container)>) {
    let now = || -> Result<Places> {
        let place = |container: &Container| -> Result<(Ids, Ids)> {
            let ids = |file| container.cgroup.ids(file);
            Ok((ids("cpuset.cpus.effective")?, ids("cpuset.mems.effective")?))
        };
        there.iter().map(|(name, (_, one))| Ok((format!("default/{name}"), place(one)?))).collect()
    };
    let what = match step {
        Step::Create(name, (_, policy), _) => format!("after {name} came ({policy})"),
        Step::Delete(name) => format!("after {name} went"),
    };
    let seen = wait::until(&what, LIMIT, || Ok(Some(now()?).filter(|now| now == expected)));
    checks.equal(what, Some(expected), seen.ok().or_else(|| now().ok()).as_ref());
}
