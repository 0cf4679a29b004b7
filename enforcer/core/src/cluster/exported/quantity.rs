//! Amounts in the notation of Kubernetes' quantities, as its own programs write them.

use std::collections::BTreeMap;

use numa_topology::quantity;

/// What the kubelet's settings reserve: `kubeReserved` and `systemReserved` together, and the hard eviction
/// threshold for memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReservedAmounts {
    /// CPUs in thousandths; `None` if no setting has an amount, or one cannot be read.
    pub milli_cpus: Option<u64>,
    /// Memory in bytes; `None` as above.
    pub memory_bytes: Option<u64>,
}

impl ReservedAmounts {
    /// The sums of the settings. A threshold in percent is relative to what only the kubelet knows, so the
    /// memory is unknown then.
    pub fn of_settings(
        kube: &BTreeMap<String, String>,
        system: &BTreeMap<String, String>,
        eviction_memory: Option<&str>,
    ) -> Self {
        let cpus = [kube.get("cpu"), system.get("cpu")];
        let memory = [kube.get("memory"), system.get("memory")].map(|text| text.map(String::as_str));
        Self {
            milli_cpus: sum(cpus.into_iter().flatten().map(|text| quantity::milli_cpus(text))),
            memory_bytes: sum(memory.into_iter().chain([eviction_memory]).flatten().map(quantity::whole)),
        }
    }
}

/// The sum; `None` of nothing, or with an unknown part.
fn sum(amounts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let mut total = None;
    for amount in amounts {
        total = Some(total.unwrap_or(0_u64).checked_add(amount?)?);
    }
    total
}

/// Thousandths of a CPU: `500m`, `2`.
pub(super) fn of_milli_cpus(milli: u64) -> String {
    if milli.is_multiple_of(1000) { (milli / 1000).to_string() } else { format!("{milli}m") }
}

/// Bytes with the largest binary suffix that divides them: `2348Mi`, `1000`.
pub(crate) fn of_bytes(bytes: u64) -> String {
    let mut amount = bytes;
    let mut suffix = "";
    for larger in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
        if amount == 0 || !amount.is_multiple_of(1024) {
            break;
        }
        amount /= 1024;
        suffix = larger;
    }
    format!("{amount}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn sums_are_written_as_the_exporter_writes_them() {
        let kube = settings(&[("cpu", "200m"), ("memory", "300Mi")]);
        let system = settings(&[("cpu", "300m"), ("memory", "1Gi")]);
        let both = ReservedAmounts::of_settings(&kube, &system, Some("1Gi"));
        assert_eq!(both.milli_cpus.map(of_milli_cpus).as_deref(), Some("500m"));
        assert_eq!(both.memory_bytes.map(of_bytes).as_deref(), Some("2348Mi"));
    }

    #[test]
    fn unknown_part_makes_the_sum_unknown() {
        let none = settings(&[]);
        let nothing = ReservedAmounts::of_settings(&none, &none, None);
        assert_eq!(nothing, ReservedAmounts::default());
        let some = settings(&[("cpu", "2"), ("memory", "1Gi")]);
        let percent = ReservedAmounts::of_settings(&some, &none, Some("5%"));
        assert_eq!((percent.milli_cpus, percent.memory_bytes), (Some(2000), None));
        let wrong = ReservedAmounts::of_settings(&some, &settings(&[("cpu", "much")]), None);
        assert_eq!((wrong.milli_cpus, wrong.memory_bytes), (None, Some(1 << 30)));
        let most = settings(&[("memory", "15Ei")]);
        assert_eq!(ReservedAmounts::of_settings(&most, &most, None).memory_bytes, None);
    }

    #[test]
    fn suffixes_divide_the_amount() {
        for (bytes, text) in
            [(0, "0"), (1000, "1000"), (1024, "1Ki"), (1536, "1536"), (3 << 30, "3Gi"), (1 << 60, "1Ei")]
        {
            assert_eq!(of_bytes(bytes), text);
        }
        for (milli, text) in [(0, "0"), (1, "1m"), (2000, "2"), (2500, "2500m")] {
            assert_eq!(of_milli_cpus(milli), text);
        }
    }
}
