//! Messages of D-Bus, as far as two questions to systemd need them (the D-Bus specification, "Message
//! Protocol").
//!
//! Invariants: pure, bytes in and bytes out. Nothing that comes in can panic or take more memory than it has
//! bytes; what is not understood is an error. Messages are in the byte order of this machine, as those of
//! everything on it are.

use thiserror::Error;

/// Bytes that every message begins with; they say how long it is.
pub(super) const HEAD: usize = 16;

/// Longest message that is read: three paths, or a list of drop-ins.
const LONGEST: usize = 1 << 20;

/// Byte order of this machine.
const ENDIAN: u8 = if cfg!(target_endian = "little") { b'l' } else { b'B' };

/// Kinds of messages, and of the fields of their headers.
const CALL: u8 = 1;
const REPLY: u8 = 2;
const ERROR: u8 = 3;
const PATH_FIELD: u8 = 1;
const INTERFACE_FIELD: u8 = 2;
const MEMBER_FIELD: u8 = 3;
const ERROR_FIELD: u8 = 4;
const REPLY_FIELD: u8 = 5;
const DESTINATION_FIELD: u8 = 6;
const SIGNATURE_FIELD: u8 = 8;

/// What is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("systemd's answer is no message of D-Bus that is known here")]
pub(super) struct MalformedMessage;

/// A call of a method of systemd.
#[derive(Debug)]
pub(super) struct BusCall<'a> {
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) member: &'a str,
    /// Types of what is in the body.
    pub(super) signature: &'a str,
    pub(super) body: Body,
}

impl BusCall<'_> {
    /// The whole message.
    pub(super) fn encode(&self, serial: u32) -> Vec<u8> {
        let mut fields = Body::default();
        let texts = [
            (PATH_FIELD, "o", self.path),
            (INTERFACE_FIELD, "s", self.interface),
            (MEMBER_FIELD, "s", self.member),
            (DESTINATION_FIELD, "s", "org.freedesktop.systemd1"),
        ];
        for (code, kind, text) in texts {
            fields.align(8).byte(code).signature(kind).text(text);
        }
        fields.align(8).byte(SIGNATURE_FIELD).signature("g").signature(self.signature);
        let mut message = Body::default();
        message.byte(ENDIAN).byte(CALL).byte(0).byte(1);
        message.number(length(&self.body.0)).number(serial).number(length(&fields.0));
        message.0.extend(fields.0);
        message.align(8);
        message.0.extend(&self.body.0);
        message.0
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// Values, one behind the other, each at a multiple of its alignment.
#[derive(Debug, Default)]
pub(super) struct Body(Vec<u8>);

impl Body {
    pub(super) fn align(&mut self, to: usize) -> &mut Self {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
        self
    }

    fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    pub(super) fn number(&mut self, number: u32) -> &mut Self {
        self.align(4).0.extend(number.to_ne_bytes());
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.number(length(text.as_bytes())).0.extend(text.as_bytes());
        self.byte(0)
    }

    pub(super) fn signature(&mut self, signature: &str) -> &mut Self {
        self.0.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.0.extend(signature.as_bytes());
        self.byte(0)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(length(bytes)).0.extend(bytes);
        self
    }

    /// An array of one structure, which `fill` writes.
    pub(super) fn array_of_one(&mut self, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.number(0);
        let at = self.0.len();
        // The padding in front of the first element is no part of the array.
        self.align(8);
        let begin = self.0.len();
        fill(self);
        let bytes = u32::try_from(self.0.len() - begin).unwrap_or(u32::MAX).to_ne_bytes();
        if let Some(place) = self.0.get_mut(at - 4..at) {
            place.copy_from_slice(&bytes);
        }
        self
    }
}

/// What a message that came in is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BusAnswer {
    /// To the call with this serial.
    Reply { serial: u32, value: Option<PropertyValue> },
    /// The call failed.
    Error { serial: u32, reason: String },
    /// A signal.
    Other,
}

/// The values that are asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PropertyValue {
    Text(String),
    Bytes(Vec<u8>),
    Texts(Vec<String>),
}

/// Bytes of a message behind its first [`HEAD`].
pub(super) fn rest(head: &[u8; HEAD]) -> Result<usize, MalformedMessage> {
    let mut reader = BusReader { bytes: head, at: 4 };
    let (body, _serial, fields) = (reader.number()?, reader.number()?, reader.number()?);
    let [body, fields] = [body, fields].map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    let whole = fields.checked_next_multiple_of(8).and_then(|fields| fields.checked_add(body));
    whole.filter(|rest| *rest <= LONGEST && head.first() == Some(&ENDIAN)).ok_or(MalformedMessage)
}

