//! Numbers as Prometheus has them: doubles, all of them.

pub(super) fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

pub(super) fn count(number: usize) -> f64 {
    to_f64(number as u64)
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has doubles only")]
pub(super) fn to_f64(value: u64) -> f64 {
    value as f64
}
