//! Lines on standard output; its reader may end early (`cargo xtask vm --list | head`).
//!
//! `println!` panics then. Nothing else goes wrong quietly: a full disk is an error.

use std::{
    fmt::Display,
    io::{self, ErrorKind, Write},
};

use anyhow::{Context, Result};

/// Prints lines until the last one, or until the reader is gone.
pub(crate) fn lines(lines: impl IntoIterator<Item = impl Display>) -> Result<()> {
    write(&mut io::stdout().lock(), lines).context("write to standard output")
}

fn write(to: &mut impl Write, lines: impl IntoIterator<Item = impl Display>) -> io::Result<()> {
    let all = || -> io::Result<()> {
        for line in lines {
            writeln!(to, "{line}")?;
        }
        to.flush()
    };
    match all() {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes some bytes, and refuses the next with an error of this kind.
    struct Pipe(usize, ErrorKind);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 && !bytes.is_empty() { Err(self.1.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_read_enough_is_no_error_and_is_given_no_more() {
        let mut asked = 0;
        let endless = (0..).inspect(|_| asked += 1);
        write(&mut Pipe(5, ErrorKind::BrokenPipe), endless).unwrap();
        assert_eq!(asked, 3, "two lines fit, the third is cut");
    }

    #[test]
    fn any_other_error_is_told() {
        assert!(write(&mut Pipe(1, ErrorKind::StorageFull), ["one"]).is_err());
        let mut text = Vec::new();
        write(&mut text, ["one", "two"]).unwrap();
        assert_eq!(text, b"one\ntwo\n");
    }
}
