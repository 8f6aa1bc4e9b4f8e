//! Turns the spans of a batch into extents, each of which is read as a whole.

use super::{Extent, GLANCE_BYTES, NOWHERE, Planner, is_empty_file, joining};
use crate::collate::Gather;
use crate::dataset::Span;

impl Planner {
    fn aligned(&self, span: &Span) -> Extent {
        let mask = self.layout.alignment - 1;
        let start = span.offset & !mask;
        // An empty span needs no byte, wherever it is.
        let need_end = if span.len == 0 { start } else { span.offset + span.len };
        let mut end = (need_end + mask) & !mask;
        if is_empty_file(self.order.dataset().files(), span) {
            // No other read opens that file, and it may be gone by now, or have bytes.
            end = start + self.layout.alignment.max(GLANCE_BYTES);
        }
        let pages = joining::pages(start, end);
        Extent { file: span.file, start, end, need_end, block: 0, at: 0, kept: false, pages }
    }

    fn is_in_memory(&self, span: usize) -> bool {
        self.in_memory.get(span).is_some_and(|&is_there| is_there)
    }

    /// Builds extents in batch order. A span that begins in its predecessor's extent, or directly after it, joins that
    /// extent.
    pub(super) fn extents_in_order(&mut self) {
        self.extents.clear();
        self.extent_of.clear();
        let mut joining = self.joining;
        let mask = self.layout.alignment - 1;
        // A kept span also has an extent if values must be adjacent: its place among those that are read.
        let is_in_place = self.collation.gather(0) == Gather::InPlace;
        for (index, span) in self.spans.iter().enumerate() {
            if self.is_in_memory(index) {
                if is_in_place {
                    let (start, end) = (span.offset, span.offset + span.len);
                    let (file, need_end) = (span.file, end);
                    self.extents.push(Extent { file, start, end, need_end, block: 0, at: 0, kept: true, pages: 0 });
                }
                self.extent_of.push(if is_in_place { self.extents.len() as u32 - 1 } else { NOWHERE });
                continue;
            }
            let extent = self.aligned(span);
            match self.extents.last_mut() {
                // It must begin after the bytes its predecessor needs, so that memory ascends with the batch and can be
                // compacted in place.
                Some(last)
                    if last.file == extent.file
                        && !last.kept
                        && span.len > 0
                        && span.offset >= last.need_end
                        && (span.offset <= last.end + mask || joining.takes(last, &extent)) =>
                {
                    last.add(&extent);
                }
                _ => self.extents.push(extent),
            }
            self.extent_of.push(self.extents.len() as u32 - 1);
        }
    }

    /// Builds extents in disk order. Spans no further apart than the gap are joined.
    pub(super) fn extents_by_offset(&mut self) {
        let spans = &self.spans;
        self.by_offset.clear();
        let in_memory = &self.in_memory;
        let is_read = |&index: &u32| in_memory.get(index as usize).is_none_or(|&is_there| !is_there);
        self.by_offset.extend((0..spans.len() as u32).filter(is_read));
        self.by_offset.sort_unstable_by_key(|&index| (spans[index as usize].file, spans[index as usize].offset));
        self.extents.clear();
        self.extent_of.clear();
        self.extent_of.resize(self.spans.len(), NOWHERE);
        let (mut joining, gap) = (self.joining, self.layout.coalesce_gap);
        for position in 0..self.by_offset.len() {
            let index = self.by_offset[position];
            let extent = self.aligned(&self.spans[index as usize]);
            match self.extents.last_mut() {
                Some(last)
                    if last.file == extent.file && (extent.start <= last.end + gap || joining.takes(last, &extent)) =>
                {
                    last.add(&extent);
                }
                _ => self.extents.push(extent),
            }
            self.extent_of[index as usize] = self.extents.len() as u32 - 1;
        }
    }
}
