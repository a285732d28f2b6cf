//! Brokers and the controller: who is there, who can be relied on, who leads.
mod balance;
mod protocol;
mod session_machine;
