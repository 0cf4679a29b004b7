//! Reads and fills the maps of `enforcer-ebpf/src/maps.rs`: one number per key, summed over the CPUs.

use core::mem::offset_of;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    os::fd::AsFd,
};

use aya::{
    Ebpf, Pod,
    maps::{HashMap, Map, MapData, MapError, PerCpuArray, PerCpuHashMap, RingBuf},
    util::nr_cpus,
};
use enforcer_common::{counter::drop, key::MoveKey, managed::ManagedCgroup, tally::TallyKey};
use enforcer_core::sample::{HardwareAccesses, HintFaults, Placements, RunTime};
use thiserror::Error;

use super::{
    bytes::{u16_at, u32_at},
    columns::NodeColumns,
    counters::Drops,
    hardware::OpenCounters,
    sizes::Sizes,
    tallies::Tallies,
};
use crate::map_batch::MapBatch;

/// Names of the maps.
pub(super) const MANAGED: &str = "MANAGED";
pub(super) const MOVE_CELLS: &str = "MOVE_CELLS";
pub(super) const MOVES: &str = "MOVES";
pub(super) const TALLIES: &str = "TALLIES";
pub(super) const LAST_CHANGE: &str = "LAST_CHANGE";
pub(super) const RUN_TIME: &str = "RUN_TIME";
pub(super) const HINT_FAULTS: &str = "HINT_FAULTS";
pub(super) const HARDWARE: &str = "HARDWARE";
pub(super) const SENT: &str = "SENT";
pub(super) const EVENTS: &str = "EVENTS";
pub(super) const PRESSURE: &str = "PRESSURE";
const DROPS: &str = "DROPS";

/// A map that could not be read or written.
#[derive(Debug, Error)]
pub enum CountersError {
    /// The object does not have it.
    #[error("the object has no map {0}")]
    NoMap(&'static str),
    /// The kernel refused.
    #[error("the map {map}")]
    Map {
        /// Which one.
        map: &'static str,
        /// What the kernel said.
        #[source]
        cause: Box<MapError>,
    },
}

fn failed(map: &'static str) -> impl Fn(MapError) -> CountersError {
    move |cause| CountersError::Map { map, cause: Box::new(cause) }
}

fn map<'a>(ebpf: &'a Ebpf, name: &'static str) -> Result<&'a Map, CountersError> {
    ebpf.map(name).ok_or(CountersError::NoMap(name))
}

fn map_mut<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Map, CountersError> {
    ebpf.map_mut(name).ok_or(CountersError::NoMap(name))
}

/// Sum over the CPUs, word by word, of values that stand one after another.
fn sum<const N: usize>(words: &[u64]) -> [u64; N] {
    words.as_chunks().0.iter().copied().fold([0; N], plus)
}

/// The same of values one by one.
fn sum_of<const N: usize>(values: &[[u64; N]]) -> [u64; N] {
    values.iter().copied().fold([0; N], plus)
}

fn plus<const N: usize>(mut total: [u64; N], value: [u64; N]) -> [u64; N] {
    for (sum, word) in total.iter_mut().zip(value) {
        *sum = sum.saturating_add(word);
    }
    total
}

/// A whole map in a few calls, where this kernel has them for such a map.
fn batch(map: &MapData, most: usize, each: impl FnMut(&[u8], &[u64])) -> bool {
    let cpus = nr_cpus().unwrap_or(0);
    let read = MapBatch::new(map.fd().as_fd(), cpus).and_then(|batch| batch.read(most, each));
    read.inspect_err(|error| tracing::trace!("reading a map in batches: {error}")).is_ok()
}

/// The first `cells` of an array, each summed over the CPUs. Counters consist of words, in the order of their
/// fields.
fn array<const N: usize>(
    ebpf: &Ebpf,
    name: &'static str,
    cells: u32,
) -> Result<Vec<[u64; N]>, CountersError> {
    let mut sums = Vec::with_capacity(cells as usize);
    let found = map(ebpf, name)?;
    if let Map::PerCpuArray(inner) = found
        && batch(inner, cells as usize, |_, words| sums.push(sum(words)))
        && sums.len() >= cells as usize
    {
        sums.truncate(cells as usize);
        return Ok(sums);
    }
    let array: PerCpuArray<&MapData, [u64; N]> = found.try_into().map_err(failed(name))?;
    (0..cells).map(|index| array.get(&index, 0).map(|values| sum_of(&values)).map_err(failed(name))).collect()
}

/// A row of nodes for each of the first `slots` of an array.
fn rows<T, const N: usize>(
    ebpf: &Ebpf,
    name: &'static str,
    slots: u32,
    columns: &NodeColumns,
    value: impl Fn([u64; N]) -> T,
) -> Result<Vec<Vec<T>>, CountersError> {
    let cells = array(ebpf, name, slots * columns.count())?;
    Ok(cells.chunks(columns.count() as usize).map(|row| row.iter().copied().map(&value).collect()).collect())
}

/// Run time: a row of nodes for each of the first `slots`.
pub(super) fn run_time(
    ebpf: &Ebpf,
    slots: u32,
    columns: &NodeColumns,
) -> Result<Vec<Vec<RunTime>>, CountersError> {
    let value = |[ns, misplaced_ns, samples]: [u64; 3]| RunTime { ns, misplaced_ns, samples };
    rows(ebpf, RUN_TIME, slots, columns, value)
}

/// Hinting faults, in the same form.
pub(super) fn hint_faults(
    ebpf: &Ebpf,
    slots: u32,
    columns: &NodeColumns,
) -> Result<Vec<Vec<HintFaults>>, CountersError> {
    let value = |[local, remote, migrated, migrate_failed]: [u64; 4]| HintFaults {
        local,
        remote,
        migrated,
        migrate_failed,
    };
    rows(ebpf, HINT_FAULTS, slots, columns, value)
}

/// Accesses counted by hardware, in the same form.
pub(super) fn hardware(
    ebpf: &Ebpf,
    slots: u32,
    columns: &NodeColumns,
    open: &OpenCounters,
) -> Result<Vec<Vec<HardwareAccesses>>, CountersError> {
    let value = |[near, remote]: [u64; 2]| open.accesses(near, remote);
    rows(ebpf, HARDWARE, slots, columns, value)
}

/// A key of a hash of counters: a slot and two numbers.
trait RowKey: Pod {
    /// From the bytes that the kernel gives.
    fn read(bytes: &[u8]) -> Option<HashRow>;
    /// From a key that aya gives.
    fn row(&self) -> HashRow;
}

type HashRow = (u32, u16, u16);

impl RowKey for MoveKey {
    fn read(bytes: &[u8]) -> Option<HashRow> {
        Some((
            u32_at(bytes, offset_of!(Self, slot))?,
            u16_at(bytes, offset_of!(Self, src))?,
            u16_at(bytes, offset_of!(Self, dst))?,
        ))
    }

