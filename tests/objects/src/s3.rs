//! What S3 answers to each request.

use crate::azure;
use crate::fault::Kind;
use crate::http::Request;
use crate::listing::Listing;
use crate::reply::Reply;
use crate::server::Shared;
use crate::store::{Object, Store};
use crate::text::{elements, encode, escape, unescape};
use crate::time;
use std::fmt::Write;
use std::io::{self, ErrorKind};

/// Most objects and prefixes of a page.
const PAGE_MOST: usize = 1000;
/// Least bytes of a part that is not the last one.
const PART_BYTES: usize = 5 << 20;
/// Longest key, in bytes.
const KEY_BYTES: usize = 1024;
const NAMESPACE: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

/// A refusal: status, code and what it means.
type Refused = (u16, &'static str, String);

/// What a request is, as the statistics name it.
pub fn verb(request: &Request) -> &'static str {
    let (bucket, key) = request.place();
    let uploads = request.parameter("uploads").is_some();
    let upload = request.parameter("uploadId").is_some();
    match (request.method.as_str(), !key.is_empty()) {
        ("GET", true) => "GET",
        ("HEAD", _) => "HEAD",
        ("GET", false) if bucket.is_empty() => "BUCKETS",
        ("GET", false) => "LIST",
        ("PUT", true) if upload => "PART",
        ("PUT", true) => "PUT",
        ("PUT", false) => "BUCKET",
        ("POST", true) if uploads => "CREATE",
        ("POST", true) if upload => "COMPLETE",
        ("DELETE", true) if upload => "ABORT",
        ("DELETE", true) => "DELETE",
        ("POST", false) if request.parameter("delete").is_some() => "DELETE",
        _ => "OTHER",
    }
}

/// The response to a request that may be answered; `fault` is what is wrong with it.
pub fn answer(request: &Request, verb: &str, fault: Option<Kind>, shared: &Shared) -> Reply {
    let reply = match verb {
        "GET" | "HEAD" => get(request, fault, shared),
        "LIST" => list(request, fault, &shared.store),
        "BUCKETS" => Ok(buckets(&shared.store)),
        _ => change(request, verb, &shared.store),
    };
    reply.unwrap_or_else(|(status, code, message)| Reply::error(status, code, &message, &request.raw_path))
}

/// The refusal that a failure of the store is.
fn failed(error: io::Error) -> Refused {
    match error.kind() {
        ErrorKind::InvalidInput => (403, "AccessDenied", error.to_string()),
        _ => (500, "InternalError", error.to_string()),
    }
}

fn refused<T>(status: u16, code: &'static str, message: &str) -> Result<T, Refused> {
    Err((status, code, message.to_owned()))
}

fn get(request: &Request, fault: Option<Kind>, shared: &Shared) -> Result<Reply, Refused> {
    let (bucket, key) = request.place();
    has(&shared.store, bucket)?;
    if key.is_empty() {
        return Ok(Reply::new(200, ""));
    }
    let found = shared.store.find(bucket, key).map_err(failed)?;
    let object = found.ok_or((404, "NoSuchKey", "The specified key does not exist.".to_owned()))?;
    if request.header("if-match").is_some_and(|tags| !names(tags, &object.etag)) {
        return refused(412, "PreconditionFailed", "If-Match does not hold");
    }
    if request.header("if-none-match").is_some_and(|tags| names(tags, &object.etag)) {
        return Ok(Reply::new(304, "").with("ETag", format!("\"{}\"", object.etag)));
    }
    let size = object.size;
    let range = request.header("range").filter(|_| fault != Some(Kind::Whole)).and_then(|text| range(text, size));
    let Some((first, end)) = range else { return Ok(Reply::object(200, object, 0, size)) };
    if request.method == "GET" {
        shared.count(|stats| stats.note_range(format!("{bucket}/{key}"), first, end));
    }
    if first >= end {
        let refusal = Reply::error(416, "InvalidRange", "The requested range is not satisfiable", &request.raw_path);
        return Ok(refusal.with("Content-Range", format!("bytes */{size}")));
    }
    Ok(Reply::object(206, object, first, end - first))
}

/// The first byte of a range and the one behind its last, which are the same where the object has none of it. Whatever
/// is no single range is not regarded, as HTTP wants it.
fn range(text: &str, size: u64) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    if first.is_empty() {
        let length: u64 = last.parse().ok()?;
        return Some((size.saturating_sub(length), size));
    }
    let first: u64 = first.parse().ok()?;
    let end = if last.is_empty() { size } else { last.parse::<u64>().ok()?.checked_add(1)?.min(size) };
    Some((first.min(size), end.max(first.min(size))))
}

/// Whether a list of ETags has this one.
fn names(tags: &str, etag: &str) -> bool {
    tags.split(',').any(|tag| tag.trim() == "*" || tag.trim().trim_matches('"') == etag)
}

