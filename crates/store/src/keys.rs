//! `signing_keys`: what deliveries are signed with. One row.

use tashika_domain::message::keys::SigningKeys;
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::{Key, StoreError};
use crate::row::Reader;
use crate::table::{Column, Kept, Kind, Lazy, Table};

const FIXED: [Column; 1] = [("id", Kind::Uuid)];

const CHANGING: [Column; 3] =
    [("version", Kind::Int), ("current_key", Kind::Text), ("next_key", Kind::Text)];

static TABLE: Lazy = Lazy::new(|| Table::new("signing_keys", &FIXED, &CHANGING).unique(Key::Name));

impl Kept for SigningKeys {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        Self::ID
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        vec![Cell::Uuid(Self::ID)]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        vec![Cell::Int(self.version), self.current.as_str().into(), self.next.as_str().into()]
    }
}

impl Store {
    pub async fn signing_keys(&self) -> Result<Option<SigningKeys>, StoreError> {
        let found = self.query(TABLE.select(), vec![], |row| {
            let read = Reader::by_uuid(row, "signing_keys", "id");
            Ok(SigningKeys {
                version: read.int("version")?,
                current: read.text("current_key")?,
                next: read.text("next_key")?,
            })
        });
        Ok(found.await?.pop())
    }
}
