//! The secret that a coordinator and its workers share. It never travels: a worker sends a nonce
//! and the coordinator answers with a keyed hash of it. What is said afterwards is neither secret
//! nor signed, so the control connection belongs into a trusted network.

use std::fmt;

/// Shortest token, characters: a recorded proof can be tried against guesses at leisure.
pub const TOKEN_MIN_CHARS: usize = 16;
/// What the key is for; another use of the same token would have another key.
const CONTEXT: &str = "duolog bench worker: proof of the token, version 1";

/// See the module's text.
#[derive(Clone)]
pub struct Token {
    key: [u8; 32],
}

/// A token that is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the token has {chars} characters, at least {TOKEN_MIN_CHARS} are needed: \
     `openssl rand -hex 16` makes one"
)]
pub struct ShortToken {
    /// Its length.
    pub chars: usize,
}

impl Token {
    /// Takes what the user gave.
    pub fn new(text: &str) -> Result<Self, ShortToken> {
        let chars = text.chars().count();
        if chars < TOKEN_MIN_CHARS {
            return Err(ShortToken { chars });
        }
        Ok(Self { key: blake3::derive_key(CONTEXT, text.as_bytes()) })
    }

    /// Shows that the token is known, for this nonce only.
    #[must_use]
    pub fn prove(&self, nonce: &str) -> String {
        self.hash(nonce).to_hex().to_string()
    }

    /// Whether `proof` was made with the same token for this nonce. Takes the same time for every
    /// proof.
    #[must_use]
    pub fn accepts(&self, nonce: &str, proof: &str) -> bool {
        blake3::Hash::from_hex(proof).is_ok_and(|proof| proof == self.hash(nonce))
    }

    fn hash(&self, nonce: &str) -> blake3::Hash {
        blake3::keyed_hash(&self.key, nonce.as_bytes())
    }
}

/// Keeps the key out of logs.
impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A proof is good for one token and one nonce. Broken if a recorded one opens the next
    /// connection.
    #[test]
    fn a_proof_holds_for_its_token_and_nonce_only() {
        let token = Token::new("0123456789abcdef").unwrap();
        let proof = token.prove("first");
        assert!(token.accepts("first", &proof));
        assert!(!token.accepts("second", &proof));
        assert!(!Token::new("0123456789abcdeg").unwrap().accepts("first", &proof));
        for wrong in ["", "zz", &proof[1..], &proof.replace(char::is_numeric, "0")] {
            assert!(!token.accepts("first", wrong), "{wrong:?}");
        }
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn a_short_token_is_refused() {
        assert_eq!(Token::new("short").err(), Some(ShortToken { chars: 5 }));
    }
}
