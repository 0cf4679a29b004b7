//! A thin reader of the kernel's own type information (`Documentation/bpf/btf.rst`).
//!
//! Structure offsets, enum values and the number of arguments of hooks differ between kernels, even
//! inside a stable series, so they are asked for here and never derived from a version. aya parses
//! BTF too, but answers none of these questions.
//!
//! The text is the kernel's, yet every offset in it is checked: garbage gives an error or `None`,
//! never a panic or an endless walk. One pass finds where each type starts; a query by name is a scan
//! over all types (about 150,000), of which a start-up makes a dozen.

use thiserror::Error;

use super::bytes::{u16_at, u32_at};

/// Anonymous structures inside structures are followed this deep.
const MAX_DEPTH: u32 = 8;
const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
const TYPE: usize = 12;
const MEMBER: usize = 12;
const ENUMERATOR: usize = 8;
const PARAMETER: usize = 8;

const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_ENUM64: u32 = 19;

/// Why a text is not BTF.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BtfError {
    /// The first bytes are not those of BTF in this machine's byte order.
    #[error("no BTF header")]
    NoHeader,
    /// A section or a type reaches past the end.
    #[error("BTF is cut off at byte {0}")]
    CutOff(usize),
    /// A kind that this reader does not know, so that the rest cannot be found.
    #[error("type {id} has the unknown kind {kind}")]
    UnknownKind {
        /// Number of the type.
        id: usize,
        /// Its kind.
        kind: u32,
    },
}

/// Something that the kernel's type information does not have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the kernel has no {0}")]
pub struct Missing(pub String);

impl Missing {
    /// How the text begins where it is a tracepoint.
    pub(super) const TRACEPOINT: &str = "the kernel has no tracepoint ";
}

/// The kernel's type information.
pub struct KernelTypes {
    bytes: Vec<u8>,
    /// Where the type with id `index + 1` starts.
    starts: Vec<usize>,
    strings: std::ops::Range<usize>,
}

/// The fixed part of one type.
#[derive(Clone, Copy)]
struct Type {
    start: usize,
    name: usize,
    info: u32,
    /// Size, or id of the type that this one is about.
    target: u32,
}

impl Type {
    fn kind(self) -> u32 {
        self.info >> 24 & 0x1f
    }

    fn len(self) -> usize {
        (self.info & 0xffff) as usize
    }

    fn kind_flag(self) -> bool {
        self.info >> 31 == 1
    }
}

