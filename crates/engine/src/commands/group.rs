//! Groups of URLs, as callers set them up.

use tashika_domain::Write;
use tashika_domain::message::address::check_url;
use tashika_domain::message::asked::Headers;
use tashika_domain::message::group::{Endpoint, EndpointRef, Group};

use super::DECISIONS;
use super::message::{Messages, QueueError};
use super::queue::crowded;

/// URLs of one group.
const ENDPOINTS_MAX: usize = 100;

fn missing(name: &str) -> QueueError {
    QueueError::NotFound(format!("topic {name} not found"))
}

impl Messages {
    /// Adds URLs to a group, which is made if it is not there.
    pub async fn add_endpoints(
        &self,
        name: &str,
        endpoints: &[Endpoint],
    ) -> Result<(), QueueError> {
        for endpoint in endpoints {
            let bad = |why: String| QueueError::Bad(format!("invalid endpoint url: {why}"));
            check_url(&endpoint.url).map_err(bad)?;
            self.check_destination(&endpoint.url)?;
        }
        self.change_group(name, true, |group| {
            group.add(endpoints.iter().cloned());
            if group.endpoints.len() > ENDPOINTS_MAX {
                let text = format!("a group has at most {ENDPOINTS_MAX} endpoints");
                return Err(QueueError::Bad(text));
            }
            Ok(())
        })
        .await
    }

    /// Removes URLs. Without any left, the group is gone.
    pub async fn remove_endpoints(
        &self,
        name: &str,
        gone: &[EndpointRef],
    ) -> Result<(), QueueError> {
        let now = self.clock.now();
        self.change_group(name, false, |group| {
            group.remove(gone);
            if group.endpoints.is_empty() {
                group.deleted_at = Some(now);
            }
            Ok(())
        })
        .await
    }

    /// Headers that every message of the group gets.
    pub async fn set_group_headers(&self, name: &str, headers: &Headers) -> Result<(), QueueError> {
        self.change_group(name, false, |group| {
            group.headers.clone_from(headers);
            Ok(())
        })
        .await
    }

    /// Removes a group, if it is there.
    pub async fn delete_group(&self, name: &str) -> Result<(), QueueError> {
        let now = self.clock.now();
        let deleted = self.change_group(name, false, |group| {
            group.deleted_at = Some(now);
            Ok(())
        });
        match deleted.await {
            Err(QueueError::NotFound(_)) => Ok(()),
            result => result,
        }
    }

    pub async fn group(&self, name: &str) -> Result<Group, QueueError> {
        self.store.url_group(name).await?.ok_or_else(|| missing(name))
    }

    pub async fn groups(&self) -> Result<Vec<Group>, QueueError> {
        Ok(self.store.url_groups().await?)
    }

    async fn change_group(
        &self,
        name: &str,
        may_be_new: bool,
        change: impl Fn(&mut Group) -> Result<(), QueueError>,
    ) -> Result<(), QueueError> {
        for _ in 0..DECISIONS {
            let now = self.clock.now();
            let write = match self.store.url_group(name).await? {
                Some(mut group) => {
                    change(&mut group)?;
                    group.version += 1;
                    group.updated_at = now;
                    Write::GroupUpdate(Box::new(group))
                }
                None if may_be_new => {
                    let mut group = Group::new(self.ids.uuid(), name, now);
                    change(&mut group)?;
                    Write::GroupInsert(Box::new(group))
                }
                None => return Err(missing(name)),
            };
            if self.committed(write.into()).await? {
                return Ok(());
            }
        }
        Err(crowded().into())
    }
}
