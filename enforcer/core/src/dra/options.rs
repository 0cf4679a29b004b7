//! Options of a claim: the opaque configuration `NumaClaimConfig` of a class or a claim.
//!
//! Idea: every field is optional. Fields of the claim beat those of its class one by one; what neither names
//! has its default. Invariant: an unknown kind, version, field or value is an error that names the field,
//! because an option that is passed over silently would be believed to hold.
//!
//! The shell calls nothing here: [`super::ClaimAllocation::read`] does.

use serde_json::{Value, json};

use super::{
    DRIVER,
    field::{Field, FieldError, shown},
};

/// Version of the options.
const VERSION: &str = "v1alpha1";
/// Kind of the options.
const KIND: &str = "NumaClaimConfig";
/// Longest value of a field.
const MAX_VALUE: usize = 253;
/// Most fields that are looked at.
const MAX_FIELDS: usize = 32;

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$of])* $variant),+
        }

        impl $name {
            const NAMES: &[(&str, Self)] = &[$(($text, Self::$variant)),+];

            const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }
    };
}

choice! {
    /// Where the memory of the containers is.
    ClaimMemory {
        /// On the nodes of the claim alone.
        Strict = "strict",
        /// On the nodes of the claim as long as they have room.
        Preferred = "preferred",
        /// Anywhere.
        Free = "free",
    }
}
choice! {
    /// Which CPUs are exclusive.
    ClaimCores {
        /// Any; whole cores first.
        Any = "any",
        /// Whole cores alone.
        Full = "full",
    }
}
choice! {
    /// How exclusive CPUs share caches and cores.
    ClaimPack {
        /// Behind one last-level cache if they fit.
        L3 = "l3",
        /// On cores of their own.
        Spread = "spread",
    }
}
choice! {
    /// Whether containers may also run on idle CPUs of others.
    ClaimWiden {
        /// They may not.
        Never = "never",
        /// While these are idle.
        Idle = "idle",
    }
}
choice! {
    /// Whether containers with exclusive CPUs alone keep their CPU quota.
    ClaimQuota {
        /// It stays.
        Keep = "keep",
        /// It is lifted.
        Remove = "remove",
    }
}
choice! {
    /// Whether interrupts of devices are kept off exclusive CPUs.
    ClaimIrqs {
        /// They are not.
        Leave = "leave",
        /// They are, as far as possible.
        Away = "away",
    }
}

/// Options of a result of a claim; what is not set has its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClaimOptions {
    memory: Option<ClaimMemory>,
    cores: Option<ClaimCores>,
    pack: Option<ClaimPack>,
    widen: Option<ClaimWiden>,
    quota: Option<ClaimQuota>,
    irqs: Option<ClaimIrqs>,
}

impl ClaimOptions {
    /// Reads the parameters of one configuration.
    pub(super) fn read(parameters: &Field<'_>) -> Result<Self, FieldError> {
        let expected = format!("{DRIVER}/{VERSION}");
        for (name, expected) in [("apiVersion", expected.as_str()), ("kind", KIND)] {
            let field = parameters.need(name)?;
            let found = field.text(MAX_VALUE)?;
            if found != expected {
                return Err(field.error(format!("{} is unknown, {expected} is expected", shown(found))));
            }
        }
        let mut options = Self::default();
        for (name, field) in parameters.entries(MAX_FIELDS)? {
            match name {
                "apiVersion" | "kind" => {}
                _ => options.set(name, &field)?,
            }
        }
        Ok(options)
    }

