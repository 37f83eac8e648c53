//! The program's edge to the kernel: the only place of this crate where unsafe code may stand.

pub mod ring;
