//! Turns, read back.
//!
//! Each frame changes the situation of the frame before it, or is a key frame that has all of it. What is read is checked as a
//! whole before it is handed on: every part that a decision needs is there, and the machine and the policy are possible ones.

use std::io::Read;

use enforcer_core::{
    plan::Outcome,
    replay::{Made, Situation},
};

use super::{
    frame::{Found, Frames, RecordingError, RecordingProblem},
    part::{Part, TurnPart},
};

/// A recording that is read turn by turn.
#[derive(Debug)]
pub struct Reader<R> {
    frames: Frames<R>,
    situation: Situation,
    /// Lasting parts that were there since the key frame.
    there: Vec<&'static str>,
}

/// One turn.
#[derive(Debug)]
pub struct Turn<'a> {
    /// Version of the daemon, in its first turn.
    pub daemon: Option<String>,
    /// Turns that are missing before it.
    pub dropped: u64,
    /// What it decided from.
    pub situation: &'a Situation,
    /// What it decided.
    pub made: Made,
    /// What became of its steps.
    pub outcomes: Vec<Outcome>,
}

/// What comes next.
#[derive(Debug)]
pub enum Recorded<'a> {
    /// A turn.
    Turn(Box<Turn<'a>>),
    /// Nothing.
    End,
    /// Half a turn, from this byte on.
    Torn(u64),
}

/// Parts without which nothing can be decided.
const LASTING: [&str; 10] = [
    "machine",
    "policy",
    "facts",
    "workloads",
    "containers",
    "allocations",
    "history",
    "widened",
    "written",
    "partitioned",
];

impl<R: Read> Reader<R> {
    /// Reads the beginning.
    pub fn new(source: R) -> Result<Self, RecordingError> {
        let frames = Frames::new(source)?;
        Ok(Self { frames, situation: Situation::default(), there: Vec::new() })
    }

    /// The next turn. After an error, or anything but a turn, there is none.
    pub fn turn(&mut self) -> Result<Recorded<'_>, RecordingError> {
        match self.frames.find()? {
            Found::End => return Ok(Recorded::End),
            Found::Torn => return Ok(Recorded::Torn(self.frames.offset())),
            Found::Frame => {}
        }
        let parts = self.parts()?;
        let missing = |part| self.frames.failed(RecordingProblem::Missing(part));
        let turn = parts.iter().find_map(|part| if let Part::Turn(turn) = part { Some(turn) } else { None });
        let TurnPart { daemon, key, dropped, now_ns, terms } =
            turn.cloned().ok_or_else(|| missing("turn"))?;
        let had = std::mem::take(&mut self.situation.sample);
        if key {
            self.situation = Situation::default();
            self.there.clear();
        } else {
            self.situation.before = Some(had);
        }
        (self.situation.now_ns, self.situation.terms) = (now_ns, terms);
        let (mut made, mut outcomes) = (Made::default(), Vec::new());
        let mut own = Vec::new();
        let mut to_check = false;
        for part in parts {
            to_check |= matches!(part, Part::Machine(_) | Part::Policy(_));
            match part {
                Part::Decision(decision) => {
                    made.decision = *decision;
                    own.push("decision");
                }
                Part::Rebalanced(turn) => made.rebalanced = turn.map(|turn| *turn),
                Part::Outcomes(all) => outcomes = all,
                part => own.extend(self.follow(part)),
            }
        }
        let needed = ["sample", "decision"].into_iter().chain(Some("before").filter(|_| key));
        let here = LASTING.into_iter().filter(|part| !self.there.contains(part));
        if let Some(part) = here.chain(needed).find(|part| !own.contains(part)) {
            return Err(self.frames.failed(RecordingProblem::Missing(part)));
        }
        self.there = LASTING.to_vec();
        if to_check {
            self.situation.check().map_err(|problem| self.frames.failed(problem))?;
        }
        let situation = &self.situation;
        Ok(Recorded::Turn(Box::new(Turn { daemon, dropped, situation, made, outcomes })))
    }

    fn parts(&self) -> Result<Vec<Part>, RecordingError> {
        let plain = self.frames.inflate()?;
        let lines = plain.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let read = lines.enumerate().map(|(at, line)| {
            serde_json::from_slice(line).map_err(|error| {
                self.frames.failed(RecordingProblem::Line { line: at + 1, said: error.to_string() })
            })
        });
        read.collect()
    }

    /// Puts a part of the situation into its place; returns its name.
    fn follow(&mut self, part: Part) -> Option<&'static str> {
        let now = &mut self.situation;
        Some(match part {
            Part::Machine(machine) => put("machine", &mut now.machine, *machine),
            Part::Policy(policy) => put("policy", &mut now.policy, *policy),
            Part::Facts(facts) => put("facts", &mut now.facts, *facts),
            Part::Workloads(workloads) => put("workloads", &mut now.workloads, workloads),
            Part::Before(before) => put("before", &mut now.before, before.map(|sample| *sample)),
            Part::Sample(sample) => put("sample", &mut now.sample, *sample),
            Part::Containers(containers) => put("containers", &mut now.containers, *containers),
            Part::Allocations(allocations) => put("allocations", &mut now.allocations, *allocations),
            Part::History(history) => put("history", &mut now.history, *history),
            Part::Widened(widened) => put("widened", &mut now.widened, widened),
            Part::Written(written) => put("written", &mut now.written, written),
            Part::Partitioned(partitioned) => put("partitioned", &mut now.partitioned, partitioned),
            Part::Turn(_) | Part::Decision(_) | Part::Rebalanced(_) | Part::Outcomes(_) => return None,
        })
    }
}

fn put<T>(name: &'static str, place: &mut T, value: T) -> &'static str {
    *place = value;
    name
}
