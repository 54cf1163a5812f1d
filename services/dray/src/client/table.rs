//! Tables that fit the terminal: as wide as the text where output is not a terminal, wrapped in their columns where it is.

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};

/// Columns that are never wrapped: what a person copies into the next command, and what is short anyway.
const WHOLE: &[&str] = &["name", "namespace", "claim", "sequence", "phase", "state", "age", "result"];

/// An empty table with these headings.
pub(crate) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(headings.iter().map(|heading| heading.to_uppercase()));
    for (column, heading) in table.column_iter_mut().zip(headings) {
        column.set_padding((0, 2));
        if WHOLE.contains(heading) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table
}

/// The table as text, without blanks at line ends.
pub(crate) fn text(table: &Table) -> String {
    table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Writes a line; an error is a closed pipe or a full disk.
pub(crate) fn print(line: impl std::fmt::Display) -> anyhow::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}

/// How long ago, in the largest unit that says something: `5s`, `3m`, `2h`, `4d`. Empty for what is no time.
pub(crate) fn age(created: &str, now: jiff::Timestamp) -> String {
    let Ok(created) = created.parse::<jiff::Timestamp>() else {
        return String::new();
    };
    let seconds = now.duration_since(created).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `1 claim`, `2 claims`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    let plural = match noun {
        _ if number == 1 => String::new(),
        _ if noun.ends_with('s') || noun.ends_with("ch") => "es".to_owned(),
        _ => "s".to_owned(),
    };
    format!("{} {noun}{plural}", thousands(number as u64))
}

/// `12,345`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ages_read_well() {
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(999), "999");
        assert_eq!(counted(1, "claim"), "1 claim");
        assert_eq!(counted(2_000, "class"), "2,000 classes");
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        assert_eq!(age("2026-01-01T23:59:01Z", now), "59s");
        assert_eq!(age("2026-01-01T21:00:00Z", now), "3h");
        assert_eq!(age("", now), "");
    }

    #[test]
    fn lines_end_where_the_text_ends() {
        let mut table = table(&["name", "node"]);
        table.add_row(["a", "n-1"]).add_row(["longer", ""]);
        assert_eq!(text(&table), "NAME    NODE\na       n-1\nlonger");
    }
}
