//! Who an operator is: the person whom an application names, or the token.

use http::HeaderMap;

use super::auth::Client;
use super::problem::{Code, Problem};

/// Longest name of a person.
const NAME_MAX: usize = 100;

/// For the audit log: `X-User-Id` where it is sent, else whose token it is.
pub fn who(headers: &HeaderMap, client: &Client) -> Result<String, Problem> {
    let mut values = headers.get_all("x-user-id").iter();
    let name = match (values.next(), values.next()) {
        (None, _) => return Ok(client.0.clone()),
        (Some(value), None) => value.to_str().unwrap_or_default().trim(),
        // Of two, one may be somebody's invention.
        (Some(_), Some(_)) => "",
    };
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Problem::new(Code::BadRequest).detail(
            format!("X-User-Id must be sent once, with 1 to {NAME_MAX} visible ASCII characters."),
            format!("X-User-Id は 1 回だけ、1〜{NAME_MAX} 文字の ASCII で送ってください。"),
        ));
    }
    Ok(name.to_owned())
}
