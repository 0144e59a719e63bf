//! Plots as SVG. Each is drawn for a given width, so that its text has the same size on a phone.
//!
//! CSS classes define colours and fonts. A page has them once ([`STYLE`]); a plot in a file of its
//! own contains them.

mod axis;
mod bars;
mod curves;
mod percentiles;
mod ratios;

pub(crate) use bars::bars;
pub(crate) use curves::{Curve, Panel, curves};
pub(crate) use percentiles::{Line, percentiles};
pub(crate) use ratios::{NamedRatio, ratios};

use super::schema::Guest;
use maud::{Markup, PreEscaped, Render, html};

/// The CSS of all plots, which a page contains once.
pub(crate) const STYLE: &str = include_str!("style.css");

/// The width of a plot on a wide page, in pixels.
pub(crate) const WIDE: f64 = 880.0;
/// The width of a plot on a phone, in pixels.
pub(crate) const NARROW: f64 = 344.0;

/// A drawn plot, for a page or a file of its own.
#[derive(Debug)]
pub(crate) struct Plot {
    width: f64,
    height: f64,
    /// A short title.
    title: String,
    /// A description for readers who cannot see the plot.
    description: String,
    body: Markup,
}

impl Plot {
    /// Returns the plot as a part of a page, without the CSS. `id` is the prefix of its ids and
    /// must be unique in the page; `class` is an additional CSS class.
    pub(crate) fn inline(&self, id: &str, class: &str) -> Markup {
        let (title, description) = (format!("{id}-title"), format!("{id}-desc"));
        let size = format!("0 0 {} {}", Number(self.width), Number(self.height));
        html! {
            svg class={ "plot " (class) } viewBox=(size) width=(Number(self.width))
                height=(Number(self.height)) role="img" aria-labelledby={ (title) " " (description) } {
                title id=(title) { (self.title) }
                desc id=(description) { (self.description) }
                (self.body)
            }
        }
    }

    /// Returns the plot as the text of an SVG file, with the CSS and a background.
    pub(crate) fn standalone(&self) -> String {
        let size = format!("0 0 {} {}", Number(self.width), Number(self.height));
        let markup = html! {
            svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox=(size)
                width=(Number(self.width)) height=(Number(self.height)) role="img"
                aria-labelledby="title desc" {
                title id="title" { (self.title) }
                desc id="desc" { (self.description) }
                style { (PreEscaped(STYLE)) }
                rect class="paper" width="100%" height="100%" {}
                (self.body)
            }
        };
        markup.into_string() + "\n"
    }

    /// Returns the plot's short title.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }
}

/// A coordinate, which is written with one decimal.
#[derive(Copy, Clone, Debug)]
struct Number(f64);

impl Render for Number {
    fn render_to(&self, to: &mut String) {
        to.push_str(&self.to_string());
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.1}", self.0);
        f.write_str(text.strip_suffix(".0").unwrap_or(&text))
    }
}

/// Returns the CSS class that colours the parts of a guest.
fn class(guest: Guest) -> &'static str {
    match guest {
        Guest::Ebb => "ebb",
        Guest::Linux => "linux",
    }
}

/// Returns an estimate of a text's width in pixels.
fn text_width(text: &str) -> f64 {
    const LETTER: f64 = 7.0;
    let letters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    f64::from(letters) * LETTER
}
