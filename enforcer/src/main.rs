//! The program `numa-enforcer`. Everything is in the library; this hands over the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    enforcer::panics::abort_the_process();
    enforcer::cli::main(std::env::args_os())
}
