//! What the kernel's own type information (`Documentation/bpf/btf.rst`) says about hooks and structures.
//!
//! Structure offsets, enum values and the number of arguments of hooks differ between kernels, even
//! inside a stable series, so they are asked for here and never derived from a version. libbpf reads and
//! checks the types; here are the questions.
//!
//! Invariant: what is not there is [`Missing`], with its name. Cost: a question by name is a scan over all
//! types (about 150,000), of which a start-up makes some dozen.

use std::{ffi::OsStr, path::Path};

use libbpf_rs::btf::{
    Btf, BtfType, HasSize as _, ReferencesType as _, TypeId,
    types::{Composite, Enum, Func, FuncProto, MemberAttr, Ptr, Typedef},
};
use thiserror::Error;

use super::log;

/// Anonymous structures inside structures are followed this deep.
const MAX_DEPTH: u32 = 8;

/// Something that the kernel's type information does not have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the kernel has no {0}")]
pub struct Missing(pub String);

impl Missing {
    /// How the text begins where it is a tracepoint.
    pub(super) const TRACEPOINT: &str = "the kernel has no tracepoint ";
}

/// The kernel's type information.
pub struct KernelTypes(Btf<'static>);

impl KernelTypes {
    /// Reads `/sys/kernel/btf/vmlinux` or another file of that format.
    pub fn read(path: &Path) -> Result<Self, libbpf_rs::Error> {
        log::libbpf_to_tracing();
        Btf::from_path(path).map(Self)
    }

    /// Offset in bytes of a field that is reached through embedded structures:
    /// `offset("task_struct", &["thread_info", "cpu"])`.
    pub fn offset(&self, structure: &str, path: &[&str]) -> Result<u32, Missing> {
        let missing = || Missing(format!("field {structure}.{}", path.join(".")));
        let mut inside: Composite<'_> = self.named(structure).ok_or_else(missing)?;
        let mut bits = 0u32;
        for (depth, name) in path.iter().enumerate() {
            let (offset, of) = self.member(&inside, name, MAX_DEPTH).ok_or_else(missing)?;
            bits = bits.checked_add(offset).ok_or_else(missing)?;
            if depth + 1 < path.len() {
                inside = self.0.type_by_id(of).ok_or_else(missing)?;
            }
        }
        if bits.is_multiple_of(8) { Ok(bits / 8) } else { Err(missing()) }
    }

    /// Bytes of a structure that has a name of its own (`typedef struct { .. } nodemask_t`).
    pub fn size(&self, typedef: &str) -> Result<u32, Missing> {
        self.named::<Typedef<'_>>(typedef)
            .and_then(|one| self.0.type_by_id::<Composite<'_>>(one.referenced_type_id()))
            .and_then(|structure| u32::try_from(structure.size()).ok())
            .ok_or_else(|| Missing(format!("type {typedef}")))
    }

    /// Value of an enumerator.
    pub fn enumerator(&self, enumeration: &str, name: &str) -> Result<u32, Missing> {
        self.named::<Enum<'_>>(enumeration)
            .and_then(|one| {
                let mut members = one.iter();
                members.find(|member| member.name == Some(OsStr::new(name))).map(|member| member.value)
            })
            .and_then(|value| u32::try_from(value).ok())
            .ok_or_else(|| Missing(format!("enumerator {enumeration}.{name}")))
    }

    /// Number of arguments of a function.
    pub fn function_arity(&self, name: &str) -> Result<usize, Missing> {
        self.named::<Func<'_>>(name)
            .and_then(|one| self.0.type_by_id::<FuncProto<'_>>(one.referenced_type_id()))
            .map(|prototype| prototype.len())
            .ok_or_else(|| Missing(format!("function {name}")))
    }

    /// Number of arguments of a tracepoint, without the context that the kernel puts in front.
    pub fn tracepoint_arity(&self, name: &str) -> Result<usize, Missing> {
        self.tracepoint(name)
            .and_then(|prototype| prototype.len().checked_sub(1))
            .ok_or_else(|| Missing(format!("tracepoint {name}")))
    }

    /// Is an argument of a tracepoint a pointer? The context in front is not counted.
    pub fn tracepoint_takes_pointer(&self, name: &str, argument: usize) -> Result<bool, Missing> {
        self.tracepoint(name)
            .and_then(|prototype| prototype.get(argument + 1))
            .map(|argument| self.0.type_by_id::<Ptr<'_>>(argument.ty).is_some())
            .ok_or_else(|| Missing(format!("argument {argument} of tracepoint {name}")))
    }

    /// The prototype of a tracepoint's probes.
    fn tracepoint(&self, name: &str) -> Option<FuncProto<'_>> {
        let named: Typedef<'_> = self.named(&format!("btf_trace_{name}"))?;
        let pointer: Ptr<'_> = self.0.type_by_id(named.referenced_type_id())?;
        self.0.type_by_id(pointer.referenced_type_id())
    }

    /// The first type of this name and kind.
    fn named<'types, Kind: TryFrom<BtfType<'types>>>(&'types self, name: &str) -> Option<Kind> {
        let first: BtfType<'_> = self.0.type_by_name(name)?;
        // Types of several kinds may have the same name.
        Kind::try_from(first).ok().or_else(|| {
            let all = self.0.type_by_kind::<BtfType<'_>>();
            let mut named = all.filter(|one| one.name() == Some(OsStr::new(name)));
            named.find_map(|one| Kind::try_from(one).ok())
        })
    }

    /// Offset in bits and type of a member, also of one inside an anonymous structure or union.
    fn member(&self, inside: &Composite<'_>, name: &str, depth: u32) -> Option<(u32, TypeId)> {
        inside.iter().find_map(|member| {
            let (MemberAttr::Normal { offset } | MemberAttr::BitField { offset, .. }) = member.attr;
            match member.name {
                Some(found) if found == OsStr::new(name) => Some((offset, member.ty)),
                None if depth > 0 => {
                    let (inner, of) = self.member(&self.0.type_by_id(member.ty)?, name, depth - 1)?;
                    Some((offset.checked_add(inner)?, of))
                }
                _ => None,
            }
        })
    }
}

#[cfg(test)]
mod tests;
