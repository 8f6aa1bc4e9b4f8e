//! Writes objects by the protocol of S3, which GCS speaks too: whole, or in parts that appear together.

use crate::listing::element_of;
use crate::store::{Store, Wish};
use crate::url::{Scheme, encode_query};
use std::fmt::Write;
use uringload_core::store::{Class, Failure, Interrupt, Uploads};

/// Longest answer that is read, in bytes: it names an upload, or says why there is no object.
const ANSWER_BYTES_MAX: usize = 64 << 10;

impl Store {
    /// Whether objects can be written to it.
    pub(crate) fn takes_objects(&self) -> bool {
        matches!(self.url().scheme(), Scheme::S3 | Scheme::Gcs) && !self.url().has_query()
    }

    /// Asks once; the body of the answer and its ETag.
    fn write(&self, wish: &Wish, interrupt: &Interrupt) -> Result<(String, String), Failure> {
        let mut came = None;
        let refused = self.request(wish, interrupt, &mut |answer| {
            let tag = answer.field("etag").unwrap_or_default();
            came = Some((String::from_utf8_lossy(&answer.collect(ANSWER_BYTES_MAX)?).into_owned(), tag));
            Ok(())
        });
        // No one may end a socket that is not this request's any more.
        let stopped = interrupt.watch(None);
        let refused = refused?;
        stopped?;
        match (refused, came) {
            (None, Some(came)) => Ok(came),
            (Some(refusal), _) => Err(of_write(refusal.failure)),
            (None, None) => Err(Failure::new(Class::Corrupt, "the server gave neither an answer nor a reason")),
        }
    }
}

/// What is missing is the right to write, and a conflict passes.
fn of_write(failure: Failure) -> Failure {
    match (failure.class(), failure.code()) {
        (_, Some("ConditionalRequestConflict")) => {
            Failure::new(Class::Throttled, "another request writes the object at this moment")
        }
        (Class::Refused, Some("AccessDenied")) => {
            failure.with_remedy("ask for the right to put objects there (s3:PutObject, s3:AbortMultipartUpload)")
        }
        (Class::Changed, _) => Failure::new(Class::Changed, "there is an object of this name already"),
        _ => failure,
    }
}

impl Uploads for Store {
    fn put(&self, key: &[u8], bytes: &[u8], is_first: bool, interrupt: &Interrupt) -> Result<(), Failure> {
        let wish = Wish { method: "PUT", key: Some(key), body: Some(bytes), is_first, ..Wish::default() };
        self.write(&wish, interrupt).map(drop)
    }

    fn begin(&self, key: &[u8], interrupt: &Interrupt) -> Result<String, Failure> {
        // A new connection: what waited and is dead would be asked twice, and each question begins an upload.
        let wish = Wish {
            method: "POST",
            key: Some(key),
            query: "uploads=",
            body: Some(b""),
            is_new: true,
            ..Wish::default()
        };
        let (answer, _) = self.write(&wish, interrupt)?;
        let name = element_of(&answer, "UploadId").filter(|name| !name.is_empty());
        name.ok_or_else(|| Failure::new(Class::Corrupt, "the server began an upload without a name"))
    }

    fn part(
        &self,
        key: &[u8],
        upload: &str,
        number: u32,
        bytes: &[u8],
        interrupt: &Interrupt,
    ) -> Result<String, Failure> {
        let mut query = format!("partNumber={number}&uploadId=");
        encode_query(upload.as_bytes(), &mut query);
        let wish = Wish { method: "PUT", key: Some(key), query: &query, body: Some(bytes), ..Wish::default() };
        let (_, tag) = self.write(&wish, interrupt)?;
        if tag.is_empty() {
            return Err(Failure::new(Class::Corrupt, "the server took a part and gave no ETag"));
        }
        Ok(tag)
    }

    fn complete(&self, key: &[u8], upload: &str, parts: &[String], interrupt: &Interrupt) -> Result<(), Failure> {
        let mut body = "<CompleteMultipartUpload>".to_owned();
        for (number, tag) in (1..).zip(parts) {
            let tag = tag.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
            let _ = write!(body, "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
        }
        body.push_str("</CompleteMultipartUpload>");
        let mut query = "uploadId=".to_owned();
        encode_query(upload.as_bytes(), &mut query);
        let body = Some(body.as_bytes());
        let wish = Wish { method: "POST", key: Some(key), query: &query, body, is_new: true, ..Wish::default() };
        let (answer, _) = self.write(&wish, interrupt)?;
        // S3 says 200 while it works, and may say later that it has failed.
        match element_of(&answer, "Code") {
            Some(code) if answer.contains("<Error>") => {
                let class = if code == "InternalError" { Class::Throttled } else { Class::Invalid };
                let what = format!("the server could not put the parts together ({})", crate::exchange::word(&code));
                Err(Failure::new(class, what).with_code(&code))
            }
            _ => Ok(()),
        }
    }

    fn abort(&self, key: &[u8], upload: &str, interrupt: &Interrupt) -> Result<(), Failure> {
        let mut query = "uploadId=".to_owned();
        encode_query(upload.as_bytes(), &mut query);
        let wish = Wish { method: "DELETE", key: Some(key), query: &query, body: Some(b""), ..Wish::default() };
        match self.write(&wish, interrupt) {
            Err(failure) if failure.class() != Class::Missing => Err(failure),
            _ => Ok(()),
        }
    }
}
