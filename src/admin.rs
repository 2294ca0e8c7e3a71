//! Plain HTTP for the machine room: /livez, /readyz, /metrics.

use crate::{
    health::{Health, Readiness},
    telemetry::Metrics,
};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use std::sync::Arc;
use tokio::net::TcpListener;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
struct Room {
    health: Health,
    metrics: Arc<Metrics>,
}

/// The routes.
pub fn routes(health: Health, metrics: Arc<Metrics>) -> Router {
    Router::new()
        // Never asks the store: restarting this process would not bring a database back.
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(show_metrics))
        .with_state(Room { health, metrics })
}

/// Serves until it is dropped: a process that drains is still alive, and says so.
///
/// # Errors
/// Where the listener breaks.
pub async fn serve(listener: TcpListener, health: Health, metrics: Arc<Metrics>) -> std::io::Result<()> {
    axum::serve(listener, routes(health, metrics)).await
}

async fn ready(State(room): State<Room>) -> Response {
    let (status, body) = match room.health.readiness() {
        Readiness::Ready => (StatusCode::OK, serde_json::json!({"ready": true})),
        Readiness::Draining => {
            (StatusCode::SERVICE_UNAVAILABLE, serde_json::json!({"ready": false, "why": "draining"}))
        }
        Readiness::StoreAway(error) => (
            StatusCode::SERVICE_UNAVAILABLE,
            serde_json::json!({"ready": false, "why": "store", "error": error}),
        ),
    };
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, format!("{body}\n")).into_response()
}

async fn show_metrics(State(room): State<Room>) -> Response {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], room.metrics.encode()).into_response()
}
