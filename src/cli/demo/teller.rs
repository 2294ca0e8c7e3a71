//! Tells the story: line by line to a person, or as one JSON document at the end.

use crate::cli::output::{self, BAD, FAINT, GOOD, STRONG, styled};
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
struct Step {
    step: usize,
    title: String,
    lines: Vec<String>,
}

#[derive(Serialize)]
struct Whole<'a> {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<&'a str>,
    steps: &'a [Step],
}

/// See the module.
pub struct Teller {
    json: bool,
    pause: Duration,
    steps: Vec<Step>,
}

impl Teller {
    /// Pauses so long before each step.
    pub fn new(json: bool, pause: Duration) -> Self {
        Self { json, pause, steps: Vec::new() }
    }

    /// Before the first step.
    pub async fn opening(&self, text: &str) {
        if !self.json {
            output::line(styled(FAINT, text));
        }
    }

    /// The next step begins.
    pub async fn step(&mut self, title: &str) {
        let step = self.steps.len() + 1;
        if !self.json {
            tokio::time::sleep(self.pause).await;
            output::line(format!("\n{} {}", styled(STRONG, step), styled(STRONG, title)));
        }
        self.steps.push(Step { step, title: title.into(), lines: Vec::new() });
    }

    /// A call, or what somebody does.
    pub async fn call(&mut self, text: impl Into<String>) {
        self.line("→", text.into()).await;
    }

    /// What came back.
    pub async fn answer(&mut self, text: impl Into<String>) {
        self.line("←", text.into()).await;
    }

    /// What follows from it.
    pub async fn note(&mut self, text: impl Into<String>) {
        self.line("·", text.into()).await;
    }

    async fn line(&mut self, mark: &str, text: String) {
        if !self.json {
            tokio::time::sleep(self.pause / 2).await;
            output::line(format!("  {} {text}", styled(FAINT, mark)));
        }
        if let Some(step) = self.steps.last_mut() {
            step.lines.push(format!("{mark} {text}"));
        }
    }

    /// After the last step.
    pub fn close(&self, told: &Result<(), String>) {
        let difference = told.as_ref().err().map(String::as_str);
        if self.json {
            let whole = Whole { ok: told.is_ok(), difference, steps: &self.steps };
            output::line(serde_json::to_string_pretty(&whole).unwrap_or_default());
            return;
        }
        output::line(match difference {
            None => styled(
                GOOD.bold(),
                "\nOne intention, one effect: the answer was lost, the payment was not repeated.",
            ),
            Some(_) => styled(BAD.bold(), "\nThis is not how it should have gone."),
        });
    }
}
