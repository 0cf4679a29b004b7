//! Reads turns back.
//!
//! Each frame changes the situation of the frame before it, or is a key frame with all of it. A turn is
//! checked as a whole before it is returned: every part that a decision needs is there, and the machine and
//! the policy are possible.

use std::{collections::BTreeSet, io::Read};

use enforcer_core::{
    plan::Outcome,
    replay::{RecordedOutput, TurnInput},
};

use super::{
    frame::{FrameReader, FrameStep, RecordingError, RecordingProblem},
    part::{KINDS, LASTING, RecordedPart, TurnPart, name},
    room::FrameBudget,
};

/// Reads a recording turn by turn.
#[derive(Debug)]
pub struct RecordingReader<R> {
    frames: FrameReader<R>,
    situation: TurnInput,
    /// All lasting parts were there since the key frame.
    complete: bool,
}

/// One turn.
#[derive(Debug)]
pub struct RecordedTurn<'a> {
    /// Version of the daemon, in its first turn.
    pub daemon: Option<String>,
    /// Turns missing before it.
    pub dropped: u64,
    /// What it decided from.
    pub situation: &'a TurnInput,
    /// What it decided.
    pub made: RecordedOutput,
    /// What became of its steps.
    pub outcomes: Vec<Outcome>,
}

/// The next item of a recording.
#[derive(Debug)]
pub enum RecordingItem<'a> {
    /// A turn.
    Turn(Box<RecordedTurn<'a>>),
    /// The end of the recording.
    End,
    /// An incomplete turn, from this byte on.
    Torn(u64),
}

impl<R: Read> RecordingReader<R> {
    /// Reads from the beginning of the file.
    pub fn new(source: R) -> Self {
        Self { frames: FrameReader::at(0, source), situation: TurnInput::default(), complete: false }
    }

    /// The next turn. After an error, or anything but a turn, there is none.
    pub fn turn(&mut self) -> Result<RecordingItem<'_>, RecordingError> {
        let plain = match self.frames.read()? {
            FrameStep::Frame(plain) => plain,
            FrameStep::End => return Ok(RecordingItem::End),
            FrameStep::Torn => return Ok(RecordingItem::Torn(self.frames.offset())),
        };
        let lines = plain.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines: Vec<&[u8]> = lines.take(KINDS + 1).collect();
        if lines.len() > KINDS {
            return Err(self.frames.failed(RecordingProblem::Parts));
        }
        let names: BTreeSet<&[u8]> = lines.iter().map(|line| name(line)).collect();
        if names.len() < lines.len() {
            return Err(self.frames.failed(RecordingProblem::Parts));
        }
        let mut room = FrameBudget::of_frame();
        let TurnPart { daemon, key, dropped, now_ns, terms } = self.turn_part(&lines, &mut room)?;
        // Drops the former sample before the new parts take memory.
        self.situation.before = None;
        self.situation.self_placed.clear();
        let had = std::mem::take(&mut self.situation.sample);
        if key {
            drop(had);
            self.situation = TurnInput::default();
            self.complete = false;
        } else {
            self.situation.before = Some(had);
        }
        (self.situation.now_ns, self.situation.terms) = (now_ns, terms);
        let parts = self.parts(&lines, &mut room)?;
        let missing = |part| self.frames.failed(RecordingProblem::Missing(part));
        let lasting = LASTING.into_iter().filter(|_| !self.complete);
        let of_turn = ["sample", "decision"].into_iter().chain(key.then_some("before"));
        let is_here = |part: &str| lines.iter().any(|line| name(line) == part.as_bytes());
        if let Some(part) = lasting.chain(of_turn).find(|part| !is_here(part)) {
            return Err(missing(part));
        }
        self.complete = true;
        let (mut made, mut outcomes) = (RecordedOutput::default(), Vec::new());
        let to_check =
            parts.iter().any(|part| matches!(part, RecordedPart::Machine(_) | RecordedPart::Policy(_)));
        for part in parts {
            match part {
                RecordedPart::Decision(decision) => made.decision = *decision,
                RecordedPart::Rebalanced(turn) => made.rebalanced = turn.map(|turn| *turn),
                RecordedPart::Outcomes(all) => outcomes = all,
                part => self.follow(part),
            }
        }
        if to_check {
            self.situation.check().map_err(|problem| self.frames.failed(problem))?;
        }
        let situation = &self.situation;
        Ok(RecordingItem::Turn(Box::new(RecordedTurn { daemon, dropped, situation, made, outcomes })))
    }

    /// Time and terms of the turn.
    fn turn_part(&self, lines: &[&[u8]], room: &mut FrameBudget) -> Result<TurnPart, RecordingError> {
        let at = lines.iter().position(|line| name(line) == b"turn");
        let part = at.map(|at| self.part(lines, at, room)).transpose()?;
        match part {
            Some(RecordedPart::Turn(turn)) => Ok(turn),
            _ => Err(self.frames.failed(RecordingProblem::Missing("turn"))),
        }
    }

    fn parts(&self, lines: &[&[u8]], room: &mut FrameBudget) -> Result<Vec<RecordedPart>, RecordingError> {
        (0..lines.len()).map(|at| self.part(lines, at, room)).collect()
    }

    fn part(
        &self,
        lines: &[&[u8]],
        at: usize,
        room: &mut FrameBudget,
    ) -> Result<RecordedPart, RecordingError> {
        let line = lines.get(at).copied().unwrap_or_default();
        room.take(line).and_then(|()| serde_json::from_slice(line)).map_err(|error| {
            self.frames.failed(RecordingProblem::Line { line: at + 1, said: error.to_string() })
        })
    }

    /// Applies a part to the situation.
    fn follow(&mut self, part: RecordedPart) {
        let now = &mut self.situation;
        match part {
            RecordedPart::Machine(machine) => now.machine = *machine,
            RecordedPart::Policy(policy) => now.policy = *policy,
            RecordedPart::Facts(facts) => now.facts = *facts,
            RecordedPart::Workloads(workloads) => now.workloads = workloads,
            RecordedPart::Before(before) => now.before = before.map(|sample| *sample),
            RecordedPart::Sample(sample) => now.sample = *sample,
            RecordedPart::Containers(containers) => now.containers = *containers,
            RecordedPart::Allocations(allocations) => now.allocations = *allocations,
            RecordedPart::History(history) => now.history = *history,
            RecordedPart::Widened(widened) => now.widened = widened,
            RecordedPart::Written(written) => now.written = written,
            RecordedPart::Partitioned(partitioned) => now.partitioned = partitioned,
            RecordedPart::SelfPlaced(self_placed) => now.self_placed = self_placed,
            RecordedPart::Turn(_)
            | RecordedPart::Decision(_)
            | RecordedPart::Rebalanced(_)
            | RecordedPart::Outcomes(_) => {}
        }
    }
}
