//! One case: write its files, run the program, judge what it says.

use std::{collections::BTreeSet, fs, path::Path};

use numa_placement::trial::{PlanReport, StepReport};
use serde_json::{Value, json};

use super::{
    claim,
    format::{Case, Step},
    machine::CaseMachine,
    state::State,
};
use crate::common::{Ended, finish, program};

/// Plays a case; what is wrong with it, if anything.
pub(crate) fn play(case: &Case) -> Result<(), String> {
    let machine = CaseMachine::find(&case.machine)?;
    let ended = run(case, &machine)?;
    let report: PlanReport = serde_json::from_str(&ended.stdout)
        .map_err(|error| format!("no report ({error}): exit {:?}: {}", ended.code, ended.stderr))?;
    if report.steps.len() != case.steps.len() {
        return Err(format!("{} steps, {} reports", case.steps.len(), report.steps.len()));
    }
    let code = i32::from(!report.all_admitted());
    if ended.code != Some(code) {
        return Err(format!("exit {:?} instead of {code}", ended.code));
    }
    let mut state = State::new(&machine);
    for (step, said) in case.steps.iter().zip(&report.steps) {
        judge(step, said, &mut state).map_err(|why| format!("step {}: {why}", said.step))?;
    }
    Ok(())
}

fn run(case: &Case, machine: &CaseMachine) -> Result<Ended, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>(path)
    };
    let steps = case.steps.iter().map(Step::manifest).collect::<Result<Vec<_>, _>>()?;
    let steps = write("steps.yaml", Value::from(steps).to_string())?;
    let config = if case.config.is_null() { json!({}) } else { case.config.clone() };
    let config = toml::to_string(&json!({"placement": config})).map_err(|error| error.to_string())?;
    let config = write("config.toml", config)?;
    let mut command = program(&["plan", "-o", "json"]);
    let add = |command: &mut std::process::Command, flag: &str, path: &Path| {
        command.arg(flag).arg(path);
    };
    command.args(machine.arguments());
    add(&mut command, "--config", &config);
    add(&mut command, "--steps", &steps);
    if !case.devices.is_empty() {
        let devices = write("devices.yaml", Value::from(case.devices.clone()).to_string())?;
        add(&mut command, "--devices", &devices);
    }
    Ok(finish(command))
}

fn judge(step: &Step, said: &StepReport, state: &mut State<'_>) -> Result<(), String> {
    let reason = said.reason.as_deref().unwrap_or("");
    match &step.rejected {
        None if !said.admitted => return Err(format!("rejected: {reason}")),
        Some(_) if said.admitted => return Err("admitted".to_owned()),
        Some(texts) => {
            if let Some(text) = texts.split(" .. ").find(|text| !reason.contains(text)) {
                return Err(format!("`{text}` is not in the reason: {reason}"));
            }
        }
        None => {}
    }
    state.apply(said)?;
    if let Some(wanted) = &step.updates {
        let told: BTreeSet<&str> = said.updates.iter().map(|update| update.container.as_str()).collect();
        if told != wanted.split_whitespace().collect() {
            return Err(format!("updates for {told:?} instead of {wanted}"));
        }
    }
    step.expect.iter().try_for_each(|claim| claim::check(claim, state))
}
