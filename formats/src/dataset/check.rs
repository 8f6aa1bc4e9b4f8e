//! Checksums and hashes as formats declare them.

use super::sample::Span;
use std::borrow::Cow;

/// A checksum or hash of some bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The bytes.
    pub span: Span,
    /// Describes the bytes: "the shard", "the member \"x.npy\"".
    pub what: String,
    /// The algorithm: "crc32", "crc32c"; with the feature `hashes` also the names in Python's `hashlib` and `xxhash`:
    /// "md5", "sha1", "sha224", "sha256", "sha384", "sha512", "sha3_224" to "sha3_512", "blake2b", "blake2s", "xxh32",
    /// "xxh64", "xxh3_64", "xxh3_128", "xxh128". Others are reported as not checked.
    pub algorithm: Cow<'static, str>,
    /// The expected value in hexadecimal digits, most significant first.
    pub expected: String,
}
