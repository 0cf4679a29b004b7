//! One scenario, from its boot to its verdict.
//!
//! A failed assertion or a broken kernel is a failure at once; a guest that stalled, or that could not be
//! started, is tried once more, because a starved host is no verdict on the product.

use anyhow::Result;

use crate::vm::{Ending, GuestReport};

/// Boots of a scenario if its guest stalls.
const TRIES: u32 = 2;

/// Boots until there is a verdict: true if the scenario passed. What is worth reading goes to `say`.
pub(super) fn until_verdict(
    mut boot: impl FnMut(&mut dyn FnMut(&str)) -> Result<GuestReport>,
    say: &mut dyn FnMut(&str),
) -> bool {
    for attempt in 1..=TRIES {
        let report = match boot(say) {
            Ok(report) => report,
            Err(error) if attempt < TRIES => {
                say(&format!("no guest, once more: {error:#}"));
                continue;
            }
            Err(error) => {
                say(&format!("failed, no guest: {error:#}"));
                return false;
            }
        };
        let why = match &report.ending {
            Ending::Exited(0) => return true,
            Ending::Exited(status) => format!("failed with status {status}"),
            Ending::Broken(line) => format!("failed, the kernel broke: {line}"),
            Ending::Stalled(line) => format!("the guest stalled: {line}"),
        };
        say(&format!("{why}; the end of its console:\n{}", report.console));
        if !matches!(report.ending, Ending::Stalled(_)) {
            return false;
        }
        if attempt < TRIES {
            say("once more, because it stalled");
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    /// The verdict over boots that end like this, how many there were, and what was said.
    fn verdict(endings: &[Ending]) -> (bool, usize, String) {
        let (mut boots, mut said) = (0, String::new());
        let boot = |_: &mut dyn FnMut(&str)| {
            boots += 1;
            Ok(GuestReport { ending: endings[boots - 1].clone(), console: "its last line".to_owned() })
        };
        let passed = until_verdict(boot, &mut |line| said.push_str(line));
        (passed, boots, said)
    }

    #[test]
    fn only_a_stall_is_tried_again_and_only_once() {
        let stalled = || Ending::Stalled("soft lockup".to_owned());
        let broken = || Ending::Broken("panic".to_owned());
        for (endings, passes, boots) in [
            (vec![Ending::Exited(0)], true, 1),
            (vec![Ending::Exited(1)], false, 1),
            (vec![broken()], false, 1),
            (vec![stalled(), Ending::Exited(0)], true, 2),
            (vec![stalled(), Ending::Exited(1)], false, 2),
            (vec![stalled(), stalled()], false, 2),
        ] {
            let (passed, tried, _) = verdict(&endings);
            assert_eq!((passed, tried), (passes, boots), "{endings:?}");
        }
    }

    #[test]
    fn a_failure_shows_the_console_and_success_does_not() {
        assert!(verdict(&[Ending::Exited(7)]).2.contains("status 7; the end of its console:\nits last line"));
        assert_eq!(verdict(&[Ending::Exited(0)]).2, "");
    }

    #[test]
    fn a_guest_that_cannot_be_started_twice_has_failed() {
        let mut said = String::new();
        assert!(!until_verdict(|_| bail!("no QEMU"), &mut |line| said.push_str(line)));
        assert_eq!(said, "no guest, once more: no QEMUfailed, no guest: no QEMU");
    }
}
