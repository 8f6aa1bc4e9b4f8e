//! Skips the reads of samples that are already prepared.

use super::{BatchPlan, Planner};
use crate::prepared::Prepared;
use std::sync::Arc;

impl Planner {
    /// Plans no reads for prepared samples. Not for rows of pieces of samples.
    #[must_use]
    pub fn with_prepared(self, prepared: Option<Arc<Prepared>>) -> Planner {
        Planner { prepared, ..self }
    }

    /// Finds the samples that are already prepared.
    pub(super) fn find_prepared(&self, plan: &mut BatchPlan) {
        let Some(prepared) = &self.prepared else { return };
        let ids = plan.batch.ids.iter().enumerate();
        plan.prepared.extend(ids.filter(|(_, id)| prepared.has(**id)).map(|(index, _)| index as u32));
    }
}

impl BatchPlan {
    /// Whether sample `index` needs no reads.
    pub fn is_prepared(&self, index: usize) -> bool {
        self.prepared.binary_search(&(index as u32)).is_ok()
    }
}
