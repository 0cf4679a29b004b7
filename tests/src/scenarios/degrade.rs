//! Does the audit see what is wrong, and only that?