/// Reads a whole message.
pub(super) fn decode(message: &[u8]) -> Result<BusAnswer, MalformedMessage> {
    let kind = *message.get(1).ok_or(MalformedMessage)?;
    let mut reader = BusReader { bytes: message, at: 12 };
    let fields = usize::try_from(reader.number()?).ok().ok_or(MalformedMessage)?;
    let end = reader.at.checked_add(fields).filter(|end| *end <= message.len()).ok_or(MalformedMessage)?;
    let (mut serial, mut signature, mut name) = (None, String::new(), String::new());
    while reader.at < end {
        reader.align(8)?;
        let (code, kind) = (reader.byte()?, reader.signature()?);
        match (code, kind.as_str()) {
            (REPLY_FIELD, "u") => serial = Some(reader.number()?),
            (SIGNATURE_FIELD, "g") => signature = reader.signature()?,
            (ERROR_FIELD, "s") => name = reader.text()?,
            (_, "s" | "o") => drop(reader.text()?),
            (_, "g") => drop(reader.signature()?),
            (_, "u") => drop(reader.number()?),
            _ => return Err(MalformedMessage),
        }
    }
    reader.align(8)?;
    match (kind, serial) {
        (REPLY, Some(serial)) => {
            let value = if signature == "v" { Some(reader.variant()?) } else { None };
            Ok(BusAnswer::Reply { serial, value })
        }
        (ERROR, Some(serial)) => {
            let text = if signature.starts_with('s') { reader.text()? } else { String::new() };
            Ok(BusAnswer::Error { serial, reason: format!("{name}: {text}") })
        }
        (REPLY | ERROR, None) => Err(MalformedMessage),
        _ => Ok(BusAnswer::Other),
    }
}

