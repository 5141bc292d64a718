//! How long a retry waits: the default schedule, and the expressions of `Upstash-Retry-Delay`.
//!
//! An expression is arithmetic over `retried`, in milliseconds: `pow(2, retried) * 1000`. It is read
//! once, when a message is accepted, and evaluated before every retry. It comes from strangers:
//! its length and its nesting are bounded, and every result, infinite or not a number, is a wait.

use std::time::Duration;

use super::span::shown;

/// No expression makes a message wait longer: the delay that even the smallest plan of the hosted
/// service allows.
pub const LONGEST: Duration = Duration::from_secs(7 * 86_400);

/// Bytes of an expression.
pub const MOST_BYTES: usize = 1024;

/// Parentheses, calls and signs within each other. Reading recurses this deep and no deeper.
const MOST_NESTED: usize = 32;

/// The wait before a retry, counted from 1, of a message that has no expression:
/// `min(86400, e^(2.5·n))` seconds. A table, so that it is the same on every machine.
#[must_use]
pub const fn default_wait(retry: u32) -> Duration {
    Duration::from_secs(match retry {
        0 | 1 => 12,
        2 => 148,
        3 => 1808,
        4 => 22_026,
        _ => 86_400,
    })
}

/// An expression that was read. Kept in postfix order: nothing recurses when it is evaluated or
/// dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(Vec<Step>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Number(f64),
    Retried,
    Negate,
    Add,
    Subtract,
    Multiply,
    Divide,
    Call(Function, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Pow,
    Sqrt,
    Abs,
    Exp,
    Floor,
    Ceil,
    Round,
    Min,
    Max,
}

impl Function {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "pow" => Self::Pow,
            "sqrt" => Self::Sqrt,
            "abs" => Self::Abs,
            "exp" => Self::Exp,
            "floor" => Self::Floor,
            "ceil" => Self::Ceil,
            "round" => Self::Round,
            "min" => Self::Min,
            "max" => Self::Max,
            _ => return None,
        })
    }

    /// Whether it takes so many arguments.
    const fn takes(self, count: usize) -> bool {
        match self {
            Self::Pow => count == 2,
            Self::Min | Self::Max => count >= 1,
            _ => count == 1,
        }
    }

    fn of(self, values: &[f64]) -> f64 {
        let first = values.first().copied().unwrap_or(f64::NAN);
        // `f64::min` prefers a number to NaN; here what is not a number stays so.
        let pick = |better: fn(f64, f64) -> f64| {
            let nan = values.iter().any(|value| value.is_nan());
            if nan { f64::NAN } else { values.iter().copied().fold(first, better) }
        };
        match self {
            Self::Pow => first.powf(values.get(1).copied().unwrap_or(f64::NAN)),
            Self::Sqrt => first.sqrt(),
            Self::Abs => first.abs(),
            Self::Exp => first.exp(),
            Self::Floor => first.floor(),
            Self::Ceil => first.ceil(),
            Self::Round => first.round(),
            Self::Min => pick(f64::min),
            Self::Max => pick(f64::max),
        }
    }
}

impl Expression {
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("an expression has at most {MOST_BYTES} characters"));
        }
        let mut reader = Reader { text, at: 0, nested: 0, steps: Vec::new() };
        reader.sum()?;
        match reader.peek() {
            None => Ok(Self(reader.steps)),
            Some(_) => Err(reader.unexpected()),
        }
    }

    /// The wait before a retry, `retried` being the retries so far: 0 before the first.
    #[must_use]
    pub fn wait(&self, retried: u32) -> Duration {
        let millis = self.value(f64::from(retried)).round();
        // NaN is not greater than zero either.
        if millis > 0.0 {
            let seconds = (millis / 1000.0).min(LONGEST.as_secs_f64());
            Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST)
        } else {
            Duration::ZERO
        }
    }

    fn value(&self, retried: f64) -> f64 {
        let mut stack: Vec<f64> = Vec::with_capacity(8);
        for step in &self.0 {
            let value = match *step {
                Step::Number(number) => number,
                Step::Retried => retried,
                Step::Negate => -pop(&mut stack),
                Step::Add => two(&mut stack, |a, b| a + b),
                Step::Subtract => two(&mut stack, |a, b| a - b),
                Step::Multiply => two(&mut stack, |a, b| a * b),
                Step::Divide => two(&mut stack, |a, b| a / b),
                Step::Call(function, count) => {
                    let from = stack.len().saturating_sub(count);
                    let value = function.of(&stack[from..]);
                    stack.truncate(from);
                    value
                }
            };
            stack.push(value);
        }
        pop(&mut stack)
    }
}

/// The reader pushes before it takes, so there is always something; if not, it is not a number.
fn pop(stack: &mut Vec<f64>) -> f64 {
    stack.pop().unwrap_or(f64::NAN)
}

