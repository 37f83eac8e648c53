//! Reading and writing little-endian numbers in byte slices, with one kind of end: "too short".

/// The slice ended before the number or text did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("input ends too early")]
pub struct TooShort;

/// Walks through a slice from the front.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Starts at the front of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], TooShort> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(TooShort)?;
        self.rest = rest;
        Ok(head)
    }

    /// What has not been taken yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TooShort> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(TooShort)?;
        self.rest = rest;
        Ok(*head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, TooShort> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, TooShort> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, TooShort> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, TooShort> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Sixteen bytes.
    pub fn u128(&mut self) -> Result<u128, TooShort> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// Thirty-two bytes.
    pub fn hash(&mut self) -> Result<[u8; 32], TooShort> {
        self.array()
    }
}

/// Rounds `value` up to a multiple of `unit`, a power of two; `None` if that does not fit.
#[must_use]
pub const fn align_up(value: u64, unit: u64) -> Option<u64> {
    match value.checked_add(unit - 1) {
        Some(sum) => Some(sum & !(unit - 1)),
        None => None,
    }
}
