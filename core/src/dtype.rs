//! Element types.

use std::fmt;

/// Element type of a column, little endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// Unsigned bytes.
    #[default]
    U8,
    /// Signed bytes.
    I8,
    /// Unsigned 16-bit integers.
    U16,
    /// Signed 16-bit integers.
    I16,
    /// Unsigned 32-bit integers.
    U32,
    /// Signed 32-bit integers.
    I32,
    /// Unsigned 64-bit integers.
    U64,
    /// Signed 64-bit integers.
    I64,
    /// IEEE 754 half precision, passed on as 2 bytes.
    F16,
    /// bfloat16, the upper half of single precision, passed on as 2 bytes.
    BF16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// 8-bit float with 4 bits of exponent (OCP "E4M3", `float8_e4m3fn`), passed on as a byte.
    F8E4M3,
    /// 8-bit float with 5 bits of exponent (OCP "E5M2", `float8_e5m2`), passed on as a byte.
    F8E5M2,
    /// A byte that is 0 or 1.
    Bool,
}

impl DType {
    /// All element types.
    pub const ALL: [DType; 15] = [
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U32,
        DType::I32,
        DType::U64,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::Bool,
    ];

    /// The size of an element, in bytes.
    pub const fn size(self) -> u64 {
        match self {
            DType::U8 | DType::I8 | DType::F8E4M3 | DType::F8E5M2 | DType::Bool => 1,
            DType::U16 | DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::U64 | DType::I64 | DType::F64 => 8,
        }
    }

    /// The name, as NumPy and ml_dtypes spell it, shortened: "u8", "i64", "bf16", "f8e4m3", "bool".
    pub const fn name(self) -> &'static str {
        match self {
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::U16 => "u16",
            DType::I16 => "i16",
            DType::U32 => "u32",
            DType::I32 => "i32",
            DType::U64 => "u64",
            DType::I64 => "i64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::Bool => "bool",
        }
    }

    /// What NumPy's files and array interface call it, little endian. NumPy has no bfloat16 and no 8-bit floats: their
    /// bits are unsigned integers there.
    pub const fn numpy(self) -> &'static str {
        match self {
            DType::Bool => "|b1",
            DType::I8 => "|i1",
            DType::U8 | DType::F8E4M3 | DType::F8E5M2 => "|u1",
            DType::I16 => "<i2",
            DType::U16 | DType::BF16 => "<u2",
            DType::F16 => "<f2",
            DType::I32 => "<i4",
            DType::U32 => "<u4",
            DType::F32 => "<f4",
            DType::I64 => "<i8",
            DType::U64 => "<u8",
            DType::F64 => "<f8",
        }
    }

    /// The code of the type in DLPack (`DLDataTypeCode` of dlpack.h 1.1).
    pub const fn dlpack_code(self) -> u8 {
        match self {
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
            DType::F16 | DType::F32 | DType::F64 => 2,
            DType::BF16 => 4,
            DType::Bool => 6,
            DType::F8E4M3 => 10,
            DType::F8E5M2 => 12,
        }
    }

    /// The type with this [`name`](DType::name).
    pub fn named(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
