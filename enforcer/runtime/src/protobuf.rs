//! Counts the fields of a protobuf message without decoding it.
//!
//! Problem: an empty message is two bytes, and hundreds once it is decoded, so a bound on bytes is none on
//! memory. Idea: count the fields before decoding. Nothing is copied, and a message that is not understood to
//! its end is refused, because no bound holds for it. Groups are not understood; no message of ours has them.
//!
//! Source: "Encoding" of the Protocol Buffers documentation.

/// Most bytes of a varint.
const LONGEST_VARINT: usize = 10;

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MalformedProtobuf;

/// Occurrences of the field at the end of the path (field numbers, from the outermost); stops at `enough`.
pub(super) fn occurrences(bytes: &[u8], path: &[u32], enough: usize) -> Result<usize, MalformedProtobuf> {
    sum(bytes, path, enough, &|_| 1)
}

/// Most numbers that a packed field at the end of the path can hold; stops at `enough`.
pub(super) fn numbers(bytes: &[u8], path: &[u32], enough: usize) -> Result<usize, MalformedProtobuf> {
    sum(bytes, path, enough, &|field| field.map_or(1, <[u8]>::len))
}

fn sum(
    bytes: &[u8],
    path: &[u32],
    enough: usize,
    weight: &impl Fn(Option<&[u8]>) -> usize,
) -> Result<usize, MalformedProtobuf> {
    let Some((wanted, below)) = path.split_first() else { return Ok(0) };
    let (mut rest, mut total) = (bytes, 0_usize);
    while !rest.is_empty() && total < enough {
        let (number, field);
        (number, field, rest) = next(rest).ok_or(MalformedProtobuf)?;
        if number != *wanted {
            continue;
        }
        total = total.saturating_add(match field {
            _ if below.is_empty() => weight(field),
            Some(inner) => sum(inner, below, enough - total, weight)?,
            None => 0,
        });
    }
    Ok(total)
}

/// A field's number, its bytes where it has a length, and what follows it.
type Field<'a> = (u32, Option<&'a [u8]>, &'a [u8]);

/// The first field.
fn next(bytes: &[u8]) -> Option<Field<'_>> {
    let (key, rest) = varint(bytes)?;
    let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0)?;
    match key & 7 {
        0 => Some((number, None, varint(rest)?.1)),
        1 => Some((number, None, rest.get(8..)?)),
        2 => {
            let (length, rest) = varint(rest)?;
            let (field, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some((number, Some(field), rest))
        }
        5 => Some((number, None, rest.get(4..)?)),
        _ => None,
    }
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().take(LONGEST_VARINT).position(|byte| *byte < 0x80)?;
    let (number, rest) = bytes.split_at_checked(end + 1)?;
    let value = number.iter().rev().fold(0, |value: u64, byte| value << 7 | u64::from(byte & 0x7f));
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Tree {
        #[prost(message, repeated, tag = "2")]
        trees: Vec<Self>,
        #[prost(string, repeated, tag = "300")]
        names: Vec<String>,
        #[prost(int64, repeated, tag = "4")]
        numbers: Vec<i64>,
        #[prost(fixed64, tag = "5")]
        eight: u64,
        #[prost(fixed32, tag = "6")]
        four: u32,
    }

    fn any_tree() -> impl Strategy<Value = Tree> {
        let names = || prop::collection::vec(".{0,9}", 0..4);
        let numbers = || prop::collection::vec(any::<i64>(), 0..4);
        let leaf =
            (names(), numbers(), any::<u64>(), any::<u32>()).prop_map(|(names, numbers, eight, four)| Tree {
                trees: Vec::new(),
                names,
                numbers,
                eight,
                four,
            });
        leaf.prop_recursive(3, 30, 4, move |inner| {
            (prop::collection::vec(inner, 0..4), names()).prop_map(|(trees, names)| Tree {
                trees,
                names,
                ..Tree::default()
            })
        })
    }

    proptest! {
        #[test]
        fn as_many_are_counted_as_are_decoded(tree in any_tree()) {
            let bytes = tree.encode_to_vec();
            let count = |path: &[u32]| occurrences(&bytes, path, usize::MAX);
            prop_assert_eq!(count(&[2]), Ok(tree.trees.len()));
            prop_assert_eq!(count(&[300]), Ok(tree.names.len()));
            prop_assert_eq!(count(&[2, 300]), Ok(tree.trees.iter().map(|tree| tree.names.len()).sum()));
            prop_assert_eq!(count(&[2, 2]), Ok(tree.trees.iter().map(|tree| tree.trees.len()).sum()));
            prop_assert!(numbers(&bytes, &[4], usize::MAX).unwrap() >= tree.numbers.len());
        }

        #[test]
        fn what_is_decoded_from_any_bytes_was_counted(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let counted = occurrences(&bytes, &[300], usize::MAX);
            if let (Ok(tree), Ok(counted)) = (Tree::decode(&*bytes), counted) {
                prop_assert_eq!(tree.names.len(), counted);
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_unless_it_is_beyond_what_matters() {
        for bytes in
            [&[0xff; 12][..], &[0x12], &[0x12, 5, 1], &[0x00, 0], &[0x13, 0x14], &[0x09, 1], &[0x0d, 1]]
        {
            assert_eq!(occurrences(bytes, &[2], usize::MAX), Err(MalformedProtobuf), "{bytes:?}");
        }
        assert_eq!(occurrences(&[0x12, 1, 0xff], &[2, 2], usize::MAX), Err(MalformedProtobuf));
        assert_eq!(occurrences(&[0x12, 0, 0x12, 0, 0xff], &[2], 2), Ok(2));
        assert_eq!(occurrences(&[0x10, 7], &[2, 1], usize::MAX), Ok(0));
    }
}
