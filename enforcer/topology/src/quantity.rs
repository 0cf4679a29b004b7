//! Amounts in the notation of Kubernetes manifests.
//!
//! A decimal number and a suffix: `m` for thousandths, `k M G T P E` for powers of 1000, `Ki Mi Gi Ti Pi Ei`
//! for powers of 1024, or an exponent (`1e3`); see
//! staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go. Fractions are rounded up, as there.
//! Invariant: integer arithmetic only, without overflow or loss of precision.

/// Thousandths of a CPU: `250m`, `1`, `1.5`.
pub fn milli_cpus(text: &str) -> Option<u64> {
    scaled(text, 1000)
}

/// Whole units, bytes or pieces: `64Mi`, `1G`, `2`, `0.5Gi`.
pub fn whole(text: &str) -> Option<u64> {
    scaled(text, 1)
}

/// Thousand-millionths, as fine as quantities are: 1500000000 for `1500m`.
pub fn nano(text: &str) -> Option<u128> {
    let (amount, over) = fraction(text, 1_000_000_000)?;
    Some(amount.div_ceil(over))
}

/// Whole units, without rounding: none for `1500m`, which [`whole`] makes 2.
pub fn exact(text: &str) -> Option<u64> {
    let (amount, over) = fraction(text, 1)?;
    amount.is_multiple_of(over).then(|| u64::try_from(amount / over).ok())?
}

/// The quantity times `scale`, rounded up.
fn scaled(text: &str, scale: u128) -> Option<u64> {
    let (amount, over) = fraction(text, scale)?;
    u64::try_from(amount.div_ceil(over)).ok()
}

/// The quantity times `scale` as a fraction.
fn fraction(text: &str, scale: u128) -> Option<(u128, u128)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    // More digits than any real quantity has; the powers below stay in range.
    if (integer.is_empty() && fraction.is_empty())
        || integer.len() > 20
        || fraction.len() > 12
        || fraction.contains('.')
    {
        return None;
    }
    let digits: u128 = format!("{integer}{fraction}").parse().ok()?;
    let (times, over) = factor(suffix)?;
    let over = over.checked_mul(10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    Some((digits.checked_mul(times)?.checked_mul(scale)?, over))
}

/// A suffix as a fraction.
fn factor(suffix: &str) -> Option<(u128, u128)> {
    let decimal = |power: u32| Some((10u128.pow(power), 1));
    let binary = |power: u32| Some((1u128 << (10 * power), 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10u128.checked_pow(exponent.unsigned_abs().min(30))?;
            Some(if exponent < 0 { (1, power) } else { (power, 1) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_manifests() {
        for (text, bytes) in [
            ("0", 0),
            ("1", 1),
            ("64Mi", 64 << 20),
            ("1.5Gi", 3 << 29),
            ("1G", 1_000_000_000),
            ("1e3", 1000),
            ("12E0", 12),
            ("100m", 1),
            ("8Ei", 8 << 60),
            (".5Ki", 512),
        ] {
            assert_eq!(whole(text), Some(bytes), "{text}");
        }
        for (text, milli) in [("250m", 250), ("2", 2000), ("1.5", 1500), ("0.0001", 1), ("1500000u", 1500)] {
            assert_eq!(milli_cpus(text), Some(milli), "{text}");
        }
        for (text, amount) in
            [("16", Some(16)), ("16e0", Some(16)), ("1E3", Some(1000)), ("2000m", Some(2)), ("2.0", Some(2))]
        {
            assert_eq!(exact(text), amount, "{text}");
        }
        for text in ["1500m", "0.5", "1n", "999.9999", "1e-1", "x"] {
            assert_eq!(exact(text), None, "{text}");
        }
        for text in
            ["", "-1", "1 Gi", "1Kib", "x", "1.2.3", "16Ei", "9e99", ".", "1e", "99999999999999999999999"]
        {
            assert_eq!(whole(text), None, "{text}");
        }
    }
}
