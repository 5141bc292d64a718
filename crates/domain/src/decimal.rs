//! Exact decimal arithmetic on the numbers of orders.
//!
//! JSON numbers arrive as `f64`; their shortest decimal form is what the sender wrote. Sums and
//! "is a multiple of the step" are done on that form, so that 0.1 + 0.2 is 0.3 and 0.3 is three
//! steps of 0.1.

use std::fmt;

/// `digits · 10^-scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    digits: i128,
    scale: u32,
}

/// More decimal places than any instrument is quoted in.
const MAX_SCALE: u32 = 15;
/// Larger magnitudes than this are mistakes, not orders.
const MAX_MAGNITUDE: f64 = 1e15;

impl Decimal {
    pub const ZERO: Self = Self { digits: 0, scale: 0 };

    /// The decimal that `number` is written as; `None` if it is out of all reason.
    #[must_use]
    pub fn from_f64(number: f64) -> Option<Self> {
        if !number.is_finite() || number.abs() > MAX_MAGNITUDE {
            return None;
        }
        let text = number.to_string();
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let scale = u32::try_from(fraction.len()).ok().filter(|scale| *scale <= MAX_SCALE)?;
        let digits = format!("{whole}{fraction}").parse().ok()?;
        Some(Self { digits, scale })
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let scale = self.scale.max(other.scale);
        Self { digits: self.digits_at(scale) + other.digits_at(scale), scale }
    }

    #[must_use]
    pub fn is_multiple_of(self, step: Self) -> bool {
        let scale = self.scale.max(step.scale);
        let step = step.digits_at(scale);
        step != 0 && self.digits_at(scale) % step == 0
    }

    #[must_use]
    pub fn to_f64(self) -> f64 {
        // Through text: the nearest double to the exact decimal, without a rounding of our own.
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    fn digits_at(self, scale: u32) -> i128 {
        self.digits * 10_i128.pow(scale - self.scale)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.digits < 0 { "-" } else { "" };
        let unit = 10_u128.pow(self.scale);
        let (whole, rest) = (self.digits.unsigned_abs() / unit, self.digits.unsigned_abs() % unit);
        if self.scale == 0 {
            write!(f, "{sign}{whole}")
        } else {
            write!(f, "{sign}{whole}.{rest:0width$}", width = self.scale as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(number: f64) -> Decimal {
        Decimal::from_f64(number).unwrap()
    }

    #[test]
    fn sums_are_exact() {
        let sum = decimal(0.1).plus(decimal(0.2));
        assert!((sum.to_f64() - 0.3).abs() < f64::EPSILON);
        assert_eq!(sum.to_string(), "0.3");
        assert_eq!(decimal(-1.25).plus(decimal(0.05)).to_string(), "-1.20");
    }

    #[test]
    fn steps_are_exact() {
        assert!(decimal(0.3).is_multiple_of(decimal(0.1)));
        assert!(!decimal(0.35).is_multiple_of(decimal(0.1)));
        assert!(decimal(1000.0).is_multiple_of(decimal(1000.0)));
        assert!(!decimal(1.0).is_multiple_of(Decimal::ZERO));
    }

    #[test]
    fn absurd_numbers_are_refused() {
        for absurd in [f64::NAN, f64::INFINITY, 1e300, 1e-300] {
            assert_eq!(Decimal::from_f64(absurd), None, "{absurd}");
        }
    }
}
