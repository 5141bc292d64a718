//! Parameters, form-encoded with brackets: `amount=5000&metadata[payment_id]=…&created[gte]=…`.

use std::collections::BTreeMap;

use super::refusal::Refusal;
use crate::wire::decoded;

/// The parameters of a request, from its query and its body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    pub fn parse(query: &str, body: &str) -> Self {
        let pairs = query.split('&').chain(body.split('&')).filter(|pair| !pair.is_empty());
        let plain = |part: &str| decoded(&part.replace('+', " "));
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(name, value)| (plain(name), plain(value)))
                .collect(),
        )
    }

    /// A parameter; one that is empty is not there.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(ToOwned::to_owned)
    }

    pub fn required(&self, name: &str) -> Result<&str, Refusal> {
        self.get(name).ok_or_else(|| {
            let refusal = Refusal::invalid(format!("Missing required param: {name}."));
            refusal.code("parameter_missing").param(name)
        })
    }

    pub fn whole(&self, name: &str) -> Result<Option<i64>, Refusal> {
        self.get(name).map(str::parse).transpose().map_err(|_| {
            let refusal = Refusal::invalid(format!("Invalid integer: {name}"));
            refusal.code("parameter_invalid_integer").param(name)
        })
    }

    /// An amount of money: whole and positive.
    pub fn amount(&self, name: &str) -> Result<Option<i64>, Refusal> {
        match self.whole(name)? {
            Some(amount) if amount < 1 => {
                let refusal = Refusal::invalid("This value must be greater than or equal to 1.");
                Err(refusal.code("parameter_invalid_integer").param(name))
            }
            amount => Ok(amount),
        }
    }

    pub fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Refusal::invalid(format!("Invalid boolean: {name}")).param(name)),
        }
    }

    /// One of the words that are allowed.
    pub fn word(&self, name: &str, allowed: &[&str]) -> Result<Option<String>, Refusal> {
        match self.get(name) {
            Some(word) if !allowed.contains(&word) => {
                let allowed = allowed.join(", ");
                Err(Refusal::invalid(format!("Invalid {name}: must be one of {allowed}"))
                    .param(name))
            }
            word => Ok(word.map(ToOwned::to_owned)),
        }
    }

    /// `metadata[key]=value` as a map.
    pub fn map(&self, name: &str) -> BTreeMap<String, String> {
        let inner = |key: &str| {
            let rest = key.strip_prefix(name)?.strip_prefix('[')?;
            rest.strip_suffix(']').map(ToOwned::to_owned)
        };
        self.0.iter().filter_map(|(key, value)| Some((inner(key)?, value.clone()))).collect()
    }

    /// Whether the client wants an object where there would be its id.
    pub fn expands(&self, what: &str) -> bool {
        self.0.iter().any(|(name, value)| name.starts_with("expand[") && value == what)
    }

    /// Refuses what the real gateway would not know either: it refuses the whole request, so a typing error must not pass
    /// here.
    pub fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        let outer = |name: &str| name.split('[').next().unwrap_or_default().to_owned();
        let names = self.0.iter().map(|(name, _)| outer(name));
        let stranger = names.into_iter().find(|name| name != "expand" && !known.contains(&&**name));
        stranger.map_or(Ok(()), |name| {
            let refusal = Refusal::invalid(format!("Received unknown parameter: {name}"));
            Err(refusal.code("parameter_unknown").param(&name))
        })
    }

    /// The same for the same parameters, in whatever order they come.
    pub fn fingerprint(&self) -> String {
        let mut pairs: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        pairs.sort();
        pairs.join("&")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_spaces_and_signs_are_undone() {
        let form = Form::parse("limit=3", "metadata%5Bpayment_id%5D=a+b%2Bc&metadata[n]=1&x=");
        assert_eq!(form.map("metadata")["payment_id"], "a b+c");
        assert_eq!(form.map("metadata")["n"], "1");
        assert_eq!(form.whole("limit").unwrap(), Some(3));
        assert_eq!(form.get("x"), None);
        assert!(form.only(&["limit", "metadata", "x"]).is_ok());
        assert!(form.only(&["limit", "metadata"]).is_err());
    }

    #[test]
    fn the_order_of_parameters_does_not_matter() {
        let print = |body| Form::parse("", body).fingerprint();
        assert_eq!(print("a=1&b=2"), print("b=2&a=1"));
        assert_ne!(print("a=1&b=2"), print("a=1&b=3"));
    }
}
