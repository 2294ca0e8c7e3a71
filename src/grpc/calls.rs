//! What every call of the ledger passes on its way in and out: the cap on calls in flight, the
//! deadline, panics, metrics, the log. Health and reflection pass untouched.

use super::status::{self, DOMAIN, reason};
use crate::{
    proto::ErrorReason,
    telemetry::{Method, Metrics, code_name},
};
use http::{HeaderMap, Request, Response};
use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};
use tonic::{Code, Status, body::Body};
use tonic_types::{ErrorDetails, StatusExt};
use tower::{Layer, Service};
use tracing::Instrument;

/// tonic's own timer would answer CANCELLED, which clients do not understand as a time-out: this
/// one is earlier by so much. Short deadlines are left as they are; ours is then asked first.
const EARLIER: Duration = Duration::from_millis(2);

/// When the caller stops waiting. In the extensions of each request that named a time-out.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(pub Instant);

/// Makes [`Calls`].
#[derive(Clone)]
pub struct CallsLayer(Arc<Shared>);

struct Shared {
    metrics: Arc<Metrics>,
    in_flight: AtomicUsize,
    max_in_flight: usize,
}

impl CallsLayer {
    /// At most `max_in_flight` calls at a time, counted over all connections.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, max_in_flight: usize) -> Self {
        Self(Arc::new(Shared { metrics, in_flight: AtomicUsize::new(0), max_in_flight }))
    }
}

impl<S> Layer<S> for CallsLayer {
    type Service = Calls<S>;

    fn layer(&self, inner: S) -> Calls<S> {
        Calls { inner, shared: self.0.clone() }
    }
}

/// See the module.
#[derive(Clone)]
pub struct Calls<S> {
    inner: S,
    shared: Arc<Shared>,
}

type Answer<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl<S> Service<Request<Body>> for Calls<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Answer<S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Some(method) = Method::of_path(request.uri().path()) else {
            return Box::pin(self.inner.call(request));
        };
        let Some(mut call) = Call::enter(&self.shared, method) else {
            let max = self.shared.max_in_flight.to_string();
            let what = format!("{max} calls are under way already");
            let refused = status::overloaded(&what, [("maxInFlight".to_owned(), max)].into());
            self.shared.metrics.overloaded.inc();
            self.shared.metrics.call_ended(method, refused.code(), Duration::ZERO);
            return Box::pin(std::future::ready(Ok(refused.into_http())));
        };
        let deadline = timeout_of(request.headers()).map(|timeout| call.started + timeout);
        if let Some(deadline) = deadline {
            request.extensions_mut().insert(Deadline(deadline));
        }
        let span = tracing::debug_span!("rpc", method = method.as_str());
        let answer = self.inner.call(request).instrument(span);
        Box::pin(async move {
            let response = match within(deadline, no_panic(answer)).await {
                Ok(answer) => answer?,
                Err(status) => status.into_http(),
            };
            let response = explain_undecodable(response);
            call.end(code_of(response.headers()), response.headers());
            Ok(response)
        })
    }
}

/// One call under way. Counted until it is dropped; a call that is dropped before its end was
/// given up by its caller.
struct Call {
    shared: Arc<Shared>,
    method: Method,
    started: Instant,
    ended: bool,
}

impl Call {
    fn enter(shared: &Arc<Shared>, method: Method) -> Option<Self> {
        let before = shared.in_flight.fetch_add(1, Ordering::Relaxed);
        if before >= shared.max_in_flight {
            shared.in_flight.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        shared.metrics.in_flight.inc();
        Some(Self { shared: shared.clone(), method, started: Instant::now(), ended: false })
    }

    fn end(&mut self, code: Code, headers: &HeaderMap) {
        self.ended = true;
        let took = self.started.elapsed();
        self.shared.metrics.call_ended(self.method, code, took);
        let (method, code_text) = (self.method.as_str(), code_name(code));
        let duration_ms = took.as_secs_f64() * 1000.0;
        if matches!(code, Code::Internal | Code::Unknown | Code::DataLoss) {
            let message = Status::from_header_map(headers).map(|status| status.message().to_owned());
            tracing::error!(method, code = code_text, duration_ms, message, "call failed");
        } else {
            tracing::debug!(method, code = code_text, duration_ms, "call");
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            let took = self.started.elapsed();
            self.shared.metrics.call_ended(self.method, Code::Cancelled, took);
        }
        self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.shared.metrics.in_flight.dec();
    }
}

/// The answer, or DEADLINE_EXCEEDED. A call that comes in too late is not begun.
async fn within<T>(
    deadline: Option<Instant>,
    answer: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let Some(deadline) = deadline else {
        return answer.await;
    };
    if deadline <= Instant::now() {
        return Err(deadline_exceeded());
    }
    let mut answer = pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        () = sleep_until(deadline) => Err(deadline_exceeded()),
    }
}

