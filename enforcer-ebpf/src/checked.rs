//! Reads what a pointer of the kernel points to.
//!
//! Two kinds of pointers, one way to follow them ([`Memory`]). A [`Tracked`] one is an argument of a program
//! whose arguments the verifier knows by type, or was reached from one: every offset is checked when the
//! program is loaded, a pointer that is stale reads as 0, and a load costs a quarter of a
//! `bpf_probe_read_kernel`. A [`Probed`] one is any address, as kprobes have them: the helper copies with
//! fault handling, and what cannot be read is 0 as well.
//!
//! Both are safe to follow anywhere: the first cannot be made from an address, only from a typed argument,
//! and a program that would load elsewhere is refused.

use aya_ebpf::{
    helpers::bpf_probe_read_kernel,
    programs::{BtfTracePointContext, FEntryContext, FExitContext},
};

/// Memory of the kernel that fields are read of.
pub trait Memory: Copy {
    /// What the pointer at an offset points to.
    fn follow(self, offset: u32) -> Self;
    /// The 32-bit field at an offset.
    fn half(self, offset: u32) -> u32;
    /// The 64-bit field at an offset.
    fn word(self, offset: u32) -> u64;
    /// Where it is.
    fn address(self) -> u64;
}

/// A pointer whose type the verifier knows.
#[derive(Clone, Copy)]
pub struct Tracked(*const u8);

impl Tracked {
    /// An argument. Where it is no pointer the verifier refuses the program that reads through it.
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

/// Programs whose arguments the verifier knows by type.
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
