//! Samples that are kept prepared: nothing of them is read.

use super::{BatchPlan, Planner};
use crate::prepared::Prepared;
use std::sync::Arc;

impl Planner {
    /// Plans no reads for samples that are there already. Not for rows of pieces of samples.
    #[must_use]
    pub fn with_prepared(self, prepared: Option<Arc<Prepared>>) -> Planner {
        Planner { prepared, ..self }
    }

    /// Finds the samples that are kept prepared.
    pub(super) fn find_prepared(&self, plan: &mut BatchPlan) {
        let Some(prepared) = &self.prepared else { return };
        let ids = plan.batch.ids.iter().enumerate();
        plan.prepared.extend(ids.filter(|(_, id)| prepared.has(**id)).map(|(index, _)| index as u32));
    }
}

impl BatchPlan {
    /// Whether nothing of sample `index` is read.
    pub fn is_prepared(&self, index: usize) -> bool {
        self.prepared.binary_search(&(index as u32)).is_ok()
    }
}
