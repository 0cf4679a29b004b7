//! `numa-enforcer replay`: recorded turns, taken again.

use std::{
    fs::File,
    io::{BufReader, Write},
    path::PathBuf,
};

use anyhow::{Context, anyhow};
use enforcer_core::{policy::Policy, replay::Replay};

use super::{Exit, args, config_file, terminal};
use crate::record::{RecordingItem, RecordingReader};
use enforcer_report::replay_text;

/// Which recording, by which policy.
pub(super) struct Options {
    file: PathBuf,
    policy: Option<Policy>,
    format: args::TableOrJson,
}

impl TryFrom<args::ReplayArgs> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::ReplayArgs) -> anyhow::Result<Self> {
        let policy = config_file::read(args.policy.as_deref())?;
        Ok(Self { file: args.file, policy, format: args.output })
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let path = &options.file;
    let reading = || format!("reading {}", path.display());
    let file = File::open(path).with_context(reading)?;
    let length = file.metadata().with_context(reading)?.len();
    let mut reader = RecordingReader::new(BufReader::new(file));
    let mut replay = Replay::new(options.policy.as_ref());
    let (ends, damage) = loop {
        match reader.turn() {
            Ok(RecordingItem::Turn(turn)) => {
                if let Some(version) = &turn.daemon {
                    replay.begins(version);
                }
                replay.turn(turn.situation, &turn.made, &turn.outcomes, turn.dropped);
            }
            Ok(RecordingItem::End) => break (None, None),
            Ok(RecordingItem::Torn(offset)) => {
                // It may be no file, or longer by now.
                let left_out = match length.saturating_sub(offset) {
                    0 => String::new(),
                    bytes => format!(", with {bytes} bytes that are left out"),
                };
                break (Some(format!("in the middle of a turn, at byte {offset}{left_out}")), None);
            }
            // What is before the damage is worth telling.
            Err(error) => break (Some(error.to_string()), Some(error)),
        }
    };
    let report = replay.end(ends);
    match options.format {
        // A table of zeros says nothing that the error does not.
        args::TableOrJson::Table if report.recording.turns == 0 => {}
        output => terminal::show(output, &report, replay_text::render, out)?,
    }
    out.flush()?;
    match damage {
        Some(error) => Err(error).with_context(reading),
        // As if all was well, where nothing was compared.
        None if report.recording.turns == 0 => {
            let ends = report.recording.ends.map(|ends| format!(": it ends {ends}")).unwrap_or_default();
            Err(anyhow!("{}: no turn is whole{ends}", path.display()))
        }
        None if report.different > 0 => Ok(Exit::Different),
        None => Ok(Exit::Ok),
    }
}
