//! One line of `expect`: `CONTAINERS FIELD VERB [VALUE]`.

use std::collections::BTreeSet;

use numa_topology::set::CpuSet;

use super::state::{Field, Ids, State};

/// Is the claim true?
pub(crate) fn check(claim: &str, state: &State<'_>) -> Result<(), String> {
    let mut words = claim.splitn(4, ' ');
    let (Some(containers), Some(field), Some(verb)) = (words.next(), words.next(), words.next()) else {
        return Err(format!("`{claim}` is not CONTAINERS FIELD VERB [VALUE]"));
    };
    let value = words.next().unwrap_or("");
    let names = state.named(containers)?;
    let has: Vec<(&str, Field)> =
        names.iter().map(|name| Ok((*name, state.field(name, field)?))).collect::<Result<_, String>>()?;
    match (verb, value) {
        ("same", "") => all_the_same(&has),
        ("disjoint", "") => all_disjoint(&has),
        _ => has.iter().try_for_each(|(name, has)| one(name, has, field, verb, value, state)),
    }
    .map_err(|why| format!("`{claim}`: {why}"))
}

fn all_the_same(has: &[(&str, Field)]) -> Result<(), String> {
    let different = has.windows(2).find(|pair| pair[0].1 != pair[1].1);
    different.map_or(Ok(()), |pair| {
        Err(format!("{} has {}, {} has {}", pair[0].0, shown(&pair[0].1), pair[1].0, shown(&pair[1].1)))
    })
}

fn all_disjoint(has: &[(&str, Field)]) -> Result<(), String> {
    for (index, (name, field)) in has.iter().enumerate() {
        for (other, others) in &has[..index] {
            if !ids(field)?.is_disjoint(ids(others)?) {
                return Err(format!("{other} has {}, {name} has {}", shown(others), shown(field)));
            }
        }
    }
    Ok(())
}

fn one(
    name: &str,
    has: &Field,
    field: &str,
    verb: &str,
    value: &str,
    state: &State<'_>,
) -> Result<(), String> {
    let holds = match (verb, has) {
        ("is", Field::Text(text)) => value.split('|').any(|wanted| wanted == text),
        ("begins", Field::Text(text)) => !value.is_empty() && text.starts_with(value),
        ("is", Field::Ids(ids)) => value.split('|').map(list).collect::<Result<Vec<Ids>, _>>()?.contains(ids),
        ("count", Field::Ids(ids)) => counts(value, ids.len())?,
        ("within", Field::Ids(ids)) => ids.is_subset(&others(value, field, state)?),
        ("disjoint", Field::Ids(ids)) => ids.is_disjoint(&others(value, field, state)?),
        ("as", Field::Ids(_)) => *has == state.field(name, value)?,
        _ => return Err(format!("{field} cannot be compared by `{verb}`")),
    };
    if holds { Ok(()) } else { Err(format!("{name} has {}", shown(has))) }
}

/// `2`, `2..`, `2..3`.
fn counts(range: &str, count: usize) -> Result<bool, String> {
    let number = |text: &str| text.parse::<usize>().map_err(|error| format!("`{range}`: {error}"));
    match range.split_once("..") {
        None => Ok(number(range)? == count),
        Some((least, "")) => Ok(number(least)? <= count),
        Some((least, most)) => Ok((number(least)?..=number(most)?).contains(&count)),
    }
}

/// Ids of a list, or the same field of other containers together.
fn others(value: &str, field: &str, state: &State<'_>) -> Result<Ids, String> {
    if !value.contains('/') {
        return list(value);
    }
    let mut sum = BTreeSet::new();
    for name in state.named(value)? {
        sum.extend(ids(&state.field(name, field)?)?);
    }
    Ok(sum)
}

fn list(text: &str) -> Result<Ids, String> {
    let set: CpuSet = text.parse().map_err(|error| format!("`{text}`: {error}"))?;
    Ok(set.iter().map(|id| id.0).collect())
}

fn ids(field: &Field) -> Result<&Ids, String> {
    match field {
        Field::Ids(ids) => Ok(ids),
        Field::Text(_) => Err("a text has no members".to_owned()),
    }
}

fn shown(field: &Field) -> String {
    match field {
        Field::Text(text) => format!("`{text}`"),
        Field::Ids(ids) => {
            let set: CpuSet = ids.iter().copied().map(numa_topology::id::CpuId).collect();
            format!("`{set}`")
        }
    }
}
