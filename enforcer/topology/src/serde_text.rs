//! The serde form of sets and sizes: the text that `Display` writes and `FromStr` reads.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{id::Id, set::IdSet, size::ByteSize, text::quoted};

impl<T: Id> Serialize for IdSet<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, T: Id> Deserialize<'de> for IdSet<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        quoted::read(deserializer, "a list of ids in quotes, as in \"0-3,8\"")
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        quoted::read(deserializer, "a number of bytes in quotes, as in \"64MiB\"")
    }
}
