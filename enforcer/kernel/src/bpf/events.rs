//! The user side of the ring of events: takes the programs' events out.
//!
//! The ring wakes a reader only when half full, so this must be called now and then; the programs count
//! events without room. A drain ends after one ring full, however fast more come. What is kept is bounded:
//! the latest events stay, the others are counted.

use core::mem::{offset_of, size_of};
use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, BorrowedFd},
};

use aya::{
    Ebpf,
    maps::{MapData, RingBuf},
};
use enforcer_common::event::{EventRecord, kind};
use enforcer_core::sample::TaskEventKind;
use numa_topology::id::NodeId;

use super::{
    bytes::{u16_at, u32_at, u64_at},
    changes::{self, KernelChange},
    columns::NodeColumns,
    kept::{DrainedEvents, EventBuffer},
    maps::{self, CountersError},
    slots::Slots,
};

/// What the ring puts before each record (`BPF_RINGBUF_HDR_SZ`).
pub(super) const HEADER: usize = 8;

/// A task that came to a node on which its workload should not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelEvent {
    /// Time of the monotonic clock in nanoseconds.
    pub time_ns: u64,
    /// How it came there.
    pub kind: TaskEventKind,
    /// Id of the workload's own cgroup.
    pub owner: u64,
    /// Id of the task's cgroup.
    pub cgroup: u64,
    /// Thread id.
    pub tid: u32,
    /// Node it came from.
    pub src_numa: NodeId,
    /// Node it was put on.
    pub dst_numa: NodeId,
}

/// The ring, and the events taken out of it.
pub(super) struct EventRing {
    ring: RingBuf<MapData>,
    kept: EventBuffer<KernelEvent>,
    changes: EventBuffer<KernelChange>,
    /// Most records that fit into the ring: one drain takes at most this many.
    most: usize,
}

impl EventRing {
    /// The ring of the loaded programs, which refer to it by themselves from then on.
    pub(super) fn take(ebpf: &mut Ebpf, bytes: u32) -> Result<Self, CountersError> {
        let ring = maps::ring(ebpf, maps::EVENTS)?;
        let most = bytes as usize / (HEADER + size_of::<EventRecord>());
        Ok(Self { ring, kept: EventBuffer::default(), changes: EventBuffer::default(), most })
    }

    /// Drains the ring. `slots` are those of the time; their owners are looked up only if there are events,
    /// because an idle host has none. Returns whether there were any.
    pub(super) fn drain(&mut self, slots: &Slots, columns: &NodeColumns) -> bool {
        let mut known_owners = None;
        for _ in 0..self.most {
            let Some(record) = self.ring.next() else { break };
            let owners = &*known_owners.get_or_insert_with(|| slots.owners());
            let event = decode(&record);
            if event.is_some_and(|event| changes::is_change(event.kind)) {
                self.changes.add(event.and_then(|event| changes::decode(&event, &record, owners)));
            } else {
                self.kept.add(event.and_then(|event| known(&event, owners, columns)));
            }
        }
        known_owners.is_some()
    }

    /// Readable when there are events; a waiting thread is woken when the ring is half full.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Events taken out since the last call.
    pub(super) fn take_events(&mut self) -> DrainedEvents<KernelEvent> {
        self.kept.take()
    }

    /// The same of changes.
    pub(super) fn changes(&mut self) -> DrainedEvents<KernelChange> {
        self.changes.take()
    }
}

/// The record as the programs wrote it.
fn decode(bytes: &[u8]) -> Option<EventRecord> {
    let word = |at| u64_at(bytes, at);
    let half = |at| u32_at(bytes, at);
    let quarter = |at| u16_at(bytes, at);
    Some(EventRecord {
        time_ns: word(offset_of!(EventRecord, time_ns))?,
        cgroup: word(offset_of!(EventRecord, cgroup))?,
        tid: half(offset_of!(EventRecord, tid))?,
        slot: half(offset_of!(EventRecord, slot))?,
        kind: quarter(offset_of!(EventRecord, kind))?,
        src: quarter(offset_of!(EventRecord, src))?,
        dst: quarter(offset_of!(EventRecord, dst))?,
        detail: quarter(offset_of!(EventRecord, detail))?,
    })
}

/// The event in terms of workloads and nodes; `None` if its slot has no owner now.
fn known(event: &EventRecord, owners: &BTreeMap<u32, u64>, columns: &NodeColumns) -> Option<KernelEvent> {
    let kind = match event.kind {
        kind::MIGRATED => TaskEventKind::Migrated,
        kind::STARTED => TaskEventKind::Started,
        _ => return None,
    };
    Some(KernelEvent {
        time_ns: event.time_ns,
        kind,
        owner: *owners.get(&event.slot)?,
        cgroup: event.cgroup,
        tid: event.tid,
        src_numa: columns.node(usize::from(event.src))?,
        dst_numa: columns.node(usize::from(event.dst))?,
    })
}

#[cfg(test)]
mod tests {
    use numa_topology::id::CpuId;
    use proptest::prelude::*;

    use super::*;

    fn record() -> Vec<u8> {
        let mut bytes = vec![0u8; size_of::<EventRecord>()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset_of!(EventRecord, time_ns), &5u64.to_ne_bytes());
        put(offset_of!(EventRecord, cgroup), &77u64.to_ne_bytes());
        put(offset_of!(EventRecord, tid), &12u32.to_ne_bytes());
        put(offset_of!(EventRecord, slot), &3u32.to_ne_bytes());
        put(offset_of!(EventRecord, kind), &kind::STARTED.to_ne_bytes());
        put(offset_of!(EventRecord, dst), &1u16.to_ne_bytes());
        bytes
    }

    fn columns() -> NodeColumns {
        NodeColumns::new(&[(CpuId(0), NodeId(7)), (CpuId(1), NodeId(72))].into())
    }

    #[test]
    fn takes_every_field_from_its_place() {
        let event = known(&decode(&record()).unwrap(), &[(3, 70)].into(), &columns()).unwrap();
        let expected = KernelEvent {
            time_ns: 5,
            kind: TaskEventKind::Started,
            owner: 70,
            cgroup: 77,
            tid: 12,
            src_numa: NodeId(7),
            dst_numa: NodeId(72),
        };
        assert_eq!(event, expected);
    }

    #[test]
    fn what_means_nothing_here_is_none() {
        let event = decode(&record()).unwrap();
        let of = |event: EventRecord| known(&event, &[(3, 70)].into(), &columns());
        assert_eq!(of(EventRecord { slot: 4, ..event }), None, "a free slot");
        assert_eq!(of(EventRecord { kind: 99, ..event }), None);
        assert_eq!(of(EventRecord { dst: 2, ..event }), None);
        assert!(of(event).is_some());
    }

    proptest! {
        #[test]
        fn any_record_is_an_event_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let event = decode(&bytes);
            prop_assert_eq!(event.is_some(), bytes.len() >= size_of::<EventRecord>());
            let _ = event.and_then(|event| known(&event, &[(0, 1)].into(), &columns()));
        }
    }
}
