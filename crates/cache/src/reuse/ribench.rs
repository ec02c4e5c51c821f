//! RIBench
