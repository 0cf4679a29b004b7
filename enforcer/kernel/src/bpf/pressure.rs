//! The user side of the ring of pressure events. Its file descriptor is readable when there are events: some
//! ten milliseconds remain until the OOM killer acts.

use core::mem::{offset_of, size_of};
use std::os::fd::{AsFd, BorrowedFd};

use aya::{
    Ebpf,
    maps::{MapData, RingBuf},
};
use enforcer_common::{
    limit::PRESSURE_BYTES,
    pressure::{NO_CONSTRAINT, PressureRecord as Layout, kind},
};
use enforcer_core::sample::{OomConstraint, PressureEvent, PressureKind};
use numa_topology::id::NodeId;

use super::{
    bytes::{u16_at, u32_at, u64_at},
    events::HEADER,
    maps::{self, CountersError},
};

/// The ring of the attached programs.
pub struct PressureRing(RingBuf<MapData>);

impl PressureRing {
    /// The ring of the loaded programs, which refer to it by themselves from then on.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, CountersError> {
        maps::ring(ebpf, maps::PRESSURE).map(Self)
    }

    /// Passes on the queued events, at most as many as the ring holds; `None` is an unknown record.
    pub fn read(&mut self, mut take: impl FnMut(Option<PressureEvent>)) {
        for _ in 0..PRESSURE_BYTES as usize / (HEADER + size_of::<Layout>()) {
            let Some(record) = self.0.next() else { break };
            take(decode(&record));
        }
    }
}

impl AsFd for PressureRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Decodes a record; other code maps its cgroup to a workload.
fn decode(bytes: &[u8]) -> Option<PressureEvent> {
    let word = |at| u64_at(bytes, at);
    let half = |at| u32_at(bytes, at);
    let quarter = |at| u16_at(bytes, at);
    let kind = match quarter(offset_of!(Layout, kind))? {
        kind::KSWAPD_WOKEN => PressureKind::KswapdWoken,
        kind::DIRECT_RECLAIM => PressureKind::DirectReclaim,
        kind::RECLAIM_RETRY => PressureKind::ReclaimRetry,
        kind::VICTIM => PressureKind::OomVictim,
        _ => return None,
    };
    let constraint = match half(offset_of!(Layout, constraint))? {
        0 => Some(OomConstraint::None),
        1 => Some(OomConstraint::Cpuset),
        2 => Some(OomConstraint::MemoryPolicy),
        3 => Some(OomConstraint::Memcg),
        NO_CONSTRAINT => None,
        _ => return None,
    };
    Some(PressureEvent {
        time_ns: word(offset_of!(Layout, time_ns))?,
        kind,
        numa_node: NodeId(half(offset_of!(Layout, node))?),
        order: quarter(offset_of!(Layout, order))?,
        cgroup_id: word(offset_of!(Layout, cgroup))?,
        workload: None,
        tid: half(offset_of!(Layout, tid))?,
        constraint,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u16, constraint: u32) -> Vec<u8> {
        let mut bytes = vec![0u8; size_of::<Layout>()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset_of!(Layout, time_ns), &5u64.to_ne_bytes());
        put(offset_of!(Layout, cgroup), &77u64.to_ne_bytes());
        put(offset_of!(Layout, tid), &12u32.to_ne_bytes());
        put(offset_of!(Layout, node), &3u32.to_ne_bytes());
        put(offset_of!(Layout, kind), &kind.to_ne_bytes());
        put(offset_of!(Layout, order), &9u16.to_ne_bytes());
        put(offset_of!(Layout, constraint), &constraint.to_ne_bytes());
        bytes
    }

    #[test]
    fn takes_every_field_from_its_place() {
        let expected = PressureEvent {
            time_ns: 5,
            kind: PressureKind::OomVictim,
            numa_node: NodeId(3),
            order: 9,
            cgroup_id: 77,
            workload: None,
            tid: 12,
            constraint: Some(OomConstraint::Memcg),
        };
        assert_eq!(decode(&record(kind::VICTIM, 3)), Some(expected));
        let woken = decode(&record(kind::KSWAPD_WOKEN, NO_CONSTRAINT)).unwrap();
        assert_eq!((woken.kind, woken.constraint), (PressureKind::KswapdWoken, None));
        assert_eq!(decode(&record(99, 0)), None);
        assert_eq!(decode(&record(kind::VICTIM, 4)), None);
    }

    proptest! {
        #[test]
        fn any_record_is_an_event_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(decode(&bytes).is_none() || bytes.len() >= size_of::<Layout>());
        }
    }
}
