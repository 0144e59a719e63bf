//! Shows the progress of a comparison: a bar on a terminal, a line for each run otherwise.

use super::give_back_mode::GiveBackMode;
use super::plan::{Clock, Plan, Step};
use crate::text::Style;
use crate::text::Terminal;
use std::time::{Duration, Instant};

/// The width of the bar in characters.
const BAR: usize = 20;
/// The minimum interval between drawings of the bar.
const DRAW_EVERY: Duration = Duration::from_millis(400);

/// Shows the user the progress of a plan while guests run.
#[derive(Debug)]
pub(crate) struct Progress<'a> {
    terminal: &'a Terminal,
    style: Style,
    /// When the bar was last drawn.
    drawn: Option<Instant>,
}

impl<'a> Progress<'a> {
    /// Creates the display on `terminal`. Nothing is drawn yet.
    pub(crate) fn new(terminal: &'a Terminal) -> Self {
        Self {
            terminal,
            style: Style::from_environment(),
            drawn: None,
        }
    }

    /// Prints a line that step `index` of the plan begins, with the remaining time. If the terminal
    /// can show a bar, prints nothing and lets the next tick draw it.
    pub(crate) fn begin(&mut self, plan: &Plan, clock: &Clock, index: usize) {
        self.drawn = None;
        if !self.terminal.interactive() {
            let left = clock.expect(plan, &plan.steps[index..]);
            let text = describe(plan, &plan.steps[index]);
            self.terminal.message(&format!(
                "ebb: {}: {text}; {} left",
                place(plan, index),
                RoughDuration(left)
            ));
        }
    }

    /// Draws the bar with the remaining time, unless it was drawn less than 400 ms ago. Step
    /// `index` has been running since `since`.
    pub(crate) fn tick(&mut self, plan: &Plan, clock: &Clock, index: usize, since: Instant) {
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < DRAW_EVERY) {
            return;
        }
        self.drawn = Some(Instant::now());
        let step = &plan.steps[index];
        let total = clock.expect(plan, &plan.steps);
        let this = clock.one(plan, step);
        // A step that takes longer than expected counts as almost done.
        let left =
            clock.expect(plan, &plan.steps[index + 1..]) + this.saturating_sub(since.elapsed());
        let done = total.saturating_sub(left);
        let share = done.as_secs_f64() / total.as_secs_f64().max(1e-9);
        let line = format!(
            "{} {} {} left  {}",
            bar(share, self.style),
            place(plan, index),
            RoughDuration(left),
            describe(plan, step)
        );
        let room = self.terminal.columns().saturating_sub(1);
        let line: String = line.chars().take(room).collect();
        self.terminal.draw(&line);
    }

    /// Prints `text` as a line that stays above the bar.
    pub(crate) fn say(&self, text: &str) {
        self.terminal.message(text);
    }

    /// Removes the bar from the terminal.
    pub(crate) fn end(&self) {
        self.terminal.clear();
    }
}

/// Returns the number of a step's run among all runs, or the numbers if several guests run
/// together.
fn place(plan: &Plan, index: usize) -> String {
    let before = plan.runs_of(&plan.steps[..index]);
    let of_step = plan.steps[index].guests.len();
    let all = plan.runs_of(&plan.steps);
    match of_step {
        0 | 1 => format!("{} of {all}", before + 1),
        of_step => format!("{} to {} of {all}", before + 1, before + of_step),
    }
}

/// Returns a description of `step` for users: the experiment, the guests with their shape, and the
/// number of the boot among those of its case.
pub(crate) fn describe(plan: &Plan, step: &Step) -> String {
    let case = &plan.cases[step.case];
    let shape = case.shape(step.boot);
    let cpus = match shape.cpus {
        1 => "1 CPU".to_owned(),
        cpus => format!("{cpus} CPUs"),
    };
    let give_back = match shape.give_back {
        GiveBackMode::REPORTING => String::new(),
        GiveBackMode::OFF => ", not reporting".to_owned(),
        mode => format!(", {}", mode.name()),
    };
    let guests: Vec<&str> = step.guests.iter().map(|guest| guest.name()).collect();
    let boots = plan
        .steps
        .iter()
        .filter(|other| other.case == step.case)
        .map(|other| other.boot)
        .max();
    let rounds = match step.rounds {
        1 => String::new(),
        rounds => format!(", {rounds} rounds"),
    };
    format!(
        "{} on {}, {cpus}, {}{give_back}, boot {} of {}{rounds}",
        case.experiment.name,
        guests.join(" and "),
        shape.memory,
        step.boot,
        boots.unwrap_or(step.boot)
    )
}

/// Returns the bar, filled to `share`.
fn bar(share: f64, style: Style) -> String {
    let (full, empty) = if style.unicode {
        ('█', '░')
    } else {
        ('#', '.')
    };
    (0..BAR)
        .map(|cell| {
            // Both numbers are below a hundred, so the conversion is exact.
            #[expect(clippy::cast_precision_loss, reason = "both are below a hundred")]
            let edge = (cell as f64 + 0.5) / BAR as f64;
            if edge < share { full } else { empty }
        })
        .collect()
}

/// A duration that is displayed rounded: in seconds up to 90 s, in minutes up to 90 min, then in
/// hours and minutes.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RoughDuration(pub(crate) Duration);

impl std::fmt::Display for RoughDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0..=90 => write!(f, "{seconds} s"),
            91..=5400 => write!(f, "{} min", (seconds + 30) / 60),
            _ => write!(f, "{} h {} min", seconds / 3600, seconds % 3600 / 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_as_people_say_them() {
        for (seconds, text) in [
            (0, "0 s"),
            (90, "90 s"),
            (91, "2 min"),
            (5400, "90 min"),
            (7300, "2 h 1 min"),
        ] {
            assert_eq!(
                RoughDuration(Duration::from_secs(seconds)).to_string(),
                text
            );
        }
    }

    #[test]
    fn the_bar_is_empty_at_first_and_full_at_the_end() {
        let style = Style { unicode: false };
        assert_eq!(bar(0.0, style), ".".repeat(BAR));
        assert_eq!(
            bar(0.5, style),
            format!("{}{}", "#".repeat(10), ".".repeat(10))
        );
        assert_eq!(bar(1.0, style), "#".repeat(BAR));
    }
}
