//! Plans single reads: a sample outside the order, the bytes of a request, a unit, a stretch.

use super::{BatchPlan, Planner};
use crate::collate::Gather;
use crate::dataset::{SampleId, Span};
use crate::guard;
use crate::sampler::Position;

impl Planner {
    /// Plans the reading of one sample by itself, outside the order, into `plan`, and discards its old content. The
    /// sample's values stay where they are read.
    pub fn plan_one(&mut self, id: SampleId, plan: &mut BatchPlan) {
        plan.clear();
        plan.batch.positions.push(Position { position: 0, padding: false });
        plan.batch.ids.push(id);
        self.spans.clear();
        if let Err(error) = guard::spans(&**self.order.dataset(), id, self.bounds.sample, &mut self.spans) {
            plan.failed.push((0, error));
        }
        plan.ends.push(self.spans.len() as u32);
        self.lay_out_by_itself(plan);
    }

    /// Plans the reading of these spans, outside any order, into `plan`, and discards its old content. They go to one
    /// block, in which they can be made adjacent.
    pub fn plan_request(&mut self, spans: &[Span], plan: &mut BatchPlan) {
        plan.clear();
        // The sample of these bytes does not matter here.
        plan.batch.ids.push(SampleId(0));
        self.spans.clear();
        self.spans.extend_from_slice(spans);
        plan.ends.push(self.spans.len() as u32);
        self.lay_out_alone(plan, Gather::InPlace);
    }

    /// Lays out the spans in their present order. Their bytes stay where they were read.
    pub(super) fn lay_out_by_itself(&mut self, plan: &mut BatchPlan) {
        self.lay_out_alone(plan, Gather::Nowhere);
    }

    /// As above. With `Gather::InPlace`, all spans are in one block.
    fn lay_out_alone(&mut self, plan: &mut BatchPlan, gather: Gather) {
        self.in_memory.clear();
        self.needed.clear();
        // Without gaps: memory is reserved only for the spans.
        let joining = std::mem::take(&mut self.joining);
        self.extents_in_order();
        let collation = std::mem::take(&mut self.collation);
        self.lay_out(plan, gather);
        (self.collation, self.joining) = (collation, joining);
    }
}
