//! Amounts as people write them.

use tashika_domain::mail::Locale;

/// Currencies whose smallest unit is the unit itself.
const WITHOUT_DECIMALS: [&str; 16] = [
    "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV",
    "XAF", "XOF", "XPF",
];
/// Currencies whose smallest unit is a thousandth.
const WITH_THREE_DECIMALS: [&str; 7] = ["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"];

/// Written in front of the amount.
const SIGNS: [(&str, &str); 4] = [("JPY", "¥"), ("USD", "$"), ("EUR", "€"), ("GBP", "£")];

/// `amount` in the currency's smallest unit. `None` if `currency` is no code of three letters.
pub(super) fn format(amount: i64, currency: &str, locale: Locale) -> Option<String> {
    let code = currency.to_ascii_uppercase();
    if code.len() != 3 || !code.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    let decimals = if WITHOUT_DECIMALS.contains(&code.as_str()) {
        0
    } else if WITH_THREE_DECIMALS.contains(&code.as_str()) {
        3
    } else {
        2
    };
    let number = number(amount.unsigned_abs(), decimals);
    let minus = if amount < 0 { "-" } else { "" };
    if locale == Locale::Ja && code == "JPY" {
        return Some(format!("{minus}{number}円"));
    }
    let sign = SIGNS.iter().find(|(known, _)| *known == code);
    Some(match sign {
        Some((_, sign)) => format!("{minus}{sign}{number}"),
        None => format!("{minus}{code} {number}"),
    })
}

fn number(amount: u64, decimals: u32) -> String {
    let unit = 10_u64.pow(decimals);
    let whole = (amount / unit).to_string();
    let mut grouped = String::with_capacity(whole.len() + whole.len() / 3);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if decimals == 0 {
        return grouped;
    }
    let width = decimals as usize;
    format!("{grouped}.{:0width$}", amount % unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_people_write_them() {
        for (amount, currency, ja, en) in [
            (3000, "JPY", "3,000円", "¥3,000"),
            (0, "jpy", "0円", "¥0"),
            (-3_000_000, "JPY", "-3,000,000円", "-¥3,000,000"),
            (123_456, "usd", "$1,234.56", "$1,234.56"),
            (5, "EUR", "€0.05", "€0.05"),
            (1005, "KWD", "KWD 1.005", "KWD 1.005"),
            (999, "KRW", "KRW 999", "KRW 999"),
            (i64::MIN, "CHF", "-CHF 92,233,720,368,547,758.08", "-CHF 92,233,720,368,547,758.08"),
        ] {
            assert_eq!(format(amount, currency, Locale::Ja).as_deref(), Some(ja));
            assert_eq!(format(amount, currency, Locale::En).as_deref(), Some(en));
        }
        for currency in ["", "YEN!", "円", "US"] {
            assert_eq!(format(1, currency, Locale::En), None);
        }
    }
}
