//! Objects of Dynamic Resource Allocation: claims and slices as an API server gives them, for the driver and
//! for plans, and the state file of prepared claims. Any text gives a value or an error; what is read of a
//! state file is written as it was.
#![cfg_attr(feature = "libfuzzer", no_main)]

use enforcer_core::{
    cluster::device_claims::{ClaimBook, DeviceObjects},
    dra::{ClaimAllocation, ClaimContext, ClaimLedger, DRIVER, MissingAmounts, slice::ResourceSlice},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(ledger) = ClaimLedger::from_text(text, "n1", "boot") {
        let again = ClaimLedger::from_text(&ledger.to_text(), "n1", "boot");
        assert_eq!(again, Ok(ledger));
    }
    let Ok(object) = serde_json::from_str(text) else { return };
    let context =
        ClaimContext { driver: DRIVER, pool: "n1", uid: "c1", missing: MissingAmounts::WholeDevice };
    let _ = ClaimAllocation::read(&object, &context);
    let mut objects = DeviceObjects::default();
    if objects.add(&object).is_ok() {
        let _ = ClaimBook::new(objects);
    }
    if let Ok(slice) = ResourceSlice::read(&object) {
        let _ = ResourceSlice::read(&slice.to_json(0));
    }
});

/// libFuzzer brings its own. Without it, a build of the workspace compiles the target and links no fuzzer.
#[cfg(not(feature = "libfuzzer"))]
fn main() {}
