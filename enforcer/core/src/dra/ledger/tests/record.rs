//! The ledger as a text.

use proptest::prelude::*;

use super::*;
use crate::dra::ledger::record::checksum;

fn some() -> ClaimLedger {
    let mut ledger = ClaimLedger::new("n1", "boot");
    let amounts = PlaceAmounts {
        cpus: 4,
        milli_cpus: 500,
        memory_bytes: 1 << 30,
        hugepages: [(2 << 20, 4 << 20)].into(),
    };
    let options = BudgetOptions::default();
    let supply = supply("sockets:2 cores:8 threads:2 memory:64GiB hugepages-2Mi:64", &options, "");
    let mut first = claim("a", vec![result("ne-numa0", amounts, &json!({"quota": "remove"}))]);
    first.results[0].share_id = Some("11111111-2222-3333-4444-555555555555".into());
    first.results.push(ClaimResult { is_admin: true, ..exclusive("a", "ne-numa1", 0).results[0].clone() });
    ledger.prepare(&first, &supply, &limits()).unwrap();
    let mut second = exclusive("b", "ne-core9", 0);
    second.results[0].consumed = ConsumedAmounts::Whole;
    second.consumers = vec![ClaimConsumer::Other { resource: "podgroups".into(), uid: "g".into() }];
    let shared = LedgerLimits { share_exclusive: true, ..limits() };
    ledger.prepare(&second, &supply, &shared).unwrap();
    ledger
}

#[test]
fn text_reads_back_in_either_boot() {
    let ledger = some();
    assert_eq!(ledger.claims().count(), 2);
    let text = ledger.to_text();
    assert_eq!(ClaimLedger::from_text(&text, "n1", "boot"), Ok(ledger.clone()));
    let mut later = ClaimLedger::from_text(&text, "n1", "later").unwrap();
    let claims = |ledger: &ClaimLedger| ledger.claims().cloned().collect::<Vec<_>>();
    assert_eq!(claims(&later), claims(&ledger), "CPUs stay with the claim over a reboot");
    let again = ClaimLedger::from_text(&later.to_text(), "n1", "later").unwrap();
    assert_eq!(claims(&again)[0].boot_id, "boot", "a claim keeps its boot until the kubelet asks again");
    let second = exclusive("b", "ne-core9", 0);
    let asked = ClaimAllocation {
        results: claims(&ledger)[1].results.iter().map(|result| result.result.clone()).collect(),
        ..second
    };
    let decision = later.prepare(&asked, &machine(), &limits());
    assert_eq!(decision, Ok(PrepareDecision::Repeated { is_changed: true }));
    assert_eq!(claims(&later)[1].boot_id, "later");
    let first = ClaimUid::parse("a").unwrap();
    assert_eq!(later.repeat(&first), Some(PrepareDecision::Repeated { is_changed: true }));
    assert_eq!(claims(&later)[0].boot_id, "later");
}

#[test]
fn damage_is_named() {
    let text = some().to_text();
    let said = |text: &str| ClaimLedger::from_text(text, "n1", "boot").unwrap_err().to_string();
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} in {text}");
        let (_, body) = text.split_once('\n').unwrap();
        let body = body.trim_end().replacen(from, to, 1);
        said(&format!("{}\n{body}\n", json!({"version": 1, "checksum": checksum(&body)})))
    };
    assert!(said("").starts_with("first line: "), "{}", said(""));
    assert!(said("{}").contains("version: it is missing"));
    assert!(said(&text.replacen("\"version\":1", "\"version\":2", 1)).contains("version: 2 is unknown, 1"));
    assert!(said(&text[..text.len() - 10]).starts_with("checksum: "));
    assert!(said(&text.replace("shop", "shoq")).starts_with("checksum: "));
    let other = ClaimLedger::from_text(&text, "n2", "boot").unwrap_err().to_string();
    assert_eq!(other, "node: it is the state of node n1, this is n2");
    assert!(with("[{", "[[{").starts_with("rest: "));
    assert!(with("\"ne-numa0\"", "\"numa0\"").contains("claims[0].results[0].device: `numa0` is no device"));
    assert!(with("\"9,25\"", "\"9,25-26\"").contains("claims[1].results[0].cpus: 3 CPUs, but 2 were"));
    assert!(with("\"9,25\"", "\"0,25\"").contains("claims[1]: CPU 0 is in claim a already"));
    assert!(with("\"uid\":\"b\"", "\"uid\":\"a\"").contains("claims[1]: claim a is there twice"));
    assert!(with("\"remove\"", "\"lift\"").contains("results[0].options.quota: `lift` is unknown"));
}

proptest! {
    #[test]
    fn no_text_panics(at in 0usize..2_000, byte in any::<char>(), cut in any::<bool>()) {
        let text = some().to_text();
        let body = text.split_once('\n').unwrap().1.trim_end();
        let (before, after) = body.split_at(at % body.len());
        let body = if cut { before.to_owned() } else { format!("{before}{byte}{}", &after[1..]) };
        let head = json!({"version": 1, "checksum": checksum(&body)});
        let _ = ClaimLedger::from_text(&format!("{head}\n{body}\n"), "n1", "boot");
    }
}
