//! The requested transform of tokens.

use super::{Output, refused, twin, zeroed};
use crate::Result;
use crate::dataset::{DType, Field, Shape};
use crate::sampler::SEQ_LEN_MAX;

/// Turns tokens, vectors of `U16` or `U32`, into ids of type `I64`, padded to one length, and labels: the token that
/// comes next. By default there are labels, and padding has id 0 and label -100, which PyTorch's cross entropy ignores.
///
/// ```no_run
/// use uringload::config::Device;
/// use uringload::dataset::{self, Options};
/// use uringload::transform::Tokens;
/// use uringload::{Loader, Result};
///
/// # fn main() -> Result<()> {
/// let corpus = dataset::open(&["/data/corpus"], &Options::new())?;
/// let tokens = Tokens::default().seq_len(2048);
/// let loader = Loader::builder(corpus).shuffle(true).device(Device::auto()).on_device("tokens", tokens).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Whether there is a second tensor, of the labels.
    pub(crate) labels: bool,
    /// The id where a row has no token.
    pub(crate) pad_id: i64,
    /// The label where no token comes next.
    pub(crate) ignore_index: i64,
    /// Elements in a row; longer samples are cut. A row with one more token has a label for each id. `None`: as many as
    /// the longest of the batch.
    pub(crate) seq_len: Option<u64>,
}

impl Default for Tokens {
    fn default() -> Tokens {
        Tokens { labels: true, pad_id: 0, ignore_index: -100, seq_len: None }
    }
}

impl Tokens {
    /// Whether there is a second tensor, of the labels. Default: true.
    #[must_use]
    pub fn labels(mut self, labels: bool) -> Tokens {
        self.labels = labels;
        self
    }

    /// The id that fills up rows. Default: 0.
    #[must_use]
    pub fn pad_id(mut self, id: i64) -> Tokens {
        self.pad_id = id;
        self
    }

    /// The label where no token comes next. Default: -100.
    #[must_use]
    pub fn ignore_index(mut self, label: i64) -> Tokens {
        self.ignore_index = label;
        self
    }

    /// Elements in a row; longer samples are cut. A sample with one more token has a label for each id. Default: the
    /// longest of the batch.
    #[must_use]
    pub fn seq_len(mut self, elements: impl Into<Option<u64>>) -> Tokens {
        self.seq_len = elements.into();
        self
    }

    /// The result for a sample of this column; labels have the same form as the ids.
    ///
    /// # Errors
    /// `InvalidArgument` if the column has no tokens, and for rows of no elements or too many.
    #[doc(hidden)]
    pub fn check(&self, field: &Field) -> Result<Output> {
        let name = &field.name;
        let length = match (field.dtype, &field.shape) {
            (DType::U16 | DType::U32, Shape::Ragged) => None,
            (DType::U16 | DType::U32, Shape::Fixed(shape)) if shape.len() == 1 => Some(shape[0]),
            (dtype, shape) => {
                let what = format!("column {name:?} has no tokens: its values are {dtype}, {shape:?}");
                return Err(refused(what, "tokens are vectors of u16 or u32"));
            }
        };
        let length = self.seq_len.or(length);
        if length.is_some_and(|length| !(1..=SEQ_LEN_MAX).contains(&length)) {
            let what = format!("tokens of column {name:?} cannot become rows of {} elements", length.unwrap_or(0));
            return Err(refused(what, format!("give a seq_len from 1 to {SEQ_LEN_MAX}")));
        }
        let shape = length.map_or(Shape::Ragged, |length| Shape::Fixed(vec![length]));
        Ok(Output { dtype: DType::I64, shape })
    }

    /// Elements in a row of a batch whose longest sample has `longest` tokens.
    #[doc(hidden)]
    pub fn row_elements(&self, longest: u64) -> u64 {
        self.seq_len.unwrap_or(longest)
    }
}

/// The ids of a batch, row after row, and the labels if requested, as the kernels make them from samples whose tokens
/// are `dtype`, without a GPU.
///
/// # Errors
/// `InvalidArgument` if tokens are neither `U16` nor `U32`; `MemoryLimit` if there is no memory.
pub fn tokens_on_host(tokens: &Tokens, dtype: DType, samples: &[&[u8]]) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    if !matches!(dtype, DType::U16 | DType::U32) {
        return Err(refused(format!("tokens cannot be {dtype}"), "tokens are u16 or u32"));
    }
    let longest = samples.iter().map(|sample| sample.len() as u64 / dtype.size()).max().unwrap_or(0);
    let elements = usize::try_from(tokens.row_elements(longest)).unwrap_or(usize::MAX);
    let memory = || zeroed(samples.len(), elements.saturating_mul(8));
    let (mut ids, mut labels) = (memory()?, tokens.labels.then(memory).transpose()?);
    let rows = samples.iter().copied();
    let run = if dtype == DType::U16 { twin::tokens_u16 } else { twin::tokens_u32 };
    run(&mut ids, labels.as_deref_mut(), rows, elements, tokens.pad_id, tokens.ignore_index);
    Ok((ids, labels))
}
