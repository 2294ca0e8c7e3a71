//! What can go wrong in a store.