struct BusReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl BusReader<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8], MalformedMessage> {
        let end = self.at.checked_add(count).ok_or(MalformedMessage)?;
        let taken = self.bytes.get(self.at..end).ok_or(MalformedMessage)?;
        self.at = end;
        Ok(taken)
    }

    fn align(&mut self, to: usize) -> Result<(), MalformedMessage> {
        let padding = self.at.next_multiple_of(to) - self.at;
        self.take(padding).map(drop)
    }

    fn byte(&mut self) -> Result<u8, MalformedMessage> {
        self.take(1)?.first().copied().ok_or(MalformedMessage)
    }

    fn number(&mut self) -> Result<u32, MalformedMessage> {
        self.align(4)?;
        self.take(4)?.try_into().map(u32::from_ne_bytes).ok().ok_or(MalformedMessage)
    }

    fn counted(&mut self, count: usize) -> Result<String, MalformedMessage> {
        let text = self.take(count)?.to_owned();
        // The zero behind it.
        self.byte()?;
        String::from_utf8(text).ok().ok_or(MalformedMessage)
    }

    fn text(&mut self) -> Result<String, MalformedMessage> {
        let count = usize::try_from(self.number()?).ok().ok_or(MalformedMessage)?;
        self.counted(count)
    }

    fn signature(&mut self) -> Result<String, MalformedMessage> {
        let count = self.byte()?;
        self.counted(usize::from(count))
    }

    fn variant(&mut self) -> Result<PropertyValue, MalformedMessage> {
        match self.signature()?.as_str() {
            "s" | "o" => self.text().map(PropertyValue::Text),
            "ay" => {
                let count = usize::try_from(self.number()?).ok().ok_or(MalformedMessage)?;
                Ok(PropertyValue::Bytes(self.take(count)?.to_owned()))
            }
            "as" => {
                let count = usize::try_from(self.number()?).ok().ok_or(MalformedMessage)?;
                let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
                let (end, mut texts) = (end.ok_or(MalformedMessage)?, Vec::new());
                while self.at < end {
                    texts.push(self.text()?);
                }
                Ok(PropertyValue::Texts(texts))
            }
            _ => Err(MalformedMessage),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reply to a question for a property.
    pub(crate) fn reply(serial: u32, kind: &str, fill: impl FnOnce(&mut Body) -> &mut Body) -> Vec<u8> {
        let mut body = Body::default();
        body.signature(kind);
        fill(&mut body);
        answer(REPLY, serial, &[], "v", &body)
    }

    /// That a call failed.
    pub(crate) fn refusal(serial: u32, name: &str, text: &str) -> Vec<u8> {
        let mut body = Body::default();
        body.text(text);
        answer(ERROR, serial, &[(ERROR_FIELD, name)], "s", &body)
    }

    /// A message that is no answer to a call.
    pub(crate) fn signal() -> Vec<u8> {
        answer(4, 7, &[(MEMBER_FIELD, "UnitNew")], "", &Body::default())
    }

    fn answer(kind: u8, serial: u32, texts: &[(u8, &str)], signature: &str, body: &Body) -> Vec<u8> {
        let mut fields = Body::default();
        fields.byte(REPLY_FIELD).signature("u").number(serial);
        for (code, text) in texts {
            fields.align(8).byte(*code).signature("s").text(text);
        }
        fields.align(8).byte(SIGNATURE_FIELD).signature("g").signature(signature);
        let mut message = Body::default();
        message.byte(ENDIAN).byte(kind).byte(0).byte(1);
        message.number(length(&body.0)).number(1).number(length(&fields.0));
        message.0.extend(fields.0);
        message.align(8);
        message.0.extend(&body.0);
        message.0
    }

    /// Byte for byte as `busctl call` of systemd sends it.
    #[test]
    #[cfg(target_endian = "little")]
    fn a_call_is_what_the_specification_says() {
        let mut body = Body::default();
        body.text("a.b");
        let call = BusCall { path: "/o", interface: "i.i", member: "Get", signature: "s", body };
        let mut expected = b"l\x01\0\x01\x08\0\0\0\x05\0\0\0\x5f\0\0\0".to_vec();
        expected.extend(b"\x01\x01o\0\x02\0\0\0/o\0\0\0\0\0\0");
        expected.extend(b"\x02\x01s\0\x03\0\0\0i.i\0\0\0\0\0");
        expected.extend(b"\x03\x01s\0\x03\0\0\0Get\0\0\0\0\0");
        expected.extend(b"\x06\x01s\0\x18\0\0\0org.freedesktop.systemd1\0\0\0\0\0\0\0\0");
        expected.extend(b"\x08\x01g\0\x01s\0\0");
        expected.extend(b"\x03\0\0\0a.b\0");
        assert_eq!(call.encode(5), expected);
    }

    #[test]
    fn the_array_of_properties_leaves_its_padding_out() {
        let mut body = Body::default();
        body.text("a.scope").number(1).array_of_one(|one| {
            one.text("AllowedCPUs").signature("ay").bytes(&[9]);
        });
        let expected: Vec<u8> = [7, 1, 25].map(u32::to_ne_bytes).concat();
        assert_eq!(body.0[..4], expected[..4]);
        assert_eq!(body.0[12..16], expected[4..8]);
        // Name of the property, its type, and one byte behind its number, from a multiple of eight on.
        assert_eq!(body.0[16..20], expected[8..]);
        assert_eq!((body.0.len(), body.0.last()), (24 + 25, Some(&9)));
    }

    #[test]
    fn answers_are_read() {
        let read = |message: &[u8]| {
            let head = message[..HEAD].try_into().unwrap();
            assert_eq!(rest(head), Ok(message.len() - HEAD));
            decode(message).unwrap()
        };
        let texts = reply(3, "as", |body| {
            let mut inner = Body::default();
            inner.text("one").text("three");
            body.bytes(&inner.0)
        });
        let value = PropertyValue::Texts(vec!["one".into(), "three".into()]);
        assert_eq!(read(&texts), BusAnswer::Reply { serial: 3, value: Some(value) });
        let bytes = reply(4, "ay", |body| body.bytes(&[1, 2]));
        assert_eq!(
            read(&bytes),
            BusAnswer::Reply { serial: 4, value: Some(PropertyValue::Bytes(vec![1, 2])) }
        );
        let error = read(&refusal(9, "org.x.No", "not so"));
        assert_eq!(error, BusAnswer::Error { serial: 9, reason: "org.x.No: not so".into() });
        assert_eq!(read(&signal()), BusAnswer::Other);
    }

    proptest! {
        #[test]
        fn nothing_that_comes_in_can_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            if let Some(head) = bytes.first_chunk::<HEAD>() {
                prop_assert!(rest(head).is_ok_and(|rest| rest <= LONGEST) || rest(head).is_err());
            }
        }

        #[test]
        fn a_damaged_answer_cannot_panic(at in 0usize..60, byte: u8) {
            let mut message = reply(3, "s", |body| body.text("loaded"));
            if let Some(place) = message.get_mut(at) {
                *place = byte;
            }
            let _ = decode(&message);
        }
    }
}
