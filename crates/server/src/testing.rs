//! Helpers of this crate's own tests.

use std::path::Path;

/// Compares a generated document with the file in the repository.
///
/// `TASHIKA_UPDATE_DOCS=1 cargo nextest run -p tashika-server` writes it anew.
pub fn same_as_file(path: &str, rendered: &str) {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("TASHIKA_UPDATE_DOCS").is_some() {
        std::fs::write(&full, rendered).unwrap();
    }
    let found = std::fs::read_to_string(&full).unwrap_or_default();
    assert!(
        found == rendered,
        "{path} is not what the code says; run the tests once with TASHIKA_UPDATE_DOCS=1"
    );
}
