//! The ELF image inside a bzImage.
//!
//! QEMU starts an ELF image by its PVH note: that saves unpacking 50 MB under emulation at every boot. Debian
//! has packed kernels with lz4 (11, 12), xz and zstd.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

/// The unpacked kernel of a bzImage.
pub(super) fn unpacked(image: &[u8]) -> Result<Vec<u8>> {
    let payload = payload(image)?;
    pipe(Command::new(unpacker(payload)?).args(["-q", "-d", "-c"]), payload)
}

/// The compressed kernel inside a bzImage, without the four bytes of unpacked size behind it
/// (Documentation/arch/x86/boot.rst: `setup_sects`, `payload_offset`, `payload_length`).
fn payload(image: &[u8]) -> Result<&[u8]> {
    let long = |at: usize| -> Result<usize> {
        let bytes = image.get(at..at + 4).context("bzImage is too short")?;
        Ok(usize::try_from(u32::from_le_bytes(bytes.try_into()?))?)
    };
    ensure!(image.get(0x202..0x206) == Some(b"HdrS"), "not a bzImage: no HdrS at 0x202");
    let setup_sectors = match image[0x1f1] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (setup_sectors + 1) * 512 + long(0x248)?;
    let length = long(0x24c)?.checked_sub(4).context("payload_length is less than 4")?;
    image.get(start..start + length).context("the payload reaches beyond the file")
}

/// The program that unpacks a payload, told by its first bytes.
fn unpacker(payload: &[u8]) -> Result<&'static str> {
    Ok(match payload {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        [0xfd, b'7', b'z', b'X', ..] => "xz",
        // Its legacy frame, which zstd does not read.
        [0x02, 0x21, 0x4c, 0x18, ..] => "lz4",
        _ => bail!("unknown compression of the kernel: {:02x?}", payload.get(..4)),
    })
}

/// Feeds a program and collects what it writes.
fn pipe(command: &mut Command, input: &[u8]) -> Result<Vec<u8>> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {}", command.get_program().display()))?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output()?;
    let fed = feeding.join().ok().context("the feeding thread panicked")?;
    ensure!(output.status.success(), "{} failed ({})", command.get_program().display(), output.status);
    fed.context("feed the decompressor")?;
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bz_image(sectors: u8, payload: &[u8]) -> Vec<u8> {
        let start = (usize::from(if sectors == 0 { 4 } else { sectors }) + 1) * 512;
        let mut image = vec![0; start + 16];
        image[0x1f1] = sectors;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        let length = u32::try_from(payload.len() + 4).unwrap();
        image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
        image.extend_from_slice(payload);
        image.extend_from_slice(&[0; 4]);
        image
    }

    #[test]
    fn the_payload_is_found_behind_the_setup_sectors() {
        for sectors in [0, 4, 39] {
            assert_eq!(payload(&bz_image(sectors, b"kernel")).unwrap(), b"kernel");
        }
    }

    #[test]
    fn a_file_that_is_no_kernel_is_refused() {
        assert!(payload(b"").is_err());
        assert!(payload(&[0; 4096]).is_err());
        let mut cut = bz_image(4, b"kernel");
        cut.truncate(0x400);
        assert!(payload(&cut).is_err());
    }

    #[test]
    fn a_packing_is_told_by_its_first_bytes() {
        for (payload, wanted) in [
            (&b"\x02\x21\x4c\x18\x07"[..], Some("lz4")),
            (b"\xfd7zXZ\0", Some("xz")),
            (b"\x28\xb5\x2f\xfd", Some("zstd")),
            (b"\x28\xb5\x2f", None),
            (b"LZMA", None),
            (b"", None),
        ] {
            assert_eq!(unpacker(payload).ok(), wanted, "{payload:02x?}");
        }
    }
}
