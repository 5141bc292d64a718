//! The example is run as its reader would run it.

use std::process::Command;

use tashika_testkit::postgres::TestPostgres;

#[test]
fn receipts_are_written_exactly_for_the_sales_that_were_made_on_postgres() {
    let database = TestPostgres::database();
    let output = Command::new(env!("CARGO_BIN_EXE_tashika-example-shop"))
        .arg(database.url())
        .output()
        .expect("the example starts");
    let (told, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complaints}");
    let mut lines: Vec<&str> = told.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["2 sales", "receipt for sale-1", "receipt for sale-3"], "{complaints}");
}
