//! A payment provider that pretends, and counts what it did. It does not know idempotency keys:
//! asked twice, it pays twice.

use std::sync::Mutex;

/// A payment that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// The provider's name for it.
    pub id: String,
    /// What the caller wrote on it.
    pub reference: String,
    /// How much.
    pub amount: String,
}

/// The connection broke before the answer came.
#[derive(Debug, PartialEq, Eq)]
pub struct AnswerLost;

/// See the module.
#[derive(Default)]
pub struct Provider {
    payments: Mutex<Vec<Payment>>,
}

impl Provider {
    /// Pays. The payment is made; its answer is lost.
    pub fn pay(&self, reference: &str, amount: &str) -> AnswerLost {
        let mut payments = self.payments.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let id = format!("pay_{}", payments.len() + 1);
        payments.push(Payment { id, reference: reference.into(), amount: amount.into() });
        AnswerLost
    }

    /// The payment with this reference.
    pub fn find(&self, reference: &str) -> Option<Payment> {
        self.all().into_iter().find(|payment| payment.reference == reference)
    }

    /// Every payment that was made.
    pub fn all(&self) -> Vec<Payment> {
        self.payments.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}
