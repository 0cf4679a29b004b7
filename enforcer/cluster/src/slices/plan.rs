//! Which calls bring the stored slices to the wanted ones.
//!
//! Schedulers take the slices of the highest generation, and only if there are as many as each of them says.
//! So a change of one slice is one call, and a change of several needs a new generation in all of them.

use enforcer_core::dra::slice::{ResourceSlice, difference};

/// A slice as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredSlice {
    pub(super) name: String,
    pub(super) uid: String,
    /// Its resource version.
    pub(super) version: String,
    /// `None` if it is not as this driver writes it.
    pub(super) slice: Option<ResourceSlice>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SliceWrite<'a> {
    /// A slice that is stored is not needed.
    Delete(&'a StoredSlice),
    /// A stored slice becomes this one.
    Replace(&'a StoredSlice, ResourceSlice),
    /// This slice is stored, under a name with its position in the pool.
    Create(usize, ResourceSlice),
}

/// The calls in their order; none if all is as `wanted`, which makes the slices of a generation.
pub(super) fn writes(
    stored: &[StoredSlice],
    wanted: impl Fn(u64) -> Vec<ResourceSlice>,
) -> Vec<SliceWrite<'_>> {
    let generations = stored.iter().filter_map(|stored| Some(stored.slice.as_ref()?.generation));
    let newest = generations.max().unwrap_or(1);
    let calls = writes_of(stored, wanted(newest));
    let is_new = stored.iter().all(|stored| stored.slice.is_none());
    if calls.len() < 2 || is_new { calls } else { writes_of(stored, wanted(newest.saturating_add(1))) }
}

fn writes_of(stored: &[StoredSlice], wanted: Vec<ResourceSlice>) -> Vec<SliceWrite<'_>> {
    let mut free: Vec<&StoredSlice> = stored.iter().collect();
    let mut open = Vec::new();
    for (at, slice) in wanted.into_iter().enumerate() {
        let is_it = |stored: &&StoredSlice| {
            let known = stored.slice.as_ref();
            known.is_some_and(|known| {
                known.generation == slice.generation && difference(&slice, known).is_none()
            })
        };
        match free.iter().position(is_it) {
            Some(found) => drop(free.remove(found)),
            None => open.push((at, slice)),
        }
    }
    // The node is an immutable field, so a slice that this driver cannot read is not replaced.
    let (mut usable, useless): (Vec<_>, Vec<_>) = free.into_iter().partition(|stored| stored.slice.is_some());
    let surplus = usable.split_off(open.len().min(usable.len()));
    let mut calls: Vec<SliceWrite<'_>> = useless.into_iter().chain(surplus).map(SliceWrite::Delete).collect();
    let mut usable = usable.into_iter();
    calls.extend(open.into_iter().map(|(at, slice)| match usable.next() {
        Some(stored) => SliceWrite::Replace(stored, slice),
        None => SliceWrite::Create(at, slice),
    }));
    calls
}

#[cfg(test)]
mod tests {
    use enforcer_core::dra::slice::SliceDevice;

    use super::*;

    fn slice(device: &str, (generation, slice_count): (u64, u64)) -> ResourceSlice {
        ResourceSlice {
            driver: "d".into(),
            node: "n".into(),
            node_uid: "u".into(),
            generation,
            slice_count,
            devices: vec![SliceDevice { name: device.into(), ..SliceDevice::default() }],
        }
    }

    fn stored(name: &str, slice: Option<ResourceSlice>) -> StoredSlice {
        StoredSlice { name: name.into(), uid: format!("uid-{name}"), version: "1".into(), slice }
    }

    /// Words of the calls that make these devices, a slice each.
    fn calls(has: &[StoredSlice], devices: &[&str]) -> Vec<String> {
        let count = devices.len() as u64;
        let wanted =
            |generation| devices.iter().map(|device| slice(device, (generation, count))).collect::<Vec<_>>();
        let name = |slice: &ResourceSlice| format!("{} of {}", slice.devices[0].name, slice.generation);
        let word = |call: &SliceWrite<'_>| match call {
            SliceWrite::Delete(stored) => format!("-{}", stored.name),
            SliceWrite::Replace(stored, slice) => format!("{}={}", stored.name, name(slice)),
            SliceWrite::Create(at, slice) => format!("+{at} {}", name(slice)),
        };
        writes(has, wanted).iter().map(word).collect()
    }

    #[test]
    fn one_call_keeps_the_generation_and_several_need_a_new_one() {
        let one = |generation| stored("s", Some(slice("a", (generation, 1))));
        assert_eq!(calls(&[], &["a"]), ["+0 a of 1"]);
        assert_eq!(calls(&[], &["a", "b"]), ["+0 a of 1", "+1 b of 1"]);
        assert_eq!(calls(&[one(7)], &["a"]), Vec::<String>::new());
        assert_eq!(calls(&[one(7)], &["b"]), ["s=b of 7"]);
        assert_eq!(calls(&[one(7)], &["a", "b"]), ["s=a of 8", "+1 b of 8"]);
        let two = [stored("s", Some(slice("a", (2, 2)))), stored("t", Some(slice("b", (2, 2))))];
        assert_eq!(calls(&two, &["a", "b"]), Vec::<String>::new());
        assert_eq!(calls(&two, &["a", "c"]), ["t=c of 2"]);
        assert_eq!(calls(&two, &["a"]), ["-t", "s=a of 3"]);
    }

    #[test]
    fn what_is_too_much_or_cannot_be_read_goes() {
        let broken = stored("x", None);
        assert_eq!(calls(std::slice::from_ref(&broken), &["a"]), ["-x", "+0 a of 1"]);
        let twice = [stored("s", Some(slice("a", (3, 1)))), stored("t", Some(slice("a", (3, 1))))];
        assert_eq!(calls(&twice, &["a"]), ["-t"]);
        let half_written = [stored("s", Some(slice("a", (3, 2)))), stored("t", Some(slice("b", (2, 2))))];
        assert_eq!(calls(&half_written, &["a", "b"]), ["t=b of 3"]);
    }
}
