//! A chart as inline SVG: a frame with marks, lines, areas and dots. Colours come from the page's
//! style by class, so that they follow its light or dark dress.

use std::fmt::Write as _;

use super::axis::Axis;
use super::words::escape;

/// How large a chart is drawn; a page has each twice, for wide and for narrow screens, so that
/// letters keep their size.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Name of the style that shows it.
    pub class: &'static str,
    /// Units of the drawing, about pixels.
    pub width: f64,
    /// Units of the drawing.
    pub height: f64,
    /// Marks that have room on the axis of values and on the one below.
    pub marks: (usize, usize),
}

/// For screens with room.
pub const WIDE: Size = Size { class: "wide", width: 960.0, height: 300.0, marks: (5, 10) };
/// For telephones.
pub const NARROW: Size = Size { class: "narrow", width: 360.0, height: 240.0, marks: (4, 4) };

const LEFT: f64 = 58.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 26.0;

/// A chart in the making.
#[derive(Debug)]
pub struct Chart {
    size: Size,
    across: Axis,
    up: Axis,
    drawn: String,
}

impl Chart {
    /// An empty one. `across`: the axis below; `up`: the axis of values.
    #[must_use]
    pub fn new(size: Size, across: Axis, up: Axis) -> Self {
        let mut chart = Self { size, across, up, drawn: String::new() };
        chart.frame();
        chart
    }

    /// A line through points; one without value is a gap.
    pub fn line(&mut self, class: &str, points: impl Iterator<Item = (f64, Option<f64>)>) {
        let (mut path, mut pen_down) = (String::new(), false);
        for (across, up) in points {
            let Some(up) = up else {
                pen_down = false;
                continue;
            };
            let (x, y) = self.place(across, up);
            let verb = if pen_down { 'L' } else { 'M' };
            self.say(&mut path, format_args!("{verb}{x:.1} {y:.1}"));
            pen_down = true;
        }
        let line = format!("<path class=\"line {class}\" d=\"{path}\"/>");
        self.drawn.push_str(&line);
    }

    /// A line with the room below it filled.
    pub fn area(&mut self, class: &str, points: &[(f64, f64)]) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let mut path = String::new();
        let (start, floor) = self.place(first.0, 0.0);
        self.say(&mut path, format_args!("M{start:.1} {floor:.1}"));
        for (across, up) in points {
            let (x, y) = self.place(*across, *up);
            self.say(&mut path, format_args!("L{x:.1} {y:.1}"));
        }
        let (end, _) = self.place(last.0, 0.0);
        self.say(&mut path, format_args!("L{end:.1} {floor:.1}Z"));
        let area = format!("<path class=\"area {class}\" d=\"{path}\"/>");
        self.drawn.push_str(&area);
        self.line(class, points.iter().map(|(across, up)| (*across, Some(*up))));
    }

    /// A dot that explains itself when pointed at.
    pub fn dot(&mut self, class: &str, across: f64, up: f64, explained: &str) {
        let (x, y) = self.place(across, up);
        let dot = format!(
            "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title>\
             </circle>",
            escape(explained)
        );
        self.drawn.push_str(&dot);
    }

    /// A word beside a point: to its right, or to its left where there is no room.
    pub fn word(&mut self, across: f64, up: f64, text: &str) {
        let (x, y) = self.place(across, up);
        let room = self.size.width - RIGHT - x;
        let (x, anchor) = if room < 90.0 { (x - 8.0, "end") } else { (x + 8.0, "start") };
        let word = format!(
            "<text class=\"word\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            y - 7.0,
            escape(text)
        );
        self.drawn.push_str(&word);
    }

    /// A mark at the foot, where something went wrong.
    pub fn fault(&mut self, across: f64, explained: &str) {
        let x = self.x(across);
        let foot = self.size.height - BOTTOM;
        let mark = format!(
            "<path class=\"fault\" d=\"M{x:.1} {:.1}l-4 8h8z\"><title>{}</title></path>",
            foot - 8.0,
            escape(explained)
        );
        self.drawn.push_str(&mark);
    }

    /// The drawing. `described`: for people who do not see it.
    #[must_use]
    pub fn finish(self, described: &str) -> String {
        let Size { class, width, height, .. } = self.size;
        format!(
            "<svg class=\"chart {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{}\">{}</svg>",
            escape(described),
            self.drawn
        )
    }

    fn frame(&mut self) {
        let (left, right) = (LEFT, self.size.width - RIGHT);
        let foot = self.size.height - BOTTOM;
        let mut text = String::new();
        for (value, mark) in &self.up.ticks {
            let y = self.y(*value);
            self.say(
                &mut text,
                format_args!(
                    "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/><text x=\"{:.1}\" \
                     y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                    left - 8.0,
                    y + 4.0,
                    escape(mark)
                ),
            );
        }
        for (value, mark) in &self.across.ticks {
            let x = self.x(*value);
            let anchor = if x > right - 16.0 { "end" } else { "middle" };
            let at = if x > right - 16.0 { right + RIGHT - 2.0 } else { x };
            self.say(
                &mut text,
                format_args!(
                    "<path class=\"mark\" d=\"M{x:.1} {foot}v5\"/><text x=\"{at:.1}\" \
                     y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                    foot + 19.0,
                    escape(mark)
                ),
            );
        }
        self.say(&mut text, format_args!("<path class=\"mark\" d=\"M{left} {foot}H{right}\"/>"));
        self.drawn = text;
    }

    fn say(&self, text: &mut String, what: std::fmt::Arguments<'_>) {
        text.write_fmt(what).expect("a String takes all text");
    }

    fn place(&self, across: f64, up: f64) -> (f64, f64) {
        (self.x(across), self.y(up))
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.across.place(value) * (self.size.width - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let foot = self.size.height - BOTTOM;
        foot - self.up.place(value) * (foot - TOP)
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::three;
    use super::*;

    fn chart() -> Chart {
        Chart::new(NARROW, Axis::exact(10.0, 5, three), Axis::linear(100.0, 5, three))
    }

    /// A gap in the values is a gap in the line. Broken if a line runs through an interval in which
    /// nothing was answered.
    #[test]
    fn a_line_has_gaps_where_there_is_no_value() {
        let mut chart = chart();
        let points = [(0.0, Some(0.0)), (1.0, Some(100.0)), (2.0, None), (3.0, Some(50.0))];
        chart.line("p50", points.into_iter());
        let svg = chart.finish("a test");
        let path = [('M', "58.0 214.0"), ('L', "86.4 12.0"), ('M', "143.2 113.0")];
        let path: String = path.iter().map(|(verb, place)| format!("{verb}{place}")).collect();
        assert!(svg.contains(&format!("d=\"{path}\"")), "{svg}");
    }

    #[test]
    fn what_is_written_into_a_chart_is_escaped() {
        let mut chart = chart();
        chart.dot("p50", 1.0, 1.0, "<script>");
        chart.word(1.0, 1.0, "a&b");
        let svg = chart.finish("\"><x");
        assert!(!svg.contains("<script>") && svg.contains("&lt;script&gt;"), "{svg}");
        assert!(svg.contains("a&amp;b") && svg.contains("&quot;&gt;&lt;x"), "{svg}");
    }
}
