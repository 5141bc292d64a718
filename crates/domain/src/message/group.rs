//! Groups of URLs: one name, a message to each.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Timestamp;

use super::asked::Headers;

#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub id: Uuid,
    pub version: i64,
    pub name: String,
    pub endpoints: Vec<Endpoint>,
    /// What every message of the group gets, unless it says otherwise.
    pub headers: Headers,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub deleted_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Names an endpoint that is to go.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EndpointRef {
    pub url: Option<String>,
    pub name: Option<String>,
}

impl Group {
    #[must_use]
    pub fn new(id: Uuid, name: &str, now: Timestamp) -> Self {
        Self {
            id,
            version: 1,
            name: name.to_owned(),
            endpoints: Vec::new(),
            headers: Headers::new(),
            created_at: now,
            updated_at: now,
            deleted_at: None,
        }
    }

    /// Adds endpoints. One with a known name or a known URL takes that one's place.
    pub fn add(&mut self, endpoints: impl IntoIterator<Item = Endpoint>) {
        for new in endpoints {
            let same =
                |old: &Endpoint| old.url == new.url || (new.name.is_some() && old.name == new.name);
            match self.endpoints.iter().position(same) {
                Some(place) => self.endpoints[place] = new,
                None => self.endpoints.push(new),
            }
        }
    }

    /// Removes endpoints by name or URL.
    pub fn remove(&mut self, gone: &[EndpointRef]) {
        let named = |endpoint: &Endpoint| {
            gone.iter().any(|one| {
                one.url.as_ref() == Some(&endpoint.url)
                    || (one.name.is_some() && one.name == endpoint.name)
            })
        };
        self.endpoints.retain(|endpoint| !named(endpoint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str, name: Option<&str>) -> Endpoint {
        Endpoint { url: url.into(), name: name.map(Into::into) }
    }

    #[test]
    fn endpoints_are_replaced_by_name_or_url() {
        let now = Timestamp::from_micros(0);
        let mut group = Group::new(Uuid::nil(), "g", now);
        group.add([endpoint("https://a", Some("a")), endpoint("https://b", None)]);
        group.add([endpoint("https://c", Some("a")), endpoint("https://b", Some("b"))]);
        assert_eq!(
            group.endpoints,
            [endpoint("https://c", Some("a")), endpoint("https://b", Some("b"))]
        );
        group.remove(&[EndpointRef { url: None, name: Some("b".into()) }]);
        group.remove(&[EndpointRef { url: None, name: None }]);
        assert_eq!(group.endpoints, [endpoint("https://c", Some("a"))]);
    }
}
