//! The few frames the skeleton and the generator exchange, as docs/WIRE.md lays them out.

/// Bytes before every frame's body.
pub const HEADER_BYTES: usize = 24;
/// Kind numbers of docs/WIRE.md.
pub const KIND_HELLO: u16 = 1;
/// Answer to a hello.
pub const KIND_HELLO_ACCEPTED: u16 = 2;
/// Append request.
pub const KIND_APPEND: u16 = 3;
/// Answer to an append.
pub const KIND_APPENDED: u16 = 4;

/// Request for a page of a stream.
pub const KIND_READ_STREAM: u16 = 5;
/// Its answer.
pub const KIND_STREAM_PAGE: u16 = 6;
/// Refusal.
pub const KIND_ERROR: u16 = 11;
/// Error code: expected revision not met.
pub const ERROR_CONFLICT: u16 = 5;
/// Name of the error that asks for a later try.
pub const BUSY: &str = "Busy";

/// The name of an error code.
#[must_use]
pub const fn error_name(code: u16) -> &'static str {
    match code {
        1 => "BadFrame",
        2 => "UnsupportedVersion",
        3 => "BadRequest",
        4 => "TooLarge",
        5 => "Conflict",
        6 => "Fenced",
        7 => BUSY,
        8 => "KeyReused",
        9 => "CrossShard",
        10 => "DiskFull",
        11 => "Unknown",
        12 => "ShuttingDown",
        13 => "Damaged",
        14 => "NotLeader",
        _ => "UnknownCode",
    }
}

/// A frame's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the body.
    pub length: u32,
    /// crc32c of what follows it.
    pub checksum: u32,
    /// What the body is.
    pub kind: u16,
    /// The client's number for this request.
    pub correlation: u64,
}

impl FrameHeader {
    /// Reads the header at the front of `bytes`; `None` if it is not complete yet.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        Some(Self {
            length: word(0),
            checksum: word(4),
            kind: u16::from_le_bytes([header[8], header[9]]),
            correlation: u64::from(word(16)) | (u64::from(word(20)) << 32),
        })
    }

    /// Whether the checksum fits `whole`, the header and its body.
    #[must_use]
    pub fn checksum_holds(&self, whole: &[u8]) -> bool {
        crc32c::crc32c(&whole[8..]) == self.checksum
    }
}

/// Appends one frame to `out`; `fill` writes its body.
pub fn write_frame(
    out: &mut Vec<u8>,
    kind: u16,
    correlation: u64,
    fill: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    fill(out);
    let length = (out.len() - start - HEADER_BYTES) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 8..start + 10].copy_from_slice(&kind.to_le_bytes());
    out[start + 16..start + 24].copy_from_slice(&correlation.to_le_bytes());
    let checksum = crc32c::crc32c(&out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
}

/// A client's hello, bound to no shard.
pub fn write_hello(out: &mut Vec<u8>, correlation: u64) {
    write_frame(out, KIND_HELLO, correlation, |body| {
        body.extend_from_slice(b"DUOLOG\0\0");
        body.extend_from_slice(&[1, 0, 1, 0]);
        body.extend_from_slice(&u32::MAX.to_le_bytes());
        body.extend_from_slice(&[0; 12]);
    });
}

/// The answer to a hello of a server with `shard_count` shards.
pub fn write_hello_accepted(out: &mut Vec<u8>, correlation: u64, shard_count: u32) {
    write_frame(out, KIND_HELLO_ACCEPTED, correlation, |body| {
        body.extend_from_slice(&1_u16.to_le_bytes());
        body.extend_from_slice(&[0; 2]);
        body.extend_from_slice(&shard_count.to_le_bytes());
        body.extend_from_slice(&[0; 40]);
        body.extend_from_slice(&(1_u32 << 20).to_le_bytes());
        body.extend_from_slice(&65_536_u32.to_le_bytes());
        body.extend_from_slice(&[0; 8]);
    });
}

/// A receipt for one event of one stream.
pub fn write_appended(out: &mut Vec<u8>, correlation: u64, lsn: u64) {
    write_frame(out, KIND_APPENDED, correlation, |body| {
        body.extend_from_slice(&lsn.to_le_bytes());
        body.extend_from_slice(&lsn.to_le_bytes());
        body.extend_from_slice(&[0; 20]);
        body.extend_from_slice(&[1, 0, 1, 0]);
        body.extend_from_slice(&lsn.to_le_bytes());
        body.extend_from_slice(&1_u32.to_le_bytes());
        body.extend_from_slice(&[0; 4]);
    });
}
