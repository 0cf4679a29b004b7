//! Scenarios: what the product must do on a whole machine, told as programs.
//!
//! A scenario runs as root inside a virtual machine with the topology that it names. It creates cgroups,
//! starts processes, runs the product as a user would, and checks the result in three places: `/proc` and
//! `/sys`, read by the scenario itself; the product's JSON; the product's metrics. It does not check log
//! text, which is free to change.
//!
//! Every scenario has a control that would fail without the feature: an aligned twin that must not
//! be reported, a daemon in observe mode that must not correct. A scenario that passes with the product
//! absent tests nothing.
//!
//! Nothing here links to the product: it is a client, and reads what the product publishes.
#![expect(clippy::print_stdout, reason = "a scenario's lines on standard output are its result")]

pub mod api;
pub mod cgroup;
pub mod check;
pub mod cluster;
pub mod containerd;
pub mod cri;
pub mod dra;
pub mod go_between;
pub mod grpc;
pub mod hog;
pub mod http;
pub mod ids;
pub mod kubelet;
pub mod layers;
pub mod measure;
pub mod memory;
pub mod preset;
pub mod process;
pub mod product;
pub mod refuser;
pub mod rights;
pub mod scenarios;
pub mod scraper;
pub mod server;
pub mod systemd;
pub mod topology;
pub mod touch;
pub mod unsolicited;
pub mod wait;
