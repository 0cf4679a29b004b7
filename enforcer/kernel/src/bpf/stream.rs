//! Reads a BPF iterator to its end.
//!
//! A read returns as much as the kernel's buffer holds. It may end in the middle of a record, and may return
//! nothing before the end. The decoder returns how many bytes were whole records; it gets the rest again with
//! the next read. The decoder also bounds the number of records: this ends when the kernel, or the decoder,
//! does.

use std::io::{self, Read};

/// Bytes of one read: the kernel's own buffer is 32 KiB, and a piece of a record is left before it.
pub(super) const BUFFER: usize = 64 * 1024;

/// Passes everything to `take`, which returns how many bytes were whole records.
pub(super) fn read_to_end<E>(
    mut stream: impl Read,
    broken: impl Fn(io::Error) -> E,
    mut take: impl FnMut(&[u8]) -> Result<usize, E>,
) -> Result<(), E> {
    let mut buffer = vec![0; BUFFER];
    let mut filled = 0;
    loop {
        match stream.read(buffer.get_mut(filled..).unwrap_or_default()) {
            Ok(0) => return Ok(()),
            Ok(count) => filled += count,
            // The kernel gives up the CPU after a million silent steps, and signals interrupt.
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                continue;
            }
            Err(error) => return Err(broken(error)),
        }
        let taken = take(buffer.get(..filled).unwrap_or_default())?.min(filled);
        buffer.copy_within(taken..filled, 0);
        filled -= taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a few bytes at a time, and is interrupted before each.
    struct Pieces<'a>(&'a [u8], bool);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = self.0.len().min(5).min(buffer.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    #[test]
    fn records_come_whole_whatever_the_pieces() {
        let mut seen = Vec::new();
        let done = read_to_end(
            Pieces(b"abcdABCDwxyzW", false),
            |error| error,
            |bytes| {
                let whole = bytes.chunks_exact(4);
                let taken = bytes.len() - whole.remainder().len();
                seen.extend(whole.map(<[u8]>::to_vec));
                Ok(taken)
            },
        );
        assert!(done.is_ok());
        assert_eq!(seen, [b"abcd", b"ABCD", b"wxyz"]);
    }

    #[test]
    fn what_breaks_it_off_is_told() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::PermissionDenied.into())
            }
        }
        assert_eq!(
            read_to_end(Broken, |error| error.kind(), |_| Ok(0)),
            Err(io::ErrorKind::PermissionDenied)
        );
        let refused =
            read_to_end(Pieces(b"abcd", false), |error| error.kind(), |_| Err(io::ErrorKind::InvalidData));
        assert_eq!(refused, Err(io::ErrorKind::InvalidData));
    }
}
