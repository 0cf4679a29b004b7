//! Tables of the specification, and random cases checked against the definition itself.

use proptest::prelude::*;

use super::*;
use crate::hints::{MaskHint, Need, Threshold};
use crate::settings::NumaAllocationStrategy;
use numa_topology::set::NodeSet;

const D4: [[u32; 4]; 4] = [[10, 11, 12, 12], [11, 10, 12, 12], [12, 12, 10, 11], [12, 12, 11, 10]];

fn nodes(number: usize) -> NodeIndex {
    let set: NodeSet = format!("0-{}", number - 1).parse().unwrap();
    NodeIndex::new(&set)
}

/// Two blocks of [`D4`] with 30 between them, and one distance that is not symmetric.
fn d8() -> NodeIndex {
    let mut table = vec![vec![30; 8]; 8];
    for (row, line) in table.iter_mut().enumerate() {
        for (column, distance) in line.iter_mut().enumerate() {
            if row / 4 == column / 4 {
                *distance = D4[row % 4][column % 4];
            }
        }
    }
    table[7][6] = 13;
    nodes(8).with_distances(table)
}

fn d4() -> NodeIndex {
    nodes(4).with_distances(D4.iter().map(|row| row.to_vec()).collect())
}

/// `{0,1}+ {1}- nil+`, with a score after the sign.
fn hints(text: &str) -> Vec<MaskHint> {
    text.split_whitespace().map(hint).collect()
}

fn hint(text: &str) -> MaskHint {
    let sign = text.find(['+', '-']).unwrap();
    let mask = text[..sign].strip_prefix('{').map(|set| {
        let set: NodeSet = set.trim_end_matches('}').parse().unwrap();
        set.iter().fold(0, |mask, node| mask | 1 << node.0)
    });
    let score = text[sign + 1..].parse().unwrap_or(0);
    MaskHint { mask, preferred: &text[sign..=sign] == "+", score }
}

/// Lists separated by semicolons; `none` is no preference, `[]` cannot be satisfied.
fn offers(text: &str) -> Vec<Offer> {
    let offer = |list: &str| match list.trim() {
        "none" => Offer::NoPreference,
        "[]" => Offer::Listed(Vec::new()),
        list => Offer::Listed(hints(list)),
    };
    text.split(';').filter(|list| !list.trim().is_empty()).map(offer).collect()
}

fn shown(nodes: &NodeIndex, merged: Merged) -> String {
    let sign = if merged.preferred { '+' } else { '-' };
    match merged.mask {
        None => format!("nil{sign}"),
        Some(mask) if mask == nodes.all() => format!("ALL{sign}"),
        Some(mask) => format!("{{{}}}{sign}", nodes.nodes(mask)),
    }
}

#[track_caller]
fn expect(nodes: &NodeIndex, options: MergeOptions, lists: &str, expected: &str) {
    let merged = merge(nodes, &offers(lists), options);
    assert_eq!(shown(nodes, merged), expected, "{lists} with {options:?}");
}

const NARROWEST: MergeOptions =
    MergeOptions { prefer_closest: false, single_node: false, strategy: NumaAllocationStrategy::None };
const CLOSEST: MergeOptions = MergeOptions { prefer_closest: true, ..NARROWEST };
const SINGLE: MergeOptions = MergeOptions { single_node: true, ..NARROWEST };

#[test]
fn what_is_the_same_under_every_policy() {
    for (lists, expected) in [
        ("{0}+ ; {0}+", "{0}+"),
        ("{1}+ ; {1}+", "{1}+"),
        ("none ; {0}+", "{0}+"),
        ("none ; {1}+", "{1}+"),
        ("{0}+ {1}+ ; {0}+", "{0}+"),
        ("{0}+ {1}+ ; {1}+", "{1}+"),
        ("{0}+ {1}+ ; {0}+ {0,1}-", "{0}+"),
        ("{1}+ {0,1}- ; {0}+ {1}+ {0,1}-", "{1}+"),
    ] {
        for options in [NARROWEST, CLOSEST, SINGLE] {
            expect(&d4(), options, lists, expected);
        }
    }
}