fn two(stack: &mut Vec<f64>, join: fn(f64, f64) -> f64) -> f64 {
    let right = pop(stack);
    join(pop(stack), right)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    nested: usize,
    steps: Vec<Step>,
}

impl Reader<'_> {
    /// `product { (+|-) product }`
    fn sum(&mut self) -> Result<(), String> {
        self.product()?;
        while let Some(sign @ ('+' | '-')) = self.peek() {
            self.at += 1;
            self.product()?;
            self.steps.push(if sign == '+' { Step::Add } else { Step::Subtract });
        }
        Ok(())
    }

    /// `value { (*|/) value }`
    fn product(&mut self) -> Result<(), String> {
        self.value()?;
        while let Some(sign @ ('*' | '/')) = self.peek() {
            self.at += 1;
            self.value()?;
            self.steps.push(if sign == '*' { Step::Multiply } else { Step::Divide });
        }
        Ok(())
    }

    /// A number, `retried`, a call, something in parentheses, or the negative of one of them. Every
    /// recursion of the reader passes through here, and is counted here.
    fn value(&mut self) -> Result<(), String> {
        if self.nested == MOST_NESTED {
            return Err(format!("an expression nests at most {MOST_NESTED} levels deep"));
        }
        self.nested += 1;
        match self.peek() {
            Some('-') => {
                self.at += 1;
                self.value()?;
                self.steps.push(Step::Negate);
            }
            Some('(') => {
                self.at += 1;
                self.sum()?;
                self.expect(')')?;
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number()?,
            Some(c) if c.is_ascii_alphabetic() => self.name()?,
            _ => return Err(self.unexpected()),
        }
        self.nested -= 1;
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        let word = self.word(|c| c.is_ascii_digit() || c == '.');
        let number: f64 = word.parse().map_err(|_| format!("`{}` is not a number", shown(word)))?;
        self.steps.push(Step::Number(number));
        Ok(())
    }

    fn name(&mut self) -> Result<(), String> {
        let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_').to_owned();
        if name == "retried" {
            self.steps.push(Step::Retried);
            return Ok(());
        }
        let Some(function) = Function::named(&name) else {
            return Err(format!(
                "`{}` is neither `retried` nor one of pow, sqrt, abs, exp, floor, ceil, round, min, max",
                shown(&name)
            ));
        };
        self.expect('(')?;
        let mut count = 0;
        loop {
            self.sum()?;
            count += 1;
            if self.peek() != Some(',') {
                break;
            }
            self.at += 1;
        }
        self.expect(')')?;
        if !function.takes(count) {
            return Err(format!("`{name}` does not take {count} arguments"));
        }
        self.steps.push(Step::Call(function, count));
        Ok(())
    }

    fn word(&mut self, belongs: fn(char) -> bool) -> &str {
        let rest = &self.text[self.at..];
        let end = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.peek() == Some(wanted) {
            self.at += 1;
            return Ok(());
        }
        Err(self.unexpected())
    }

    /// The next character that is not a blank.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
        self.text[self.at..].chars().next()
    }

    fn unexpected(&mut self) -> String {
        match self.peek() {
            Some(c) => {
                format!("`{}` is not expected at position {}", c.escape_debug(), self.at + 1)
            }
            None => "the expression ends too early".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn waits(text: &str, retried: u32) -> u128 {
        Expression::parse(text).unwrap().wait(retried).as_millis()
    }

    #[test]
    fn the_default_schedule_is_the_documented_one() {
        for (retry, seconds) in [(1, 12), (2, 148), (3, 1808), (4, 22_026), (5, 86_400)] {
            assert_eq!(default_wait(retry), Duration::from_secs(seconds));
            let formula = (2.5 * f64::from(retry)).exp().min(86_400.0).floor();
            assert_eq!(Duration::from_secs_f64(formula), Duration::from_secs(seconds));
        }
        assert_eq!(default_wait(u32::MAX), Duration::from_secs(86_400));
    }

    #[test]
    fn evaluates_the_documented_expressions() {
        for (text, retried, millis) in [
            ("1000", 0, 1000),
            ("1000 * (1 + retried)", 3, 4000),
            ("pow(2, retried) * 1000", 0, 1000),
            ("pow(2, retried) * 1000", 5, 32_000),
            ("max(1000, pow(2, retried) * 100)", 2, 1000),
            ("min(60000, exp(retried)*1000)", 1, 2718),
            ("min(5, 3, 4)", 0, 3),
            ("sqrt(16)+abs(-3)+floor(1.9)+ceil(1.1)+round(2.5)", 0, 13),
            ("2+3*4-10/5", 0, 12),
            ("20-5-5", 0, 10),
            ("64/4/2", 0, 8),
            ("--5", 0, 5),
            ("2*-3+10", 0, 4),
            ("\t( .5 + 0.5 ) * 7 ", 0, 7),
            ("0.4", 0, 0),
        ] {
            assert_eq!(waits(text, retried), millis, "{text}");
        }
    }

    #[test]
    fn every_result_is_a_wait() {
        for text in ["-1", "0/0", "sqrt(-1)", "-1/0", "max(0/0, 5)", "abs(0/0)"] {
            assert_eq!(waits(text, 0), 0, "{text}");
        }
        for text in ["1/0", "exp(1000)", "pow(10, 300)*pow(10, 300)", "604800001"] {
            assert_eq!(waits(text, 0), LONGEST.as_millis(), "{text}");
        }
        assert_eq!(waits("retried", u32::MAX), LONGEST.as_millis());
    }

    #[test]
    fn refuses_what_it_cannot_read() {
        for (text, error) in [
            ("", "the expression ends too early"),
            ("1+", "the expression ends too early"),
            ("(1", "the expression ends too early"),
            ("1 2", "`2` is not expected at position 3"),
            ("1)", "`)` is not expected at position 2"),
            ("pow 2", "`2` is not expected at position 5"),
            ("pow()", "`)` is not expected at position 5"),
            ("pow(2)", "`pow` does not take 1 arguments"),
            ("sqrt(1,2)", "`sqrt` does not take 2 arguments"),
            ("1.2.3", "`1.2.3` is not a number"),
            (".", "`.` is not a number"),
            ("1e3", "`e` is not expected at position 2"),
            ("2^3", "`^` is not expected at position 2"),
            ("1\n", "`\\n` is not expected at position 2"),
            ("é", "`é` is not expected at position 1"),
            ("+1", "`+` is not expected at position 1"),
        ] {
            assert_eq!(Expression::parse(text), Err(error.to_owned()), "{text}");
        }
        let unknown = Expression::parse("system(1)").unwrap_err();
        assert!(unknown.starts_with("`system` is neither `retried` nor one of pow"), "{unknown}");
    }

    #[test]
    fn length_and_nesting_are_bounded() {
        let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
        assert!(Expression::parse(&nested(MOST_NESTED - 1)).is_ok());
        let error = "an expression nests at most 32 levels deep";
        for text in [nested(MOST_NESTED), "-".repeat(1000), "abs(".repeat(200)] {
            assert_eq!(Expression::parse(&text), Err(error.to_owned()));
        }
        assert_eq!(waits(&format!("1{}", "+1".repeat(511)), 0), 512);
        assert!(Expression::parse(&"1".repeat(MOST_BYTES + 1)).is_err());
    }

    /// Expressions of the grammar, as text.
    fn expressions() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("retried".to_owned()),
            (0_u32..100_000).prop_map(|n| n.to_string()),
            (0_u32..1000, 0_u32..1000).prop_map(|(a, b)| format!("{a}.{b}")),
        ];
        leaf.prop_recursive(4, 24, 3, |inner| {
            prop_oneof![
                (inner.clone(), "[-+*/]", inner.clone())
                    .prop_map(|(a, o, b)| format!("{a} {o} {b}")),
                inner.clone().prop_map(|a| format!("({a})")),
                inner.clone().prop_map(|a| format!("-{a}")),
                ("(sqrt|abs|exp|floor|ceil|round)", inner.clone())
                    .prop_map(|(f, a)| format!("{f}({a})")),
                ("(pow|min|max)", inner.clone(), inner)
                    .prop_map(|(f, a, b)| format!("{f}({a},{b})")),
            ]
        })
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC*", near in "[0-9a-z(),.+*/ -]{0,60}", retried: u32) {
            for text in [text, near] {
                if let Ok(expression) = Expression::parse(&text) {
                    prop_assert!(expression.wait(retried) <= LONGEST);
                }
            }
        }

        #[test]
        fn reads_the_grammar(text in expressions(), retried in 0_u32..100) {
            prop_assume!(text.len() <= MOST_BYTES);
            let expression = Expression::parse(&text).unwrap();
            prop_assert!(expression.wait(retried) <= LONGEST);
            let spaced = text.replace('(', " ( ").replace(',', " , ");
            prop_assert_eq!(Expression::parse(&spaced).unwrap(), expression);
        }

        #[test]
        fn sums_and_products_are_those_of_arithmetic(a in 0_u32..1000, b in 0_u32..1000, c in 0_u32..1000) {
            let expected = u128::from(a) + u128::from(b) * u128::from(c);
            prop_assert_eq!(waits(&format!("{a}+{b}*{c}"), 0), expected);
            prop_assert_eq!(waits(&format!("{b}*retried+{a}"), c), expected);
        }
    }
}
