//! WebShop: a shop of real products in which an agent finds, configures and buys what an instruction asks for.
//!
//! The engine answers as the original does, which is a web server, a browser, a Java search engine and two language
//! tools: same pages, same search results, same rewards ([`docs/reference/webshop.md`] says what was compared).
//! A [`Shop`] is the immutable part, shared by all sessions; a [`Session`] is one visit. [`WebShop`] is the benchmark
//! as trainers see it: sessions as tasks, an agent's actions checked before they reach the shop.
//!
//! [`docs/reference/webshop.md`]: ../../../../docs/reference/webshop.md

pub mod agent;
pub mod catalog;
mod environment;
pub mod generator;
mod goals;
pub mod python;
mod random;
mod reference;
pub mod replay;
pub mod reward;
pub mod search;
pub mod session;
mod shop;
mod shopper;
pub mod statistics;

pub use environment::{PROFILE, WebShop, WebShopEnvironment};
pub use goals::{Goal, GoalKind, GoalOptions, Goals, NO_CEILING, ORDER_SEED};
pub use random::PythonRandom;
pub use session::page::ObservationMode;
pub use session::{Outcome, Page, Session, SubPage};
pub use shop::{SearchError, Shop, ShopSettings};
