//! The kubelet's configuration and its answer at `/configz`: any bytes are settings or an error, and settings
//! fit the bounds of the published state.
#![cfg_attr(feature = "libfuzzer", no_main)]

use enforcer_runtime::kubelet::settings::{NoKubelet, effective, parse_configz, parse_document};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = parse_document(bytes);
    if let Ok(read) = parse_configz(bytes) {
        let settings = effective(Err(NoKubelet::Absent), None, Some(&read), None);
        let profile = &settings.profile;
        let texts = [&profile.cpu_policy, &profile.memory_policy, &profile.topology_policy];
        assert!(texts.iter().all(|text| text.chars().count() <= 32));
        assert!(profile.cpu_options.len() <= 16 && profile.topology_options.len() <= 16);
        assert!(settings.inexact.len() <= 16);
        assert!(settings.inexact.iter().all(|one| one.source.chars().count() <= 128));
        assert!(settings.inexact.iter().all(|one| one.reason.chars().count() <= 512));
    }
});

/// libFuzzer brings its own. Without it, a build of the workspace compiles the target and links no fuzzer.
#[cfg(not(feature = "libfuzzer"))]
fn main() {}
