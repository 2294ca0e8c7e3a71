//! Tables: framed and coloured on a terminal, aligned plain text in a pipe.

use super::output;
use crate::proto::{NextStep, OperationStatus};
use comfy_table::{
    Attribute, Cell, Color, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle, presets,
};

/// On a terminal: a rule below the heads, and room between the columns.
const LIGHT: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A table with these column heads; none: without heads.
pub fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    if output::is_terminal() {
        table.load_style(if heads.is_empty() { presets::NOTHING } else { LIGHT });
        table.set_content_arrangement(ContentArrangement::Dynamic);
        if !heads.is_empty() {
            table.set_header(heads.iter().map(|head| Cell::new(head).add_attribute(Attribute::Bold)));
        }
    } else {
        // One line a row, however long: a program reads it.
        table.load_style(presets::NOTHING);
        table.force_no_tty();
        table.set_content_arrangement(ContentArrangement::Disabled);
        if !heads.is_empty() {
            table.set_header(heads.iter().map(|head| head.to_uppercase().replace(' ', "_")));
        }
    }
    table
}

/// Prints it, without blanks at the ends of lines. The columns `whole` are never wrapped.
pub fn print(mut table: Table, whole: &[usize]) {
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if whole.contains(&index) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    for line in table.to_string().lines() {
        output::line(line.trim_end());
    }
}

/// A time: whole in a pipe, to the second on a terminal.
pub fn time_cell(time: Option<&prost_types::Timestamp>) -> Cell {
    let Some(time) = time else {
        return Cell::new("-");
    };
    if !output::is_terminal() {
        return Cell::new(time);
    }
    let seconds = prost_types::Timestamp { nanos: 0, ..*time };
    Cell::new(seconds.to_string().replace('T', " "))
}

/// The name of a thing, beside it.
pub fn name_cell(name: &str) -> Cell {
    Cell::new(name).add_attribute(Attribute::Dim)
}

/// Why a person must look.
pub fn review_cell(reason: Option<&str>) -> Cell {
    reason.map_or_else(|| Cell::new("-"), |reason| cell(reason).fg(Color::Yellow))
}

/// A cell with text from elsewhere.
pub fn cell(text: impl AsRef<str>) -> Cell {
    let text = output::harmless(text.as_ref());
    Cell::new(if output::is_terminal() { text } else { text.replace('\n', "\\n") })
}

/// A cell with a status.
pub fn status_cell(status: OperationStatus) -> Cell {
    let colour = match status {
        OperationStatus::Succeeded => Color::Green,
        OperationStatus::InProgress => Color::Cyan,
        OperationStatus::Unknown => Color::Yellow,
        OperationStatus::FailedFinal => Color::Red,
        OperationStatus::Pending | OperationStatus::Unspecified => Color::Reset,
    };
    Cell::new(status_text(status)).fg(colour)
}

/// A status as the database and the flags spell it.
pub fn status_text(status: OperationStatus) -> String {
    short(status.as_str_name(), "OPERATION_STATUS_")
}

/// An enum value without its prefix, in lower case.
pub fn short(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}

/// What a next step asks for.
pub fn next_step_text(step: NextStep) -> &'static str {
    match step {
        NextStep::Unspecified => "unspecified: do not act",
        NextStep::Execute => "EXECUTE: the lease is held; call the provider with this key",
        NextStep::Claim => "CLAIM: ask for the permission to act",
        NextStep::Wait => "WAIT: another holds the lease",
        NextStep::Reconcile => "RECONCILE: ask the provider, then report with `opledger reconcile`",
        NextStep::UseResult => "USE_RESULT: it is done, use the stored result",
        NextStep::Stop => "STOP: finally failed, no automatic retry",
        NextStep::Review => "REVIEW: a person decides",
    }
}

/// A status as text in its colour.
pub fn status_styled(status: OperationStatus) -> String {
    let style = match status {
        OperationStatus::Succeeded => output::GOOD,
        OperationStatus::Unknown => output::WARN,
        OperationStatus::FailedFinal => output::BAD,
        _ => output::STRONG,
    };
    output::styled(style, status_text(status))
}
