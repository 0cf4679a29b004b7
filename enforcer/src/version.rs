//! Which build this is.

use std::sync::LazyLock;

use enforcer_core::audit::ReportingTool;

/// Semantic version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that a release is built from (`cargo xtask dist`); `None` in other builds.
pub const COMMIT: Option<&str> = option_env!("NUMA_ENFORCER_COMMIT");

/// The version, with the commit where it is known.
pub fn full() -> &'static str {
    static FULL: LazyLock<String> =
        LazyLock::new(|| COMMIT.map_or_else(|| VERSION.to_owned(), |commit| format!("{VERSION} ({commit})")));
    &FULL
}

/// This program, as the author of a report.
pub fn tool() -> ReportingTool {
    ReportingTool {
        name: "numa-enforcer".to_owned(),
        version: VERSION.to_owned(),
        commit: COMMIT.map(str::to_owned),
    }
}