    /// Reads the options of a state file: the fields alone.
    pub(super) fn read_recorded(record: &Field<'_>) -> Result<Self, FieldError> {
        let mut options = Self::default();
        for (name, field) in record.entries(MAX_FIELDS)? {
            options.set(name, &field)?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, field: &Field<'_>) -> Result<(), FieldError> {
        match name {
            "memory" => self.memory = Some(named(field, ClaimMemory::NAMES)?),
            "cores" => self.cores = Some(named(field, ClaimCores::NAMES)?),
            "pack" => self.pack = Some(named(field, ClaimPack::NAMES)?),
            "widen" => self.widen = Some(named(field, ClaimWiden::NAMES)?),
            "quota" => self.quota = Some(named(field, ClaimQuota::NAMES)?),
            "irqs" => self.irqs = Some(named(field, ClaimIrqs::NAMES)?),
            _ => return Err(field.error(format!("it is no field of {KIND} {VERSION}"))),
        }
        Ok(())
    }

    /// The set fields as JSON, for the state file and for plans.
    pub(crate) fn to_json(self) -> Value {
        let fields = [
            ("memory", self.memory.map(ClaimMemory::name)),
            ("cores", self.cores.map(ClaimCores::name)),
            ("pack", self.pack.map(ClaimPack::name)),
            ("widen", self.widen.map(ClaimWiden::name)),
            ("quota", self.quota.map(ClaimQuota::name)),
            ("irqs", self.irqs.map(ClaimIrqs::name)),
        ];
        let set = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
        Value::Object(set.collect())
    }

    /// These options, over those of the class.
    pub(super) fn over(self, class: Self) -> Self {
        Self {
            memory: self.memory.or(class.memory),
            cores: self.cores.or(class.cores),
            pack: self.pack.or(class.pack),
            widen: self.widen.or(class.widen),
            quota: self.quota.or(class.quota),
            irqs: self.irqs.or(class.irqs),
        }
    }

    /// The option that contradicts another one, and why.
    pub(super) fn contradiction(self) -> Option<(&'static str, &'static str)> {
        let both = self.cores() == ClaimCores::Full && self.pack() == ClaimPack::Spread;
        both.then_some(("pack", "`spread` gives each CPU a core of its own, and cores is `full`"))
    }

    /// The option whose value is known and has no effect in this version: it is refused, because a claim
    /// that is prepared would be believed to have it.
    pub(super) fn unsupported(self) -> Option<(&'static str, &'static str)> {
        (self.widen() == ClaimWiden::Idle).then_some(("widen", "`idle` is not supported by this version"))
    }

    /// Where memory is; `claims_memory` says whether the claim has an amount of it. The default is strict
    /// with one, preferred without.
    pub fn memory(self, claims_memory: bool) -> ClaimMemory {
        let default = if claims_memory { ClaimMemory::Strict } else { ClaimMemory::Preferred };
        self.memory.unwrap_or(default)
    }

    /// Whether memory is preferred on the nodes by choice, not by default.
    pub fn asks_for_preferred_memory(self) -> bool {
        self.memory == Some(ClaimMemory::Preferred)
    }

    /// Which CPUs are exclusive; any by default.
    pub fn cores(self) -> ClaimCores {
        self.cores.unwrap_or(ClaimCores::Any)
    }

    /// How CPUs share caches; l3 by default.
    pub fn pack(self) -> ClaimPack {
        self.pack.unwrap_or(ClaimPack::L3)
    }

    /// Whether containers may run on idle CPUs of others; never by default.
    pub fn widen(self) -> ClaimWiden {
        self.widen.unwrap_or(ClaimWiden::Never)
    }

    /// What becomes of the quota; it is kept by default.
    pub fn quota(self) -> ClaimQuota {
        self.quota.unwrap_or(ClaimQuota::Keep)
    }

    /// Whether CPUs are away from interrupts; left by default.
    pub fn irqs(self) -> ClaimIrqs {
        self.irqs.unwrap_or(ClaimIrqs::Leave)
    }
}

fn named<T: Copy>(field: &Field<'_>, names: &[(&str, T)]) -> Result<T, FieldError> {
    let text = field.text(MAX_VALUE)?;
    let known = names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    known.ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        field.error(format!("{} is unknown, known are {}", shown(text), names.join(", ")))
    })
}

#[cfg(test)]
mod tests;
