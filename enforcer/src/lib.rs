//! numa-enforcer: the daemon and its command line.
pub mod cli;
pub mod config;
pub mod doctor;
pub mod engine;
pub mod exit;
pub mod log_level;
pub mod pace;
pub mod panics;
pub mod printer;
pub mod record;
pub mod run;
pub mod serve;
pub mod signals;
pub mod supervisor;
pub mod threads;
pub mod version;
pub mod wait;
mod wall_clock;