#[test]
fn what_best_effort_and_restricted_find() {
    for (lists, expected) in [
        ("", "ALL+"),
        ("none", "ALL+"),
        ("[]", "ALL-"),
        ("nil+", "ALL+"),
        ("nil-", "ALL-"),
        ("{0}+ ; {1}+", "ALL-"),
        ("{0}+ ; {0}-", "{0}-"),
        ("{1}+ ; {1}-", "{1}-"),
        ("{0}+ ; {0,1}+", "{0}-"),
        ("{1}+ ; {0,1}+", "{1}-"),
        ("{0}+ {1}+ ; {0,1}-", "{0}-"),
        ("{0,1}+ {0,2}+ ; {0,1}+ {0,2}+", "{0-1}+"),
        ("{0,1,2,3}- {0,1}- ; {0,1}-", "{0-1}-"),
        ("{0,1,2,3}- {0,1}- ; {0,3}-", "{0,3}-"),
        ("{0,1,2,3}- {0,1}- ; {1,2}-", "{1-2}-"),
        ("{0,1,2,3}- {0,1}- ; {2,3}-", "{2-3}-"),
        // One resource that cannot be satisfied leaves the choice to the others.
        ("{1}+ {2}+ ; []", "{1}-"),
        ("{} + ; {1}+", "ALL-"),
    ] {
        let lists = lists.replace("{} +", "{}+");
        expect(&d4(), NARROWEST, &lists, expected);
        expect(&d4(), CLOSEST, &lists, expected);
    }
}

#[test]
fn distances_decide_between_equal_widths_only() {
    for lists in ["{0,1,2,3}- {0,1}- ; {1,2}- {2,3}-", "{0,1,2,3}- {0,1}- ; {1,2,3}- {1,2}- {1,3}- {2,3}-"] {
        for machine in [d4(), d8()] {
            expect(&machine, NARROWEST, lists, "{1-2}-");
            expect(&machine, CLOSEST, lists, "{2-3}-");
        }
    }
    expect(&d8(), CLOSEST, "{0,4}+ {0,2}+ ; {0,4}+ {0,2}+", "{0,2}+");
    expect(&d8(), CLOSEST, "{4}+ {0,2}+ ; {4}+ {0,2}+", "{4}+");
    let flat = nodes(4).with_distances(vec![vec![10; 4]; 4]);
    expect(&flat, CLOSEST, "{0,1}+ {0,2}+", "{0-1}+");
    for (lists, expected) in [
        ("{0}+ {0,2}+", "{0}+"),
        ("{0,3}+ {0,2}+", "{0,2}+"),
        ("{0,3}+ {0,1}+", "{0-1}+"),
        ("{2,3}+ {0,3}+", "{2-3}+"),
    ] {
        expect(&d4(), CLOSEST, lists, expected);
    }
}

#[test]
fn distances_that_are_not_known_between_all_nodes_decide_nothing() {
    let ragged = nodes(4).with_distances(vec![vec![10, 20], vec![20, 10]]);
    for machine in [nodes(4), ragged] {
        expect(&machine, CLOSEST, "{1,2}+ {2,3}+", "{1-2}+");
    }
}

#[test]
fn the_average_distance_counts_every_ordered_pair_and_the_nodes_themselves() {
    let machine = d4();
    let order = NodeSetOrder::of_preferred(&machine, CLOSEST);
    for (mask, sum) in [(0, 0), (0b1, 10), (0b11, 42), (0b101, 44), (0b1101, 100)] {
        assert_eq!(order.spread(mask), sum, "{mask:b}");
    }
}

#[test]
fn what_single_numa_node_finds() {
    for (lists, expected) in [
        ("", "nil+"),
        ("none", "nil+"),
        ("nil+", "nil+"),
        ("[]", "nil-"),
        ("nil-", "nil-"),
        ("{0}+ ; {1}+", "nil-"),
        ("{0}+ ; {0}-", "nil-"),
        ("{1}+ ; {1}-", "nil-"),
        ("{0}+ {1}+ ; {0,1}-", "nil-"),
        ("{0,1}+ ; {0}+ {1}+ {0,1}-", "nil-"),
        ("{0}+ {1}+ {0,1}- ; none", "{0}+"),
    ] {
        expect(&nodes(4), SINGLE, lists, expected);
    }
    // On a machine with one node, that is all nodes.
    expect(&nodes(1), SINGLE, "{0}+", "nil+");
    expect(&nodes(1), NARROWEST, "{0}+", "ALL+");
}

