//! What is inside a panel: a figure with its course, lines over time with a legend, a table.

use super::draw::{Area, Picture, clock};
use super::{Panel, Series, Unit};
use crate::prometheus::Range;

pub(super) const RED: &str = "#cf222e";
const GREEN: &str = "#1a7f37";
const ORANGE: &str = "#bc4c00";
/// Of lines, in turn.
const PALETTE: [&str; 10] =
    ["#1a7f37", "#bf8700", "#0969da", "#bc4c00", "#cf222e", "#218bff", "#8250df", "#57606a", "#bf3989", "#1b7c83"];
const LEGEND_LINE: f64 = 14.0;
const LEGEND_LINES_MOST: usize = 3;
/// Of a letter in the legend, about, and of a capital one.
const LETTER: f64 = 5.9;
const CAPITAL: f64 = 7.6;
const TABLE_LINE: f64 = 16.0;

/// The last value in its colour, above its course.
pub(super) fn stat(picture: &mut Picture, panel: &Panel, series: &[Series], area: Area, range: Range) {
    let Some((points, last)) = series.first().and_then(|one| Some((&one.points, one.points.last()?.1))) else {
        return nothing(picture, area);
    };
    let step = panel.steps.iter().rev().find(|(from, _)| last >= *from);
    let colour = match step.map_or("green", |(_, colour)| colour.as_str()) {
        "red" => RED,
        "orange" => ORANGE,
        _ => GREEN,
    };
    let top = points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let scale = Scale { area: area.inside(-8.0, area.height * 0.55, -8.0, -5.0), range, top: top.max(1e-9) * 1.1 };
    let line: Vec<_> = points.iter().map(|point| scale.at(*point)).collect();
    picture.path(&line, Some(scale.floor()), &format!("fill=\"{colour}\" fill-opacity=\"0.15\""));
    picture.path(&line, None, &format!("fill=\"none\" stroke=\"{colour}\""));
    let middle = (area.x + area.width / 2.0, area.y + area.height * 0.5);
    let style = format!("font-size=\"30\" font-weight=\"600\" text-anchor=\"middle\" fill=\"{colour}\"");
    picture.text(middle.0, middle.1, &style, &panel.unit.text(last));
}

/// Lines over time.
pub(super) fn timeseries(picture: &mut Picture, panel: &Panel, series: &[Series], area: Area, range: Range) {
    if series.iter().all(|one| one.points.is_empty()) {
        return nothing(picture, area);
    }
    let (legend, more) = legend(series, area.width);
    #[expect(clippy::cast_precision_loss, reason = "a few lines")]
    let below = LEGEND_LINE * legend.len() as f64 + 18.0;
    let top = series.iter().flat_map(|one| &one.points).map(|(_, value)| *value).fold(0.0, f64::max);
    let step = match panel.unit {
        Unit::Part if top == 0.0 => 1.0,
        _ if top == 0.0 => panel.unit.step(4.0),
        _ => panel.unit.step(top),
    };
    let top = ((top * 1.02 / step).ceil() * step).max(step);
    let scale = Scale { area: area.inside(58.0, 6.0, 4.0, below), range, top };
    axes(picture, panel, &scale, step);
    for (index, one) in series.iter().enumerate() {
        let style = format!("fill=\"none\" stroke=\"{}\" stroke-width=\"1.3\"", PALETTE[index % PALETTE.len()]);
        for piece in pieces(&one.points, range.step) {
            let line: Vec<_> = piece.iter().map(|point| scale.at(*point)).collect();
            picture.path(&line, None, &style);
        }
    }
    let mut y = scale.floor() + 32.0;
    for (number, line) in legend.iter().enumerate() {
        for (index, x) in line {
            picture.text(area.x + x, y, &format!("fill=\"{}\"", PALETTE[index % PALETTE.len()]), "━");
            picture.text(area.x + x + 13.0, y, "", &series[*index].name);
        }
        if more > 0 && number + 1 == legend.len() {
            let style = "text-anchor=\"end\" fill=\"#57606a\"";
            picture.text(area.x + area.width, y, style, &format!("and {more} more"));
        }
        y += LEGEND_LINE;
    }
}

/// Labels and value of each series, as many as there is room for.
pub(super) fn table(picture: &mut Picture, panel: &Panel, series: &[Series], area: Area) {
    let Some(first) = series.first() else { return nothing(picture, area) };
    let labels: Vec<&String> = first.labels.as_object().into_iter().flat_map(|labels| labels.keys()).collect();
    #[expect(clippy::cast_precision_loss, reason = "a few columns")]
    let column = area.width / (labels.len() + 1) as f64;
    let cells = |picture: &mut Picture, y: f64, style: &str, texts: &[String]| {
        let mut x = area.x;
        for text in texts {
            picture.text(x, y, style, text);
            x += column;
        }
    };
    let mut y = area.y + TABLE_LINE;
    let mut head: Vec<String> = labels.iter().map(ToString::to_string).collect();
    head.push("value".to_owned());
    cells(picture, y, "font-weight=\"600\" fill=\"#57606a\"", &head);
    let (mut left, room) = (series.len(), area.y + area.height - TABLE_LINE);
    for one in series {
        if y + TABLE_LINE > room {
            break;
        }
        y += TABLE_LINE;
        let value = one.points.last().map(|(_, value)| panel.unit.text(*value));
        let mut texts: Vec<String> =
            labels.iter().map(|label| one.labels[label.as_str()].as_str().unwrap_or_default().to_owned()).collect();
        texts.push(value.unwrap_or_default());
        cells(picture, y, "", &texts);
        left -= 1;
    }
    if left > 0 {
        picture.text(area.x, y + TABLE_LINE, "fill=\"#57606a\"", &format!("and {left} more"));
    }
}

