//! The built program from outside: what it prints, writes, serves and returns.
//!
//! One test program for all of it, because each links the whole product statically. Tests run beside each
//! other, so each has folders, sockets and ports of its own. What counts allocations or is put into guests
//! is a program of its own (`widening_allocations`, `kernel_side`).
#![expect(clippy::unwrap_used, reason = "only tests are here")]

mod brake;
mod cases;
mod cluster_check;
mod command_line;
mod common;
mod control;
mod daemon;
mod exec;
mod explain_pod;
mod kubectl;
mod machines;
mod plan;
mod plan_cluster;
mod publish;
mod publish_once;
mod replay;
mod scheduler;
mod scheduler_gate;
mod scheduler_replicas;
mod scheduler_tls;
mod schema;
mod supervisor;
mod tmux;
mod top;
mod upgrade;
