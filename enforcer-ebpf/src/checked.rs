//! Reads of kernel memory through pointers.
//!
//! Two kinds of pointers have one interface ([`Memory`]). A [`Tracked`] pointer is a program argument with a
//! type that the verifier knows, or was reached from one: every offset is checked when the program is loaded,
//! a stale pointer reads as 0, and a load costs a quarter of a `bpf_probe_read_kernel`. A [`Probed`] pointer
//! is any address, as kprobes have them: the helper copies with fault handling, and an unreadable value is 0
//! as well.
//!
//! Both are safe to follow anywhere: the first can only be made from a typed argument, and the verifier
//! refuses a program that would load from another place.

use aya_ebpf::{
    helpers::bpf_probe_read_kernel,
    programs::{BtfTracePointContext, FEntryContext, FExitContext},
};

/// Kernel memory with fields to read.
pub trait Memory: Copy {
    /// The pointer at an offset.
    fn follow(self, offset: u32) -> Self;
    /// The 32-bit field at an offset.
    fn half(self, offset: u32) -> u32;
    /// The 64-bit field at an offset.
    fn word(self, offset: u32) -> u64;
    /// Its address.
    fn address(self) -> u64;
}

/// A pointer with a type that the verifier knows.
#[derive(Clone, Copy)]
pub struct Tracked(*const u8);

impl Tracked {
    /// An argument. If it is no pointer the verifier refuses the program that reads through it.
    #[inline(always)]
    pub fn argument(ctx: &impl Typed, index: usize) -> Self {
        Self(ctx.pointer(index))
    }

    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    #[inline(always)]
    fn load<T: Copy>(self, offset: u32) -> T {
        // SAFETY: the verifier tracks the pointer by its type, allows only offsets inside of that, and turns
        // a load that faults into 0. Every value of `T`, a pointer or an integer, is valid.
        unsafe { self.0.add(offset as usize).cast::<T>().read_volatile() }
    }
}

impl Memory for Tracked {
    #[inline(always)]
    fn follow(self, offset: u32) -> Self {
        Self(self.load(offset))
    }

    #[inline(always)]
    fn half(self, offset: u32) -> u32 {
        self.load(offset)
    }

    #[inline(always)]
    fn word(self, offset: u32) -> u64 {
        self.load(offset)
    }

    #[inline(always)]
    fn address(self) -> u64 {
        self.0 as u64
    }
}

/// Any address.
#[derive(Clone, Copy)]
pub struct Probed(pub u64);

impl Probed {
    #[inline(always)]
    fn read<T>(self, offset: u32, otherwise: T) -> T {
        // SAFETY: the helper copies with fault handling; any address is allowed, and any value of `T`, an
        // integer, is valid.
        unsafe { bpf_probe_read_kernel(self.0.wrapping_add(u64::from(offset)) as *const T) }
            .unwrap_or(otherwise)
    }
}

impl Memory for Probed {
    #[inline(always)]
    fn follow(self, offset: u32) -> Self {
        Self(self.word(offset))
    }

    #[inline(always)]
    fn half(self, offset: u32) -> u32 {
        self.read(offset, 0)
    }

    #[inline(always)]
    fn word(self, offset: u32) -> u64 {
        self.read(offset, 0)
    }

    #[inline(always)]
    fn address(self) -> u64 {
        self.0
    }
}

/// Programs with arguments of types that the verifier knows.
pub trait Typed {
    fn pointer(&self, index: usize) -> *const u8;
}

macro_rules! typed {
    ($($context:ty),+) => {$(
        impl Typed for $context {
            #[inline(always)]
            fn pointer(&self, index: usize) -> *const u8 {
                self.arg(index)
            }
        }
    )+};
}

typed!(BtfTracePointContext, FEntryContext, FExitContext);
