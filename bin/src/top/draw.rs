//! One frame of `duolog top`, fitted to the room there is.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table};
use serde_json::Value as Json;

use super::model::Model;
use crate::timestamp::rfc3339;

/// A column: its title, its width, and the width of the screen from which on it is shown.
type Column = (&'static str, u16, u16);

const NODES: [Column; 10] = [
    ("NODE", 21, 0),
    ("ROLE", 12, 0),
    ("EPOCH", 6, 0),
    ("LEASE", 8, 50),
    ("EVENTS/S", 9, 60),
    ("ACKS", 5, 66),
    ("WRITES/S", 9, 80),
    ("SKEW", 8, 90),
    ("CPU", 6, 100),
    ("MEMORY", 9, 110),
];

const SHARDS: [Column; 6] = [
    ("SHARD", 6, 0),
    ("LSN", 14, 0),
    ("LAG", 8, 0),
    ("EVENTS/S", 9, 0),
    ("WRITES/S", 9, 60),
    ("COMMITTED", 14, 80),
];

/// Height that shows everything, lines.
#[must_use]
pub fn height(model: &Model) -> u16 {
    let shards = shards(model).len();
    let lines = 1 + nodes_height(model) + 2 + shards + latencies(model).len() + 8;
    u16::try_from(lines).unwrap_or(u16::MAX)
}

fn nodes_height(model: &Model) -> usize {
    model.addresses.len() + 2
}

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, model: &Model) {
    let latencies = latencies(model);
    let room = |lines: usize| Constraint::Length(u16::try_from(lines).unwrap_or(u16::MAX));
    let latency_room = if latencies.is_empty() { 0 } else { latencies.len() + 1 };
    let chart = if frame.area().height >= 24 { 3 } else { 0 };
    let areas = Layout::vertical([
        Constraint::Length(1),
        room(nodes_height(model)),
        room(chart),
        Constraint::Fill(2),
        room(latency_room),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .split(frame.area());
    frame.render_widget(title(model), areas[0]);
    nodes(frame, model, areas[1]);
    let history: Vec<u64> = model.history.iter().copied().collect();
    let newest = history.len().saturating_sub(usize::from(areas[2].width));
    let block = Block::new().borders(Borders::TOP).title(" events/s of the leader ");
    frame.render_widget(Sparkline::default().data(&history[newest..]).block(block), areas[2]);
    shard_table(frame, model, areas[3]);
    let block = Block::new().borders(Borders::TOP).title(" latency since the start ");
    frame.render_widget(Paragraph::new(latencies).block(block), areas[4]);
    failovers(frame, model, areas[5]);
    let keys = "q quit  p pause  tab, arrows select a node";
    frame.render_widget(Paragraph::new(keys).style(dim()), areas[6]);
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn title(model: &Model) -> Line<'static> {
    let at = model.wall_ms().map_or("--:--:--".to_owned(), |at| rfc3339(at)[11..19].to_owned());
    let paused = if model.paused { "  PAUSED" } else { "" };
    Line::from(vec![
        Span::styled("duolog top", bold()),
        Span::raw(format!("  {at}Z  every {} ms", model.interval_ms)),
        Span::styled(paused, Style::new().fg(Color::Yellow)),
    ])
}

/// The columns that there is room for.
fn shown<const N: usize>(columns: &[Column; N], width: u16) -> Vec<usize> {
    (0..N).filter(|index| columns[*index].2 <= width).collect()
}

fn table<const N: usize>(
    columns: &[Column; N],
    width: u16,
    rows: Vec<([String; N], Style)>,
) -> Table<'static> {
    let shown = shown(columns, width);
    let header = Row::new(shown.iter().map(|index| columns[*index].0)).style(dim());
    let widths = shown.iter().map(|index| Constraint::Length(columns[*index].1));
    let widths: Vec<Constraint> = widths.collect();
    let rows = rows.into_iter().map(|(cells, style)| {
        Row::new(shown.iter().map(|index| Cell::from(cells[*index].clone()))).style(style)
    });
    Table::new(rows.collect::<Vec<_>>(), widths).header(header).column_spacing(1)
}

/// A value as people read it; `-` for none.
fn plain(value: &Json) -> String {
    match value {
        Json::Null => "-".to_owned(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn milliseconds(value: &Json) -> String {
    value.as_i64().map_or("-".to_owned(), |ms| format!("{ms} ms"))
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"))
}

fn role_style(role: &str) -> Style {
    match role {
        "leader" | "standalone" => Style::new().fg(Color::Green),
        "follower" => Style::new(),
        _ => Style::new().fg(Color::Yellow),
    }
}

fn nodes(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let rows = model.addresses.iter().enumerate().map(|(node, address)| {
        let mark = if node == model.selected { '>' } else { ' ' };
        let name = format!("{mark}{address}");
        let blank = || String::new();
        match model.said(node) {
            Some(Ok(status)) => {
                let rates = model.rate(node);
                let memory = status["resident_bytes"].as_u64();
                let cells = [
                    name,
                    plain(&status["role"]),
                    plain(&status["epoch"]),
                    milliseconds(&status["lease_remaining_ms"]),
                    rate(rates.map(|rate| rate.events)),
                    plain(&status["acks_go_to"]),
                    rate(rates.map(|rate| rate.writes)),
                    milliseconds(&status["skew_ms"]["peer"]),
                    model.cpu_percent(node).map_or("-".to_owned(), |cpu| format!("{cpu:.0} %")),
                    memory.map_or("-".to_owned(), |bytes| format!("{} MiB", bytes >> 20)),
                ];
                (cells, role_style(status["role"].as_str().unwrap_or("")))
            }
            said => {
                let word = if said.is_some() { "unreachable" } else { "..." };
                let mut cells = std::array::from_fn(|_| blank());
                (cells[0], cells[1]) = (name, word.to_owned());
                (cells, Style::new().fg(Color::Red))
            }
        }
    });
    let block = Block::new().borders(Borders::TOP).title(" nodes ");
    frame.render_widget(table(&NODES, area.width, rows.collect()).block(block), area);
}

fn shards(model: &Model) -> &[Json] {
    let shards = model.status(model.selected).and_then(|status| status["shards"].as_array());
    shards.map_or(&[][..], Vec::as_slice)
}

fn shard_table(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let address = model.addresses.get(model.selected).map_or("", String::as_str);
    let title = format!(" shards of {address} ");
    let block = Block::new().borders(Borders::TOP).title(title);
    if let Some(Err(reason)) = model.said(model.selected) {
        let text = format!("unreachable: {reason}");
        let wrapped = Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true });
        return frame.render_widget(wrapped.block(block), area);
    }
    let rows = shards(model).iter().enumerate().map(|(index, shard)| {
        let rates = model.shard_rate(model.selected, index);
        let cells = [
            plain(&shard["shard"]),
            plain(&shard["lsn"]),
            plain(&shard["lag"]),
            rate(rates.map(|rate| rate.events)),
            rate(rates.map(|rate| rate.writes)),
            plain(&shard["committed"]),
        ];
        (cells, Style::new())
    });
    frame.render_widget(table(&SHARDS, area.width, rows.collect()).block(block), area);
}

/// Percentiles that the node tells, one line for each stage: `latency` of its status.
fn latencies(model: &Model) -> Vec<Line<'static>> {
    let told = model.status(model.selected).and_then(|status| status["latency"].as_object());
    let stages = told.into_iter().flatten().filter_map(|(stage, numbers)| {
        let numbers = numbers.as_object()?.iter();
        let numbers = numbers.filter(|(name, value)| {
            value.is_number() && name.starts_with('p') && name.ends_with("_us")
        });
        let cells =
            numbers.map(|(name, value)| format!("{} {value} us", name.trim_end_matches("_us")));
        let cells: Vec<String> = cells.collect();
        (!cells.is_empty()).then(|| Line::from(format!("{stage:<10} {}", cells.join("  "))))
    });
    stages.collect()
}

fn failovers(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let told = model.status(model.selected).and_then(|status| status["failovers"].as_array());
    let lines = told.into_iter().flatten().rev().map(|change| {
        let at =
            change["at_ms"].as_u64().map_or("-".to_owned(), |at| rfc3339(at)[11..19].to_owned());
        let pause = match change["pause_ms"].as_u64() {
            Some(ms) => format!(", paused {ms} ms"),
            None => String::new(),
        };
        let (epoch, reason) = (plain(&change["epoch"]), plain(&change["reason"]));
        Line::from(format!("{at}  epoch {epoch}: {reason}{pause}"))
    });
    let block = Block::new().borders(Borders::TOP).title(" last changes ");
    let lines: Vec<Line<'_>> = lines.take(usize::from(area.height.saturating_sub(1))).collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{follower, look};
    use super::super::text;
    use super::*;

    fn model(follower: Result<Json, String>) -> Model {
        let addresses = ["10.0.0.1:7400", "10.0.0.2:7400"].map(str::to_owned).to_vec();
        let mut model = Model::new(addresses, 1000);
        model.take(look(1, follower.clone()));
        model.take(look(2, follower));
        model
    }

    #[test]
    fn a_wide_screen_shows_everything() {
        let text = text(&model(Ok(follower())), 120, 24);
        for part in [
            "duolog top  00:00:02Z  every 1000 ms",
            ">10.0.0.1:7400",
            "leader",
            "1200 ms",
            "2000",
            "3 ms",
            "25 %",
            "64 MiB",
            "follower",
            "shards of 10.0.0.1:7400",
            "2001",
            "01:46:40  epoch 7: promotion is finished, paused 1620 ms",
            "q quit",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
    }

    #[test]
    fn a_narrow_screen_shows_what_matters_most() {
        let mut model = model(Err("connection refused".to_owned()));
        let narrow = text(&model, 60, 20);
        assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
        for part in ["leader", "7", "unreachable", "LSN", "epoch 7"] {
            assert!(narrow.contains(part), "{part:?} in\n{narrow}");
        }
        assert!(!narrow.contains("MEMORY"), "{narrow}");
        model.select(1);
        let narrow = text(&model, 60, 20);
        assert!(narrow.contains("unreachable: connection refused"), "{narrow}");
        text(&model, 1, 1);
    }

    #[test]
    fn latencies_are_shown_where_a_node_tells_them() {
        let mut told = follower();
        let total = serde_json::json!({"p50_us": 120, "p99_us": 900, "count": 7, "sum_us": 4000});
        told["latency"] = serde_json::json!({ "total": total });
        let mut model = model(Ok(told));
        assert!(!text(&model, 100, 30).contains("p50 120 us"));
        model.select(1);
        let shown = text(&model, 100, 30);
        assert!(shown.contains("total") && shown.contains("p50 120 us  p99 900 us"), "{shown}");
        assert!(!shown.contains("count") && !shown.contains("4000"), "{shown}");
    }
}
