//! Passwords of the console's users, as the configuration has them: scrypt, in one word.
//!
//! `scrypt.15.8.3.SALT.HASH`: the logarithm of the cost, the block size, the parallelism, salt and
//! hash in base64 for URLs. No character of it means anything to a shell, to a comma list or to a
//! Compose file, which cannot be said of the form with dollar signs that other programs use.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use scrypt::Params;

/// 32 MiB and some hundred milliseconds for a try.
const COST: (u8, u32, u32) = (15, 8, 3);
const HASH_BYTES: usize = 32;
const SALT_BYTES: usize = 16;
/// A cost that a typing error makes must not take the machine down: 256 MiB.
const LOG_N_MAX: u8 = 18;

/// Shortest password that a hash is made of.
pub const PASSWORD_MIN: usize = 12;

/// A password that can be recognised and not read.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    log_n: u8,
    r: u32,
    p: u32,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

/// Whoever prints it prints nothing.
impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}

impl PasswordHash {
    /// Hashes a password with a salt of its own.
    ///
    /// `None` if the operating system has no randomness to give.
    #[must_use]
    pub fn make(password: &str) -> Option<Self> {
        let mut salt = vec![0; SALT_BYTES];
        getrandom::fill(&mut salt).ok()?;
        let (log_n, r, p) = COST;
        let mut made = Self { log_n, r, p, salt, hash: Vec::new() };
        made.hash = made.of(password);
        Some(made)
    }

    /// Reads what [`Self::text`] has written.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("scrypt.")?.split('.');
        let log_n: u8 = parts.next()?.parse().ok()?;
        let r: u32 = parts.next()?.parse().ok()?;
        let p: u32 = parts.next()?.parse().ok()?;
        let salt = BASE64.decode(parts.next()?).ok()?;
        let hash = BASE64.decode(parts.next()?).ok()?;
        let sane = (10..=LOG_N_MAX).contains(&log_n)
            && (1..=16).contains(&r)
            && (1..=16).contains(&p)
            && (8..=64).contains(&salt.len())
            && hash.len() == HASH_BYTES
            && parts.next().is_none();
        sane.then_some(Self { log_n, r, p, salt, hash })
    }

    #[must_use]
    pub fn text(&self) -> String {
        let Self { log_n, r, p, salt, hash } = self;
        format!("scrypt.{log_n}.{r}.{p}.{}.{}", BASE64.encode(salt), BASE64.encode(hash))
    }

    /// Is this the password? Takes as long for a wrong one.
    #[must_use]
    pub fn fits(&self, password: &str) -> bool {
        same(&self.of(password), &self.hash)
    }

    fn of(&self, password: &str) -> Vec<u8> {
        let mut hash = vec![0; HASH_BYTES];
        // The parameters were checked when they were read, and the length is one that fits.
        let done = Params::new(self.log_n, self.r, self.p).ok().and_then(|params| {
            scrypt::scrypt(password.as_bytes(), &self.salt, &params, &mut hash).ok()
        });
        if done.is_some() { hash } else { Vec::new() }
    }
}

/// Compares without telling by the time how much is right.
#[must_use]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    let difference = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && !a.is_empty() && std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_recognises_its_password_and_no_other() {
        let made = PasswordHash::make("correct horse battery").unwrap();
        let read = PasswordHash::parse(&made.text()).unwrap();
        assert_eq!(read, made);
        assert!(read.fits("correct horse battery"));
        for wrong in ["", "correct horse batterz", "correct horse battery "] {
            assert!(!read.fits(wrong), "{wrong:?}");
        }
        let again = PasswordHash::make("correct horse battery").unwrap();
        assert_ne!(again, made, "every hash has a salt of its own");
        let text = made.text();
        assert!(!text.contains([',', ':', '$', ' ', '\'']), "{text}");
        assert!(!format!("{made:?}").contains(&text[20..30]));
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        let good = PasswordHash::make("correct horse battery").unwrap().text();
        let [head, rest] = [&good[..9], &good[9..]];
        assert_eq!(head, "scrypt.15");
        for bad in [
            String::new(),
            "hunter2".to_owned(),
            format!("{good}.x"),
            good.replace("scrypt", "bcrypt"),
            format!("scrypt.40{rest}"),
            format!("scrypt.1{rest}"),
            good[..good.len() - 4].to_owned(),
            good.replacen(".8.", ".0.", 1),
            good.replacen(".3.", ".99999.", 1),
        ] {
            assert!(PasswordHash::parse(&bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn nothing_is_the_same_as_nothing() {
        assert!(!same(b"", b""));
        assert!(!same(b"a", b"ab"));
        assert!(same(b"ab", b"ab"));
    }
}
