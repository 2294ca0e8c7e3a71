//! The detail of an event, for people.

use serde_json::{Map, Value};

/// Members that hold times, in microseconds since 1970.
fn is_time(name: &str) -> bool {
    name.ends_with("_at") || name.ends_with("_since") || matches!(name, "until" | "observed")
}

/// `{"lease":{"holder":"a","until":1700000000000000},"error_code":"timeout"}` as
/// `error code: timeout · lease: a, until 2023-11-14T22:13:20Z`. Text that is no JSON object stays as it
/// is.
pub fn readable(detail: &str) -> String {
    let Ok(Value::Object(members)) = serde_json::from_str(detail) else {
        return detail.to_owned();
    };
    let parts: Vec<String> = members
        .iter()
        .map(|(name, value)| match (name.as_str(), value) {
            ("lease", Value::Null) => "lease ended".into(),
            ("lease", Value::Object(lease)) => format!("lease: {}", lease_text(lease)),
            ("evidence", Value::Object(evidence)) => format!("evidence: {}", evidence_text(evidence)),
            _ => format!("{}: {}", name.replace('_', " "), value_text(name, value)),
        })
        .collect();
    parts.join(" · ")
}

fn lease_text(lease: &Map<String, Value>) -> String {
    let holder = lease.get("holder").and_then(Value::as_str).filter(|holder| !holder.is_empty());
    let until = lease.get("until").map_or_else(String::new, |until| value_text("until", until));
    let two_step = if lease.get("two_step") == Some(&Value::Bool(true)) { ", two-step" } else { "" };
    format!("{}, until {until}{two_step}", holder.unwrap_or("a nameless worker"))
}

fn evidence_text(evidence: &Map<String, Value>) -> String {
    let parts: Vec<String> = evidence
        .iter()
        .map(|(name, value)| match name.as_str() {
            "source" => value_text(name, value),
            _ => format!("{} {}", name.replace('_', " "), value_text(name, value)),
        })
        .collect();
    parts.join(", ")
}

fn value_text(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) if is_time(name) => number.as_i64().map_or(number.to_string(), time_text),
        other => other.to_string(),
    }
}

fn time_text(micros: i64) -> String {
    let time = prost_types::Timestamp {
        seconds: micros.div_euclid(1_000_000),
        nanos: i32::try_from(micros.rem_euclid(1_000_000) * 1000).unwrap_or_default(),
    };
    time.to_string()
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn details_are_readable() {
        let detail = r#"{"lease":{"holder":"a","until":1700000000000000},"error_code":"timeout","unknown_since":null}"#;
        assert_eq!(
            readable(detail),
            "error code: timeout · lease: a, until 2023-11-14T22:13:20Z · unknown since: none"
        );
        assert_eq!(
            readable(r#"{"lease":null,"evidence":{"source":"looked"}}"#),
            "evidence: looked · lease ended"
        );
        assert_eq!(readable("no json"), "no json");
    }
}
