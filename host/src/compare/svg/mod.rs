//! Plots as SVG: each is drawn for a given width, so that its letters keep their size on a phone.
//!
//! Colours and fonts come from classes, which the page defines once ([`STYLE`]); a plot that stands
//! alone in a file carries them itself.

mod axis;
mod bars;
mod curves;
mod percentiles;
mod ratios;

pub(crate) use bars::bars;
pub(crate) use curves::{Curve, Panel, curves};
pub(crate) use percentiles::{Line, percentiles};
pub(crate) use ratios::ratios;

use super::schema::Guest;
use maud::{Markup, PreEscaped, Render, html};

/// Classes and colours of all plots.
pub(crate) const STYLE: &str = include_str!("style.css");

/// Widths that plots are drawn for: a page of its own, and a phone.
pub(crate) const WIDE: f64 = 880.0;
pub(crate) const NARROW: f64 = 344.0;

/// A drawn plot.
#[derive(Debug)]
pub(crate) struct Plot {
    width: f64,
    height: f64,
    /// What it shows, in a few words.
    title: String,
    /// What is to be seen in it, for who cannot see it.
    description: String,
    body: Markup,
}

impl Plot {
    /// Part of a page; `id` must be unique in it.
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

    /// A file of its own.
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

    /// What it shows.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }
}

/// A coordinate: a tenth of a pixel is more than anybody sees.
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

/// The class that colours what belongs to a guest.
fn class(guest: Guest) -> &'static str {
    match guest {
        Guest::Ebb => "ebb",
        Guest::Linux => "linux",
    }
}

/// About what a text of the plots' size takes, since nobody measures it here.
fn text_width(text: &str) -> f64 {
    const LETTER: f64 = 7.0;
    let letters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    f64::from(letters) * LETTER
}
