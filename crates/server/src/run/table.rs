//! Plain tables for people.

use std::io::Write;

/// Prints rows under headings, each column as wide as it needs to be.
pub fn print(out: &mut impl Write, headings: &[&str], rows: &[Vec<String>]) -> std::io::Result<()> {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
    for row in std::iter::once(&headings).chain(rows) {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut out = Vec::new();
        let rows = [vec!["orders".into(), "7".into()], vec!["mail".into(), "1234".into()]];
        print(&mut out, &["LANE", "N"], &rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "LANE    N\norders  7\nmail    1234\n");
    }
}
