//! Tables and numbers in Markdown.

use super::figures::{Figures, Spread};
use crate::results::{LoadResult, SystemResult};

/// A table with its first column left and the others right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    #[must_use]
    pub fn new(headings: impl IntoIterator<Item = String>) -> Self {
        Self { rows: vec![headings.into_iter().collect()] }
    }

    /// One more row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// As text; nothing if it has no rows.
    #[must_use]
    pub fn text(&self) -> String {
        let [headings, rows @ ..] = &*self.rows else { return String::new() };
        if rows.is_empty() {
            return "None.\n".to_owned();
        }
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|---|{}\n", "---:|".repeat(headings.len() - 1));
        line(headings) + &rule + &rows.iter().map(|row| line(row)).collect::<String>()
    }
}

/// A figure of some systems by connections: the median, with its range in brackets.
pub fn by_connections<'a>(
    figures: &Figures<'a>,
    systems: impl IntoIterator<Item = &'a SystemResult>,
    figure: impl Fn(&LoadResult) -> Option<f64>,
) -> String {
    let connections = figures.connections();
    let headings = connections.iter().map(|count| match count {
        1 => "1 connection".to_owned(),
        count => count.to_string(),
    });
    let mut table = Table::new(std::iter::once(String::new()).chain(headings));
    for system in systems {
        let cell = |count: &u32| {
            let spread = figures.spread(&system.id, *count, &figure);
            spread.map_or_else(|| "-".to_owned(), with_range)
        };
        let cells = connections.iter().map(cell);
        table.row(std::iter::once(system.title.clone()).chain(cells));
    }
    table.text()
}

/// `312 (305–330)`.
#[must_use]
pub fn with_range(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    format!("{} ({}–{})", number(median), number(min), number(max))
}

/// Three digits that count, thousands set apart.
#[must_use]
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        0.0..0.9995 => 3,
        0.9995..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    if decimals > 0 {
        return text;
    }
    let digits = text.len();
    let set_apart = |(index, digit): (usize, char)| {
        let comma = index > 0 && (digits - index).is_multiple_of(3);
        comma.then_some(',').into_iter().chain([digit])
    };
    text.chars().enumerate().flat_map(set_apart).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_commas() {
        let told = [0.0412, 0.9999, 4.567, 45.67, 456.7, 4567.0, 1_234_567.0].map(number);
        assert_eq!(told, ["0.041", "1.00", "4.57", "45.7", "457", "4,567", "1,234,567"]);
    }

    #[test]
    fn a_table_is_markdown() {
        let mut table = Table::new(["a".to_owned(), "b".to_owned()]);
        assert_eq!(table.text(), "None.\n");
        table.row(["c".to_owned(), "1".to_owned()]);
        assert_eq!(table.text(), "| a | b |\n|---|---:|\n| c | 1 |\n");
    }
}
