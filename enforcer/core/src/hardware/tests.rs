use proptest::prelude::*;

use super::*;

fn x86(vendor: &str, family: u32, model: u32) -> String {
    format!(
        "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
         model name\t: some CPU: 3\nstepping\t: 7\n\nprocessor\t: 1\nmodel\t\t: 1\n"
    )
}

/// Config and config1 of the near and of the remote event.
fn codes(events: &AccessEvents) -> [(u64, u64); 2] {
    [events.near, events.remote].map(|event| (event.config, event.config1))
}

#[test]
fn each_cpu_of_the_table_has_its_events() {
    let loads = [(0x01d3, 0), (0x02d3, 0)];
    let spr = [(0x012b, 0x1_0400_0001), (0x012a, 0x7_3000_0001)];
    let icx = [(0x01bb, 0x1_0400_0001), (0x01b7, 0x7_3000_0001)];
    let skx = [(0x01bb, 0x1f_8400_0001), (0x01b7, 0x6_3800_0001)];
    let srf = [(0x02b7, 0x1_8400_0001), (0x01b7, 0x7_3000_0001)];
    let (zen_1, zen_3) = ([(0x0843, 0), (0x4043, 0)], [(0x0844, 0), (0x4044, 0)]);
    for (vendor, family, model, expected) in [
        ("GenuineIntel", 6, 85, vec![loads, skx]),
        ("GenuineIntel", 6, 106, vec![loads, icx]),
        ("GenuineIntel", 6, 108, vec![loads, icx]),
        ("GenuineIntel", 6, 143, vec![loads, spr]),
        ("GenuineIntel", 6, 207, vec![loads, spr]),
        ("GenuineIntel", 6, 173, vec![loads, spr]),
        ("GenuineIntel", 6, 174, vec![loads, spr]),
        ("GenuineIntel", 6, 175, vec![srf]),
        ("AuthenticAMD", 23, 1, vec![zen_1]),
        ("AuthenticAMD", 23, 49, vec![zen_1]),
        ("AuthenticAMD", 25, 1, vec![zen_3]),
        ("AuthenticAMD", 25, 17, vec![zen_3]),
        ("AuthenticAMD", 26, 2, vec![zen_3]),
    ] {
        let found = Candidates::new(&x86(vendor, family, model), &[]);
        assert_eq!(found.only_generic, None, "{vendor} {family} {model}");
        let (generic, own) = found.events.split_last().unwrap();
        assert_eq!(own.iter().map(codes).collect::<Vec<_>>(), expected, "{vendor} {family} {model}");
        assert!(own.iter().all(|events| events.counts == NearCounts::Local && events.near.kind == TYPE_RAW));
        assert_eq!((generic.near.kind, codes(generic)), (TYPE_HW_CACHE, [(0x6, 0), (0x1_0006, 0)]));
    }
}

#[test]
fn a_cpu_that_is_not_known_says_so_and_has_the_generic_events_alone() {
    for (text, said) in [
        (x86("GenuineIntel", 6, 42), "Intel family 0x6 model 0x2a is not in the table"),
        (x86("GenuineIntel", 15, 85), "Intel family 0xf model 0x55 is not in the table"),
        (x86("AuthenticAMD", 16, 2), "Amd family 0x10 model 0x2 is not in the table"),
        (x86("HygonGenuine", 24, 0), "vendor_id `HygonGenuine` is not in the table"),
        (x86(&"x".repeat(10_000), 6, 85), "is not in the table"),
        (String::new(), "no `vendor_id`"),
        ("vendor_id : AuthenticAMD\ncpu family : 99999999999\n".into(), "no `cpu family`"),
        ("vendor_id : AuthenticAMD\ncpu family : 25\nmodel name : 1\n".into(), "no `model`"),
        ("CPU implementer : 0x41\nCPU part : 0xd0c\n".into(), "lists the events remote_access"),
    ] {
        let found = Candidates::new(&text, &[]);
        let reason = found.only_generic.unwrap();
        assert!(reason.contains(said) && reason.len() < 120, "{reason}");
        assert_eq!(found.events.iter().map(|events| events.name).collect::<Vec<_>>(), ["node-loads"]);
    }
}

#[test]
fn what_the_kernel_calls_an_access_depends_on_the_generation() {
    for (vendor, model, counts) in [
        ("GenuineIntel", 0x2d, NearCounts::All),
        ("GenuineIntel", 0x3e, NearCounts::All),
        ("GenuineIntel", 0x3f, NearCounts::Local),
        ("GenuineIntel", 0x4f, NearCounts::Local),
        ("GenuineIntel", 0x8f, NearCounts::Local),
        ("AuthenticAMD", 0x8f, NearCounts::All),
        ("CentaurHauls", 0x8f, NearCounts::All),
    ] {
        let found = Candidates::new(&x86(vendor, 6, model), &[]);
        assert_eq!(found.events.last().unwrap().counts, counts, "{vendor} {model:#x}");
    }
}

fn arm(events: &[(&str, &str)]) -> Candidates {
    let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    let pmu = |name: &str, kind, events| Pmu { name: name.to_owned(), kind, events };
    let pmus =
        [pmu("arm_cmn_0", 9, BTreeMap::new()), pmu("armv8_pmuv3_0", 10, events.iter().map(own).collect())];
    Candidates::new("processor\t: 0\nCPU implementer\t: 0x41\n", &pmus)
}

#[test]
fn arm_has_the_events_that_its_pmu_lists() {
    let found = arm(&[("remote_access", "event=0x0031\n"), ("ll_cache_miss_rd", "event=0x037\n")]);
    let events = found.events[0];
    assert_eq!(codes(&events), [(0x37, 0), (0x31, 0)]);
    assert_eq!((events.remote.kind, events.counts, found.only_generic), (10, NearCounts::All, None));
    for listed in [
        &[("ll_cache_miss_rd", "event=0x37")][..],
        &[("remote_access", "event=0x31")],
        &[("remote_access", "event=0x31,umask=0x2"), ("ll_cache_miss_rd", "event=0x37")],
        &[("remote_access", "event=49"), ("ll_cache_miss_rd", "event=0x37")],
    ] {
        let found = arm(listed);
        assert_eq!((found.events.len(), found.events[0].name), (1, "node-loads"), "{listed:?}");
        assert!(found.only_generic.is_some());
    }
}

proptest! {
    #[test]
    fn any_text_has_something_to_try(text in "((vendor_id|model|cpu family|CPU implementer)[ \t]*:[ A-Za-z0-9]*\n){0,6}|\\PC*") {
        let found = Candidates::new(&text, &[]);
        prop_assert_eq!(found.events.last().unwrap().name, "node-loads");
        prop_assert_eq!(found.only_generic.is_some(), found.events.len() == 1);
    }
}
