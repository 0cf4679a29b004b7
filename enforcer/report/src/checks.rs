//! The doctor's findings about the tool itself: what works on this host, what does not, what to do.

use enforcer_core::named::Named as _;
use schemars::JsonSchema;
use serde::Serialize;
use strum::IntoStaticStr;

use super::{
    style::{Style, Tone},
    text,
};

/// Version of the serde form of [`Diagnosis`].
pub const DIAGNOSIS_SCHEMA_VERSION: u32 = 1;

/// Everything that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// [`DIAGNOSIS_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// In the order in which a reader would ask.
    pub checks: Vec<Check>,
}

/// One check of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Short stable name.
    pub name: String,
    /// Its result.
    pub status: Status,
    /// Evidence: file and value.
    pub detail: String,
    /// Advice; `None` where there is nothing to do.
    pub advice: Option<String>,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Status {
    /// Works.
    Ok,
    /// Works in part, or by a slower or coarser way.
    Degraded,
    /// Does not work here.
    Missing,
    /// Not there, as on most machines, and only needed for what the advice says.
    Absent,
}

impl Check {
    /// It works.
    pub fn ok(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), status: Status::Ok, detail: detail.into(), advice: None }
    }

    /// It works in part.
    pub fn degraded(name: impl Into<String>, detail: impl Into<String>, advice: &str) -> Self {
        Self { status: Status::Degraded, advice: Some(advice.to_owned()), ..Self::ok(name, detail) }
    }

    /// It does not work.
    pub fn missing(name: impl Into<String>, detail: impl Into<String>, advice: &str) -> Self {
        Self { status: Status::Missing, advice: Some(advice.to_owned()), ..Self::ok(name, detail) }
    }

    /// It is absent, and not needed.
    pub fn absent(name: impl Into<String>, detail: impl Into<String>, advice: &str) -> Self {
        Self { status: Status::Absent, ..Self::missing(name, detail, advice) }
    }
}

/// One block per check and a line with their numbers, ending in a newline.
pub fn render(diagnosis: &Diagnosis, style: Style) -> String {
    let names = diagnosis.checks.iter().map(|check| text::width(&check.name)).max().unwrap_or(0);
    let indent = " ".repeat(names.min(style.width / 3) + STATUS + 2);
    let mut out = String::new();
    for check in &diagnosis.checks {
        let word = check.status.name();
        let first = format!("{word:<STATUS$}{:<names$}  ", text::escape(&check.name));
        let mut block = String::new();
        text::wrap(&mut block, &check.detail, style.width, &first, &indent);
        let painted = style.paint(tone(check.status), word).to_string();
        out.push_str(&block.replacen(word, &painted, 1));
        if let Some(advice) = &check.advice {
            text::hang(&mut out, &format!("{indent}-> "), advice, style.width);
        }
    }
    let count = |status| diagnosis.checks.iter().filter(|check| check.status == status).count();
    let statuses = [Status::Ok, Status::Degraded, Status::Missing, Status::Absent];
    out.push('\n');
    let summary = statuses.map(|status| format!("{} {}", count(status), status.name())).join(", ");
    text::wrap(&mut out, &summary, style.width, "", "");
    out
}

/// As wide as the longest status and two blanks.
const STATUS: usize = 10;

const fn tone(status: Status) -> Tone {
    match status {
        Status::Ok => Tone::Good,
        Status::Degraded => Tone::Notice,
        Status::Missing => Tone::Bad,
        Status::Absent => Tone::Quiet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_says_what_was_seen_and_what_to_do() {
        let diagnosis = Diagnosis {
            schema_version: DIAGNOSIS_SCHEMA_VERSION,
            checks: vec![
                Check::ok("kernel", "6.12.107"),
                Check::degraded(
                    "numa-balancing",
                    "/proc/sys/kernel/numa_balancing: 0",
                    "sysctl kernel.numa_balancing=1",
                ),
                Check::absent("pmu", "no cpu event source", "usual in virtual machines"),
                Check::missing(
                    "btf",
                    "/sys/kernel/btf/vmlinux: No such file\u{1b}[2J",
                    "use a kernel that is built with CONFIG_DEBUG_INFO_BTF=y, as those of all large distributions are",
                ),
            ],
        };
        insta::assert_snapshot!("doctor", render(&diagnosis, Style { width: 72, colour: false }));
    }
}
