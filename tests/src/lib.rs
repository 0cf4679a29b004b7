//! Tests of the whole product: black-box and in virtual machines.
