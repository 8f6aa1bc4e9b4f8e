//! What happens to values between their bytes and the tensors of a batch: pixels that are cut, resized, mirrored and
//! scaled, tokens that become ids and labels. The same bytes on a GPU, whose kernels do it, and without one.

pub mod twin;
