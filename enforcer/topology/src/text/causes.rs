//! An error with everything that caused it, as one text.

use std::error::Error;

/// An error and its causes, each once: the outermost one of some libraries says `client error` alone.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use super::*;

    #[derive(Debug)]
    struct Wrapped(&'static str, io::Error);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.1)
        }
    }

    #[test]
    fn each_cause_is_said_once() {
        let refused = || io::Error::other("refused");
        assert_eq!(with_causes(&Wrapped("connecting", refused())), "connecting: refused");
        assert_eq!(with_causes(&Wrapped("connecting: refused", refused())), "connecting: refused");
    }
}