fn has(store: &Store, bucket: &str) -> Result<(), Refused> {
    if store.has(bucket) {
        return Ok(());
    }
    refused(404, "NoSuchBucket", "The specified bucket does not exist")
}

fn buckets(store: &Store) -> Reply {
    let named = |name: &String| {
        let created = time::iso(0);
        format!("<Bucket><Name>{}</Name><CreationDate>{created}</CreationDate></Bucket>", escape(name))
    };
    let buckets: String = store.buckets().iter().map(named).collect();
    Reply::xml(
        200,
        &format!("<ListAllMyBucketsResult {NAMESPACE}><Buckets>{buckets}</Buckets></ListAllMyBucketsResult>"),
    )
}

fn list(request: &Request, fault: Option<Kind>, store: &Store) -> Result<Reply, Refused> {
    let (bucket, _) = request.place();
    has(store, bucket)?;
    if request.parameter("location").is_some() {
        return Ok(Reply::xml(200, &format!("<LocationConstraint {NAMESPACE}/>")));
    }
    if azure::is_list(request) {
        return Ok(azure::list(request, bucket, store));
    }
    if request.parameter("list-type") != Some("2") {
        return refused(501, "NotImplemented", "Only ListObjectsV2 is implemented: list-type=2");
    }
    let text = |name: &str| request.parameter(name).unwrap_or_default();
    let (prefix, delimiter, after) = (text("prefix"), text("delimiter"), text("start-after"));
    let most = request.parameter("max-keys").map_or(Ok(PAGE_MOST), str::parse);
    let Ok(most) = most.map(|most| most.min(PAGE_MOST)) else {
        return refused(400, "InvalidArgument", "max-keys is no number");
    };
    let token = request.parameter("continuation-token");
    let listing: Listing = store.listing(bucket, prefix, token.is_some());
    let from = match token.map(|token| token.strip_prefix("page-").and_then(|at| at.parse().ok())) {
        Some(Some(at)) => at,
        Some(None) => return refused(400, "InvalidArgument", "The continuation token provided is incorrect"),
        None => listing.first(|key| !after.is_empty() && key <= after),
    };
    let mut page = listing.page(prefix, delimiter, from, most);
    if fault == Some(Kind::Unsorted) {
        page.entries.reverse();
    }
    if fault == Some(Kind::RepeatedToken) && token.is_some() && page.next.is_some() {
        page.next = Some(from);
    }
    let coded = request.parameter("encoding-type") == Some("url");
    let key = |text: &str| if coded { encode(text, true) } else { escape(text) };
    let mut xml = format!("<ListBucketResult {NAMESPACE}><Name>{}</Name><Prefix>{}</Prefix>", bucket, key(prefix));
    for (name, text) in [("Delimiter", delimiter), ("StartAfter", after)] {
        if !text.is_empty() {
            let _ = write!(xml, "<{name}>{}</{name}>", key(text));
        }
    }
    if coded {
        xml += "<EncodingType>url</EncodingType>";
    }
    let count = page.entries.len() + page.prefixes.len();
    let _ = write!(xml, "<KeyCount>{count}</KeyCount><MaxKeys>{most}</MaxKeys>");
    let _ = write!(xml, "<IsTruncated>{}</IsTruncated>", page.next.is_some());
    if let Some(at) = page.next {
        let _ = write!(xml, "<NextContinuationToken>page-{at}</NextContinuationToken>");
    }
    for entry in &page.entries {
        let _ = write!(
            xml,
            "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>&quot;{}&quot;</ETag><Size>{}</Size>\
             <StorageClass>STANDARD</StorageClass></Contents>",
            key(&entry.key),
            time::iso(entry.modified),
            entry.etag,
            entry.size
        );
    }
    for common in &page.prefixes {
        let _ = write!(xml, "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", key(common));
    }
    xml += "</ListBucketResult>";
    if fault == Some(Kind::CutXml) {
        let end = (0..=xml.len() / 2).rev().find(|&at| xml.is_char_boundary(at)).unwrap_or(0);
        xml.truncate(end);
    }
    Ok(Reply::xml(200, &xml))
}

