//! From time distances to stack distances.