    fn row(&self) -> HashRow {
        (self.slot, self.src, self.dst)
    }
}

impl RowKey for TallyKey {
    fn read(bytes: &[u8]) -> Option<HashRow> {
        Some((
            u32_at(bytes, offset_of!(Self, slot))?,
            u16_at(bytes, offset_of!(Self, what))?,
            u16_at(bytes, offset_of!(Self, detail))?,
        ))
    }

    fn row(&self) -> HashRow {
        (self.slot, self.what, self.detail)
    }
}

/// A whole hash of counters, each summed over the CPUs.
fn hash<K: RowKey, const N: usize>(
    ebpf: &Ebpf,
    name: &'static str,
    most: u32,
) -> Result<BTreeMap<HashRow, [u64; N]>, CountersError> {
    let mut found = BTreeMap::new();
    let map = map(ebpf, name)?;
    // The kernel side inserts meanwhile: a key may come twice, then the later count is the better one.
    let batched = matches!(map, Map::PerCpuHashMap(inner) if batch(inner, 2 * most as usize, |key, words| {
        if let Some(row) = K::read(key) {
            found.insert(row, sum(words));
        }
    }));
    if !batched {
        let hash: PerCpuHashMap<&MapData, K, [u64; N]> = map.try_into().map_err(failed(name))?;
        for entry in hash.iter().take(2 * most as usize) {
            let (key, values) = entry.map_err(failed(name))?;
            found.insert(key.row(), sum_of(&values));
        }
    }
    Ok(found)
}

/// Moves by slot, in ascending order of (source, destination): from the first `slots` of the table, or from
/// the hash.
pub(super) fn moves(
    ebpf: &Ebpf,
    sizes: Sizes,
    slots: u32,
    columns: &NodeColumns,
) -> Result<BTreeMap<u32, Vec<Placements>>, CountersError> {
    let found = if sizes.move_cells > 0 {
        table_of_moves(ebpf, slots, columns)?
    } else {
        hash::<MoveKey, 3>(ebpf, MOVES, sizes.moves)?
    };
    let mut by_slot: BTreeMap<u32, Vec<Placements>> = BTreeMap::new();
    for ((slot, src, dst), [migrated, started, misplaced]) in found {
        let nodes = columns.node(usize::from(src)).zip(columns.node(usize::from(dst)));
        if let Some((src_numa, dst_numa)) = nodes {
            by_slot.entry(slot).or_default().push(Placements {
                src_numa,
                dst_numa,
                migrated,
                started,
                misplaced,
            });
        }
    }
    Ok(by_slot)
}

/// The cells that counted anything.
fn table_of_moves(
    ebpf: &Ebpf,
    slots: u32,
    columns: &NodeColumns,
) -> Result<BTreeMap<HashRow, [u64; 3]>, CountersError> {
    let nodes = columns.count();
    let square = nodes * nodes;
    let cells = array::<3>(ebpf, MOVE_CELLS, slots * square)?;
    let name = |at: usize| {
        let at = u32::try_from(at).ok()?;
        let (src, dst) = (at % square / nodes, at % nodes);
        Some((at / square, u16::try_from(src).ok()?, u16::try_from(dst).ok()?))
    };
    let counted = cells.into_iter().enumerate().filter(|(_, moves)| *moves != [0; 3]);
    Ok(counted.filter_map(|(at, moves)| Some((name(at)?, moves))).collect())
}

/// What is rare, by slot.
pub(super) fn tallies(ebpf: &Ebpf, most: u32) -> Result<BTreeMap<u32, Tallies>, CountersError> {
    let mut by_slot: BTreeMap<u32, Tallies> = BTreeMap::new();
    for ((slot, what, detail), count) in hash::<TallyKey, 2>(ebpf, TALLIES, most)? {
        by_slot.entry(slot).or_default().put(what, detail, count);
    }
    Ok(by_slot)
}

/// Removes the moves of some slots.
pub(super) fn forget_moves(ebpf: &mut Ebpf, slots: &BTreeSet<u32>) -> Result<(), CountersError> {
    forget::<MoveKey, 3>(ebpf, MOVES, slots)
}

/// Removes what is rare of some slots.
pub(super) fn forget_tallies(ebpf: &mut Ebpf, slots: &BTreeSet<u32>) -> Result<(), CountersError> {
    forget::<TallyKey, 2>(ebpf, TALLIES, slots)
}

fn forget<K: RowKey, const N: usize>(
    ebpf: &mut Ebpf,
    name: &'static str,
    slots: &BTreeSet<u32>,
) -> Result<(), CountersError> {
    let map = map_mut(ebpf, name)?;
    let mut hash: PerCpuHashMap<&mut MapData, K, [u64; N]> = map.try_into().map_err(failed(name))?;
    let gone: Vec<K> =
        hash.keys().filter_map(Result::ok).filter(|key| slots.contains(&key.row().0)).collect();
    for key in gone {
        absent_is_fine(hash.remove(&key)).map_err(failed(name))?;
    }
    Ok(())
}

/// The watched cgroups.
pub(super) fn managed(ebpf: &Ebpf) -> Result<BTreeMap<u64, ManagedCgroup>, CountersError> {
    let hash: HashMap<&MapData, u64, ManagedCgroup> =
        map(ebpf, MANAGED)?.try_into().map_err(failed(MANAGED))?;
    hash.iter().map(|entry| entry.map_err(failed(MANAGED))).collect()
}

/// Watches cgroups, or changes how; says how many did not fit. Those that are not `own` are watched because
/// of a cgroup above: one that was removed meanwhile, and so is watched no longer, must not come back.
pub(super) fn watch(
    ebpf: &mut Ebpf,
    entries: &BTreeMap<u64, ManagedCgroup>,
    own: impl Fn(u64) -> bool,
) -> Result<u64, CountersError> {
    let map = map_mut(ebpf, MANAGED)?;
    let mut hash: HashMap<&mut MapData, u64, ManagedCgroup> = map.try_into().map_err(failed(MANAGED))?;
    let mut full = 0;
    for (cgroup, entry) in entries {
        let heir = !own(*cgroup);
        match hash.insert(cgroup, entry, if heir { EXISTING } else { 0 }) {
            Ok(()) => {}
            Err(MapError::SyscallError(call)) if heir && call.io_error.kind() == ErrorKind::NotFound => {}
            Err(MapError::SyscallError(call)) if call.io_error.raw_os_error() == Some(FULL) => full += 1,
            Err(cause) => return Err(failed(MANAGED)(cause)),
        }
    }
    Ok(full)
}

/// `BPF_EXIST`: changes what is there, and adds nothing.
const EXISTING: u64 = 2;

/// `E2BIG` of a hash map that has all its entries.
const FULL: i32 = rustix::io::Errno::TOOBIG.raw_os_error();

/// Watches cgroups no longer.
pub(super) fn unwatch<'a>(
    ebpf: &mut Ebpf,
    cgroups: impl IntoIterator<Item = &'a u64>,
) -> Result<(), CountersError> {
    let map = map_mut(ebpf, MANAGED)?;
    let mut hash: HashMap<&mut MapData, u64, ManagedCgroup> = map.try_into().map_err(failed(MANAGED))?;
    for cgroup in cgroups {
        absent_is_fine(hash.remove(cgroup)).map_err(failed(MANAGED))?;
    }
    Ok(())
}

