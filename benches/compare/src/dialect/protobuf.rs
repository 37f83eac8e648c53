//! The few protobuf messages that are needed, field by field.

use super::{Append, Condition, EVENT_TYPE};

/// Wire type of a field: a variable-length number.
const VARINT: u64 = 0;
/// Wire type of a field: a length and so many bytes.
const BYTES: u64 = 2;

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn number_field(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3 | VARINT);
    varint(out, value);
}

fn bytes_field(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// A variable-length number at the front of `bytes`, and what follows it.
fn take_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f).checked_shl(7 * index as u32)?;
        if byte & 0x80 == 0 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The last value of a field of a message. `None` if it is not there or the message is none.
fn field(mut bytes: &[u8], wanted: u64) -> Option<Field<'_>> {
    let mut found = None;
    while !bytes.is_empty() {
        let (key, rest) = take_varint(bytes)?;
        let (value, length_or_number) = take_varint(rest).map(|(number, rest)| (rest, number))?;
        let field = match key & 7 {
            VARINT => {
                bytes = value;
                Field::Number(length_or_number)
            }
            BYTES => {
                let (inside, rest) =
                    value.split_at_checked(usize::try_from(length_or_number).ok()?)?;
                bytes = rest;
                Field::Bytes(inside)
            }
            _ => return None,
        };
        if key >> 3 == wanted {
            found = Some(field);
        }
    }
    found
}

/// A unary call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// etcd: the stream is the key, the event the value; each put makes a revision of its own.
    EtcdPut,
    /// UmaDB: an event tagged with its stream. The condition is the store's own: no event with
    /// this tag behind the position of the last one.
    Umadb(Condition),
}

impl Call {
    /// The call's path.
    pub const fn path(self) -> &'static str {
        match self {
            Self::EtcdPut => "/etcdserverpb.KV/Put",
            Self::Umadb(_) => "/umadb.v1.DCB/Append",
        }
    }

    /// Appends the request message.
    pub fn encode(self, out: &mut Vec<u8>, append: &Append<'_>) {
        let stream = append.stream.as_bytes();
        match self {
            Self::EtcdPut => {
                bytes_field(out, 1, stream);
                bytes_field(out, 2, append.data);
            }
            Self::Umadb(condition) => {
                let mut event = Vec::with_capacity(append.data.len() + 32);
                bytes_field(&mut event, 1, EVENT_TYPE.as_bytes());
                bytes_field(&mut event, 2, stream);
                bytes_field(&mut event, 3, append.data);
                bytes_field(out, 1, &event);
                if condition == Condition::Version {
                    bytes_field(out, 2, &umadb_condition(stream, append.expected));
                }
            }
        }
    }

    /// The version that an answer names.
    pub fn version(self, message: &[u8]) -> Option<u64> {
        match self {
            // The answer's header (1) has the store's revision (3).
            Self::EtcdPut => match field(message, 1)? {
                Field::Bytes(header) => match field(header, 3)? {
                    Field::Number(revision) => Some(revision),
                    Field::Bytes(_) => None,
                },
                Field::Number(_) => None,
            },
            Self::Umadb(_) => match field(message, 1)? {
                Field::Number(position) => Some(position),
                Field::Bytes(_) => None,
            },
        }
    }
}

fn umadb_condition(stream: &[u8], expected: Option<u64>) -> Vec<u8> {
    let (mut item, mut query, mut condition) = (Vec::new(), Vec::new(), Vec::new());
    bytes_field(&mut item, 2, stream);
    bytes_field(&mut query, 1, &item);
    bytes_field(&mut condition, 1, &query);
    if let Some(position) = expected {
        number_field(&mut condition, 2, position);
    }
    condition
}

/// S2's append of one record, and its receipt.
#[derive(Clone, Copy, Debug)]
pub struct StreamRecords;

impl StreamRecords {
    /// The request.
    pub fn encode(data: &[u8]) -> Vec<u8> {
        let mut record = Vec::with_capacity(data.len() + 4);
        bytes_field(&mut record, 3, data);
        let mut out = Vec::with_capacity(record.len() + 4);
        bytes_field(&mut out, 1, &record);
        out
    }

    /// The sequence number behind the record, as the receipt says.
    ///
    /// # Errors
    /// It is no receipt.
    pub fn next_sequence(receipt: &[u8]) -> Result<u64, &'static str> {
        match field(receipt, 2) {
            Some(Field::Bytes(end)) => match field(end, 1) {
                Some(Field::Number(sequence)) => Ok(sequence),
                _ => Err("a receipt without a sequence number"),
            },
            _ => Err("a body that is no receipt"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written is found again, past fields that are not asked for. Broken if a length or a
    /// key is off.
    #[test]
    fn fields_are_found_again() {
        let mut message = Vec::new();
        number_field(&mut message, 1, 300);
        bytes_field(&mut message, 2, &[9; 200]);
        number_field(&mut message, 20, u64::MAX);
        assert_eq!(field(&message, 1), Some(Field::Number(300)));
        assert_eq!(field(&message, 2), Some(Field::Bytes(&[9; 200])));
        assert_eq!(field(&message, 20), Some(Field::Number(u64::MAX)));
        assert_eq!(field(&message, 3), None);
        assert_eq!(field(&message[..message.len() - 1], 20), None, "a cut message");
    }

    /// UmaDB's condition names the stream and the position of its last event, if it has one.
    #[test]
    fn the_condition_is_the_streams_last_event() {
        let append = Append { stream: "bench.7", expected: Some(5), identity: 1, data: b"abc" };
        let encode = |condition, append: &Append<'_>| {
            let mut out = Vec::new();
            Call::Umadb(condition).encode(&mut out, append);
            out
        };
        assert_eq!(field(&encode(Condition::None, &append), 2), None);
        let request = encode(Condition::Version, &append);
        let Some(Field::Bytes(condition)) = field(&request, 2) else { panic!("no condition") };
        assert_eq!(field(condition, 2), Some(Field::Number(5)));
        let first = encode(Condition::Version, &Append { expected: None, ..append });
        let Some(Field::Bytes(condition)) = field(&first, 2) else { panic!("no condition") };
        assert_eq!(field(condition, 2), None);
    }
}
