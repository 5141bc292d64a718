pub mod bench;
pub mod broker;
pub mod database;
pub mod gate;
pub mod gateway;
pub mod postgres;
pub mod shotstack;
pub mod sim;
mod wire;
