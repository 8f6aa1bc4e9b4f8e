//! Each kernel's parameters by value, in the order in which its source declares them.

use super::rows::{Fill, Images, Tokens};
use std::ffi::c_void;

/// A parameter of a kernel, passed by value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Parameter {
    U64(u64),
    I64(i64),
    U32(u32),
    F32(f32),
}

/// Address and length in bytes.
type Memory = (u64, u64);

/// Address and number of a table's rows.
type Rows = (u64, u32);

impl Parameter {
    /// Its type as PTX names it, where integers have no sign.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Parameter::U64(_) | Parameter::I64(_) => "u64",
            Parameter::U32(_) => "u32",
            Parameter::F32(_) => "f32",
        }
    }

    /// Its address, for the driver, which copies it.
    pub(super) fn pointer(&self) -> *mut c_void {
        let pointer: *const c_void = match self {
            Parameter::U64(value) => (&raw const *value).cast(),
            Parameter::I64(value) => (&raw const *value).cast(),
            Parameter::U32(value) => (&raw const *value).cast(),
            Parameter::F32(value) => (&raw const *value).cast(),
        };
        pointer.cast_mut()
    }
}

pub(super) fn gather((to, bytes): Memory, (pieces, count): Rows) -> Vec<Parameter> {
    vec![Parameter::U64(to), Parameter::U64(bytes), Parameter::U64(pieces), Parameter::U32(count)]
}

pub(super) fn fill((to, bytes): Memory, fill: Fill) -> Vec<Parameter> {
    vec![Parameter::U64(to), Parameter::U64(bytes), Parameter::U64(fill.pattern), Parameter::U32(fill.size)]
}

pub(super) fn pad(to: u64, (rows, count): Rows, (row_bytes, fill): (u64, Fill)) -> Vec<Parameter> {
    vec![
        Parameter::U64(to),
        Parameter::U64(rows),
        Parameter::U32(count),
        Parameter::U64(row_bytes),
        Parameter::U64(fill.pattern),
        Parameter::U32(fill.size),
    ]
}

pub(super) fn tokens((ids, labels): (u64, u64), (rows, count): Rows, tokens: Tokens) -> Vec<Parameter> {
    vec![
        Parameter::U64(ids),
        Parameter::U64(labels),
        Parameter::U64(rows),
        Parameter::U32(count),
        Parameter::U64(tokens.seq_len),
        Parameter::I64(tokens.pad_id),
        Parameter::I64(tokens.ignore),
    ]
}

pub(super) fn images(to: u64, (rows, count): Rows, images: &Images) -> Vec<Parameter> {
    let layout = [images.channels, images.height, images.width, images.channels_last.into()];
    let mut parameters = vec![Parameter::U64(to), Parameter::U64(rows), Parameter::U32(count)];
    parameters.extend(layout.map(Parameter::U32));
    // The inverse to 48 bits.
    let inverse = images.std.map(|std| 1.0 / f64::from(std));
    let high = inverse.map(|inverse| inverse as f32);
    let low = std::array::from_fn(|channel| (inverse[channel] - f64::from(high[channel])) as f32);
    parameters.extend([images.mean, high, low].as_flattened().iter().copied().map(Parameter::F32));
    parameters
}

pub(super) fn resample((to, bytes): Memory, (passes, count): Rows) -> Vec<Parameter> {
    vec![Parameter::U64(to), Parameter::U64(bytes), Parameter::U64(passes), Parameter::U32(count)]
}

pub(super) fn burn((floats, count): (u64, u64), rounds: u32) -> Vec<Parameter> {
    vec![Parameter::U64(floats), Parameter::U64(count), Parameter::U32(rounds)]
}

#[cfg(test)]
mod tests {
    use super::super::modules::{Kernel, ptx_parameters};
    use super::super::rows::{PixelType, TokenType};
    use super::*;

    const SOURCES: [&str; 5] = [
        include_str!("../../kernels/burn.cu"),
        include_str!("../../kernels/bytes.cu"),
        include_str!("../../kernels/images.cu"),
        include_str!("../../kernels/resample.cu"),
        include_str!("../../kernels/tokens.cu"),
    ];

