use proptest::prelude::*;

use super::*;

fn read(value: &Value) -> Result<ClaimOptions, String> {
    ClaimOptions::read(&Field::at("parameters", value)).map_err(|error| error.to_string())
}

fn config(fields: &Value) -> Value {
    let mut all = json!({"apiVersion": "numa-enforcer.io/v1alpha1", "kind": "NumaClaimConfig"});
    let more = fields.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(more);
    all
}

#[test]
fn every_refusal_names_the_field() {
    for (value, said) in [
        (json!(3), "parameters: an object is expected"),
        (json!({"kind": "NumaClaimConfig"}), "parameters.apiVersion: it is missing"),
        (
            json!({"apiVersion": "numa-enforcer.io/v2", "kind": "NumaClaimConfig"}),
            "parameters.apiVersion: `numa-enforcer.io/v2` is unknown, numa-enforcer.io/v1alpha1 is expected",
        ),
        (
            json!({"apiVersion": "numa-enforcer.io/v1alpha1", "kind": "CpuConfig"}),
            "parameters.kind: `CpuConfig` is unknown, NumaClaimConfig is expected",
        ),
        (config(&json!({"cpuset": "0-3"})), "parameters.cpuset: it is no field of NumaClaimConfig v1alpha1"),
        (
            config(&json!({"Memory": "strict"})),
            "parameters.Memory: it is no field of NumaClaimConfig v1alpha1",
        ),
        (config(&json!({"pack": "L3"})), "parameters.pack: `L3` is unknown, known are l3, spread"),
        (config(&json!({"widen": true})), "parameters.widen: a text is expected"),
    ] {
        assert_eq!(read(&value).unwrap_err(), said);
    }
}

#[test]
fn fields_of_the_claim_beat_those_of_the_class() {
    let class = read(&config(&json!({"memory": "free", "quota": "remove"}))).unwrap();
    let claim = read(&config(&json!({"memory": "strict", "cores": "full"}))).unwrap();
    let both = claim.over(class);
    assert_eq!(both.memory(false), ClaimMemory::Strict);
    assert_eq!((both.quota(), both.cores()), (ClaimQuota::Remove, ClaimCores::Full));
    assert_eq!(
        (both.pack(), both.widen(), both.irqs()),
        (ClaimPack::L3, ClaimWiden::Never, ClaimIrqs::Leave)
    );
}

#[test]
fn memory_without_option_is_strict_where_an_amount_is_claimed() {
    let none = ClaimOptions::default();
    assert_eq!((none.memory(true), none.memory(false)), (ClaimMemory::Strict, ClaimMemory::Preferred));
}

#[test]
fn spread_contradicts_full_cores() {
    let both = read(&config(&json!({"cores": "full", "pack": "spread"}))).unwrap();
    assert_eq!(both.contradiction().unwrap().0, "pack");
    assert_eq!(ClaimOptions::default().contradiction(), None);
}

#[test]
fn value_without_effect_is_named_as_unsupported() {
    let unsupported = |fields| read(&config(&fields)).unwrap().unsupported();
    assert_eq!(
        unsupported(json!({"widen": "idle"})),
        Some(("widen", "`idle` is not supported by this version"))
    );
    assert_eq!(unsupported(json!({"widen": "never", "irqs": "away", "memory": "preferred"})), None);
}

proptest! {
    #[test]
    fn recorded_options_read_back(
        memory in prop::option::of(prop::sample::select(&["strict", "preferred", "free"][..])),
        cores in prop::option::of(prop::sample::select(&["any", "full"][..])),
        pack in prop::option::of(prop::sample::select(&["l3", "spread"][..])),
        irqs in prop::option::of(prop::sample::select(&["leave", "away"][..])),
    ) {
        let fields = [("memory", memory), ("cores", cores), ("pack", pack), ("irqs", irqs)];
        let set = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
        let options = read(&config(&Value::Object(set.collect()))).unwrap();
        let record = options.to_json();
        prop_assert_eq!(ClaimOptions::read_recorded(&Field::root(&record)).unwrap(), options);
    }
}
