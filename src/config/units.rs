//! Settings as text: durations, sizes, addresses. Every refusal says what is allowed.

use std::{net::SocketAddr, time::Duration};

/// The longest duration a setting takes.
const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// `500ms`, `10s`, `1.5s`, `2m`, `1h`, `1d`.
///
/// # Errors
/// Says what is allowed.
pub fn duration(text: &str) -> Result<Duration, String> {
    let fault = || format!("`{text}` is not a duration: write 500ms, 10s, 5m, 1h or 1d");
    let (number, unit) = split(text).ok_or_else(fault)?;
    let micros_per_unit = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000_u64,
        _ => return Err(fault()),
    };
    let micros = decimal(number, micros_per_unit).ok_or_else(fault)?;
    let duration = Duration::from_micros(micros);
    if duration > DURATION_MAX {
        return Err(format!("`{text}` is too long: at most 366d"));
    }
    Ok(duration)
}

/// Bytes: `4194304`, `512KiB`, `4MiB`.
///
/// # Errors
/// Says what is allowed.
pub fn size(text: &str) -> Result<usize, String> {
    let fault = || format!("`{text}` is not a size: write 65536, 64KiB or 4MiB");
    let (number, unit) = split(text).ok_or_else(fault)?;
    let unit = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(fault()),
    };
    let bytes = decimal(number, unit).ok_or_else(fault)?;
    usize::try_from(bytes).map_err(|_| fault())
}

/// A whole number within limits.
///
/// # Errors
/// Says what is allowed.
pub fn integer(text: &str, min: u64, max: u64) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|value| (min..=max).contains(value))
        .ok_or_else(|| format!("`{text}` is not a whole number from {min} to {max}"))
}

/// `true` or `false`.
///
/// # Errors
/// Says what is allowed.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("`{text}` is neither true nor false")),
    }
}

/// `127.0.0.1:50051`, `[::1]:50051`, `localhost:50051`.
///
/// # Errors
/// Says what is allowed.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    // Names other than this one would need a resolver, and may mean several addresses.
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numeric
        .parse()
        .map_err(|_| format!("`{text}` is not an address and port such as 127.0.0.1:50051 or [::1]:50051"))
}

/// "off", or a value.
///
/// # Errors
/// As `parse`.
pub fn or_off<T>(text: &str, parse: fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == "off" {
        return Ok(None);
    }
    parse(text).map(Some).map_err(|fault| format!("{fault}, or off"))
}

/// The number and the unit behind it.
fn split(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (!number.is_empty()).then(|| (number, unit.trim_start()))
}

/// A decimal number times a unit, exact: no floating point, so that `0.1s` is 100 ms.
fn decimal(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if fraction.len() > 6 || fraction.is_empty() {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let scale = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let fraction: u64 = fraction.parse().ok()?;
    let part = fraction.checked_mul(unit)?;
    if part % scale != 0 {
        return None;
    }
    whole.checked_mul(unit)?.checked_add(part / scale)
}
