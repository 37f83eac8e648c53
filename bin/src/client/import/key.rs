//! The idempotency key of an imported line: the same line of the same import always has the same
//! key, on every machine, so that running an import again adds nothing.
//!
//! The key is a UUID of version 5 (RFC 9562: SHA-1 over a namespace and a name) over the import's
//! name, the line's number, and what the line becomes: stream, type and bytes. Number and bytes
//! together keep equal lines of one file apart and tell an edited line from the one before.

use uuid::Uuid;

/// Namespace of import keys: a random UUID, fixed for ever.
const NAMESPACE: Uuid = Uuid::from_u128(0x5d1c_8b0a_94e7_4c6b_8a3f_d27e_61c0_9b42);

/// What a key is made from.
#[derive(Clone, Copy, Debug)]
pub struct KeyParts<'a> {
    /// The import's name.
    pub import: &'a str,
    /// The line's number, 1-based.
    pub line: u64,
    /// The stream it goes to.
    pub stream: &'a str,
    /// The event's type.
    pub kind: &'a str,
    /// The event's data.
    pub data: &'a [u8],
}

impl KeyParts<'_> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> Uuid {
        let mut bytes = Vec::with_capacity(self.data.len() + 256);
        bytes.extend_from_slice(&self.line.to_le_bytes());
        // Each text with its length: no two different parts give the same bytes.
        for text in [self.import, self.stream, self.kind] {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(self.data);
        Uuid::new_v5(&NAMESPACE, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: KeyParts<'static> =
        KeyParts { import: "i", line: 1, stream: "s", kind: "t", data: b"d" };

    #[test]
    fn every_part_counts_and_none_runs_into_the_next() {
        let keys = [
            PARTS,
            KeyParts { import: "j", ..PARTS },
            KeyParts { line: 2, ..PARTS },
            KeyParts { stream: "st", kind: "", ..PARTS },
            KeyParts { stream: "", kind: "st", ..PARTS },
            KeyParts { data: b"", kind: "td", ..PARTS },
        ];
        let mut keys: Vec<Uuid> = keys.iter().map(KeyParts::key).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 6);
    }

    /// A changed derivation would make every running import add its lines again.
    #[test]
    fn keys_stay_what_they_are() {
        assert_eq!(PARTS.key().get_version_num(), 5);
        assert_eq!(PARTS.key().to_string(), "0ae30363-2d32-5dbf-a99b-4f20d450ee7e");
    }
}
