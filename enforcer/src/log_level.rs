//! The level of the log, which can change while the daemon runs.
//!
//! Only one level for everything can be set. `RUST_LOG` may name a level for each module, which the user that
//! starts the daemon may know; a client of its socket may not.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use thiserror::Error;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};

/// Applies a new filter, or says why not.
type Reload = Box<dyn Fn(Targets) -> Result<(), String> + Send + Sync>;

/// Variable with the directives that the daemon is started with.
pub const DIRECTIVES: &str = "RUST_LOG";

/// Level of a log without directives, or with some that cannot be read.
const LEVEL: LevelFilter = LevelFilter::INFO;

/// What kube's lines begin with.
const KUBE: &str = "kube_client";

/// The filter of these directives (`LEVEL` and `TARGET=LEVEL`, separated by commas). Those that cannot be
/// read give the usual level, and the error.
pub fn filter(directives: Option<&str>) -> (Targets, Option<ParseError>) {
    let usual = || Targets::new().with_default(LEVEL);
    match directives.filter(|text| !text.is_empty()).map(str::parse) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (usual(), Some(error)),
        None => (usual(), None),
    }
}

/// Leaves out what kube logs as an error for each request that fails: a degraded entry says it once. A filter
/// that names kube, or lets everything of level `debug` pass, stays as it is.
pub fn without_failed_requests(filter: Targets) -> Targets {
    let is_asked_for = filter.iter().any(|(target, _)| target.starts_with(KUBE))
        || filter.default_level().is_some_and(|level| level >= LevelFilter::DEBUG);
    if is_asked_for { filter } else { filter.with_target(KUBE, LevelFilter::OFF) }
}

/// Handle to the log's filter; clones share it.
#[derive(Clone)]
pub struct LogLevel(Arc<LogFilter>);

struct LogFilter {
    current: Mutex<String>,
    reload: Reload,
}

/// Why the level stays as it is.
#[derive(Debug, Error)]
pub enum LogLevelError {
    /// The text is not a level.
    #[error("`{0}` is not a level of a log: one of off, error, warn, info, debug, trace is expected")]
    Unknown(String),
    /// The log refused the filter.
    #[error("setting the level of the log: {0}")]
    Refused(String),
}

impl LogLevel {
    /// A log with the filter `current`, changed by `reload`.
    pub fn new(
        current: String,
        reload: impl Fn(Targets) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(LogFilter { current: Mutex::new(current), reload: Box::new(reload) }))
    }

    /// The level, or the directives that the daemon was started with.
    pub fn current(&self) -> String {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the level.
    pub fn set(&self, level: &str) -> Result<(), LogLevelError> {
        let unknown = || LogLevelError::Unknown(level.chars().take(40).collect());
        // The parser would accept numbers as levels, too, which few users expect.
        let word = !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_alphabetic());
        let filter = level.parse::<LevelFilter>().ok().filter(|_| word).ok_or_else(unknown)?;
        let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        (self.0.reload)(Targets::new().with_default(filter)).map_err(LogLevelError::Refused)?;
        *current = filter.to_string();
        Ok(())
    }
}

impl fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogLevel").field(&self.current()).finish()
    }
}

impl Default for LogLevel {
    /// A log with a fixed level.
    fn default() -> Self {
        Self::new("info".to_owned(), |_| Err("this log has one level".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_set_and_nothing_else_is() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sets = Arc::clone(&seen);
        let log = LogLevel::new("info,enforcer=debug".into(), move |filter| {
            sets.lock().unwrap().push(filter.to_string());
            Ok(())
        });
        for bad in ["", "loud", "3", "info,x=debug", "[{a=.*}]=trace", "debug "] {
            assert!(log.set(bad).is_err(), "{bad}");
        }
        assert_eq!(log.current(), "info,enforcer=debug");
        for level in ["debug", "WARN", "off", "trace"] {
            log.set(level).unwrap();
            assert_eq!(log.current(), level.to_lowercase());
        }
        assert_eq!(*seen.lock().unwrap(), ["debug", "warn", "off", "trace"]);
    }

    #[test]
    fn directives_name_levels_and_targets() {
        let of = |text| {
            let (filter, error) = filter(text);
            (filter.to_string(), error.is_some())
        };
        assert_eq!(of(None), ("info".to_owned(), false));
        assert_eq!(of(Some("")), ("info".to_owned(), false));
        assert_eq!(of(Some("warn")), ("warn".to_owned(), false));
        assert_eq!(
            of(Some("info,enforcer::engine=debug")),
            ("enforcer::engine=debug,info".to_owned(), false)
        );
        for unreadable in ["enforcer=loud", "[{a=.*}]=trace", "a=b=c"] {
            assert_eq!(of(Some(unreadable)), ("info".to_owned(), true), "{unreadable}");
        }
        let (filter, _) = filter(Some("warn,enforcer=debug"));
        let enables = |target, level| filter.would_enable(target, &level);
        assert!(enables("enforcer::engine", tracing::Level::DEBUG));
        assert!(!enables("hyper", tracing::Level::INFO) && enables("hyper", tracing::Level::WARN));
    }

    #[test]
    fn requests_that_fail_are_logged_on_demand_alone() {
        for (text, is_logged) in [
            ("info", false),
            ("error,enforcer=debug", false),
            ("debug", true),
            ("info,kube_client=warn", true),
        ] {
            let filter = without_failed_requests(filter(Some(text)).0);
            let logged = filter.would_enable("kube_client::client::builder", &tracing::Level::ERROR);
            assert_eq!(logged, is_logged, "{text}");
            assert!(filter.would_enable("enforcer::publish", &tracing::Level::ERROR), "{text}");
        }
    }

    #[test]
    fn a_log_that_cannot_be_changed_keeps_its_level() {
        let log = LogLevel::default();
        let message = log.set("debug").unwrap_err().to_string();
        assert!(message.ends_with("one level"), "{message}");
        assert_eq!(log.current(), "info");
    }
}