/// A panic in one call would take all calls of its connection with it: it becomes INTERNAL. The
/// panic itself has been printed by then.
async fn no_panic<T>(answer: impl Future<Output = T>) -> Result<T, Status> {
    let mut answer = pin!(answer);
    std::future::poll_fn(move |context| {
        match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(answer)) => Poll::Ready(Ok(answer)),
            Err(_) => Poll::Ready(Err(status::with_reason(
                Code::Internal,
                ErrorReason::InternalFault,
                "a fault in opledger: the change may or may not have been made; repeating the call is safe",
            ))),
        }
    })
    .await
}

/// Without details: where the caller's own timer fires at the same moment, grpc's C core hands over the
/// message undecoded, and grpcio-status then refuses details whose message differs.
fn deadline_exceeded() -> Status {
    Status::deadline_exceeded(
        "the caller's deadline has passed; the change may or may not have been made: repeat the call, that is safe",
    )
}

/// The status code that the headers tell. Those of a success come later, in the trailers.
fn code_of(headers: &HeaderMap) -> Code {
    headers.get("grpc-status").map_or(Code::Ok, |value| Code::from_bytes(value.as_bytes()))
}

/// Refusals of the transport, told in the ledger's own words. A message that is no valid protobuf comes
/// as INTERNAL and is the caller's to mend: INVALID_ARGUMENT, with the field if it is known. One that
/// is too large keeps OUT_OF_RANGE: another attempt would not help.
fn explain_undecodable(response: Response<Body>) -> Response<Body> {
    if !matches!(code_of(response.headers()), Code::OutOfRange | Code::Internal) {
        return response;
    }
    let Some(status) = Status::from_header_map(response.headers()) else {
        return response;
    };
    let message = status.message();
    if let Some(sizes) = message.strip_prefix("Error, decoded message length too large: ") {
        let details =
            ErrorDetails::with_error_info(reason(ErrorReason::MessageTooLarge), DOMAIN, HashMap::new());
        let message = format!("the request message is too large: {sizes} (the server's max-message-bytes)");
        return Status::with_error_details(Code::OutOfRange, message, details).into_http();
    }
    let Some(fault) = message.strip_prefix("failed to decode Protobuf message: ") else {
        return response;
    };
    // `RegisterRequest.operation_key: invalid string value: data is not UTF-8 encoded`
    let (path, what) = fault.split_once(": ").unwrap_or(("", fault));
    let field = path.split_once('.').map_or("", |(_, field)| field);
    let mut details = ErrorDetails::with_bad_request_violation(field, what);
    details.set_error_info(reason(ErrorReason::InvalidField), DOMAIN, HashMap::new());
    let message = format!("the request cannot be read: {fault}");
    Status::with_error_details(Code::InvalidArgument, message, details).into_http()
}

/// `grpc-timeout`: at most eight digits and a unit. A malformed one is ignored, as tonic does.
fn timeout_of(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    let timeout = match unit {
        "H" => Duration::from_secs(value * 3600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    };
    Some(if timeout >= EARLIER * 10 { timeout - EARLIER } else { timeout })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        for (text, expected) in [
            ("1S", Some(Duration::from_millis(998))),
            ("100m", Some(Duration::from_millis(98))),
            ("5m", Some(Duration::from_millis(5))),
            ("1000u", Some(Duration::from_millis(1))),
            ("7n", Some(Duration::from_nanos(7))),
            ("2M", Some(Duration::from_millis(119_998))),
            ("0S", Some(Duration::ZERO)),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600) - EARLIER)),
            ("123456789S", None),
            ("+5S", None),
            ("5", None),
            ("S", None),
            ("", None),
            ("5s", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            assert_eq!(timeout_of(&headers), expected, "{text}");
        }
    }
}
