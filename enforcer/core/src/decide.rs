//! From figures and wishes to a plan.
