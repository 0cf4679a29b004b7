//! numa-enforcer: the daemon and its command line.
pub mod cli;
pub mod config;
pub mod discover;
pub mod doctor;
pub mod enforce;
pub mod engine;
pub mod host;
pub mod kernel;
pub mod log_level;
pub mod observe;
pub mod privileges;
pub mod report;
pub mod run;
pub mod serve;
pub mod signals;
pub mod supervisor;
pub mod wait;
