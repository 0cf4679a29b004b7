//! numa-enforcer: the daemon and its command line.
pub mod cli;
pub mod discover;
pub mod host;
pub mod report;
