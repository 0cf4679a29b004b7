//! Page moves of the kernel, with their reasons.
//!
//! `mm_migrate_pages` fires once for a batch, in the thread that moves: one that faults or calls. That is not
//! a thread of the pages' workload if it moves pages of another process. Moves by the daemon are recognized
//! by its process id, so they do not count as the kernel's.

use core::hint::black_box;

use aya_ebpf::programs::BtfTracePointContext;
use enforcer_common::tally::{ELSEWHERE, OWN, what};

use crate::{
    settings::{REASON_ARGUMENT, reason_class},
    tally,
};

/// A batch of pages was moved, as far as possible.
#[inline(always)]
pub fn count(ctx: &BtfTracePointContext) {
    let moved: u64 = ctx.arg(0);
    let failed: u64 = ctx.arg(1);
    // Kept apart, because one load from a computed place of the context is refused by the verifier.
    let reason: u32 = if REASON_ARGUMENT.load() == 7 { black_box(ctx.arg(7)) } else { ctx.arg(6) };
    let class = u16::from(reason_class(reason));
    let slot = if tally::is_own() { OWN } else { tally::slot_of_current().unwrap_or(ELSEWHERE) };
    tally::add(slot, what::PAGES, class, moved, failed);
}