    /// What a kernel is launched with, where every number says by itself what it is.
    fn launched(kernel: Kernel) -> Vec<Parameter> {
        let fill_with = Fill { pattern: number("pattern"), size: 8 };
        let rows = |name| (number(name), number("n") as u32);
        let of_images = |pixel| {
            let size = (number("height") as u32, number("width") as u32);
            let mut layout = Images::new(pixel, number("channels") as u32, size);
            layout.channels_last = true;
            layout.mean = ["mean0", "mean1", "mean2", "mean3"].map(|name| number(name) as f32);
            layout.std = ["std0", "std1", "std2", "std3"].map(|name| number(name) as f32);
            images(number("to"), rows("images"), &layout)
        };
        let of_tokens = |stored| {
            let mut layout = Tokens::new(stored, number("seq_len"));
            (layout.pad_id, layout.ignore) = (number("pad_id") as i64, number("ignore") as i64);
            tokens((number("ids"), number("labels")), rows("rows"), layout)
        };
        match kernel {
            Kernel::Gather => gather((number("to"), number("bytes")), rows("pieces")),
            Kernel::Fill => fill((number("to"), number("bytes")), fill_with),
            Kernel::Pad => pad(number("to"), rows("rows"), (number("row_bytes"), fill_with)),
            Kernel::TokensU16 => of_tokens(TokenType::U16),
            Kernel::TokensU32 => of_tokens(TokenType::U32),
            Kernel::ImagesU8 => of_images(PixelType::U8),
            Kernel::ImagesF32 => of_images(PixelType::F32),
            Kernel::ImagesF16 => of_images(PixelType::F16),
            Kernel::ImagesBF16 => of_images(PixelType::BF16),
            Kernel::Resample => resample((number("to"), number("bytes")), rows("passes")),
            Kernel::Burn => burn((number("floats"), number("count")), number("rounds") as u32),
        }
    }

    /// A number for each name, small enough for every type.
    fn number(name: &str) -> u64 {
        match name {
            "size" => 8,
            "channels_last" => 1,
            _ => 100 + name.bytes().fold(0, |sum, byte| (sum * 31 + u64::from(byte)) % 1_000_003),
        }
    }

    /// Types and names of a kernel's parameters, from its source.
    fn declared(kernel: Kernel) -> Vec<(&'static str, &'static str)> {
        let name = kernel.name().to_str().unwrap();
        // Those of images are made by a macro.
        let start = format!("KERNEL {}(", if name.starts_with("ur_images_") { "NAME" } else { name });
        let found = SOURCES.iter().find_map(|source| source.split_once(&start)).unwrap_or_else(|| panic!("{name}"));
        let (list, _) = found.1.split_once(')').unwrap();
        let words = |parameter: &'static str| {
            let (kind, name) = parameter.trim_matches([' ', '\\', '\n']).split_once(' ').unwrap();
            (kind, name.trim())
        };
        list.split(',').map(words).collect()
    }

    #[test]
    fn launches_have_the_parameters_of_the_ptx_and_of_the_source() {
        for kernel in Kernel::ALL {
            let (launched, declared) = (launched(kernel), declared(kernel));
            let kinds: Vec<&str> = launched.iter().map(Parameter::kind).collect();
            assert_eq!(kinds, ptx_parameters(kernel).unwrap(), "{kernel:?}: what the PTX declares");
            assert_eq!(launched.len(), declared.len(), "{kernel:?}: {declared:?}");
            for (launched, (kind, name)) in launched.iter().zip(declared) {
                let wanted = match kind {
                    "u64" => Parameter::U64(number(name)),
                    "i64" => Parameter::I64(number(name) as i64),
                    "u32" => Parameter::U32(number(name) as u32),
                    "float" => {
                        let inverse = |prefix| {
                            name.strip_prefix(prefix).map(|channel| 1.0 / number(&format!("std{channel}")) as f64)
                        };
                        let high = inverse("high").map(|inverse| inverse as f32);
                        let low = inverse("low").map(|inverse| (inverse - f64::from(inverse as f32)) as f32);
                        Parameter::F32(high.or(low).unwrap_or(number(name) as f32))
                    }
                    other => panic!("{kernel:?} takes a {other}"),
                };
                assert_eq!(*launched, wanted, "{kernel:?}: {kind} {name}");
            }
        }
    }

    /// The driver copies as many bytes as the PTX declares, from where it is pointed to.
    #[test]
    fn parameters_are_as_wide_as_the_ptx_says() {
        let width = |kind: &str| kind[1..].parse::<usize>().unwrap() / 8;
        let widths = [
            (Parameter::U64(0), size_of::<u64>()),
            (Parameter::I64(0), size_of::<i64>()),
            (Parameter::U32(0), size_of::<u32>()),
            (Parameter::F32(0.0), size_of::<f32>()),
        ];
        for (parameter, bytes) in widths {
            assert_eq!(width(parameter.kind()), bytes, "{parameter:?}");
            assert_eq!(parameter.pointer() as usize % bytes, 0, "{parameter:?}");
        }
    }
}
