//! Things that belong together, by what belongs to what.

/// Numbers from 0, each in one cluster.
pub(crate) struct Clusters(Vec<usize>);

impl Clusters {
    /// So many, each alone.
    pub(crate) fn apart(count: usize) -> Self {
        Self((0..count).collect())
    }

    /// The cluster of a number: the same for all that belong together.
    pub(crate) fn of(&self, number: usize) -> usize {
        self.0[number]
    }

    /// Puts the clusters of two numbers together.
    pub(crate) fn join(&mut self, a: usize, b: usize) {
        let (from, to) = (self.0[a], self.0[b]);
        for cluster in self.0.iter_mut().filter(|it| **it == from) {
            *cluster = to;
        }
    }
}