#[test]
fn the_wanted_width_is_that_of_the_most_demanding_resource() {
    for (lists, wanted) in [
        ("", 0),
        ("none", 0),
        ("{}+", 0),
        ("{0}+", 1),
        ("{0,1}+", 2),
        ("{0,1}+ {0,1,2}+", 2),
        ("{0,1}+ {0,1,2}+ ; {0,1,2}+", 3),
        ("{0,1}+ {0,1,2}+ ; {0,1,2}+ {0,1,2,3}+", 3),
    ] {
        let offers = offers(lists);
        let lists = HintLists::new(&offers, &nodes(4), NARROWEST);
        assert_eq!(amounts::widest_of_the_narrowest(&nodes(4), &lists), wanted);
    }
}

#[test]
fn of_two_sets_the_better_one_is_found_in_either_order() {
    let machine = nodes(4);
    for (wanted, one, other, better) in [
        (1, 0b011, 0b110, 0b011),
        (2, 0b011, 0b001, 0b011),
        (2, 0b110, 0b011, 0b011),
        (2, 0b001, 0b111, 0b001),
        (2, 0b001, 0b011, 0b011),
        (3, 0b001, 0b011, 0b011),
        (3, 0b001, 0b110, 0b110),
        (4, 0b0011, 0b1110, 0b1110),
        (4, 0b0111, 0b1110, 0b0111),
        (1, 0b0111, 0b1100, 0b1100),
    ] {
        for pair in [[one, other], [other, one], [one, one]] {
            let (order, scores) = (
                NodeSetOrder::of_others(&machine, NARROWEST, wanted),
                Scores::new(&[], 0, NumaAllocationStrategy::None, |_| true),
            );
            let mut best = Best::new(&order, &scores);
            for mask in pair {
                best.consider(mask);
            }
            best.consider(0);
            let expected = if pair[0] == pair[1] { one } else { better };
            assert_eq!(best.found(), Some(expected), "{pair:?} where {wanted} is wanted");
        }
    }
}

#[test]
fn set_outside_the_machine_is_never_preferred() {
    for (lists, expected) in [
        ("{0}+ ; {1}+ nil+ {0}+", "{0}+"),
        ("{0,1}+ ; {1}+", "{1}-"),
        ("{2}+ ; nil+", "ALL-"),
        ("none ; {0}+ ; none", "{0}+"),
        // On the machine both are node 0, but they are not the same set.
        ("{0,2}+ ; {0,3}+", "{0}-"),
        ("{0,2}+ ; {0,2}+", "{0}+"),
        ("{1}- {0,2}- ; {1,2}- {0,2}- {3}-", "{0}-"),
    ] {
        expect(&nodes(2), NARROWEST, lists, expected);
    }
    expect(&nodes(3), SINGLE, "{0,3}+ {1}+", "{1}+");
}

#[test]
fn use_decides_between_sets_that_are_otherwise_equal() {
    use NumaAllocationStrategy::{LeastAllocated, MostAllocated, None};
    for (strategy, lists, expected) in [
        (MostAllocated, "{0}+20 {1}+80", "{1}+"),
        (LeastAllocated, "{0}+20 {1}+80", "{0}+"),
        (None, "{0}+20 {1}+80", "{0}+"),
        (MostAllocated, "{0}+50 {1}+90 ; {0}+10 {1}+70", "{1}+"),
        (MostAllocated, "{0}+50 {1}+50", "{0}+"),
        (LeastAllocated, "{0}+50 {1}+0", "{0}+"),
        (MostAllocated, "{0}+20 {0,1}+90", "{0}+"),
        (MostAllocated, "{0}+20 {1}-90", "{0}+"),
        (MostAllocated, "{0}+40 {1}+60 ; {0}+80 {1}+59", "{0}+"),
        (MostAllocated, "{0}+90 {1}+91 ; {0}+0 {1}+0", "{1}+"),
        (MostAllocated, "{0}+40 {1}+41 ; nil+", "{1}+"),
        // A set without a score is compared by its ids alone.
        (MostAllocated, "{0}+0 {1}+80", "{0}+"),
        (MostAllocated, "{0}+10 {1}+0 {2}+80", "{2}+"),
    ] {
        expect(&nodes(4), MergeOptions { strategy, ..NARROWEST }, lists, expected);
    }
    let closest = MergeOptions { strategy: MostAllocated, ..CLOSEST };
    expect(&d4(), closest, "{0,1}+20 {2,3}+80", "{2-3}+");
    expect(&d4(), closest, "{0,1}+20 {1,2}+80", "{0-1}+");
}

