//! Reads many elements of a BPF map with one system call.
//!
//! A map of thousands of keys takes a system call for each of them otherwise: 10 to 16 times as long. aya
//! has no batch calls, so this is `bpf(2)` with `BPF_MAP_LOOKUP_BATCH` (kernel/bpf/syscall.c,
//! `bpf_map_do_batch`). Kernels before 5.6, and per-CPU arrays before 5.15, have none: then
//! [`MapBatch::read`] says so, and the caller reads key by key.
//!
//! How large a key and a value are is asked of the kernel, never taken from the caller: it is the kernel
//! that writes them.
#![expect(unsafe_code, reason = "glibc has no wrapper for bpf(2)")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// Commands of bpf(2) (include/uapi/linux/bpf.h).
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_MAP_LOOKUP_BATCH: libc::c_int = 24;

/// Elements that are asked for in one call at first.
const ELEMENTS: usize = 512;
/// Elements that are asked for at most: no bucket of a hash map is that full.
const MOST_ELEMENTS: usize = 1 << 16;
/// Position of a batch: a key of an array, a bucket of a hash map; 8 bytes are enough for both.
type Position = [u8; 8];

/// A map with values per CPU, and the sizes that the kernel reports.
pub struct MapBatch<'a> {
    map: BorrowedFd<'a>,
    key_bytes: usize,
    /// 64-bit words of one CPU's value.
    value_words: usize,
    cpus: usize,
}

/// The start of `struct bpf_map_info`.
#[repr(C)]
#[derive(Default)]
struct MapInfo {
    kind: u32,
    id: u32,
    key_bytes: u32,
    value_bytes: u32,
    most_entries: u32,
    flags: u32,
}

/// Bytes of [`MapInfo`].
const INFO_BYTES: u32 = 24;
const _: () = assert!(size_of::<MapInfo>() == INFO_BYTES as usize);

/// The part of `union bpf_attr` that `BPF_OBJ_GET_INFO_BY_FD` takes.
#[repr(C)]
struct InfoAttributes {
    map: u32,
    length: u32,
    info: u64,
}

/// The part of `union bpf_attr` that the batch commands take.
#[repr(C)]
struct BatchAttributes {
    from: u64,
    next: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

impl<'a> MapBatch<'a> {
    /// A per-CPU map of a machine with `cpus` possible CPUs; refuses values that are not whole words.
    pub fn new(map: BorrowedFd<'a>, cpus: usize) -> io::Result<Self> {
        let mut info = MapInfo::default();
        let mut attributes = InfoAttributes {
            map: map.as_raw_fd().cast_unsigned(),
            length: INFO_BYTES,
            info: (&raw mut info).expose_provenance() as u64,
        };
        // SAFETY: `attributes` and the `info` that it names are live for the whole call and as large as
        // they say; the kernel writes at most `length` bytes.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_OBJ_GET_INFO_BY_FD,
                &raw mut attributes,
                size_of::<InfoAttributes>(),
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let (key_bytes, value_bytes) = (info.key_bytes as usize, info.value_bytes as usize);
        if cpus == 0 || key_bytes == 0 || key_bytes > size_of::<Position>() || value_bytes == 0 {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Ok(Self { map, key_bytes, value_words: value_bytes.div_ceil(size_of::<u64>()), cpus })
    }

    /// Calls `each` with every key and the values of all CPUs, one after another; at most `most` elements
    /// are read. An element that comes or goes meanwhile may be missing or come twice.
    pub fn read(&self, most: usize, mut each: impl FnMut(&[u8], &[u64])) -> io::Result<()> {
        let row = self.value_words * self.cpus;
        let mut elements = ELEMENTS.min(most).max(1);
        let mut keys = vec![0u8; elements * self.key_bytes];
        let mut values = vec![0u64; elements * row];
        let mut position: Option<Position> = None;
        let mut seen = 0;
        while seen < most {
            let mut next = Position::default();
            match self.lookup(position.as_ref(), &mut next, &mut keys, &mut values) {
                Ok((count, end)) => {
                    for (key, value) in keys.chunks(self.key_bytes).zip(values.chunks(row)).take(count) {
                        each(key, value);
                    }
                    seen += count;
                    if end || count == 0 {
                        break;
                    }
                    position = Some(next);
                }
                // A bucket has more elements than there is room for.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && elements < MOST_ELEMENTS => {
                    elements *= 2;
                    keys.resize(elements * self.key_bytes, 0);
                    values.resize(elements * row, 0);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// One batch: how many elements it has, and whether it is the last.
    fn lookup(
        &self,
        from: Option<&Position>,
        next: &mut Position,
        keys: &mut [u8],
        values: &mut [u64],
    ) -> io::Result<(usize, bool)> {
        let count = (keys.len() / self.key_bytes).min(values.len() / (self.value_words * self.cpus));
        let mut attributes = BatchAttributes {
            from: from.map_or(0, |position| position.as_ptr().expose_provenance() as u64),
            next: next.as_mut_ptr().expose_provenance() as u64,
            keys: keys.as_mut_ptr().expose_provenance() as u64,
            values: values.as_mut_ptr().expose_provenance() as u64,
            count: u32::try_from(count).unwrap_or(u32::MAX),
            map: self.map.as_raw_fd().cast_unsigned(),
            element_flags: 0,
            flags: 0,
        };
        // SAFETY: everything that `attributes` names is live for the whole call. The kernel writes at most
        // `count` keys of `key_bytes` and `count` values of `value_words` for each possible CPU, sizes
        // that it told itself, and at most 8 bytes of position: a `u32` for hash maps, a key otherwise.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_MAP_LOOKUP_BATCH,
                &raw mut attributes,
                size_of::<BatchAttributes>(),
            )
        };
        let read = (attributes.count as usize).min(count);
        if result == 0 {
            return Ok((read, false));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::ENOENT) { Ok((read, true)) } else { Err(error) }
    }
}
