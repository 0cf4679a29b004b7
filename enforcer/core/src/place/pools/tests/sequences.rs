//! What must hold after any sequence of pods.