impl KernelTypes {
    /// Reads `/sys/kernel/btf/vmlinux` or another file of that format.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, BtfError> {
        if u16_at(&bytes, 0) != Some(MAGIC) || bytes.len() < HEADER {
            return Err(BtfError::NoHeader);
        }
        let field = |at| word(&bytes, at).ok_or(BtfError::CutOff(bytes.len()));
        let header = field(4)?;
        let section = |offset: usize, len: usize| {
            let start = header.checked_add(offset)?;
            let end = start.checked_add(len)?;
            (end <= bytes.len()).then_some(start..end)
        };
        let cut_off = || BtfError::CutOff(bytes.len());
        let types = section(field(8)?, field(12)?).ok_or_else(cut_off)?;
        let strings = section(field(16)?, field(20)?).ok_or_else(cut_off)?;
        let mut starts = Vec::new();
        let mut at = types.start;
        while at < types.end {
            let one = read_type(&bytes, at).ok_or(BtfError::CutOff(at))?;
            let extra =
                extra_len(one).ok_or(BtfError::UnknownKind { id: starts.len() + 1, kind: one.kind() })?;
            starts.push(at);
            at += TYPE + extra;
        }
        if at != types.end {
            return Err(BtfError::CutOff(at));
        }
        Ok(Self { bytes, starts, strings })
    }

    /// Offset in bytes of a field that is reached through embedded structures:
    /// `offset("task_struct", &["thread_info", "cpu"])`.
    pub fn offset(&self, structure: &str, path: &[&str]) -> Result<u32, Missing> {
        let missing = || Missing(format!("field {structure}.{}", path.join(".")));
        let mut inside = self
            .named(KIND_STRUCT, structure)
            .or_else(|| self.named(KIND_UNION, structure))
            .ok_or_else(missing)?;
        let mut bits = 0u32;
        for (depth, name) in path.iter().enumerate() {
            let (offset, of) = self.member(inside, name, MAX_DEPTH).ok_or_else(missing)?;
            bits = bits.checked_add(offset).ok_or_else(missing)?;
            if depth + 1 < path.len() {
                inside = self.structure(of).ok_or_else(missing)?;
            }
        }
        if bits.is_multiple_of(8) { Ok(bits / 8) } else { Err(missing()) }
    }

    /// Bytes of a structure that has a name of its own (`typedef struct { .. } nodemask_t`).
    pub fn size(&self, typedef: &str) -> Result<u32, Missing> {
        self.named(KIND_TYPEDEF, typedef)
            .and_then(|one| self.structure(one.target))
            .map(|structure| structure.target)
            .ok_or_else(|| Missing(format!("type {typedef}")))
    }

    /// Value of an enumerator.
    pub fn enumerator(&self, enumeration: &str, name: &str) -> Result<u32, Missing> {
        self.named(KIND_ENUM, enumeration)
            .and_then(|one| {
                (0..one.len()).find_map(|index| {
                    let at = one.start + TYPE + index * ENUMERATOR;
                    self.is_named(word(&self.bytes, at)?, name).then(|| u32_at(&self.bytes, at + 4))?
                })
            })
            .ok_or_else(|| Missing(format!("enumerator {enumeration}.{name}")))
    }

    /// Number of arguments of a function.
    pub fn function_arity(&self, name: &str) -> Result<usize, Missing> {
        self.named(KIND_FUNC, name)
            .and_then(|one| self.prototype_len(one.target))
            .ok_or_else(|| Missing(format!("function {name}")))
    }

    /// Number of arguments of a tracepoint, without the context that the kernel puts in front.
    pub fn tracepoint_arity(&self, name: &str) -> Result<usize, Missing> {
        self.named(KIND_TYPEDEF, &format!("btf_trace_{name}"))
            .and_then(|one| self.of_kind(one.target, KIND_PTR))
            .and_then(|pointer| self.prototype_len(pointer.target))
            .and_then(|len| len.checked_sub(1))
            .ok_or_else(|| Missing(format!("tracepoint {name}")))
    }

    /// Is an argument of a tracepoint a pointer? The context in front is not counted.
    pub fn tracepoint_takes_pointer(&self, name: &str, argument: usize) -> Result<bool, Missing> {
        self.named(KIND_TYPEDEF, &format!("btf_trace_{name}"))
            .and_then(|one| self.of_kind(one.target, KIND_PTR))
            .and_then(|pointer| self.of_kind(pointer.target, KIND_FUNC_PROTO))
            .filter(|prototype| argument + 1 < prototype.len())
            .and_then(|prototype| {
                u32_at(&self.bytes, prototype.start + TYPE + (argument + 1) * PARAMETER + 4)
            })
            .map(|of| self.of_kind(of, KIND_PTR).is_some())
            .ok_or_else(|| Missing(format!("argument {argument} of tracepoint {name}")))
    }

    fn prototype_len(&self, id: u32) -> Option<usize> {
        self.of_kind(id, KIND_FUNC_PROTO).map(Type::len)
    }

    fn by_id(&self, id: u32) -> Option<Type> {
        let index = (id as usize).checked_sub(1)?;
        read_type(&self.bytes, *self.starts.get(index)?)
    }

    fn of_kind(&self, id: u32, kind: u32) -> Option<Type> {
        self.by_id(id).filter(|one| one.kind() == kind)
    }

    fn structure(&self, id: u32) -> Option<Type> {
        self.by_id(id).filter(|one| matches!(one.kind(), KIND_STRUCT | KIND_UNION))
    }

    fn named(&self, kind: u32, name: &str) -> Option<Type> {
        self.starts
            .iter()
            .filter_map(|&start| read_type(&self.bytes, start))
            .find(|one| one.kind() == kind && self.is_named(one.name, name))
    }

    /// Offset in bits and type of a member, also of one inside an anonymous structure or union.
    fn member(&self, inside: Type, name: &str, depth: u32) -> Option<(u32, u32)> {
        (0..inside.len()).find_map(|index| {
            let at = inside.start + TYPE + index * MEMBER;
            let name_at = word(&self.bytes, at)?;
            let of = u32_at(&self.bytes, at + 4)?;
            let offset = u32_at(&self.bytes, at + 8)?;
            let offset = if inside.kind_flag() { offset & 0x00ff_ffff } else { offset };
            if self.is_named(name_at, name) {
                return Some((offset, of));
            }
            if !self.is_named(name_at, "") || depth == 0 {
                return None;
            }
            let (inner, of) = self.member(self.structure(of)?, name, depth - 1)?;
            Some((offset.checked_add(inner)?, of))
        })
    }

    /// Is the string at `offset` exactly this name?
    fn is_named(&self, offset: usize, name: &str) -> bool {
        let strings = self.bytes.get(self.strings.clone()).unwrap_or_default();
        let found = strings.get(offset..).unwrap_or_default();
        found.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// Bytes behind the fixed part of a type; `None` for an unknown kind.
fn extra_len(one: Type) -> Option<usize> {
    Some(match one.kind() {
        KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
        KIND_ARRAY => 12,
        KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => one.len() * 12,
        KIND_ENUM | KIND_FUNC_PROTO => one.len() * 8,
        // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

fn read_type(bytes: &[u8], start: usize) -> Option<Type> {
    Some(Type {
        start,
        name: word(bytes, start)?,
        info: u32_at(bytes, start + 4)?,
        target: u32_at(bytes, start + 8)?,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    u32_at(bytes, at).and_then(|value| value.try_into().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A small BTF writer: types are appended, names are interned.
    struct Writer {
        types: Vec<u8>,
        strings: Vec<u8>,
    }

    impl Writer {
        fn new() -> Self {
            Self { types: Vec::new(), strings: vec![0] }
        }

        fn name(&mut self, name: &str) -> u32 {
            if name.is_empty() {
                return 0;
            }
            let at = u32::try_from(self.strings.len()).unwrap();
            self.strings.extend(name.bytes().chain([0]));
            at
        }

        fn add(&mut self, kind: u32, name: &str, target: u32, vlen: u32, extra: &[u32]) -> &mut Self {
            let name = self.name(name);
            for value in [name, kind << 24 | vlen, target].iter().chain(extra) {
                self.types.extend(value.to_ne_bytes());
            }
            self
        }

        fn bytes(&self) -> Vec<u8> {
            let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
            let mut out = Vec::new();
            out.extend(MAGIC.to_ne_bytes());
            out.extend([1, 0]);
            for value in [24, 0, len(&self.types), len(&self.types), len(&self.strings)] {
                out.extend(value.to_ne_bytes());
            }
            out.extend(&self.types);
            out.extend(&self.strings);
            out
        }
    }

    fn sample() -> Vec<u8> {
        let mut writer = Writer::new();
        let [cpu, id, info] = ["cpu", "cpuset_cgrp_id", "info"].map(|name| writer.name(name));
        writer
            .add(KIND_INT, "unsigned int", 4, 0, &[32])
            .add(KIND_STRUCT, "thread_info", 24, 1, &[cpu, 1, 160])
            // 3: an anonymous structure that embeds thread_info at byte 8
            .add(KIND_STRUCT, "", 64, 1, &[info, 2, 64])
            .add(KIND_STRUCT, "task_struct", 4096, 1, &[0, 3, 128])
            .add(KIND_ENUM, "cgroup_subsys_id", 4, 1, &[id, 7])
            // 6: (context, int, pointer)
            .add(KIND_FUNC_PROTO, "", 0, 3, &[0, 1, 0, 1, 0, 7])
            .add(KIND_PTR, "", 6, 0, &[])
            .add(KIND_TYPEDEF, "btf_trace_sched_migrate_task", 7, 0, &[])
            .add(KIND_FUNC, "task_numa_fault", 6, 0, &[])
            .add(KIND_TYPEDEF, "nodemask_t", 3, 0, &[]);
        writer.bytes()
    }

    #[test]
    fn finds_fields_through_anonymous_structures() {
        let types = KernelTypes::parse(sample()).unwrap();
        assert_eq!(types.offset("task_struct", &["info"]), Ok(16 + 8));
        assert_eq!(types.offset("task_struct", &["info", "cpu"]), Ok(16 + 8 + 20));
        assert_eq!(
            types.offset("task_struct", &["cpu"]),
            Err(Missing("field task_struct.cpu".into())),
            "a named structure is not searched"
        );
    }

    #[test]
    fn finds_enumerators_and_arities() {
        let types = KernelTypes::parse(sample()).unwrap();
        assert_eq!(types.enumerator("cgroup_subsys_id", "cpuset_cgrp_id"), Ok(7));
        assert_eq!(types.tracepoint_arity("sched_migrate_task"), Ok(2));
        assert_eq!(types.function_arity("task_numa_fault"), Ok(3));
        let takes_pointer = |argument| types.tracepoint_takes_pointer("sched_migrate_task", argument).ok();
        assert_eq!([0, 1, 2].map(takes_pointer), [Some(false), Some(true), None]);
        assert_eq!(types.size("nodemask_t"), Ok(64));
        assert_eq!(types.size("btf_trace_sched_migrate_task").ok(), None, "a pointer");
        assert_eq!(types.function_arity("no_such"), Err(Missing("function no_such".into())));
    }

    #[test]
    fn a_structure_that_contains_itself_ends() {
        let mut writer = Writer::new();
        writer.add(KIND_STRUCT, "loop", 8, 1, &[0, 1, 0]);
        let types = KernelTypes::parse(writer.bytes()).unwrap();
        assert!(types.offset("loop", &["x"]).is_err());
    }

    #[test]
    fn refuses_what_is_not_btf() {
        assert_eq!(KernelTypes::parse(Vec::new()).err(), Some(BtfError::NoHeader));
        assert_eq!(KernelTypes::parse(b"\x7fELF".repeat(10)).err(), Some(BtfError::NoHeader));
        let mut writer = Writer::new();
        writer.add(31, "future", 0, 0, &[]);
        assert_eq!(KernelTypes::parse(writer.bytes()).err(), Some(BtfError::UnknownKind { id: 1, kind: 31 }));
    }

    #[test]
    fn reads_the_running_kernel() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            println!("skipped: this kernel has no /sys/kernel/btf/vmlinux");
            return;
        };
        let types = KernelTypes::parse(bytes).unwrap();
        assert_eq!(types.tracepoint_arity("sched_migrate_task"), Ok(2));
        assert_eq!(types.offset("list_head", &["prev"]), Ok(8));
    }

    fn ask_everything(types: &KernelTypes) {
        let _ = types.offset("task_struct", &["info", "cpu"]);
        let _ = types.enumerator("cgroup_subsys_id", "cpuset_cgrp_id");
        let _ = types.function_arity("task_numa_fault");
        let _ = types.tracepoint_arity("sched_migrate_task");
        let _ = types.size("nodemask_t");
        let _ = types.tracepoint_takes_pointer("sched_migrate_task", 1);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(at in 0usize..400, garbage in proptest::collection::vec(any::<u8>(), 1..24), cut in 0usize..500) {
            let mut bytes = sample();
            let len = bytes.len();
            for (offset, byte) in garbage.into_iter().enumerate() {
                bytes[(at + offset) % len] = byte;
            }
            bytes.truncate(cut.max(1));
            if let Ok(types) = KernelTypes::parse(bytes) {
                ask_everything(&types);
            }
        }
    }
}
