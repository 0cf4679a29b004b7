//! CPUs in the engine `hints`: what can be offered, and which are assigned.

mod assign;
mod options;

pub use self::{
    assign::{CpuError, take},
    options::CpuOptions,
};
