//! The turn's side of a recording: parts become lines in memory, and a whole turn is handed on or dropped.
//!
//! Cost: serializing the parts, mostly the sample. Buffers come back from the writer and are reused; of each
//! lasting part the previous line is kept for comparison. Nothing here waits or touches a file.

use std::sync::Arc;

use enforcer_core::{
    sample::Sample,
    turn::{Inputs, TurnLimits},
};
use numa_placement::Inventory;
use numa_topology::degraded::Degraded;

use super::{
    PLAIN_LIMIT,
    part::{LASTING, PartRef, TurnPart, WrittenAmong, lasting},
    writer::{Handed, RecordingFile, Writer},
};

/// Records the turns of one daemon.
#[derive(Debug)]
pub struct Recorder {
    writer: Writer,
    /// Lines of the next frame so far.
    frame: Vec<u8>,
    line: Vec<u8>,
    /// Lasting parts of the previous frame.
    lasted: [Vec<u8>; LASTING.len()],
    /// The machine of the previous frame.
    machine: Option<Arc<Inventory>>,
    /// The next frame must be a key frame.
    key: bool,
    first: bool,
    dropped: u64,
    /// The frame is unusable.
    spoilt: bool,
}

impl Recorder {
    /// Records into `target`, by a thread that is started now: after privileges were dropped.
    pub fn start(target: RecordingFile) -> std::io::Result<Self> {
        Ok(Self::with(Writer::start(target)?))
    }

    pub(super) fn with(writer: Writer) -> Self {
        Self {
            writer,
            frame: Vec::new(),
            line: Vec::new(),
            lasted: Default::default(),
            machine: None,
            key: true,
            first: true,
            dropped: 0,
            spoilt: false,
        }
    }

    /// Begins a turn; an unfinished one is forgotten.
    pub fn begin(&mut self) {
        // The lasting parts of an unfinished turn are not in the file.
        self.key |= !self.frame.is_empty();
        self.frame.clear();
        self.spoilt = false;
    }

    /// Adds a part, unless it equals that of the previous frame.
    pub(crate) fn note(&mut self, part: PartRef<'_>) {
        self.line.clear();
        if serde_json::to_writer(&mut self.line, &part).is_err() {
            self.spoilt = true;
            return;
        }
        if let Some(lasted) = lasting(&self.line).and_then(|at| self.lasted.get_mut(at)) {
            if !self.key && *lasted == self.line {
                return;
            }
            lasted.clone_from(&self.line);
        }
        self.line.push(b'\n');
        if self.frame.len() + self.line.len() > PLAIN_LIMIT {
            self.spoilt = true;
            return;
        }
        self.frame.extend_from_slice(&self.line);
    }

    /// Adds the inputs of a decision, without the facts and the grants, which are behind locks.
    pub fn note_inputs(
        &mut self,
        inputs: &Inputs<'_>,
        inventory: &Arc<Inventory>,
        before: Option<&Sample>,
        terms: TurnLimits,
    ) {
        let daemon = self.first.then(|| crate::version::VERSION.to_owned());
        let (key, dropped, now_ns) = (self.key, self.dropped, inputs.now_ns);
        self.note(PartRef::Turn(&TurnPart { daemon, key, dropped, now_ns, terms }));
        if key {
            self.note(PartRef::Before(before));
        }
        // The machine changes seldom and can be large.
        if key || !self.machine.as_ref().is_some_and(|had| Arc::ptr_eq(had, inventory)) {
            self.note(PartRef::Machine(&inventory.machine));
            self.machine = Some(Arc::clone(inventory));
        }
        for part in [
            PartRef::Policy(inputs.policy),
            PartRef::Workloads(inputs.workloads),
            PartRef::Sample(inputs.sample),
            PartRef::History(inputs.history),
            PartRef::Widened(inputs.widened),
            PartRef::Written(WrittenAmong { sample: inputs.sample, has_set: inputs.written.0 }),
            PartRef::Partitioned(inputs.partitioned),
        ] {
            self.note(part);
        }
    }

    /// Ends the turn: hands it on, unless it is unusable or the writer is busy with earlier ones.
    pub fn end(&mut self) {
        let handed = if self.spoilt { Handed::Busy } else { self.writer.hand(&mut self.frame) };
        if handed == Handed::Busy {
            self.dropped = self.dropped.saturating_add(1);
            self.key = true;
        } else {
            (self.dropped, self.key, self.first) = (0, false, false);
        }
        self.frame.clear();
    }

    /// Waits until the latest turn is written, or never will be.
    #[cfg(test)]
    pub(super) fn settle(&mut self) {
        self.writer.settle();
    }

    /// Why turns are no longer recorded, if so.
    pub fn degraded(&self) -> Option<Degraded> {
        let effect = "turns are no longer recorded; the recording ends with the one before";
        self.writer.ended().map(|reason| Degraded::new("recording", reason, effect))
    }
}

impl Drop for Recorder {
    /// Waits for queued frames, if the disk is fast enough.
    fn drop(&mut self) {
        self.writer.finish();
    }
}
