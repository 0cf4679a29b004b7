//! The choice of the compiler for the eBPF programs, on machines that are folders.
#![cfg(feature = "bpf")]
#![expect(clippy::unwrap_used, reason = "a test panics")]

#[path = "../build/compiler.rs"]
#[expect(dead_code, clippy::print_stdout, reason = "the build script alone asks what is installed here")]
mod compiler;

use std::{
    fs,
    path::{Path, PathBuf},
};

use compiler::{Compiler, Installed, choose_among};

const TARGET: &str = "bpfel-unknown-none";

/// Toolchains below a folder of their own.
struct CompilerMachine(tempfile::TempDir);

impl CompilerMachine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A compiler with these files in its sysroot.
    fn compiler(&self, name: &str, files: &[&str]) -> Installed {
        let sysroot = self.0.path().join(name);
        fs::create_dir(&sysroot).unwrap();
        for file in files {
            let file = sysroot.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        Installed { rustc: PathBuf::from(name), sysroot }
    }
}

const CORE: &str = "lib/rustlib/bpfel-unknown-none/lib/libcore-1.rlib";
const HOST_CORE: &str = "lib/rustlib/x86_64-unknown-linux-gnu/lib/libcore-1.rlib";
const SOURCE: &str = "lib/rustlib/src/rust/library/core/src/lib.rs";

fn refusal(installed: Vec<Installed>, nightly: Option<&Path>) -> String {
    choose_among(TARGET, installed, nightly).unwrap_err().to_string()
}

#[test]
fn the_first_compiler_with_a_core_wins() {
    let machine = CompilerMachine::new();
    let installed = vec![
        machine.compiler("stable", &[HOST_CORE]),
        machine.compiler("debian", &[HOST_CORE, CORE]),
        machine.compiler("other", &[CORE]),
    ];
    let nightly = machine.compiler("nightly", &[SOURCE]).sysroot;
    let chosen = choose_among(TARGET, installed, Some(&nightly)).unwrap();
    assert_eq!(chosen, Compiler::WithCore("debian".into()));
}

#[test]
fn a_core_of_the_other_byte_order_does_not_count() {
    let machine = CompilerMachine::new();
    let installed = vec![machine.compiler("debian", &[CORE])];
    assert!(choose_among("bpfeb-unknown-none", installed, None).is_err());
}

#[test]
fn an_empty_library_folder_is_no_core() {
    let machine = CompilerMachine::new();
    let debian = machine.compiler("debian", &[]);
    fs::create_dir_all(debian.sysroot.join(CORE).parent().unwrap()).unwrap();
    assert!(refusal(vec![debian], None).contains("libstd-rust-web-dev-bpf"));
}

#[test]
fn nightly_with_the_source_builds_its_own_core() {
    let machine = CompilerMachine::new();
    let installed = vec![machine.compiler("stable", &[HOST_CORE])];
    let nightly = machine.compiler("nightly", &[HOST_CORE, SOURCE]).sysroot;
    assert_eq!(choose_among(TARGET, installed, Some(&nightly)).unwrap(), Compiler::Nightly);
}

#[test]
fn nightly_without_the_source_is_told_what_it_lacks() {
    let machine = CompilerMachine::new();
    let nightly = machine.compiler("nightly", &[HOST_CORE]).sysroot;
    let text = refusal(Vec::new(), Some(&nightly));
    assert!(text.contains("rustup component add rust-src --toolchain nightly"), "{text}");
    assert!(text.contains(nightly.to_str().unwrap()), "{text}");
}

#[test]
fn a_machine_with_neither_is_told_both_ways() {
    let text = refusal(Vec::new(), None);
    for part in
        [TARGET, "apt-get install rustc-web", "rustup toolchain install nightly", "--no-default-features"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}