/// The definition: every combination of the cross product in turn.
fn by_definition(machine: &NodeIndex, offers: &[Offer], options: MergeOptions) -> Merged {
    let all = machine.all();
    let lists: Vec<Vec<MaskHint>> = offers.iter().map(|offer| explicit(offer, machine, options)).collect();
    let wanted = widest(&lists);
    let mut best: Option<(Mask, bool)> = None;
    for combination in product(&lists) {
        let named: Vec<Mask> = combination.iter().filter_map(|hint| hint.mask).collect();
        let mask = named.iter().fold(all, |common, mask| common & mask);
        let preferred =
            combination.iter().all(|hint| hint.preferred) && named.windows(2).all(|pair| pair[0] == pair[1]);
        if mask != 0 && best.is_none_or(|best| beats((mask, preferred), best, wanted, machine, options)) {
            best = Some((mask, preferred));
        }
    }
    let (mask, preferred) = best.unwrap_or((all, false));
    Merged { mask: (!options.single_node || mask != all).then_some(mask), preferred }
}

fn explicit(offer: &Offer, machine: &NodeIndex, options: MergeOptions) -> Vec<MaskHint> {
    let any = |preferred| vec![MaskHint { mask: None, preferred, score: 0 }];
    let hints = match offer {
        Offer::NoPreference => any(true),
        Offer::Listed(hints) if hints.is_empty() => any(false),
        Offer::Listed(hints) => hints.clone(),
        Offer::Threshold(threshold) => {
            let hints = threshold.listed(machine.len());
            if hints.is_empty() { any(false) } else { hints }
        }
    };
    let counts = |hint: &MaskHint| {
        !options.single_node || hint.preferred && hint.mask.is_none_or(u64::is_power_of_two)
    };
    hints.into_iter().filter(counts).collect()
}

fn widest(lists: &[Vec<MaskHint>]) -> u32 {
    let narrowest = |list: &Vec<MaskHint>| list.iter().filter_map(|h| h.mask).map(u64::count_ones).min();
    lists.iter().filter_map(narrowest).max().unwrap_or(0)
}

fn product(lists: &[Vec<MaskHint>]) -> Vec<Vec<MaskHint>> {
    lists.iter().fold(vec![Vec::new()], |rows, list| {
        rows.iter().flat_map(|row| list.iter().map(move |hint| [row.as_slice(), &[*hint]].concat())).collect()
    })
}

/// The comparison as the specification words it.
fn beats(
    (candidate, preferred): (Mask, bool),
    (current, current_preferred): (Mask, bool),
    wanted: u32,
    machine: &NodeIndex,
    options: MergeOptions,
) -> bool {
    let (new, old) = (candidate.count_ones(), current.count_ones());
    match (preferred, current_preferred) {
        (true, false) => return true,
        (false, true) => return false,
        (true, true) => return fitter(candidate, current, machine, options),
        (false, false) => {}
    }
    if old > wanted {
        fitter(candidate, current, machine, options)
    } else if old == wanted {
        new == wanted && fitter(candidate, current, machine, options)
    } else if new > wanted {
        false
    } else if new != old {
        new > old
    } else {
        fitter(candidate, current, machine, options)
    }
}

fn fitter(candidate: Mask, current: Mask, machine: &NodeIndex, options: MergeOptions) -> bool {
    let (new, old) = (candidate.count_ones(), current.count_ones());
    if new != old {
        return new < old;
    }
    if options.prefer_closest && !machine.distances().is_empty() {
        let (new, old) = (average(candidate, machine), average(current, machine));
        if (new - old).abs() > 1e-9 {
            return new < old;
        }
    }
    candidate < current
}

fn average(mask: Mask, machine: &NodeIndex) -> f64 {
    let nodes: Vec<usize> = (0..machine.len()).filter(|n| mask >> n & 1 == 1).collect();
    let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| machine.distances()[*from][*to]));
    pairs.map(f64::from).sum::<f64>() / f64::from(mask.count_ones().pow(2))
}

fn any_hint(bits: u32) -> impl Strategy<Value = MaskHint> {
    let mask = prop_oneof![1 => Just(None), 12 => (0..1_u64 << bits).prop_map(Some)];
    (mask, any::<bool>()).prop_map(|(mask, preferred)| MaskHint { mask, preferred, score: 0 })
}