fn absent_is_fine(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::KeyNotFound) => Ok(()),
        // What aya says of a deletion.
        Err(MapError::SyscallError(error)) if error.io_error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Takes a ring out of `ebpf`, for a reader of its own.
pub(super) fn ring(ebpf: &mut Ebpf, name: &'static str) -> Result<RingBuf<MapData>, CountersError> {
    let map = ebpf.take_map(name).ok_or(CountersError::NoMap(name))?;
    map.try_into().map_err(failed(name))
}

/// Events that were not counted or not told.
pub(super) fn drops(ebpf: &Ebpf, sizes: Sizes) -> Result<Drops, CountersError> {
    let limited = array::<2>(ebpf, SENT, sizes.slots)?;
    let array: PerCpuArray<&MapData, u64> = map(ebpf, DROPS)?.try_into().map_err(failed(DROPS))?;
    let count = |reason: u32| {
        let sum = |counts: aya::maps::PerCpuValues<u64>| counts.iter().copied().fold(0, u64::saturating_add);
        array.get(&reason, 0).map(sum).map_err(failed(DROPS))
    };
    Ok(Drops {
        map_full: count(drop::MOVES)?.saturating_add(count(drop::TALLIES)?),
        unknown_cpu: count(drop::UNKNOWN_CPU)?,
        unknown_cgroup: count(drop::UNKNOWN_CGROUP)?,
        unwatched: count(drop::MANAGED)?,
        events: count(drop::EVENTS)?,
        limited: limited.iter().fold(0, |sum: u64, [_, limited]| sum.saturating_add(*limited)),
        pressure: count(drop::PRESSURE)?,
        pressure_limited: count(drop::PRESSURE_LIMITED)?,
        changes: count(drop::CHANGES)?,
        changes_unread: count(drop::CHANGES_UNREAD)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_word_by_word_and_do_not_wrap() {
        assert_eq!(sum::<2>(&[1, 2, 10, u64::MAX]), [11, u64::MAX]);
        assert_eq!(sum_of(&[[1, 2, 3]; 2]), [2, 4, 6]);
    }

    #[test]
    fn a_key_is_read_as_it_is_laid_out() {
        let mut bytes = 7u32.to_ne_bytes().to_vec();
        bytes.extend(1u16.to_ne_bytes());
        bytes.extend(1023u16.to_ne_bytes());
        assert_eq!(MoveKey::read(&bytes), Some((7, 1, 1023)));
        assert_eq!(TallyKey::read(&bytes), Some((7, 1, 1023)));
        assert_eq!(MoveKey::read(&bytes[..7]), None);
    }

    #[test]
    fn a_key_that_the_kernel_side_removed_first_is_fine_and_nothing_else_is() {
        let refused = |kind: ErrorKind| {
            let (call, io_error) = ("bpf_map_delete_elem", kind.into());
            absent_is_fine(Err(MapError::SyscallError(aya::sys::SyscallError { call, io_error })))
        };
        assert!(refused(ErrorKind::NotFound).is_ok() && absent_is_fine(Err(MapError::KeyNotFound)).is_ok());
        assert!(refused(ErrorKind::PermissionDenied).is_err());
    }
}
