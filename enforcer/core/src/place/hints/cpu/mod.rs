//! CPUs in the engine `hints`: what can be offered, and which are assigned.
//!
//! Problem: a container gets whole CPUs of its own. Which ones decides how much it shares with itself
//! (caches, a node's memory) and with others (a core's threads), and how useful the rest stays. Idea:
//! one allocator ([`packed`]) takes the largest groups that are wholly free and fit, smaller and
//! smaller ones, always from where the least is free; everything else says from which CPUs it may
//! take: those of chosen nodes first ([`near`]), equal parts of several nodes ([`spread`]), those
//! that a container holds already ([`resize`]). [`offer`](offer()) says before that which sets of
//! nodes have enough.
//!
//! Must never give a CPU that is not available, nor more or fewer than asked for, whatever the
//! machine looks like: uneven sockets, cores with offline siblings, sparse ids.

mod assign;
mod error;
mod near;
mod offer;
mod options;
mod packed;
mod resize;
mod shares;
mod spread;
mod stock;
#[cfg(test)]
mod tests;

pub use self::{
    assign::{reserve, take},
    error::CpuError,
    near::{Pick, take_near},
    offer::{CpuStock, offer},
    options::{CpuOptions, CpuOptionsError},
    resize::{grow, retain},
};
