//! numa-enforcer: the daemon and its command line.
pub mod host;
