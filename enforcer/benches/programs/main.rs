//! What the programs cost: for each event beside bpftrace, and what they slow down.
//!
//! Needs root, two CPUs, bpftrace and hackbench. Without the feature `bpf` there is nothing to measure.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]

#[cfg(feature = "bpf")]
mod bpftrace;
#[cfg(feature = "bpf")]
mod host;
#[cfg(feature = "bpf")]
mod load;
#[cfg(feature = "bpf")]
mod pairs;
#[cfg(feature = "bpf")]
mod slow_down;

#[cfg(not(feature = "bpf"))]
fn main() {
    println!("programs: not measured, bpf is not built in");
}

#[cfg(feature = "bpf")]
fn main() -> anyhow::Result<()> {
    // cargo test runs benches too, to see that they start; it does not pass --bench.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let Some(host) = host::Host::read()? else {
        println!("programs: not measured, this machine has one CPU");
        return Ok(());
    };
    pairs::measure(&host)?;
    slow_down::measure(&host)
}
