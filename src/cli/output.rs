//! Output for people and for pipes: colours only on a terminal, and no panic when a pipe closes.

use anstyle::{AnsiColor, Style};
use clap::builder::Styles;
use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
};

/// Colours of the help.
pub const HELP_STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Something good.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Something to look at.
pub const WARN: Style = AnsiColor::Yellow.on_default();
/// Something bad.
pub const BAD: Style = AnsiColor::Red.on_default();
/// A heading.
pub const STRONG: Style = Style::new().bold();
/// Something beside the point.
pub const FAINT: Style = Style::new().dimmed();

/// Text in a style. Printed by [`line`], which drops the style where nobody sees it.
pub fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// True where a person reads the output.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints a line to stdout. Where the reader has gone (`| head`), the program ends quietly.
pub fn line(text: impl Display) {
    if let Err(error) = writeln!(anstream::stdout(), "{text}") {
        let gone = error.kind() == io::ErrorKind::BrokenPipe;
        std::process::exit(i32::from(!gone));
    }
}

/// Prints a line to stderr.
pub fn note(text: impl Display) {
    // Nothing can be done where even this is closed.
    _ = writeln!(anstream::stderr(), "{text}");
}

/// Prints what went wrong, and below it what to do.
pub fn error(text: impl Display) {
    note(format!("{} {text}", styled(BAD.bold(), "error:")));
}

/// Text from elsewhere, so that it cannot move the cursor or change colours.
pub fn harmless(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escape = (c.is_control() && c != '\n') || crate::ledger::limits::is_deceptive(c);
            let escaped = escape.then(|| c.escape_unicode());
            escaped.into_iter().flatten().chain((!escape).then_some(c))
        })
        .collect()
}
