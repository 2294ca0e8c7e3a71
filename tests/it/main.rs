mod harness;
mod properties;
mod random;
mod script;
mod state_table;
