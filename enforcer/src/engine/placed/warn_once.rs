//! Suppresses repeated warnings.
//!
//! Problem: each placement of a container repeats the warnings about its pod, and the pod's author controls
//! their number: annotations hold thousands of names, and a crashing container is recreated every few
//! seconds. Idea: each text is logged once, and few at a time; the rest are counted.
//!
//! Hashes of the texts are kept, enough for a large node. A text with the hash of another is not logged;
//! only the log depends on it.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

/// Most texts logged for one answer.
const MOST_AT_ONCE: usize = 8;

/// Most texts remembered; then all are forgotten and may be logged again.
const REMEMBERED: usize = 1 << 14;

/// Hashes of logged texts.
#[derive(Debug, Default)]
pub(super) struct WarnOnce(BTreeSet<u64>);

/// Texts that were not logged lately.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unseen<'a> {
    /// The texts to log.
    pub(super) texts: Vec<&'a str>,
    /// Number of further new texts.
    pub(super) more: usize,
}

impl WarnOnce {
    /// Picks the texts that were not logged lately.
    pub(super) fn news<'a>(&mut self, texts: impl IntoIterator<Item = &'a str>) -> Unseen<'a> {
        let mut news = Unseen { texts: Vec::new(), more: 0 };
        for text in texts {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            if self.0.len() >= REMEMBERED {
                self.0.clear();
            }
            if !self.0.insert(hasher.finish()) {
                continue;
            }
            if news.texts.len() < MOST_AT_ONCE {
                news.texts.push(text);
            } else {
                news.more += 1;
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_said_once_and_few_at_a_time() {
        let texts: Vec<String> = (0..100).map(|index| format!("annotation {index}")).collect();
        let (mut said, all) = (WarnOnce::default(), || texts.iter().map(String::as_str));
        let first = said.news(all().take(3));
        assert_eq!((first.texts, first.more), (all().take(3).collect(), 0));
        let rest = said.news(all());
        assert_eq!((rest.texts, rest.more), (all().skip(3).take(MOST_AT_ONCE).collect(), 97 - MOST_AT_ONCE));
        assert_eq!(said.news(all()), Unseen { texts: Vec::new(), more: 0 });
    }

    #[test]
    fn what_is_remembered_has_an_end() {
        let mut said = WarnOnce::default();
        for index in 0..REMEMBERED * 2 {
            said.news([format!("{index}").as_str()]);
            assert!(said.0.len() <= REMEMBERED);
        }
        assert_eq!(said.news(["0"]).texts, ["0"]);
    }
}
