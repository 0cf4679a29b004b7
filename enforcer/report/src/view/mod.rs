//! The view model: what every face of the report says, derived once.
//!
//! Problem: tables, tree, page, `top`, exports and metrics show the same workloads, nodes and findings, and
//! drift apart when each derives names, order, counts and words by itself. Idea: rows with typed values and
//! ready words, made here by pure functions of the core's report; a face only lays them out. Invariants: no
//! text is escaped or cut here, because each face has its own width and markup; unknown stays `None` until a
//! face shows it. What only one face has stays in that face.

pub(crate) mod causes;
pub(crate) mod distinct;
pub(crate) mod groups;
pub(crate) mod host;
pub(crate) mod machine;
pub(crate) mod step;
pub(crate) mod verdicts;
pub(crate) mod words;
pub(crate) mod workload;