fn nothing(picture: &mut Picture, area: Area) {
    let (x, y) = (area.x + area.width / 2.0, area.y + area.height / 2.0);
    picture.text(x, y, "text-anchor=\"middle\" fill=\"#57606a\"", "No data");
}

/// From time and value to a place in the picture.
struct Scale {
    area: Area,
    range: Range,
    top: f64,
}

impl Scale {
    fn at(&self, (time, value): (f64, f64)) -> (f64, f64) {
        let part = (time - self.range.start) / (self.range.end - self.range.start);
        let height = (value / self.top).clamp(0.0, 1.0);
        (self.area.x + part * self.area.width, self.floor() - height * self.area.height)
    }

    fn floor(&self) -> f64 {
        self.area.y + self.area.height
    }
}

fn axes(picture: &mut Picture, panel: &Panel, scale: &Scale, step: f64) {
    let grid = "stroke=\"#eaeef2\"";
    let grey = "fill=\"#57606a\"";
    let (left, right) = (scale.range.start, scale.range.end);
    let mut value = 0.0;
    while value <= scale.top * 1.001 {
        let (x, y) = scale.at((left, value));
        picture.line((x, y), (x + scale.area.width, y), grid);
        picture.text(x - 6.0, y + 4.0, &format!("text-anchor=\"end\" {grey}"), &panel.unit.text(value));
        value += step;
    }
    // A line at each full minute, or at so many that some six of them are there.
    let every = 60.0 * ((right - left) / 360.0).ceil().max(1.0);
    let mut time = (left / every).ceil() * every;
    while time <= right {
        let (x, y) = scale.at((time, 0.0));
        picture.line((x, scale.area.y), (x, y), grid);
        picture.text(x, y + 14.0, &format!("text-anchor=\"middle\" {grey}"), &clock(time));
        time += every;
    }
}

/// A series may begin late, end early and have holes: only what follows at once is joined.
fn pieces(points: &[(f64, f64)], step: f64) -> Vec<&[(f64, f64)]> {
    points.chunk_by(|left, right| right.0 - left.0 < step * 1.5).collect()
}

/// For each line of the legend the series in it and where they begin, and how many found no room.
fn legend(series: &[Series], width: f64) -> (Vec<Vec<(usize, f64)>>, usize) {
    let (mut lines, mut x) = (vec![Vec::new()], 0.0);
    for (index, one) in series.iter().enumerate() {
        let letter = |letter: char| if letter.is_uppercase() { CAPITAL } else { LETTER };
        let needs = one.name.chars().map(letter).sum::<f64>() + 25.0;
        // The last line ends early, for what says how many more there are.
        let end = if lines.len() == LEGEND_LINES_MOST { width - 70.0 } else { width };
        if x > 0.0 && x + needs > end {
            if lines.len() == LEGEND_LINES_MOST {
                return (lines, series.len() - index);
            }
            lines.push(Vec::new());
            x = 0.0;
        }
        if let Some(line) = lines.last_mut() {
            line.push((index, x));
        }
        x += needs;
    }
    (lines, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn named(name: &str) -> Series {
        Series { name: name.to_owned(), labels: Value::Null, points: Vec::new() }
    }

    #[test]
    fn a_line_is_broken_where_points_are_missing() {
        let points = [(0.0, 1.0), (5.0, 1.0), (30.0, 2.0), (35.0, 2.0)];
        assert_eq!(pieces(&points, 5.0), [&points[..2], &points[2..]]);
    }

    #[test]
    fn a_legend_that_has_no_room_says_how_many_are_missing() {
        let series: Vec<Series> = (0..20).map(|number| named(&format!("consumers of topic {number}"))).collect();
        let (lines, more) = legend(&series, 300.0);
        assert_eq!(lines.len(), LEGEND_LINES_MOST);
        assert_eq!(lines.iter().map(Vec::len).sum::<usize>() + more, 20);
        assert!(more > 0 && lines[0].len() == 2, "{lines:?}");
        assert_eq!(legend(&series[..1], 300.0), (vec![vec![(0, 0.0)]], 0));
    }

    #[test]
    fn values_are_higher_up_and_later_ones_further_right() {
        let area = Area { x: 10.0, y: 10.0, width: 100.0, height: 50.0 };
        let scale = Scale { area, range: Range { start: 100.0, end: 200.0, step: 1.0 }, top: 4.0 };
        assert_eq!(scale.at((100.0, 0.0)), (10.0, 60.0));
        assert_eq!(scale.at((150.0, 4.0)), (60.0, 10.0));
        assert_eq!(scale.at((200.0, 1.0)), (110.0, 47.5));
    }
}