/// What changes objects or buckets.
fn change(request: &Request, verb: &str, store: &Store) -> Result<Reply, Refused> {
    let (bucket, key) = request.place();
    if verb == "BUCKET" {
        return match store.create(bucket).map_err(|error| error.kind()) {
            Ok(()) => Ok(Reply::new(200, "").with("Location", format!("/{bucket}"))),
            Err(ErrorKind::AlreadyExists) => refused(409, "BucketAlreadyOwnedByYou", "The bucket is yours already"),
            Err(_) => refused(400, "InvalidBucketName", "There can be no bucket of this name here"),
        };
    }
    has(store, bucket)?;
    if key.len() > KEY_BYTES {
        return refused(400, "KeyTooLongError", "Your key is too long");
    }
    let upload = (bucket, key, request.parameter("uploadId").unwrap_or_default());
    let missing = || (404, "NoSuchUpload", "The specified multipart upload does not exist".to_owned());
    match verb {
        "PUT" => {
            let etag = put(request, store, &request.body)?;
            Ok(Reply::new(200, "").with("ETag", format!("\"{etag}\"")))
        }
        "CREATE" => {
            let name = store.begin(bucket, key);
            Ok(Reply::xml(
                200,
                &format!(
                    "<InitiateMultipartUploadResult {NAMESPACE}><Bucket>{bucket}</Bucket><Key>{}</Key>\
                     <UploadId>{name}</UploadId></InitiateMultipartUploadResult>",
                    escape(key)
                ),
            ))
        }
        "PART" => {
            let number = request.parameter("partNumber").and_then(|number| number.parse().ok());
            let Some(number) = number.filter(|number| (1..=10_000).contains(number)) else {
                return refused(400, "InvalidArgument", "Part number must be an integer between 1 and 10000");
            };
            let etag = store.part(upload, number, &request.body).ok_or_else(missing)?;
            Ok(Reply::new(200, "").with("ETag", format!("\"{etag}\"")))
        }
        "COMPLETE" => complete(request, store, upload),
        "ABORT" => store.take(upload).map(|_| Reply::new(204, "")).ok_or_else(missing),
        "DELETE" if key.is_empty() => {
            let text = String::from_utf8_lossy(&request.body);
            let keys: Vec<String> = elements(&text, "Key").into_iter().map(unescape).collect();
            keys.iter().for_each(|key| store.remove(bucket, key));
            let told = |key: &String| format!("<Deleted><Key>{}</Key></Deleted>", escape(key));
            let told: String = keys.iter().map(told).collect();
            Ok(Reply::xml(200, &format!("<DeleteResult {NAMESPACE}>{told}</DeleteResult>")))
        }
        "DELETE" => {
            store.remove(bucket, key);
            Ok(Reply::new(204, ""))
        }
        _ => refused(501, "NotImplemented", "This server does not know this request"),
    }
}

/// Puts an object, where the conditions of the request hold.
fn put(request: &Request, store: &Store, bytes: &[u8]) -> Result<String, Refused> {
    let (bucket, key) = request.place();
    // One at a time: of two that ask for "none yet", one fails.
    let _turn = store.turn();
    let found: Option<Object> = store.find(bucket, key).map_err(failed)?;
    if request.header("if-none-match") == Some("*") && found.is_some() {
        return refused(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold");
    }
    if let Some(tags) = request.header("if-match") {
        match found {
            None => return refused(404, "NoSuchKey", "The specified key does not exist."),
            Some(object) if !names(tags, &object.etag) => {
                return refused(412, "PreconditionFailed", "If-Match does not hold");
            }
            Some(_) => {}
        }
    }
    store.put(bucket, key, bytes).map_err(failed)
}

fn complete(request: &Request, store: &Store, upload: (&str, &str, &str)) -> Result<Reply, Refused> {
    let missing = || (404, "NoSuchUpload", "The specified multipart upload does not exist".to_owned());
    let text = String::from_utf8_lossy(&request.body);
    let listed: Vec<(u32, String)> = elements(&text, "Part")
        .into_iter()
        .filter_map(|part| {
            let number = elements(part, "PartNumber").first()?.trim().parse().ok()?;
            let etag = unescape(elements(part, "ETag").first()?);
            Some((number, etag.trim().trim_matches('"').to_owned()))
        })
        .collect();
    let parts = store.take(upload).ok_or_else(missing)?;
    let mut bytes = Vec::new();
    let mut wrong = None;
    for (at, (number, etag)) in listed.iter().enumerate() {
        match parts.get(number).filter(|(known, _)| known == etag) {
            _ if at > 0 && listed[at - 1].0 >= *number => {
                wrong = Some((400, "InvalidPartOrder", "The list of parts was not in ascending order.".to_owned()));
            }
            None => {
                wrong = Some((400, "InvalidPart", format!("part {number} could not be found, or has another ETag")))
            }
            Some((_, part)) if part.len() < PART_BYTES && at + 1 < listed.len() => {
                wrong = Some((400, "EntityTooSmall", format!("part {number} has less than {PART_BYTES} bytes")));
            }
            Some((_, part)) => bytes.extend_from_slice(part),
        }
    }
    if listed.is_empty() {
        wrong = Some((400, "MalformedXML", "The list of parts is empty".to_owned()));
    }
    let put = match wrong {
        Some(wrong) => Err(wrong),
        None => put(request, store, &bytes),
    };
    let etag = put.inspect_err(|_| store.put_back(upload, parts))?;
    let (bucket, key) = (upload.0, escape(upload.1));
    Ok(Reply::xml(
        200,
        &format!(
            "<CompleteMultipartUploadResult {NAMESPACE}><Bucket>{bucket}</Bucket><Key>{key}</Key>\
             <ETag>&quot;{etag}&quot;</ETag></CompleteMultipartUploadResult>"
        ),
    ))
}