fn any_threshold(nodes: usize) -> impl Strategy<Value = Threshold> {
    // From nothing to slightly more than the machine has, so that both plenty and scarcity occur.
    let need = (prop::collection::vec(0..5_u64, nodes), 0..22_u64).prop_map(|(free, share)| {
        let amount = free.iter().sum::<u64>() * share / 20;
        Need { free, amount }
    });
    let must = prop_oneof![3 => Just(0), 1 => 0..1_u64 << nodes];
    (prop::collection::vec(need, 0..3), 1..4_u32, must).prop_map(|(needs, width, must)| Threshold {
        needs,
        width,
        must,
    })
}

fn any_offer(nodes: usize) -> impl Strategy<Value = Offer> {
    // One bit more than there are nodes: a node that the machine does not have.
    let bits = u32::try_from(nodes + 1).unwrap();
    prop_oneof![
        1 => Just(Offer::NoPreference),
        8 => prop::collection::vec(any_hint(bits), 0..8).prop_map(Offer::Listed),
        2 => any_threshold(nodes).prop_map(Offer::Threshold),
    ]
}

fn any_machine() -> impl Strategy<Value = NodeIndex> {
    (1..6_usize).prop_flat_map(|number| {
        let row = prop::collection::vec(8..14_u32, number);
        prop::option::of(prop::collection::vec(row, number))
            .prop_map(move |table| nodes(number).with_distances(table.unwrap_or_default()))
    })
}

fn any_question() -> impl Strategy<Value = (NodeIndex, Vec<Offer>)> {
    any_machine().prop_flat_map(|machine| {
        let offers = prop::collection::vec(any_offer(machine.len()), 0..4);
        (Just(machine), offers)
    })
}

/// Thresholds on up to twelve nodes, and a few lists.
fn any_amounts() -> impl Strategy<Value = (NodeIndex, Vec<Offer>)> {
    (1..13_usize).prop_flat_map(|number| {
        let row = prop::collection::vec(prop_oneof![Just(10_u32), Just(12), Just(21)], number);
        let tables =
            prop_oneof![Just(Vec::new()).boxed(), prop::collection::vec(row, number).boxed(), blocks(number)];
        let machine = tables.prop_map(move |table| nodes(number).with_distances(table));
        let offer = prop_oneof![
            6 => any_threshold(number).prop_map(Offer::Threshold),
            1 => any_offer(number),
        ];
        (machine, prop::collection::vec(offer, 1..5))
    })
}

/// Sockets of a few nodes.
fn blocks(number: usize) -> BoxedStrategy<Vec<Vec<u32>>> {
    let distance = |one: usize, other: usize, size: usize| match () {
        () if one == other => 10,
        () if one / size == other / size => 12,
        () => 21,
    };
    let table = move |size| {
        (0..number).map(|one| (0..number).map(|other| distance(one, other, size)).collect()).collect()
    };
    (1..5_usize).prop_map(table).boxed()
}

fn any_options() -> impl Strategy<Value = MergeOptions> {
    prop_oneof![4 => Just(NARROWEST), 4 => Just(CLOSEST), 1 => Just(SINGLE)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_closed_form_is_the_definition((machine, offers) in any_question(), options in any_options()) {
        prop_assert_eq!(merge(&machine, &offers, options), by_definition(&machine, &offers, options));
    }

    #[test]
    fn amounts_find_what_enumeration_finds((machine, offers) in any_amounts(), options in any_options()) {
        let (lists, amounts) = (machine.clone().with_lists(), machine.without_lists());
        prop_assert_eq!(merge(&amounts, &offers, options), merge(&lists, &offers, options));
        prop_assert_eq!(complete(&amounts, &offers, options), complete(&lists, &offers, options));
    }

    #[test]
    fn a_complete_set_is_the_narrowest_that_each_resource_accepts(
        (machine, thresholds) in any_machine().prop_flat_map(|machine| {
            let thresholds = prop::collection::vec(any_threshold(machine.len()), 1..4);
            (Just(machine), thresholds)
        }),
        options in prop_oneof![Just(NARROWEST), Just(CLOSEST)],
    ) {
        let accepted = |mask: &Mask| thresholds.iter().all(|threshold| threshold.suffices(*mask));
        let narrowest = (1..=machine.all()).filter(accepted).map(Mask::count_ones).min();
        let offers: Vec<Offer> = thresholds.iter().cloned().map(Offer::Threshold).collect();
        for machine in [machine.clone(), machine.without_lists()] {
            let found = complete(&machine, &offers, options);
            prop_assert!(found.is_none_or(|found| accepted(&found)));
            prop_assert_eq!(found.map(Mask::count_ones), narrowest);
        }
    }
}
