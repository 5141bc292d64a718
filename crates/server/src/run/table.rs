//! Plain tables for people.

use std::io::Write;

/// Prints rows under headings, each column as wide as it needs to be.
pub fn print(out: &mut impl Write, headings: &[&str], rows: &[Vec<String>]) -> std::io::Result<()> {
    lines(headings, rows).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// The same as lines.
#[must_use]
pub fn lines(headings: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{:<width$}", plain(cell)));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    std::iter::once(&headings).chain(rows).map(line).collect()
}

/// Without control characters: what others have sent us must not move the cursor of whoever reads it.
#[must_use]
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
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

    #[test]
    fn nobody_moves_the_cursor() {
        let mut out = Vec::new();
        print(&mut out, &["N"], &[vec!["\x1b[2Jgone\nnext".into()]]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "N\n [2Jgone next\n");
    }
}
